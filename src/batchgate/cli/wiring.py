"""What `batchgate run` puts together: server, producer, execution side, ledger, trace, runner."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import socket
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ..campaign import Campaign
from ..errors import ConfigError, LedgerMismatchError, SurrogateError
from ..events import SegmentOpened
from ..flow import end_orphans, open_flow
from ..ledger import Ledger, read, slurm_facts
from ..producers import Endpoint, ModelServer, VllmProducer, VllmServer
from ..producers.environment import MODEL, find
from ..runner import Model, Recorder, Runner, Stop, Tenure
from ..settings import Settings
from ..slurm import Allocation, current, job_state
from ..span_ids import slurm_attributes
from ..surrogates import propose
from ..tracing import open_tracing
from .progress import Progress

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals on which a run stops at once and in order, so that the next one goes on."""

WARNING = signal.SIGUSR1
"""Signal that announces the end of the allocation: what can end in time may."""


@dataclass(frozen=True, slots=True)
class Plan:
    """All that is decided before anything starts.

    Attributes:
        campaign: What to run.
        folder: The run's directory.
        settings: The site's settings.
        ask_model: Whether a model proposes; else the surrogate does it all.
    """

    campaign: Campaign
    folder: Path
    settings: Settings
    ask_model: bool


def model_server(plan: Plan, say: Callable[[str], None]) -> ModelServer:
    """Return the server that the settings name: one that runs already, or one to start.

    Raises:
        ConfigError: There is none; the message says how to get one.
    """
    settings = plan.settings
    restarts = plan.campaign.spec.failure.server_restarts
    if settings.endpoint is not None:
        if settings.model is None:
            raise ConfigError("--endpoint needs --model, the name under which it serves the model")
        return Endpoint(
            url=settings.endpoint,
            model=settings.model,
            api_key_env=settings.api_key_env,
            restarts=restarts,
            progress=say,
        )
    environment = find()
    path = settings.model or (str(environment.model) if environment else None)
    command = settings.vllm_command or (environment.command if environment else None)
    if command is None and shutil.which("vllm") is not None:
        command = ("vllm", "serve")
    if path is None or command is None:
        missing = "model" if path is None else "vLLM"
        raise ConfigError(
            f"there is no {missing} to ask. Make a small one with `batchgate vllm-env`, or give "
            "--model FOLDER and vllm_command, or --endpoint URL, or --producer none"
        )
    own = environment is not None and command == environment.command
    flags = environment.flags if environment and own else ()
    return VllmServer(
        path=path,
        model=MODEL if settings.model is None else "",
        command=command,
        flags=flags if settings.vllm_args is None else settings.vllm_args,
        env={**(environment.variables if environment and own else {}), **settings.vllm_env},
        log=plan.folder / "server.log",
        restarts=restarts,
        progress=say,
    )


def model(plan: Plan, server: ModelServer) -> Model:
    """Return the model behind a server.

    Raises:
        ConfigError: The campaign cannot be asked of a model; nothing has been started.
    """

    def connect_to(url: str, name: str) -> VllmProducer:
        return VllmProducer(url, name, plan.campaign, api_key_env=plan.settings.api_key_env)

    # Made once for nothing, so that a campaign that cannot be asked is refused now.
    trial = connect_to("http://127.0.0.1", server.model)
    return Model(
        trial.name,
        server=server,
        connect=lambda s: connect_to(s.url, s.model),
        nodes=plan.settings.server_nodes,
    )


@dataclass(frozen=True, slots=True)
class Ended:
    """How a life of a run ended.

    Attributes:
        stop: The stop rule that held; `None` when the run is suspended.
        requeue: Slurm job to be requeued, once nothing is left to be written; empty for none.
    """

    stop: Stop | None
    requeue: str = ""


