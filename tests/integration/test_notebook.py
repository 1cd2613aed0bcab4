"""The tutorial's notebook, executed in a real kernel on a real run and on a made-up night."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from batchgate.ledger import Ledger
from tests.synthetic_run import night

ROOT = Path(__file__).parents[2]
NOTEBOOK = ROOT / "docs" / "tutorial" / "analyse-a-night.ipynb"
Output = dict[str, Any]


async def executed(run: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[Output]:
    """Execute the notebook on a run, and return the outputs of its cells; a cell that fails raises."""
    for name in ("IPYTHONDIR", "JUPYTER_RUNTIME_DIR"):
        monkeypatch.setenv(name, str(folder / name.lower()))
    monkeypatch.setenv("RUN", str(run))
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    client = NotebookClient(notebook, timeout=60, resources={"metadata": {"path": str(folder)}})
    await client.async_execute()
    return [output for cell in notebook.cells for output in cell.get("outputs", ())]


def images(outputs: list[Output]) -> int:
    return sum("image/png" in output.get("data", {}) for output in outputs)


def tables(outputs: list[Output]) -> str:
    return "\n".join(output.get("data", {}).get("text/html", "") for output in outputs)


async def test_the_notebook_shows_a_real_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    subprocess.run(
        [sys.executable, "-m", "batchgate", "run", "campaigns/branin", "--run", str(run),
         "--producer", "none", "--max-jobs", "6", "--set", "constants.pause_s=0.05", "--quiet"],
        cwd=ROOT,
        check=True,
        timeout=60,
    )  # fmt: skip

    outputs = await executed(run, tmp_path, monkeypatch)

    assert images(outputs) == 3


async def test_the_notebook_shows_what_checks_rejected_and_verifiers_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entries = night()
    now_ns = entries[0].at_ns
    with Ledger.open(tmp_path / "ledger", run="branin-7", clock=lambda: now_ns) as ledger:
        for entry in entries:
            now_ns = entry.at_ns
            if entry.event.type not in {"segment_opened", "segment_closed"}:
                ledger.append(entry.event)

    outputs = await executed(tmp_path, tmp_path, monkeypatch)

    assert images(outputs) == 3
    assert "spacing" in tables(outputs)


def test_the_notebook_is_kept_without_outputs() -> None:
    notebook = nbformat.read(NOTEBOOK, as_version=4)

    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert all(cell.outputs == [] and cell.execution_count is None for cell in code)
