"""Faults under `batchgate.tracing`: a killed process, a disk that fills up."""

import json
import signal
import socket
import subprocess
import sys
import time

PROGRAM = """
import itertools, sys
from pathlib import Path
from batchgate.tracing import open_tracing

with open_tracing(Path(sys.argv[1]), segment="0001", resource={}) as telemetry:
    tracer = telemetry.tracer_provider.get_tracer("t")
    logger = telemetry.logger_provider.get_logger("t")
    with tracer.start_as_current_span("open"):
        for number in itertools.count():
            with tracer.start_as_current_span(str(number)):
                logger.emit(event_name=str(number))
            sys.stdout.write(f"{number}\\n")
            sys.stdout.flush()
"""


def lines_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def names(folder):
    return [
        line["resourceSpans"][0]["scopeSpans"][0]["spans"][0]["name"]
        for line in lines_of(folder / "trace/0001.traces.jsonl")
    ]


def killed_after(reports, tmp_path, signum):
    """Run the program, kill it after so many reports, and return the last number it reported."""
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        for _ in range(reports):
            child.stdout.readline()
        child.send_signal(signum)
        rest = child.stdout.read().splitlines()
        assert child.wait() == -signum
    return reports - 1 + len(rest)


def test_a_kill_loses_no_span_that_has_ended(tmp_path):
    for kill, signum in enumerate((signal.SIGKILL, signal.SIGTERM, signal.SIGKILL)):
        folder = tmp_path / str(kill)

        last = killed_after(50 + 37 * kill, folder, signum)

        found = names(folder)
        assert found[: last + 1] == [str(number) for number in range(last + 1)]
        assert "open" not in found
        events = lines_of(folder / "trace/0001.logs.jsonl")
        assert len(events) >= last + 1


FULL = """
import resource, signal, sys
from pathlib import Path
from batchgate.tracing import open_tracing

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
with open_tracing(Path(sys.argv[1]), segment="0001", resource={}) as telemetry:
    tracer = telemetry.tracer_provider.get_tracer("t")
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, resource.RLIM_INFINITY))
    for number in range(50):
        with tracer.start_as_current_span(str(number)):
            pass
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    with tracer.start_as_current_span("room again"):
        pass
print(telemetry.lost)
"""


def test_a_disk_that_fills_up_costs_records_but_neither_the_program_nor_a_whole_line(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(tmp_path)], capture_output=True, text=True, check=True
    )

    found = names(tmp_path)
    lost = int(done.stdout)
    assert 0 < lost < 50
    assert found == [*(str(number) for number in range(50 - lost)), "room again"]
    assert done.stderr.count("misses records: [Errno 27] File too large") == 1
    assert f"misses {lost} records" in done.stderr


DEAD_COLLECTOR = """
import sys, time
from pathlib import Path
from batchgate.tracing import open_tracing

with open_tracing(Path(sys.argv[1]), segment="0001", resource={}, endpoint=sys.argv[2]) as telemetry:
    for number in range(300):
        telemetry.tracer_provider.get_tracer("t").start_span(str(number)).end()
    print(time.time())
"""


def test_a_process_ends_although_its_collector_never_answers(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as swallower:
        url = f"http://127.0.0.1:{swallower.getsockname()[1]}"

        done = subprocess.run(
            [sys.executable, "-c", DEAD_COLLECTOR, str(tmp_path), url],
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )

    assert time.time() - float(done.stdout) < 5
    assert len(names(tmp_path)) == 300
