"""What the record costs: appends, commits, reading and folding, next to what else could keep it.

    python -m benchmarks.ledger [--folder DIR] [--decisions 300] [--events 1000000]

A decision is five events and one commit. Run it on the file system that the runs will lie on: a
sync costs what that file system says. Times are of the wall for writers, whose ratios to a plain
file with a sync can be compared between machines; readers only compute, so theirs are of the CPU.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sqlite3
import statistics
import tempfile
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import islice
from pathlib import Path
from time import perf_counter, process_time

from batchgate.events import (
    AttemptStarted,
    CheckJudged,
    Chosen,
    DecisionMade,
    DecisionOpened,
    Event,
    JobEnded,
    JobPlanned,
    ProposalMade,
    ResultAccepted,
    RunStarted,
)
from batchgate.job import End, JobState
from batchgate.ledger import Ledger, Reader, read
from batchgate.state import State

ROUNDS = 10
CANDIDATE = {"a": 5.25, "e": 0.125, "n": 3}
Decide = Callable[[Sequence[Event]], Awaitable[None]]


def decision(number: int) -> tuple[Event, ...]:
    """Return the events of a decision, about 1.6 KB as lines."""
    return (
        AttemptStarted(decision=number, attempt=1, trace_id="4b" * 16, span_id="0f" * 8),
        ProposalMade(
            decision=number,
            attempt=1,
            proposal={"rationale": "x" * 120, "candidates": [CANDIDATE] * 3},
            response_id=f"chatcmpl-{number}",
            model="Qwen/Qwen3-4B-Instruct",
            temperature=0.7,
            input_tokens=900,
            output_tokens=120,
            elapsed_s=1.25,
        ),
        CheckJudged(decision=number, attempt=1, check="space", passed=True, elapsed_s=1e-4),
        CheckJudged(
            decision=number, attempt=1, check="margin", passed=False, hard=False, reasons=("near",)
        ),
        DecisionMade(
            decision=number,
            disposition="accepted",
            attempts=1,
            candidates=(Chosen(fingerprint="1f" * 32, candidate=CANDIDATE),),
        ),
    )


SPEC = RunStarted(
    campaign="benchmark",
    digest="0" * 64,
    spec={
        "campaign": {"name": "benchmark"},
        "variables": {"a": {"domain": [0, 10]}},
        "objectives": {"y": "MINIMIZE"},
        "level": [{"name": "job", "use": "campaign:job", "timeout_s": 60}],
        "fallback": {},
        "stop": {"node_h": 1e6},
    },
    version="0",
    seed=0,
    granted_node_h=1e6,
)


def with_job(number: int) -> tuple[Event, ...]:
    """Return the events of a decision with its job and result."""
    fingerprint, job = f"{number:064x}", f"d{number}"
    *before, made = decision(number)
    assert isinstance(made, DecisionMade)
    chosen = Chosen(fingerprint=fingerprint, candidate=CANDIDATE)
    return (
        DecisionOpened(decision=number),
        *before,
        made.model_copy(update={"candidates": (chosen,)}),
        JobPlanned(
            job=job,
            decision=number,
            fingerprint=fingerprint,
            candidate=CANDIDATE,
            level="job",
            reserved_node_h=0.02,
            walltime_s=60,
        ),
        JobEnded(job=job, state=JobState.COMPLETED, end=End.COMPLETED, charged_node_h=0.01),
        ResultAccepted(job=job, fingerprint=fingerprint, values={"y": number % 997}, feasible=True),
    )


@contextmanager
def ledger(folder: Path, *, commit: bool) -> Iterator[Decide]:
    """Keep decisions in our ledger."""
    with Ledger.open(folder, run="benchmark") as opened:

        async def decide(events: Sequence[Event]) -> None:
            for event in events:
                opened.append(event)
            if commit:
                await opened.commit()

        yield decide


@contextmanager
def plain_file(path: Path, *, commit: bool) -> Iterator[Decide]:
    """Keep them as JSON lines without hashes, lease or reading back."""
    with path.open("ab", buffering=0) as file:

        async def decide(events: Sequence[Event]) -> None:
            for event in events:
                file.write(json.dumps(event.model_dump()).encode() + b"\n")
            if commit:
                await asyncio.to_thread(os.fdatasync, file.fileno())

        yield decide


@contextmanager
def sqlite(path: Path, *, synchronous: str) -> Iterator[Decide]:
    """Keep them in SQLite with a write-ahead log, a transaction for each decision."""
    database = sqlite3.connect(path, isolation_level=None)
    database.execute("PRAGMA journal_mode=WAL")
    database.execute(f"PRAGMA synchronous={synchronous}")
    database.execute("CREATE TABLE events (seq INTEGER PRIMARY KEY, event TEXT)")

    async def decide(events: Sequence[Event]) -> None:
        database.execute("BEGIN")
        rows = [(json.dumps(event.model_dump()),) for event in events]
        database.executemany("INSERT INTO events (event) VALUES (?)", rows)
        database.execute("COMMIT")

    try:
        yield decide
    finally:
        database.close()


async def times_of(decide: Decide, count: int) -> list[float]:
    """Return the seconds that each of `count` decisions took, one after the other."""
    times = []
    for number in range(count):
        events = decision(number)
        began = perf_counter()
        await decide(events)
        times.append(perf_counter() - began)
    return times


async def time_together(decide: Decide, count: int, *, at_once: int) -> float:
    """Return the seconds for `count` decisions by tasks that run at once."""

    async def work() -> None:
        for number in range(count // at_once):
            await decide(decision(number))

    began = perf_counter()
    await asyncio.gather(*(work() for _ in range(at_once)))
    return perf_counter() - began


async def compare_writers(folder: Path, decisions: int) -> None:
    """Print what a decision costs with each way of keeping it; they take turns."""
    with ExitStack() as stack:
        writers = {
            "plain file, no sync": plain_file(folder / "plain", commit=False),
            "ledger, no sync": ledger(folder / "ledger", commit=False),
            "plain file, fdatasync": plain_file(folder / "plain-sync", commit=True),
            "ledger, commit": ledger(folder / "ledger-sync", commit=True),
            "SQLite WAL, synchronous=NORMAL": sqlite(folder / "normal", synchronous="NORMAL"),
            "SQLite WAL, synchronous=FULL": sqlite(folder / "full", synchronous="FULL"),
        }
        decides = {name: stack.enter_context(writer) for name, writer in writers.items()}
        times: dict[str, list[float]] = {name: [] for name in decides}
        for _ in range(ROUNDS):
            for name, decide in decides.items():
                times[name] += await times_of(decide, decisions // ROUNDS)
        print(f"{'a decision of five events':<36}{'p50 us':>10}{'p99 us':>10}{'/s':>9}{'ratio':>8}")
        baseline = statistics.median(times["plain file, fdatasync"])
        for name, spent in times.items():
            p50, p99 = statistics.median(spent), statistics.quantiles(spent, n=100)[98]
            rate, ratio = len(spent) / sum(spent), p50 / baseline
            print(f"{name:<36}{p50 * 1e6:>10.0f}{p99 * 1e6:>10.0f}{rate:>9.0f}{ratio:>8.2f}")
        for at_once in (1, 8, 32):
            total_s = await time_together(decides["ledger, commit"], decisions, at_once=at_once)
            name = f"ledger, commit, {at_once} decisions at once"
            print(f"{name:<36}{'':>20}{decisions / total_s:>9.0f}")


def compare_readers(folder: Path, events: int) -> None:
    """Print the CPU time that reading and folding cost, from 10,000 events up."""
    print(
        f"\n{'reading':<12}{'MB':>8}{'hashes only':>14}{'no hashes':>14}{'all':>14}"
        f"{'all/event':>12}{'fold':>10}{'fold/event':>13}"
    )
    target = folder / "ledger"
    for count in (n for n in (10_000, 100_000, 1_000_000) if n <= events):
        _grow(target, count)
        size = sum(path.stat().st_size for path in target.glob("*.jsonl"))
        spent = [
            _seconds(Reader(target).lines()),
            _seconds(read(target, verify=False)),
            _seconds(read(target)),
        ]
        columns = "".join(f"{seconds:>12.2f} s" for seconds in spent)
        fold_s = _fold_seconds(target)
        print(
            f"{count:<12}{size / 1e6:>8.0f}{columns}{spent[-1] / count * 1e6:>9.1f} us"
            f"{fold_s:>8.2f} s{fold_s / count * 1e6:>10.1f} us"
        )


def _grow(target: Path, count: int) -> None:
    """Append decisions, each with a job and its result, until the ledger has so many lines."""
    with Ledger.open(target, run="benchmark") as opened:
        if (number := opened.append(SPEC).entry.seq) > 1:
            number //= len(with_job(1))
        while True:
            number += 1
            for event in with_job(number):
                if opened.append(event).entry.seq >= count:
                    return


def _fold_seconds(target: Path) -> float:
    state, spent_s = State(), 0.0
    entries = read(target, verify=False)
    while chunk := list(islice(entries, 50_000)):
        began = process_time()
        state.fold(chunk)
        spent_s += process_time() - began
    return spent_s


def _seconds(items: Iterator[object]) -> float:
    began = process_time()
    for _ in items:
        pass
    return process_time() - began


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, help="where to write; by default the temporary one")
    parser.add_argument("--decisions", type=int, default=300)
    parser.add_argument("--events", type=int, default=1_000_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        asyncio.run(compare_writers(Path(name), options.decisions))
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        compare_readers(Path(name), options.events)


if __name__ == "__main__":
    main()
