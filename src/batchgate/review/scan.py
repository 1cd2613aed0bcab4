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
from ..ledger.reader import segment_name, segment_numbers

Raw = dict[str, Any]
"""An event's fields, and `at`, its time in seconds since the epoch."""

_TYPE = b'"type":"'


def scan(
    run_dir: str | Path,
    types: Collection[str],
    *,
    unparsed: Collection[str] = (),
    sieve: Callable[[bytes], bool] = lambda line: True,
) -> Iterator[Raw]:
    """Yield the events of these types, oldest first.

    Args:
        run_dir: The run's directory.
        types: Values of `type`.
        unparsed: Of these, types whose events come with `type`, `at` and their `line` only.
        sieve: Whether a line of such a type is worth anything.

    Raises:
        LedgerCorruptError: A line cannot be read.
        LedgerError: There is no ledger, or it cannot be read.
    """
    folder = Path(run_dir) / "ledger"
    if not folder.is_dir():
        raise LedgerError(f"{run_dir} holds no run: there is no folder {folder}")
    wanted, bare = {one.encode() for one in types}, {one.encode(): one for one in unparsed}
    try:
        for path in (folder / segment_name(number) for number in segment_numbers(folder)):
            with path.open("rb") as file:
                for number, line in enumerate(file, start=1):
                    # `type` is the third key of every line, so text of strangers cannot be
                    # taken for it.
                    start = line.find(_TYPE) + 8
                    kind = line[start : line.find(b'"', start)]
                    if kind in wanted and line.endswith(b"\n") and sieve(line):
                        yield _raw(line, bare.get(kind), path, number)
    except OSError as exc:
        raise LedgerError(f"the ledger in {folder} cannot be read: {exc}") from exc


def _raw(line: bytes, bare: str | None, path: Path, number: int) -> Raw:
    try:
        if bare is not None:
            return {"type": bare, "at": int(line.split(b'"', 6)[5]) / 1e9, "line": line}
        raw: Raw = json.loads(line)
        raw["at"] = int(raw["at"]) / 1e9
    except (ValueError, LookupError, RecursionError) as exc:
        raise LedgerCorruptError(f"the line is no event: {exc}", str(path), number) from exc
    return raw
