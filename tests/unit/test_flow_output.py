import asyncio
import sys
import time
from pathlib import Path

import pytest

from batchgate.flow.output import TAIL_BYTES, BoundedLog, Pump, one_line


def open_descriptors() -> set[str]:
    return {path.name for path in Path("/proc/self/fd").iterdir()}


def written(log: BoundedLog, path: Path) -> bytes:
    log.close()
    return path.read_bytes()


def test_a_log_within_its_bound_holds_every_byte(tmp_path):
    log = BoundedLog(tmp_path / "log", head_bytes=6)

    log.write(b"abc")
    log.write(b"\xffde")

    assert written(log, tmp_path / "log") == b"abc\xffde"


def test_a_log_over_its_bound_keeps_head_and_tail_and_says_what_is_missing(tmp_path):
    log = BoundedLog(tmp_path / "log", head_bytes=4)

    log.write(b"head")
    log.write(b"-" * TAIL_BYTES)
    log.write(b"tail")

    text = written(log, tmp_path / "log")
    assert text.startswith(b"head\n[4 bytes left out]\n-")
    assert text.endswith(b"-tail")


def test_a_log_shows_its_file_while_it_is_written(tmp_path):
    log = BoundedLog(tmp_path / "log")

    log.write(b"now")

    assert (tmp_path / "log").read_bytes() == b"now"
    log.close()


def test_a_restarted_log_holds_what_came_after(tmp_path):
    log = BoundedLog(tmp_path / "log", head_bytes=4)
    log.write(b"0123456789")

    log.restart()
    log.write(b"new")

    assert log.tail == "new"
    assert written(log, tmp_path / "log") == b"new"


def test_a_log_replaces_a_link_and_leaves_its_target_alone(tmp_path):
    (tmp_path / "precious").write_text("mine")
    (tmp_path / "log").symlink_to(tmp_path / "precious")
    log = BoundedLog(tmp_path / "log")

    log.write(b"theirs")

    assert written(log, tmp_path / "log") == b"theirs"
    assert (tmp_path / "precious").read_text() == "mine"


def test_a_full_disk_costs_the_log_and_nothing_else(tmp_path):
    log = BoundedLog(tmp_path / "log")
    log._file.close()
    log._file = open("/dev/full", "wb", buffering=0)  # noqa: SIM115, PTH123 - closed by the log

    log.write(b"no room")

    assert log.tail == "no room"
    log.close()


async def test_a_pump_takes_what_a_process_prints_to_its_end(tmp_path):
    with Pump(tmp_path / "log") as pump:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", "print('x' * 300_000)", stdout=pump.write_end
        )
        pump.started()
        await process.wait()

    assert (tmp_path / "log").stat().st_size == 300_001


async def test_a_pump_whose_process_was_never_started_leaks_no_descriptor(tmp_path):
    before = open_descriptors()

    with Pump(tmp_path / "log"):
        pass

    assert open_descriptors() <= before


async def test_a_process_that_prints_without_end_leaves_the_event_loop_to_others(tmp_path):
    with Pump(tmp_path / "log", head_bytes=1 << 16) as pump:
        process = await asyncio.create_subprocess_exec("yes", stdout=pump.write_end)
        pump.started()
        lags_s = []
        cpu_s, until = time.process_time(), time.monotonic() + 0.5
        while time.monotonic() < until:
            asked_at = time.monotonic()
            await asyncio.sleep(0.01)
            lags_s.append(time.monotonic() - asked_at - 0.01)
        cpu_s = time.process_time() - cpu_s
        process.kill()
        await process.wait()

    assert (tmp_path / "log").stat().st_size < (1 << 16) + TAIL_BYTES + 100
    assert sorted(lags_s)[len(lags_s) // 2] < 0.2
    assert cpu_s < 0.25


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", ""),
        ("plain", "plain"),
        (" two\r\n\tlines ", "two lines"),
        ("\x1b[31mred\x00\u202eevil\ud800", "[31mred evil"),
        ("x" * 5000, "x" * 2000),
        (" " * 100_000 + "late", ""),
    ],
)
def test_one_line_is_printable_and_bounded(text, line):
    assert one_line(text) == line
