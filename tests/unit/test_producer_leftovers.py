"""What a killed model server leaves on its node, and what must never be touched for it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from batchgate.producers import leftovers

HOLD = """
import signal, sys
from multiprocessing import resource_tracker, shared_memory
held = shared_memory.SharedMemory(create=True, size=4096)
resource_tracker.unregister(held._name, "shared_memory")  # as one that is killed with its tracker
print(held.name, flush=True)
signal.pause()
"""


@pytest.fixture
def server() -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A process with named shared memory, and the memory's name."""
    process = subprocess.Popen([sys.executable, "-c", HOLD], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    name = process.stdout.readline().strip()
    yield process, name
    process.kill()
    process.wait()
    process.stdout.close()
    (leftovers.SHM / name).unlink(missing_ok=True)


@pytest.fixture
def private(tmp_path: Path) -> Path:
    folder = tmp_path / "batchgate-12345678"
    folder.mkdir()
    (folder / "vllm.sock").touch()
    return folder


def test_what_a_killed_server_left_is_removed(
    tmp_path: Path, server: tuple[subprocess.Popen[str], str], private: Path
) -> None:
    process, name = server
    leftovers.note(tmp_path / "note.json", [process.pid], private)
    process.send_signal(signal.SIGKILL)
    process.wait()

    removed = leftovers.clear(tmp_path / "note.json")

    assert removed == [name, str(private)]
    assert not (leftovers.SHM / name).exists()
    assert not private.exists()
    assert leftovers.clear(tmp_path / "note.json") == []


def test_what_a_live_process_has_is_left_alone(
    tmp_path: Path, server: tuple[subprocess.Popen[str], str], private: Path
) -> None:
    process, name = server
    leftovers.note(tmp_path / "note.json", [process.pid], private)

    removed = leftovers.clear(tmp_path / "note.json", keep=private)

    assert removed == []
    assert (leftovers.SHM / name).exists()
    assert private.exists()


@pytest.mark.parametrize(
    "noted",
    [
        {"shm": ["../etc/passwd", "psm_../x", "other"], "folder": "/home"},
        {"shm": [None, 7], "folder": "/"},
        {"shm": "psm_1", "folder": 3},
        {"shm": []},
        [],
        "x",
    ],
)
def test_a_note_cannot_name_anything_else(tmp_path: Path, noted: object) -> None:
    (tmp_path / "note.json").write_text(json.dumps(noted))

    assert leftovers.clear(tmp_path / "note.json") == []


def test_a_folder_of_another_name_or_user_is_left_alone(
    tmp_path: Path, private: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leftovers.note(tmp_path / "note.json", [], private)
    monkeypatch.setattr(os, "getuid", lambda: 12345)

    assert leftovers.clear(tmp_path / "note.json") == []
    assert private.exists()


def test_a_note_that_is_missing_or_no_json_is_none(tmp_path: Path) -> None:
    (tmp_path / "broken.json").write_text("{")

    assert leftovers.clear(tmp_path / "broken.json") == []
    assert leftovers.clear(tmp_path / "missing.json") == []
