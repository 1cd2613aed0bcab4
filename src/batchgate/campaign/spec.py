"""`campaign.toml` as data: every table, its fields, their units and defaults.

Unknown keys are refused with the nearest known one. Everything here is frozen and hashed into
every run's record.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import cached_property
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from .constraint import ConstraintField
from .space import Name, Space, Variables

Use = Annotated[str, Field(pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$", max_length=200)]
"""`module:function`; `campaign:...` is the folder's own `campaign.py`."""
Slug = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,63}$")]
"""A name that becomes a folder and a label: lower case, digits, `_` and `-`."""


def _plain(args: Mapping[str, Any]) -> Mapping[str, Any]:
    try:
        json.dumps(args, allow_nan=False)
    except (TypeError, ValueError) as exc:
        raise ValueError(f"args must be text, finite numbers, lists and tables: {exc}") from exc
    return args


Args = Annotated[Mapping[str, Any], AfterValidator(_plain)]
"""Further keyword arguments of a function: plain data, so that they can be hashed and sent."""


class Table(BaseModel):
    """Base of every table: frozen, unknown keys refused, finite numbers only."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class About(Table):
    """`[campaign]`: what it is.

    Attributes:
        name: Names the runs' folders.
        title: One line for people.
        seed: Seeds the surrogate and samplers, with the batch's number.
        prompt: File in the folder with the domain's context for the model.
        proposal: Own pydantic model of a proposal, instead of the one made from the space.
    """

    name: Slug
    title: str = ""
    seed: int = Field(default=0, ge=0)
    prompt: str = "prompt.md"
    proposal: Use | None = None


class CheckUse(Table):
    """`[[check]]`: one domain check, run in the runner's process, cheapest first.

    The function takes a candidate and yields or returns sentences, one a problem; none means
    that it passes. All problems of a candidate are told at once.

    Attributes:
        use: Where the function is.
        name: Name in every record; the function's own by default.
        args: Further keyword arguments.
        hard: Whether it gates; a soft check is only recorded.
    """

    use: Use
    name: Slug | None = None
    args: Args = {}
    hard: bool = True


class Duplicates(Table):
    """`[duplicates]`: when a candidate counts as one that is known already.

    Attributes:
        digits: Significant digits of the fingerprint.
        tolerance: Largest difference in every variable, as a share of its range, up to which
            two candidates are twins. 0 compares fingerprints only.
    """

    digits: int = Field(default=6, ge=1, le=15)
    tolerance: float = Field(default=0.0, ge=0, lt=1)


class Resources(Table):
    """What one task of a level holds while it runs.

    Attributes:
        nodes: Nodes, or a share of one.
        ranks: Processes (MPI ranks).
        cores_per_rank: Cores for each.
        gpus_per_rank: GPUs for each.
    """

    nodes: float = Field(default=1.0, gt=0, le=100_000)
    ranks: int = Field(default=1, ge=1)
    cores_per_rank: int = Field(default=1, ge=1)
    gpus_per_rank: int = Field(default=0, ge=0)


class Level(Table):
    """`[[level]]`: one rung of the fidelity ladder. The last one spends the allocation.

    Attributes:
        name: Name in every record.
        use: A function, `(candidate, **args) -> mapping of observables`. For a verifier it runs
            in a warm worker; for the last level in a process of its own.
        command: A program and its arguments instead. `{candidate}`, `{args}` and `{result}` as
            whole arguments stand for the job's JSON files, `{python}` for the runner's interpreter.
            No shell is involved. Only the last level may be a command.
        parse: With a command: `(path of the result) -> mapping of observables`. It judges
            convergence and raises when there is none: exit code 0 proves nothing.
        args: Further keyword arguments of `use`, or settings of the command.
        timeout_s: Seconds until the task is killed. For the last level this is the walltime
            that is reserved.
        accept: Constraints that the observables must meet; for the last level, else the result
            is rejected.
        retries: How often a task that *failed* (not: was rejected) is run again.
        again: Changed settings with which a job runs again after its result was rejected: the
            first table for the first rerun and so on, laid over `args`. None: it never does.
        resources: What a task holds.
    """

    name: Slug
    use: Use | None = None
    command: tuple[str, ...] | None = None
    parse: Use | None = None
    args: Args = {}
    timeout_s: float = Field(gt=0, le=30 * 86400)
    accept: Mapping[Name, ConstraintField] = {}
    retries: int = Field(default=1, ge=0, le=100)
    again: tuple[Args, ...] = Field(default=(), max_length=20)
    resources: Resources = Resources()

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if (self.use is None) == (self.command is None):
            raise ValueError("give either use = 'module:function' or command = [...]")
        if (self.command is None) != (self.parse is None):
            raise ValueError("parse = 'module:function' goes with command, and only with it")
        if self.command is not None and "{result}" not in self.command:
            raise ValueError("command must have '{result}' as one of its arguments")
        if self.command is not None and self.again and "{args}" not in self.command:
            raise ValueError(
                "again changes args, so command must have '{args}' among its arguments"
            )
        return self

    @property
    def node_h(self) -> float:
        """Most one task of this level can charge, in node-hours."""
        return self.resources.nodes * self.timeout_s / 3600


_SAMPLES = 8


class Ask(Table):
    """`[producer]`: how the model is asked.

    Attributes:
        attempts: Proposals for one decision: the first, and the re-asks.
        batch: Candidates in a proposal.
        form: `batch`: one answer holds the whole proposal. `samples`: one request asks for
            `samples` answers of one candidate each, and the proposal is assembled from them.
        samples: Answers of one request; 8 by default with `form = "samples"`, else 1. Each
            proposal among them is judged, and the first that passes every check is taken.
        temperature: Of the first ask.
        temperature_step: Added at each re-ask, so that no request is repeated.
        temperature_max: Upper end.
        rationale_chars: Longest rationale, 0 for none.
        prompt_tokens: Upper bound of the prompt.
        lessons_tokens: Upper bound of what it says of bounds that were broken again and again in
            the whole run, 0 for nothing. Also at most a third of what the campaign's own text
            leaves of the prompt.
        tighten_after: Breaches of one and the same bound of a variable after which the model is
            not allowed to go beyond it, unless some candidate beyond it passed; 0 for never.
        answer_tokens: Upper bound of one answer.
        timeout_s: Seconds for one request.
        decisions: Decisions in flight at once.
    """

    attempts: int = Field(default=3, ge=1, le=100)
    batch: int = Field(default=1, ge=1, le=1000)
    form: Literal["batch", "samples"] = "batch"
    samples: int | None = Field(default=None, ge=1, le=256)
    temperature: float = Field(default=0.7, ge=0, le=2)
    temperature_step: float = Field(default=0.25, gt=0, le=2)
    temperature_max: float = Field(default=1.5, gt=0, le=2)
    rationale_chars: int = Field(default=0, ge=0, le=4000)
    prompt_tokens: int = Field(default=2400, ge=200)
    lessons_tokens: int = Field(default=240, ge=0)
    tighten_after: int = Field(default=3, ge=0)
    answer_tokens: int = Field(default=400, ge=16)
    timeout_s: float = Field(default=300, gt=0)
    decisions: int = Field(default=2, ge=1, le=64)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.form == "samples" and self.answers < self.batch:
            raise ValueError(f"samples is {self.answers}, must be at least batch ({self.batch})")
        return self

    @property
    def answers(self) -> int:
        """Answers of one request."""
        return self.samples or (_SAMPLES if self.form == "samples" else 1)


class Fallback(Table):
    """`[fallback]`: what runs when no proposal passes, or a slot would idle.

    Attributes:
        use: A gest-api generator: `module:Class`, made with the campaign's VOCS. One of
            another house that takes a `seed` gets it from the campaign's seed and the batch.
        warmup: Quasi-random points before the first fit.
        idle_s: Seconds a free slot waits for the model before the surrogate fills it.
        start_s: Seconds free slots wait for the model server to answer for the first time.
        args: Further keyword arguments of the generator.
    """

    use: Use = "batchgate.surrogates:GaussianProcess"
    warmup: int = Field(default=8, ge=1)
    idle_s: float = Field(default=30, ge=0)
    start_s: float = Field(default=60, ge=0)
    args: Args = {}


class Stop(Table):
    """`[stop]`: when the campaign ends. The first rule that holds ends it.

    Attributes:
        jobs: Jobs that ended with an accepted or rejected result.
        node_h: Node-hours granted to jobs: reserved and charged ones never exceed it.
        billed_node_h: Node-hours that the allocations may be billed for, over all lives of the
            run: nodes times elapsed time, whatever ran on them.
        lives: Runners that may take the run up, the first and every requeue.
        wall_s: Seconds of all lives of the run together.
        target: Objective values that are good enough, all of them at once.
        stall: Results in a row without a better one.
        rejected: Decisions in a row without a candidate to launch.
    """

    jobs: int | None = Field(default=None, ge=1)
    node_h: float = Field(gt=0)
    billed_node_h: float | None = Field(default=None, gt=0)
    lives: int | None = Field(default=None, ge=1)
    wall_s: float | None = Field(default=None, gt=0)
    target: Mapping[Name, float] = {}
    stall: int | None = Field(default=None, ge=1)
    rejected: int = Field(default=20, ge=1)


class Failure(Table):
    """`[failure]`: what failures mean when nobody watches.

    Attributes:
        in_a_row: Failures of one kind in a row that stop the campaign.
        server_restarts: Times the model server is started again.
        losses: Times a job whose runner or node died under it is run again.
        lost: What to do with a job of which nobody can say what became of it (its node does not
            answer, its runner was on another host): `relaunch` it at once, `wait` for its result
            first, or `leave` it.
        lost_wait_s: Seconds that `wait` waits, counted from when it was lost.
    """

    in_a_row: int = Field(default=5, ge=1)
    losses: int = Field(default=5, ge=0)
    server_restarts: int = Field(default=3, ge=0)
    lost: Literal["relaunch", "wait", "leave"] = "relaunch"
    lost_wait_s: float = Field(default=600, gt=0, le=30 * 86400)


class Park(Table):
    """`[park]`: whether a person is asked before the fallback decides.

    The campaign goes on with other decisions; `batchgate parked` lists what waits.

    Attributes:
        decisions: Park a decision that is out of attempts, instead of taking the fallback.
        results: Park a result that the result gate rejected, once its reruns are used up.
        expire_s: Seconds until the fallback takes over, or the rejection stands.
        last_chance: Let the fallback take over when the allocation is about to end as well.
        most: Decisions that may wait at once; the fallback decides the others.
    """

    decisions: bool = False
    results: bool = False
    expire_s: float = Field(default=8 * 3600, gt=0, le=30 * 86400)
    last_chance: bool = False
    most: int = Field(default=20, ge=1, le=1000)


class Audit(Table):
    """`[audit]`: whether some rejected candidates are launched, to learn how often a check errs.

    What the space or the search for duplicates rejects is never launched.

    Attributes:
        share: Share of the rejected candidates that is drawn; 0 for none.
        node_h: Node-hours that they may use, within those of `stop.node_h`.
        never: Domain checks whose rejection is a matter of safety. They are asked once more
            before a candidate is drawn, also where the gate had not come to them.
    """

    share: float = Field(default=0.0, ge=0, le=0.5)
    node_h: float = Field(default=0.0, ge=0)
    never: tuple[Slug, ...] = ()


class CampaignSpec(Table):
    """A whole `campaign.toml`. The first four tables are a superset of gest-api's VOCS."""

    campaign: About
    variables: Variables
    constants: Mapping[Name, float | int | str | bool] = {}
    objectives: Mapping[Name, Literal["MINIMIZE", "MAXIMIZE"]] = Field(min_length=1, max_length=1)
    constraints: Mapping[Name, ConstraintField] = {}
    check: tuple[CheckUse, ...] = ()
    duplicates: Duplicates = Duplicates()
    level: tuple[Level, ...] = Field(min_length=1)
    producer: Ask = Ask()
    fallback: Fallback
    stop: Stop
    failure: Failure = Failure()
    park: Park = Park()
    audit: Audit = Audit()

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        names = [level.name for level in self.level]
        if len(set(names)) != len(names):
            raise ValueError(f"level names must differ: {names}")
        for level in self.level[:-1]:
            if level.use is None:
                raise ValueError(f"level {level.name!r} is a verifier and needs use, not command")
        if clash := self.variables.keys() & self.constants.keys():
            raise ValueError(f"{sorted(clash)} are both variables and constants")
        inputs = self.variables.keys() | self.constants.keys()
        if clash := inputs & (self.objectives.keys() | self.constraints.keys()):
            raise ValueError(f"{sorted(clash)} are both inputs and results")
        if unknown := self.stop.target.keys() - self.objectives.keys():
            raise ValueError(f"stop.target names {sorted(unknown)}, which are no objectives")
        checks = {check.name or check.use.partition(":")[2] for check in self.check}
        if unknown := set(self.audit.never) - checks:
            raise ValueError(
                f"audit.never names {sorted(unknown)}; the checks are {sorted(checks)}"
            )
        if self.job.node_h > self.stop.node_h:
            raise ValueError(
                f"one job of level {self.job.name!r} reserves {self.job.node_h:g} node-hours, "
                f"but stop.node_h grants {self.stop.node_h:g}"
            )
        return self

    @cached_property
    def space(self) -> Space:
        """The search space."""
        return Space(variables=self.variables, digits=self.duplicates.digits)

    @property
    def verifiers(self) -> tuple[Level, ...]:
        """Every level but the last."""
        return self.level[:-1]

    @property
    def job(self) -> Level:
        """The last level: the one that spends the allocation."""
        return self.level[-1]

    @property
    def objective(self) -> tuple[str, bool]:
        """Name of the objective, and whether it is minimised."""
        ((name, direction),) = self.objectives.items()
        return name, direction == "MINIMIZE"

    @property
    def digest(self) -> str:
        """SHA-256 of the spec's canonical JSON, 64 hex digits."""
        text = json.dumps(self.model_dump(mode="json"), sort_keys=True, allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()
