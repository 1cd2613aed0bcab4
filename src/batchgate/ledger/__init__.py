"""The ledger: the append-only record of a run, from which everything else is worked out.

A folder of JSON-lines segments, one for each process that wrote (`0001.jsonl` is the first life,
`0002.jsonl` the first requeue), every line chained to the one before by its hash. Plain files and
not SQLite, because the folder lies on the cluster's shared file system, where SQLite's locks
cannot be trusted (https://www.sqlite.org/faq.html#q5).
"""

from .check import Finding, check_run
from .reader import Reader, folder_of, read, segments_of
from .writer import Appended, Ledger, slurm_facts

__all__ = [
    "Appended",
    "Finding",
    "Ledger",
    "Reader",
    "check_run",
    "folder_of",
    "read",
    "segments_of",
    "slurm_facts",
]
