"""Site settings: what differs between machines and not between campaigns.

Read from, the first wins: command-line flags, `BATCHGATE_*` variables, the file named by
`BATCHGATE_SITE` (else `batchgate.toml` in the working folder, else
`~/.config/batchgate/site.toml`), defaults. Unknown keys are refused with the nearest known one.
No secret belongs in it: the API key of an endpoint is read from the variable that `api_key_env`
names.
"""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from .campaign import explain
from .errors import ConfigError
from .job import JobsOn, VerifiersOn

PREFIX = "BATCHGATE_"


class SlurmSettings(BaseModel):
    """`[slurm]`: how `batchgate submit` asks this site for a job; its flags win.

    Attributes:
        account: Who pays; by default Slurm's choice for the user.
        partition: Where the job waits; by default Slurm's.
        nodes: Nodes.
        time: Time limit, `H:MM:SS` or `D-HH:MM:SS`.
        signal_s: Seconds before the limit at which the runner is told to stop in order. Slurm
            tells it up to 60 s earlier.
        requeue: Whether a job that is out of time, or lost a node, starts again under its id.
        exclusive: Whether the job gets whole nodes.
        setup: Shell lines that come before the runner, for example `module load cuda`.
        command: Program and first arguments that start `batchgate` in the job; by default the
            Python that submits. Within a container: `["apptainer", "exec", "IMAGE", "batchgate"]`.
        extra: Further long flags of `sbatch`, for example `--gpus-per-node=4`.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    account: str | None = None
    partition: str | None = None
    nodes: int = Field(default=1, ge=1, le=100_000)
    time: str = "4:00:00"
    signal_s: int = Field(default=120, ge=10, le=65_535)
    requeue: bool = True
    exclusive: bool = True
    setup: tuple[str, ...] = ()
    command: tuple[str, ...] | None = Field(default=None, min_length=1)
    extra: tuple[str, ...] = ()


class Settings(BaseSettings):
    """Everything a site sets.

    Attributes:
        endpoint: An OpenAI-compatible server that runs already, `http://host:port` or
            `unix:/path`; `None` starts one.
        model: Folder of the model to serve, or the name that an endpoint serves.
        api_key_env: Variable that holds the endpoint's key.
        vllm_command: Program and first arguments that start a vLLM server; by default the
            environment that `batchgate vllm-env` makes, else `vllm` on the path.
        vllm_args: Further arguments of the server.
        vllm_env: Variables of the server.
        jobs_on: Where jobs run: `local` on this node, `srun` as steps of the Slurm allocation,
            `radical_pilot` as tasks of a RADICAL pilot.
        verifiers_on: Where verifiers run: `local` on this node, `dask` on a Dask cluster's.
        dask_scheduler: Address of the Dask scheduler, or path of its scheduler file (`.json`).
        pilot_resource: RADICAL-Pilot's label of this machine.
        slots: Jobs at once.
        workers: Verifiers at once, each in a warm process of its own.
        grace_s: Seconds between TERM and KILL.
        runs_dir: Folder of the runs.
        otlp_endpoint: OTLP/HTTP endpoint that gets the trace as well.
        margin_s: Seconds before the end of the allocation by which a run has ended in order.
        launch_quantile: Launch a job near the end of the allocation when this share of the
            completed ones took less time than is left; by default its walltime must be left.
        wall_s: Without Slurm, seconds after which this machine counts as taken away.
        server_nodes: Nodes, or share of one, that the model server holds; for the bill.
        suspended_exit: Exit code of a run that is suspended, for sites that requeue by code.
        slurm: How `batchgate submit` asks for a job.
    """

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, env_nested_delimiter="__", extra="forbid", frozen=True
    )

    endpoint: str | None = None
    model: str | None = None
    api_key_env: str = "BATCHGATE_API_KEY"
    vllm_command: tuple[str, ...] | None = None
    vllm_args: tuple[str, ...] | None = None
    vllm_env: Mapping[str, str] = {}
    jobs_on: JobsOn = "local"
    verifiers_on: VerifiersOn = "local"
    dask_scheduler: str | None = None
    pilot_resource: str = "local.localhost"
    slots: int = Field(default=1, ge=1, le=10_000)
    workers: int = Field(default=1, ge=1, le=1_000)
    grace_s: float = Field(default=5.0, gt=0, le=600)
    runs_dir: Path = Path("runs")
    otlp_endpoint: str | None = None
    margin_s: float = Field(default=60.0, ge=0, le=86_400)
    launch_quantile: float | None = Field(default=None, ge=0.5, lt=1)
    wall_s: float | None = Field(default=None, gt=0)
    server_nodes: float = Field(default=0.0, ge=0, le=100_000)
    suspended_exit: int = Field(default=3, ge=0, le=125)
    slurm: SlurmSettings = SlurmSettings()

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Take flags, then variables; `load_settings` adds the file below them."""
        return init_settings, env_settings


def load_settings(flags: Mapping[str, Any] | None = None) -> Settings:
    """Read the site's settings.

    Args:
        flags: Values given on the command line; `None` values count as not given.

    Raises:
        ConfigError: A file or a value is wrong; the message names it and what is known.
    """
    path, table = _site_file()
    _refuse_unknown(table, where=str(path))
    _refuse_unknown(_variables(), where="the environment")
    given = {k: v for k, v in (flags or {}).items() if v is not None}
    below = {k: v for k, v in _not_outweighed(table).items() if k not in given}
    try:
        return Settings(**below, **given)
    except ValidationError as exc:
        raise ConfigError(f"the site settings are not valid:\n{explain(exc, Settings)}") from exc


def _site_file() -> tuple[Path, dict[str, Any]]:
    named = os.environ.get(f"{PREFIX}SITE")
    choices = (
        [Path(named)]
        if named
        else [Path("batchgate.toml"), Path.home() / ".config" / "batchgate" / "site.toml"]
    )
    for path in choices:
        try:
            return path, tomllib.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            if named:
                raise ConfigError(f"{PREFIX}SITE names {path}, which does not exist") from None
        except (OSError, UnicodeDecodeError) as exc:
            raise ConfigError(f"{path} cannot be read: {exc}") from exc
        except tomllib.TOMLDecodeError as exc:
            raise ConfigError(f"{path}: {exc}") from exc
    return choices[-1], {}


def _not_outweighed(table: Mapping[str, Any], prefix: str = PREFIX) -> dict[str, Any]:
    """Return what a file says and no variable says otherwise, tables entry by entry."""
    variables = {name.upper() for name in os.environ}
    left = {}
    for key, value in table.items():
        name = f"{prefix}{key}".upper()
        if name not in variables:
            left[key] = _not_outweighed(value, f"{name}__") if isinstance(value, dict) else value
    return left


_NOT_SETTINGS = {"SITE", "CACHE", "API_KEY", "TASK", "DECISION"}
"""Variables with the prefix that other parts read or set."""


def _variables() -> dict[str, str]:
    found = {}
    for name in os.environ:
        rest = name.removeprefix(PREFIX)
        if rest != name and rest not in _NOT_SETTINGS:
            found[rest.split("__")[0].lower()] = name
    return found


def _refuse_unknown(table: Mapping[str, Any], *, where: str) -> None:
    known = sorted(Settings.model_fields)
    for key in table:
        if key in known:
            continue
        near = difflib.get_close_matches(key, known, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(known)}"
        raise ConfigError(f"{where}: unknown setting {key!r}; {hint}")
