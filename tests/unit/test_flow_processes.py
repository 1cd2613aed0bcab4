import asyncio
import os
import subprocess
import sys
import time
import uuid

import pytest

from batchgate.errors import ConfigError
from batchgate.flow import Orphan, end_orphans, find_orphans
from batchgate.flow.processes import VARIABLE, Family, environment


@pytest.fixture
def marker():
    return f"test-{uuid.uuid4().hex}"


@pytest.fixture
def start():
    """Start a process under a tag; what is left is killed after the test."""
    started = []

    def start(tag, *argv):
        process = subprocess.Popen(argv, env={**os.environ, VARIABLE: tag}, start_new_session=True)
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()


async def until_there(condition):
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.01)


def test_secrets_are_handed_on_only_when_named(monkeypatch):
    for name in ("HF_TOKEN", "api_key", "MY_SECRET_2", "DB_PASSWORD_FILE", "KEYBOARD", "TOKENS"):
        monkeypatch.setenv(name, "x")

    env = environment("run/job", {"HF_TOKEN": "given"})

    assert env["HF_TOKEN"] == "given"
    assert not {"api_key", "MY_SECRET_2", "DB_PASSWORD_FILE"} & env.keys()
    assert {"KEYBOARD", "TOKENS", "PATH"} <= env.keys()
    assert env[VARIABLE] == "run/job"


def test_a_task_cannot_be_given_another_tag():
    assert environment("run/job", {VARIABLE: "other/job"})[VARIABLE] == "run/job"


@pytest.mark.parametrize("bad", ["", "a/b", "a b", "-a", "a" * 129, "a\n", "é"])
def test_a_marker_that_could_be_taken_for_another_is_refused(bad):
    with pytest.raises(ConfigError, match="must be 1 to 128 letters"):
        find_orphans(bad)


def test_orphans_are_found_by_the_whole_marker(marker, start):
    ours = start(f"{marker}/job-1", "sleep", "60")
    start(f"{marker}0/job-1", "sleep", "60")
    start(f"x{marker}/job-1", "sleep", "60")

    assert [(orphan.pid, orphan.uid) for orphan in find_orphans(marker)] == [(ours.pid, "job-1")]


def test_a_dead_process_is_no_orphan(marker, start):
    zombie = start(f"{marker}/job-1", "true")
    os.waitid(os.P_PID, zombie.pid, os.WEXITED | os.WNOWAIT)

    assert find_orphans(marker) == []


def test_the_runner_itself_is_no_orphan(marker):
    code = f"from batchgate.flow import find_orphans; print(find_orphans({marker!r}))"
    env = {**os.environ, VARIABLE: f"{marker}/job-1"}
    python = [sys.executable, "-c", code]

    assert subprocess.check_output(python, env=env, text=True) == "[]\n"


async def test_ended_orphans_are_gone_and_were_asked_first(marker, start, tmp_path):
    polite = start(
        f"{marker}/polite",
        "sh",
        "-c",
        f"trap 'touch {tmp_path}/asked; exit' TERM; touch {tmp_path}/up; while :; do sleep 0.01; done",
    )
    await until_there((tmp_path / "up").exists)

    ended = await end_orphans(marker)

    assert Orphan(polite.pid, "polite") in ended
    assert (tmp_path / "asked").exists()
    assert find_orphans(marker) == []


async def test_an_orphan_that_ignores_sigterm_is_killed_after_the_grace(marker, start, tmp_path):
    start(f"{marker}/deaf", "sh", "-c", f"trap '' TERM; touch {tmp_path}/up; sleep 60; sleep 60")
    await until_there((tmp_path / "up").exists)
    began = time.monotonic()

    await end_orphans(marker, grace_s=0.2)

    assert 0.2 <= time.monotonic() - began < 5
    assert find_orphans(marker) == []


async def test_without_grace_a_process_is_killed_at_once(marker, start, tmp_path):
    start(
        f"{marker}/job",
        "sh",
        "-c",
        f"trap 'touch {tmp_path}/asked' TERM; touch {tmp_path}/up; sleep 60",
    )
    await until_there((tmp_path / "up").exists)

    await end_orphans(marker, grace_s=0)

    assert not (tmp_path / "asked").exists()


async def test_a_family_has_the_group_even_without_the_tag(marker, start, tmp_path):
    leader = start(
        f"{marker}/job",
        "sh",
        "-c",
        f"env -i sleep 60 & echo $! >{tmp_path}/pid.new; mv {tmp_path}/pid.new {tmp_path}/pid; wait",
    )
    await until_there((tmp_path / "pid").exists)
    stranger = int((tmp_path / "pid").read_text())
    family = Family(f"{marker}/job", leader.pid)

    assert set(family.members()) == {leader.pid, stranger}
    await family.end(grace_s=5)
    assert family.members() == []


async def test_orphans_that_keep_coming_back_are_all_ended(marker, start, tmp_path):
    respawning = f"touch {tmp_path}/up; while :; do setsid sh -c 'sleep 60' & sleep 0.005; done"
    start(f"{marker}/job", "sh", "-c", respawning)
    await until_there((tmp_path / "up").exists)

    await end_orphans(marker, grace_s=0.1)

    assert find_orphans(marker) == []
