"""Kills runners, thousands of them, and proves that nothing is lost and nothing is run twice.

    python -m benchmarks.kill --kills 5000

Each run is a small campaign with a check, a verifier and jobs that fail at times. Its runner is
killed with SIGKILL at an event (before its line, in the middle of it, after it), around a launch,
or at any moment, and started again, up to a dozen times; then it may end, and `kill_audit` judges
it. The last lines are `lost: 0`, `doubled: 0` and the counts; exit code 1 unless all is well.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from .kill_audit import Audit, Place, audit, load_memo
from .lives import ANY, LAUNCH, Death, Fate, Life, Lives, Memo

EVENTS = (
    "segment_opened",
    "run_started",
    "run_resumed",
    "allocation_seen",
    "decision_opened",
    "attempt_started",
    "proposal_made",
    "proposal_rejected",
    "check_judged",
    "failure_recorded",
    "decision_made",
    "decision_parked",
    "result_parked",
    "parked_resolved",
    "candidate_held",
    "job_planned",
    "job_ended",
    "result_accepted",
    "result_rejected",
    "surrogate_asked",
    "run_suspended",
    "run_stopped",
    "segment_closed",
)
"""Every kind of event that a runner without a model server writes."""

FATES = (
    *((kind, when) for kind in EVENTS for when in ("before", "torn", "after")),
    *((LAUNCH, when) for when in ("before", "amid", "after")),
)
"""Every aimed death; each is as likely as the others, whatever the events' frequency."""

_OF_FIRST_LIFE = {"segment_opened", "run_started"}
_AT_SUSPENSION = {"run_suspended", "segment_closed"}
_AT_THE_END = {*_AT_SUSPENSION, "candidate_held", "run_stopped"}

ATTEMPTS = 3
KILLS_A_RUN = 12
LIVES_A_RUN = 60
"""More lives than a run can need: it does not come to its end."""

CODE = '''
"""Minimises (x-1)^2, with a check, a verifier that breaks and jobs that fail, each by its x."""

import hashlib
import json
import os
import sys
import time


def low(candidate):
    """Refuse half of what an erring model says."""
    if candidate["x"] < -7.5:
        yield f"x is {candidate['x']:g}, must be at least -7.5"


def luck(candidate):
    """Return 0 to 99, by the candidate."""
    return int(hashlib.sha256(repr(candidate["x"]).encode()).hexdigest(), 16) % 100


def rough(candidate):
    """Break for some; what it says of the others may be refused."""
    if luck(candidate) < 8:
        raise ValueError("the verifier is broken for this one")
    return {"y": (candidate["x"] - 1) ** 2}


def fine(candidate, log):
    """Take its time, and say in a log of its own when it begins and ends."""
    job, number = os.path.basename(os.getcwd()), luck(candidate)
    with open(log, "a", buffering=1) as file:
        file.write(f"begin {job}\\n")
        time.sleep(number % 5 / 25)
        if 10 <= number < 22:
            raise RuntimeError("it does not converge")
        file.write(f"end {job}\\n")
    return {"y": (candidate["x"] - 1) ** 2, "converged": float(not 22 <= number < 34)}


def parse(result):
    """Read what the program left."""
    with open(result) as file:
        return json.load(file)


if __name__ == "__main__":  # the job as a program, which starts 30 times faster
    candidate, _, result, log = sys.argv[1:]
    with open(candidate) as file:
        found = fine(json.load(file), log)
    with open("beside", "w") as file:
        json.dump(found, file)
    os.replace("beside", result)
'''


def campaign(folder: Path, *, log: Path, seed: int, rng: random.Random) -> None:
    """Write a campaign into a folder; the generator chooses its kind of job, its size and its grant."""
    folder.mkdir(parents=True)
    (folder / "campaign.py").write_text(CODE)
    program = [
        "{python}",
        "-I",
        "-S",
        str(folder / "campaign.py"),
        "{candidate}",
        "{args}",
        "{result}",
        str(log),
    ]
    job = rng.choice(
        (f'use = "campaign:fine"\nargs = {{ log = "{log}" }}',)
        + 3 * (f'command = {json.dumps(program)}\nparse = "campaign:parse"',)
    )
    once = f'[{{ log = "{log}" }}]'  # changes nothing, so that the second result is as the first
    reserve_node_h = 20 / 3600
    grant_node_h = reserve_node_h * rng.choice((1.3, 2.2, 100))
    (folder / "campaign.toml").write_text(
        f"""
[campaign]
name = "killed"
seed = {seed}
[variables]
x = {{ domain = [-10, 10] }}
[objectives]
y = "MINIMIZE"
[[check]]
use = "campaign:low"
[[level]]
name = "rough"
use = "campaign:rough"
timeout_s = 20
accept = {{ y = ["LESS_THAN", 64] }}
[[level]]
name = "fine"
{job}
timeout_s = 20
accept = {{ converged = ["GREATER_THAN", 0.5] }}
again = {rng.choice(("[]", "[]", once))}
[producer]
attempts = {ATTEMPTS}
batch = {rng.choice((1, 2, 3))}
[fallback]
use = "batchgate.surrogates:Sobol"
idle_s = {rng.choice((0.05, 100))}
[stop]
jobs = {rng.randint(5, 7)}
node_h = {grant_node_h!r}
rejected = 1000
[failure]
in_a_row = 1000
losses = 100000
[park]
decisions = {rng.choice(("true", "false", "false"))}
results = {rng.choice(("true", "false"))}
expire_s = {rng.choice((0.01, 0.3))}
[audit]
share = {rng.choice((0.0, 0.5))}
node_h = {grant_node_h!r}
"""
    )


