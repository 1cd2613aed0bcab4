"""A campaign's function as a job: `python -m batchgate.flow.entry`, for a last level with `use`.

It writes what a campaign's own program has to write too: a result file with one JSON object, the
observables by name. The file appears when it is whole, or not at all: it is written beside its
place, flushed to the disk and renamed. So a job that has a result file has ended well, whatever
became of its runner.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .. import plain
from ..files import write_whole
from .function import as_plain, call, check_size, describe, find


def command(
    *, folder: Path | None, use: str, candidate: Path, args: Path, result: Path
) -> tuple[str, ...]:
    """Return the argv of such a job.

    Args:
        folder: Folder to import from, or `None` for an installed module.
        use: `module:function`.
        candidate: File with its first argument, as `batchgate.plain` writes it.
        args: File with its keyword arguments.
        result: File to write.
    """
    # -P: the job's folder holds files of a simulation, none of which may be imported.
    return (
        *(sys.executable, "-P", "-m", "batchgate.flow.entry"),
        *(("--folder", str(folder)) if folder is not None else ()),
        *("--use", use),
        *("--candidate", str(candidate)),
        *("--args", str(args)),
        *("--result", str(result)),
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Call the function and write its result; 1 when it raised, with the reason on stderr."""
    given = _arguments(argv)
    try:
        function = find(given.use, given.folder)
        returned = call(function, _loaded(given.candidate), _loaded(given.args))
        write_result(given.result, returned)
    except BaseException as exc:  # noqa: BLE001 - sys.exit(0) in a simulation is no success
        error, tail = describe(exc)
        sys.stderr.write(f"{tail}\n{error}\n")  # the last line becomes `TaskEnd.error`
        return 1
    return 0


def write_result(path: Path, returned: Any) -> None:
    """Write what a function returned.

    Raises:
        TypeError: It is no mapping, or holds what is not data.
        ValueError: It is longer than a result may be.
        OSError: The disk refused it.
    """
    text = json.dumps(returned, default=as_plain)
    check_size(text)
    observables = json.loads(text)
    if not isinstance(observables, dict):
        kind = type(returned).__name__
        raise TypeError(f"the function returned {kind}, must be a mapping of observables")
    write_whole(path, plain.dumps(observables) + "\n")


def _loaded(path: Path) -> Any:
    return plain.loads(path.read_text(encoding="utf-8"))


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m batchgate.flow.entry", description="Run a campaign's function as a job."
    )
    parser.add_argument("--folder", type=Path, help="folder to import from")
    parser.add_argument("--use", required=True, help="module:function")
    for name in ("candidate", "args", "result"):
        parser.add_argument(f"--{name}", type=Path, required=True, help="a JSON file")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
