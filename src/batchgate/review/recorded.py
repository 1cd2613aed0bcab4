"""The campaign as a run recorded it, which may be one that this version of batchgate cannot read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import ValidationError

from ..campaign import CampaignSpec, explain
from ..errors import LedgerError

if TYPE_CHECKING:
    from .database import Database


@contextmanager
def readable(run_dir: str | Path) -> Iterator[None]:
    """Turn the refusal of a recorded campaign inside into a `LedgerError`."""
    try:
        yield
    except ValidationError as exc:
        raise LedgerError(
            f"{run_dir} records a campaign that this version of batchgate cannot read:\n"
            f"{explain(exc, CampaignSpec)}"
        ) from exc


def recorded_spec(run: Database, run_dir: str | Path) -> CampaignSpec | None:
    """Return the campaign as it was recorded last; `None` before the run started.

    Raises:
        LedgerError: It is none that this version knows.
    """
    found = run.rows(
        "SELECT spec FROM event WHERE type IN ('run_started', 'run_resumed') "
        "AND json_type(spec) = 'OBJECT' ORDER BY seq DESC LIMIT 1"
    )
    if not found:
        return None
    with readable(run_dir):
        return CampaignSpec.model_validate(json.loads(found[0][0]), extra="ignore")