@dataclass(slots=True)
class Tally:
    """What came of the runs so far.

    Attributes:
        tried: Fates that were aimed at.
        struck: Deaths that came, at an event or around a launch.
        by_chance: Kills at no special moment.
        runs: Runs that came to their end.
        audit: What was found.
    """

    tried: Counter[tuple[str, str]] = field(default_factory=Counter)
    struck: Counter[tuple[str, str]] = field(default_factory=Counter)
    by_chance: int = 0
    runs: int = 0
    audit: Audit = field(default_factory=Audit)

    @property
    def kills(self) -> int:
        """Runners killed."""
        return self.struck.total() + self.by_chance

    def effort(self, fate: tuple[str, str]) -> int:
        """Say how much was done for a death; one that does not come is tried more often."""
        return self.tried[fate] + 3 * self.struck[fate]

    def add(self, other: Tally) -> None:
        """Take another tally in."""
        self.tried += other.tried
        self.struck += other.struck
        self.by_chance += other.by_chance
        self.runs += other.runs
        self.audit.lost += other.audit.lost
        self.audit.doubled += other.audit.doubled
        self.audit.wrong += other.audit.wrong

    def table(self) -> str:
        """Return how often each death came."""
        rows = [f"{'':20}{'before':>8}{'torn':>8}{'amid':>8}{'after':>8}"]
        for kind in (*EVENTS, LAUNCH):
            counts = [self.struck[kind, when] for when in ("before", "torn", "amid", "after")]
            rows.append(f"{kind:20}" + "".join(f"{count or '.':>8}" for count in counts))
        return "\n".join([*rows, f"{'a random moment':20}{self.by_chance:>8}"])


