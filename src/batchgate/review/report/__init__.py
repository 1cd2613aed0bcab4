"""A run's report: one HTML file that needs nothing else, written whole or not at all.

It prints, works without a script (the script filters, sorts and opens attempts), and shows
whatever a model or a simulation wrote as text and nothing but text.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from ...collector import collector_at_rest
from .findings import Findings
from .page import page

__all__ = ["Findings", "page", "write_report"]


def write_report(run_dir: str | Path, path: str | Path | None = None) -> Path:
    """Write the report of a run, which may still be going on.

    Args:
        run_dir: The run's directory.
        path: Where the report goes; `report.html` in the run's directory by default. An older
            report is replaced.

    Returns:
        Where it is.

    Raises:
        LedgerError: There is no ledger, or it is damaged.
        OSError: The file cannot be written; an older report is still whole.
    """
    target = Path(run_dir) / "report.html" if path is None else Path(path)
    with collector_at_rest():
        document = page(Findings.read(run_dir))
    handle, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as file:
            file.write(document)
            os.fchmod(file.fileno(), 0o640)  # the group reviews too; a run is not for all
        Path(name).replace(target)
    except BaseException:
        Path(name).unlink()
        raise
    return target