async def run(plan: Plan, progress: Progress) -> Ended:
    """Run a campaign to its end, or until a signal or the allocation's end suspends it.

    Raises:
        BatchGateError: As the parts say; the exit code tells which.
    """
    # Its default is to kill. Until the runner listens the clock alone tells it of the end.
    signal.signal(WARNING, signal.SIG_IGN)
    name = _run_name(plan)
    try_surrogate(plan.campaign)
    server = model_server(plan, progress.say) if plan.ask_model else None
    proposer = model(plan, server) if server is not None else None
    tenure = _tenure(plan.settings, await current(wall_s=plan.settings.wall_s))
    with Ledger.open(plan.folder / "ledger", run=name) as ledger, _traced(plan, ledger, name):
        recorder = Recorder.of(ledger, progress.observe)
        gone = await _gone(recorder.state.earlier, tenure.allocation)
        if ended := await end_orphans(name, grace_s=plan.settings.grace_s):
            progress.say(f"ended {len(ended)} tasks that an earlier life left running")
        async with contextlib.AsyncExitStack() as stack:
            flow = await stack.enter_async_context(
                open_flow(
                    workers=plan.settings.workers,
                    jobs=plan.settings.slots,
                    work_dir=plan.folder / "flow" / ledger.path.stem,
                    marker=name,
                    grace_s=plan.settings.grace_s,
                    jobs_on=plan.settings.jobs_on,
                    verifiers_on=plan.settings.verifiers_on,
                    dask_scheduler=plan.settings.dask_scheduler,
                    pilot_resource=plan.settings.pilot_resource,
                )
            )
            if server is not None:
                stack.push_async_callback(server.stop)
            runner = Runner(
                plan.campaign,
                recorder,
                flow,
                plan.folder,
                slots=plan.settings.slots,
                model=proposer,
                settings=plan.settings.model_dump(mode="json"),
                tenure=tenure,
                gone=gone,
            )
            with _told_by_signals(runner):
                stop = await runner.run()
    return Ended(stop, tenure.allocation.job_id if runner.requeues else "")


def _tenure(settings: Settings, allocation: Allocation) -> Tenure:
    return Tenure(
        allocation=allocation,
        margin_s=settings.margin_s,
        quantile=settings.launch_quantile,
        requeue=allocation.requeueable,
    )


async def _gone(earlier: SegmentOpened | None, allocation: Allocation) -> bool:
    """Whether nothing of an earlier life can run any more, once the orphans here have been ended.

    Slurm has ended everything of a job that is over, and of every earlier life of this one.
    """
    if earlier is None or earlier.host == socket.gethostname():
        return True
    job_id = earlier.slurm.get("job_id", "")
    if not job_id:
        return False
    if job_id == allocation.job_id:
        return int(earlier.slurm.get("restart_count") or 0) < allocation.restart_count
    state = await job_state(job_id)
    return state is not None and state.over


@contextlib.contextmanager
def _told_by_signals(runner: Runner) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    for number in SIGNALS:
        loop.add_signal_handler(number, runner.suspend, signal.Signals(number).name)
    loop.add_signal_handler(WARNING, runner.drain, signal.Signals(WARNING).name)
    try:
        yield
    finally:
        # A second signal while things are being ended must not leave half of them behind.
        for number in SIGNALS:
            loop.add_signal_handler(number, lambda: None)
        loop.remove_signal_handler(WARNING)
        signal.signal(WARNING, signal.SIG_IGN)  # also while the report is written


@contextlib.contextmanager
def _traced(plan: Plan, ledger: Ledger, run: str) -> Iterator[None]:
    resource = {
        "campaign.name": plan.campaign.spec.campaign.name,
        "service.instance.id": f"{run}/{ledger.path.stem}",
        "batchgate.run": run,
        **slurm_attributes(slurm_facts(os.environ)),
    }
    with open_tracing(
        plan.folder,
        segment=ledger.path.stem,
        resource=resource,
        endpoint=plan.settings.otlp_endpoint,
    ) as telemetry:
        telemetry.install()
        yield


def _run_name(plan: Plan) -> str:
    """Return the name of the run in a directory, a new one for an empty directory."""
    campaign = plan.campaign.spec.campaign.name
    first = next(read(plan.folder / "ledger"), None) if (plan.folder / "ledger").exists() else None
    if first is None:
        return f"{campaign}-{uuid.uuid4().hex[:8]}"
    name: str = first.event.run  # type: ignore[union-attr] # a ledger begins with its opening
    if not name.startswith(f"{campaign}-"):
        raise LedgerMismatchError(
            f"{plan.folder} holds run {name!r}, not one of campaign {campaign!r}; "
            "choose another run directory"
        )
    return name


def try_surrogate(campaign: Campaign) -> None:
    """Ask the surrogate once, so that a missing library or a misspelt generator is found now.

    Raises:
        ConfigError: The generator cannot be loaded or made.
    """
    with contextlib.suppress(SurrogateError):
        propose(campaign, observations=(), n=1, batch_number=0)