@dataclass(slots=True)
class Killing:
    """One run, killed over and over.

    Attributes:
        folder: Empty folder for all of it.
        seed: Makes the campaign, its producer and the deaths.
        lives: Where its runners live.
        tally: What came of it, and of the runs before.
    """

    folder: Path
    seed: int
    lives: Lives
    tally: Tally
    rng: random.Random = field(init=False)
    script: int | None = field(init=False)
    places: list[Place] = field(default_factory=list)
    memos: list[Memo] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        campaign(
            self.folder / "campaign", log=self.folder / "jobs.log", seed=self.seed, rng=self.rng
        )
        self.script = self.seed if self.rng.random() < 0.75 else None

    def run(self, kills: int) -> None:
        """Kill the run's runners so often, let it end, and audit it."""
        until = self.tally.kills + kills
        for number in range(LIVES_A_RUN):
            death = self._live(number, deadly=self.tally.kills < until)
            if death.hung or death.code in {0, 1}:
                break
        else:
            self._blame(f"no end after {LIVES_A_RUN} lives")
        self.tally.runs += 1
        found = audit(
            self.folder / "run",
            log=self.folder / "jobs.log",
            attempts=ATTEMPTS,
            places=self.places,
            memos=self.memos,
        )
        where = f"seed {self.seed}: "
        self.tally.audit.lost += [where + finding for finding in found.lost]
        self.tally.audit.doubled += [where + finding for finding in found.doubled]
        self.tally.audit.wrong += [where + finding for finding in found.wrong]

    def _live(self, number: int, *, deadly: bool) -> Death:
        life = self._life(number, deadly=deadly)
        death = self.lives.live(life)
        self._count(death)
        self.places.append(Place.of(self.folder / "run" / "ledger"))
        if (memo := load_memo(Path(life.memo))) is not None:
            self.memos.append(memo)
        if not death.killed:
            self._judge(life, death)
        return death

    def _life(self, number: int, *, deadly: bool) -> Life:
        by_chance = deadly and self.rng.random() < 0.06
        fates = self._fates(first=number == 0) if deadly and not by_chance else ()
        suspended = any(fate.kind in _AT_SUSPENSION for fate in fates)
        producer = ("--producer", "none") if self.script is None else ()
        return Life(
            argv=(
                *("run", str(self.folder / "campaign"), "--run", str(self.folder / "run")),
                *("--slots", "2", "--quiet", *producer),
            ),
            output=str(self.folder / "output.txt"),
            memo=str(self.folder / f"memo-{number}.json"),
            fates=fates,
            kill_after_s=self.rng.uniform(0.2, 1.5) if by_chance else None,
            suspend_at=self.rng.randint(3, 15) if suspended else 0,
            script=self.script,
        )

    def _fates(self, *, first: bool) -> tuple[Fate, ...]:
        """Choose a death that came seldom, and one at any event should it not come."""
        fates = [fate for fate in FATES if (fate[0] in _OF_FIRST_LIFE) == first]
        least = min(map(self.tally.effort, fates))
        kind, when = self.rng.choice([f for f in fates if self.tally.effort(f) == least])
        self.tally.tried[kind, when] += 1
        share = self.rng.choice((0.0, 1.0, self.rng.random(), self.rng.random()))
        aimed = Fate(kind, when, share=share / 4 if when == "amid" else share)
        if kind in _AT_THE_END:
            return (aimed,)
        when = self.rng.choice(("before", "torn", "after"))
        return aimed, Fate(ANY, when, self.rng.randint(8, 20), share)

    def _count(self, death: Death) -> None:
        if not death.killed:
            return
        if death.struck is None:
            self.tally.by_chance += 1
        else:
            self.tally.struck[death.struck] += 1

    def _judge(self, life: Life, death: Death) -> None:
        """Look at a life that came to its own end."""
        if death.hung:
            self._blame("a runner did not end")
        elif death.code not in {0, 1, 3}:
            said = Path(life.output).read_text()[-2000:]
            self._blame(f"a runner ended with {death.code}: {said}")
        if death.left:
            self._blame(f"a runner left {death.left} processes")

    def _blame(self, finding: str) -> None:
        self.tally.audit.wrong.append(f"seed {self.seed}: {finding}")


def kill(
    folder: Path,
    *,
    kills: int,
    seed: int,
    until: float = float("inf"),
    told: Callable[[Tally], None] = lambda tally: None,
) -> Tally:
    """Kill runners, run after run.

    Args:
        folder: Existing folder for the runs.
        kills: Kills wanted.
        seed: Seed of all that is left to chance but the order of a machine's events.
        until: Time of the monotonic clock after which no further run begins.
        told: Called after each run.
    """
    tally = Tally()
    with Lives() as lives:
        for number in _numbers(tally, kills, until):
            killing = Killing(folder / f"{number}", seed * 100_000 + number, lives, tally)
            killing.run(min(KILLS_A_RUN, kills - tally.kills))
            told(tally)
    return tally


def _numbers(tally: Tally, kills: int, until: float) -> Iterator[int]:
    number = 0
    while tally.kills < kills and time.monotonic() < until:
        yield number
        number += 1


def main(argv: Sequence[str] | None = None) -> int:
    """Kill, say how it goes, and return 1 unless all is well."""
    given = _arguments(argv)
    began = time.monotonic()
    until = began + 60 * given.minutes
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(given.side_by_side) as pool:
        total = Tally()

        def one(number: int) -> Tally:
            place = Path(folder) / f"{number}"
            place.mkdir()
            share = -(-given.kills // given.side_by_side)
            seed = given.seed * given.side_by_side + number
            return kill(place, kills=share, seed=seed, until=until, told=say)

        def say(tally: Tally) -> None:
            found = len(tally.audit.findings)
            print(f"{tally.runs} runs, {tally.kills} kills, {found} findings", flush=True)

        for tally in pool.map(one, range(given.side_by_side)):
            total.add(tally)
    print(total.table())
    for finding in total.audit.findings:
        print(finding)
    print(f"lost: {len(total.audit.lost)}")
    print(f"doubled: {len(total.audit.doubled)}")
    print(f"{total.kills} kills, {total.runs} runs, {time.monotonic() - began:.0f} s")
    return 1 if total.audit.findings or not total.kills else 0


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.kill", description=__doc__)
    parser.add_argument("--kills", type=int, default=500, help="runners to kill")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=float("inf"), help="longest time")
    parser.add_argument("--side-by-side", type=int, default=2, help="runs at a time")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
