"""A quick look through a ledger: events of a few types, as the raw mappings that they are.

For questions of one kind that are asked of runs of any length: lines of other types are passed
over without being parsed, none is validated, and hashes are not looked at (`batchgate verify`
does that). At 10^5 attempts it takes a second where a whole record takes twenty.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

from ..errors import LedgerCorruptError, LedgerError
from ..ledger import Reader

Raw = dict[str, Any]
"""An event's fields, and `at`, its time in seconds since the epoch."""

_TYPE = b'"type":"'


def scan(
    run_dir: str | Path,
    types: Collection[str],
    *,
    sieve: Callable[[bytes], bool] = lambda line: True,
) -> Iterator[Raw]:
    """Yield the events of these types, oldest first.

    Args:
        run_dir: The run's directory.
        types: Values of `type`.
        sieve: Whether a line of such a type is worth parsing.

    Raises:
        LedgerCorruptError: Lines are missing, or one cannot be read.
        LedgerError: There is no ledger.
    """
    folder = Path(run_dir) / "ledger"
    if not folder.is_dir():
        raise LedgerError(f"{run_dir} holds no run: there is no folder {folder}")
    wanted = {one.encode() for one in types}
    reader = Reader(folder, verify=False)
    for line in reader.lines():
        # `type` is the third key of every line, so text of strangers cannot be taken for it.
        start = line.find(_TYPE) + len(_TYPE)
        if line[start : line.find(b'"', start)] not in wanted or not sieve(line):
            continue
        try:
            raw: Raw = json.loads(line)
            raw["at"] = int(raw["at"]) / 1e9
        except (ValueError, KeyError, RecursionError) as exc:
            path = folder / f"{reader.segment:04d}.jsonl"
            raise LedgerCorruptError(
                f"the line is no event: {exc}", str(path), reader.line
            ) from exc
        yield raw
