"""A person's answers to what a run has parked: files beside the ledger, one for each question.

The ledger has one writer, the runner, and it may be far away or not even alive. So an answer is a
small file in the run's directory, written once and never changed: the first answer counts. The
runner that is alive, or the next one, takes it up and writes it into the ledger.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from .errors import ConfigError
from .plain import dumps, loads

FOLDER = "answers"
"""Folder of the answers in a run's directory."""

MAX_BYTES = 1 << 20
"""Largest answer that is read."""


class Answered(BaseModel):
    """What a person says of something parked.

    Attributes:
        action: `accept` lets it pass as it is, `reject` refuses it, `edit` puts a proposal in its
            place, which meets every check.
        by: Account of who says so.
        at: When, in seconds since the epoch.
        reason: Why, in their words.
        value: With `edit`: the proposal, as JSON.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    action: Literal["accept", "reject", "edit"]
    by: Annotated[str, Field(max_length=200)]
    at: float
    reason: Annotated[str, Field(max_length=2000)] = ""
    value: Any = None


def post(run: Path, key: str, answer: Answered) -> Path:
    """Write down an answer.

    Args:
        run: The run's directory.
        key: What is answered, as `batchgate.state.Parked.key` names it.
        answer: The answer.

    Raises:
        ConfigError: It was answered before, or the file cannot be written.
    """
    folder = run / FOLDER
    path = folder / f"{key}.json"
    scratch = folder / f".{key}.{os.getpid()}"
    try:
        folder.mkdir(exist_ok=True)
    except OSError as exc:
        raise ConfigError(f"the answer cannot be written to {path}: {exc.strerror}") from exc
    try:
        scratch.write_text(dumps(answer.model_dump()), encoding="ascii")
        os.link(scratch, path)  # whole or not at all, and never over another answer
    except FileExistsError:
        raise ConfigError(f"{key} was answered before: {path}") from None
    except OSError as exc:
        raise ConfigError(f"the answer cannot be written to {path}: {exc.strerror}") from exc
    finally:
        scratch.unlink(missing_ok=True)
    return path


def posted(run: Path, key: str) -> Answered | None:
    """Return the answer, or `None` when there is none yet.

    Raises:
        ConfigError: There is a file, and it is no answer; mend or remove it.
    """
    path = run / FOLDER / f"{key}.json"
    try:
        if path.stat().st_size > MAX_BYTES:
            raise ConfigError(f"{path} has more than {MAX_BYTES} bytes, so it is no answer")
        return Answered.model_validate(loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, ValidationError, RecursionError) as exc:
        raise ConfigError(f"{path} is no answer: {str(exc)[:300]}") from exc
