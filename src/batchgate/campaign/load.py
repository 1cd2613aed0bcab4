"""From a folder (or the same data in Python) to a frozen `Campaign` whose functions are found.

A campaign's functions are plain ones: no import of this package is needed in `campaign.py`.
"""

from __future__ import annotations

import difflib
import hashlib
import importlib
import importlib.metadata
import importlib.util
import inspect
import tomllib
import types
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

from pydantic import BaseModel, ValidationError

from ..decision import PASSED, Fail, Rejected, Verdict
from ..errors import ConfigError
from ..importing import import_module
from .space import Candidate, Proposal, Space
from .spec import CampaignSpec, CheckUse, Level

ENTRY_POINTS = "batchgate.campaigns"
"""Entry-point group of installed campaigns; each names a package that holds the folder."""


class CandidateCheck(Protocol):
    """A domain check: problems of one candidate, as sentences the model can act on.

    A problem is a sentence, or `batchgate.Fail(sentence, measured=..., bound=..., field=...)`.
    """

    def __call__(
        self, candidate: Candidate, /, **args: Any
    ) -> Iterable[str | Fail] | str | Fail | None:
        """Yield or return problems; none means that the candidate passes."""
        ...


@dataclass(frozen=True)
class BoundCheck:
    """A domain check with its name and arguments.

    Attributes:
        name: Name in every record.
        function: The campaign's function.
        args: Keyword arguments given to it.
        hard: Whether it gates.
    """

    name: str
    function: Callable[..., Any]
    args: Mapping[str, Any]
    hard: bool = True

    def judge(self, candidate: Candidate) -> Verdict:
        """Return what the check says of one candidate: all of its problems at once.

        Raises:
            TypeError: The function returned something that is neither text nor texts.
            Exception: Whatever the function raises: a bug in it, not a rejection.
        """
        try:
            said = self._said(self.function(dict(candidate), **self.args))
        except Rejected as rejected:  # the other way in which a check may say no
            said = [Verdict(False, reasons=rejected.reasons, breaches=rejected.breaches)]
        if not said:
            return PASSED
        return Verdict(
            False,
            reasons=[one.reasons or f"{self.name} rejects it" for one in said],
            breaches=[breach for one in said for breach in one.breaches],
        )

    def problems(self, candidate: Candidate) -> list[str]:
        """Return the problems of one candidate as sentences; see `judge`."""
        return list(self.judge(candidate).reasons)

    def _said(self, found: object) -> list[Verdict]:
        if isinstance(found, (str, Fail)):
            found = [found] if found != "" else []
        if found is None:
            return []
        if not isinstance(found, Iterable):
            raise TypeError(
                f"check {self.name!r} returned {type(found).__name__}; "
                "yield one sentence for each problem, or nothing"
            )
        return [self._problem(one) for one in found]

    def _problem(self, said: object) -> Verdict:
        if isinstance(said, (str, Fail)):
            return said if isinstance(said, Fail) else Fail(said)
        raise TypeError(
            f"check {self.name!r} yielded {type(said).__name__}, must be a sentence or a Fail"
        )


@dataclass(frozen=True)
class Campaign:
    """What a user wrote, validated and frozen. Make it with `load` or `Campaign.of`.

    Attributes:
        spec: The data of `campaign.toml`.
        folder: Where functions of `campaign:` come from; `None` when all are installed.
        checks: The domain checks, in order.
        prompt: Text of `prompt.md`, `""` without one.
        proposal_model: Pydantic model of a proposal.
    """

    spec: CampaignSpec
    folder: Path | None
    checks: tuple[BoundCheck, ...]
    prompt: str
    proposal_model: type[Proposal]
    _modules: dict[str, types.ModuleType] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def of(
        cls,
        spec: CampaignSpec | Mapping[str, Any],
        *,
        folder: Path | None = None,
        prompt: str | None = None,
    ) -> Campaign:
        """Build a campaign from its data; `load` does so for a folder.

        Args:
            spec: The data, or a mapping shaped like `campaign.toml`.
            folder: Folder that holds `campaign.py`, when `campaign:` functions are named.
            prompt: Context for the model, instead of the folder's file.

        Raises:
            ConfigError: The data is not valid, or a function cannot be found.
        """
        if not isinstance(spec, CampaignSpec):
            spec = _validated(spec, where=str(folder / "campaign.toml") if folder else "campaign")
        modules: dict[str, types.ModuleType] = {}
        checks = tuple(_bind(use, folder, modules) for use in spec.check)
        names = [*(check.name for check in checks), *(level.name for level in spec.level)]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ConfigError(f"{twice} name more than one check or level: give each a name = ...")
        for level in spec.level:
            for name in filter(None, (level.use, level.parse)):
                _resolve(name, folder, modules, what=f"level {level.name!r}")
        if prompt is None:
            prompt = _read_prompt(folder, spec.campaign.prompt)
        return cls(spec, folder, checks, prompt, _proposal(spec, folder, modules), modules)

    @cached_property
    def space(self) -> Space:
        """The search space."""
        return self.spec.space

    @cached_property
    def candidate_model(self) -> type[BaseModel]:
        """Pydantic model of one candidate, for answers of one candidate each."""
        return self.space.candidate_model()

    def inputs(self, candidate: Candidate) -> dict[str, Any]:
        """Return a candidate together with the campaign's constants, as functions get it."""
        return {**self.spec.constants, **candidate}

    def problems(self, candidate: Candidate, *, hard_only: bool = True) -> list[str]:
        """Return what the space and the domain checks say of a candidate, cheapest first.

        The checks see it only when it lies in the space.
        """
        if found := list(self.space.problems(candidate)):
            return found
        given = self.inputs(candidate)
        return [
            problem
            for check in self.checks
            if check.hard or not hard_only
            for problem in check.problems(given)
        ]

    def files(self) -> dict[str, str]:
        """Return the SHA-256 of the prompt and of `campaign.py`, by their names.

        Raises:
            ConfigError: `campaign.py` cannot be read.
        """
        found = {self.spec.campaign.prompt: self.prompt.encode()} if self.prompt else {}
        code = self.folder / "campaign.py" if self.folder else None
        try:
            if code is not None and code.is_file():
                found[code.name] = code.read_bytes()
        except OSError as exc:
            raise ConfigError(f"{code} cannot be read: {exc.strerror}") from exc
        return {name: hashlib.sha256(data).hexdigest() for name, data in sorted(found.items())}

    def resolve(self, use: str, *, what: str) -> Callable[..., Any]:
        """Return a function by its name, `module:function`; `what` begins an error's message.

        Raises:
            ConfigError: There is no such function.
        """
        return _resolve(use, self.folder, dict(self._modules), what=what)

    def parse(self, level: Level) -> Callable[[Path], Any]:
        """Return the function that reads a command's result file."""
        assert level.parse is not None
        return self.resolve(level.parse, what=f"level {level.name!r}")


def load(where: str | Path, *, overrides: Mapping[str, Any] | None = None) -> Campaign:
    """Load a campaign from a folder, or an installed one by its name.

    Args:
        where: Path of a folder with `campaign.toml`, or a name of the entry-point group
            `batchgate.campaigns`.
        overrides: Dotted keys of the TOML to values that replace the file's, for example
            `{"stop.jobs": 4}`.

    Raises:
        ConfigError: There is no such campaign, or it is not valid; the message says where.
    """
    folder = _find(where)
    path = folder / "campaign.toml"
    try:
        raw = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"{folder} has no campaign.toml, so it is no campaign") from None
    except (OSError, UnicodeDecodeError) as exc:
        raise ConfigError(f"{path} cannot be read: {exc}") from exc
    except tomllib.TOMLDecodeError as exc:
        raise ConfigError(f"{path}: {exc}") from exc
    for key, value in (overrides or {}).items():
        _override(raw, key, value)
    return Campaign.of(_validated(raw, where=str(path)), folder=folder)


def _find(where: str | Path) -> Path:
    folder = Path(where)
    if folder.is_dir():
        return folder.resolve()
    entries = {e.name: e for e in importlib.metadata.entry_points(group=ENTRY_POINTS)}
    if str(where) in entries:
        return _installed(entries[str(where)])
    near = difflib.get_close_matches(str(where), entries)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    raise ConfigError(f"{where} is neither a folder nor an installed campaign{hint}")


def _installed(entry: importlib.metadata.EntryPoint) -> Path:
    try:
        module = entry.load()
    except Exception as exc:
        raise ConfigError(f"installed campaign {entry.name!r} ({entry.value}): {exc}") from exc
    if getattr(module, "__file__", None) is None:
        raise ConfigError(f"installed campaign {entry.name!r} names {entry.value}, no package")
    return Path(module.__file__).resolve().parent


def _override(raw: dict[str, Any], key: str, value: Any) -> None:
    """Set `a.b.c`; an array of tables is entered by its entry's name or number."""
    *parents, last = key.split(".")
    here: Any = raw
    for part in parents:
        if isinstance(here, list):
            named = [e for e in here if isinstance(e, dict) and e.get("name") == part]
            numbered = [e for i, e in enumerate(here) if str(i) == part]
            if not (named or numbered):
                raise ConfigError(f"--set {key}: there is no {part!r}")
            here = (named or numbered)[0]
        else:
            here = here.setdefault(part, {})
        if not isinstance(here, (dict, list)):
            raise ConfigError(f"--set {key}: {part!r} is a value, not a table")
    if isinstance(here, list):
        raise ConfigError(f"--set {key}: {last!r} is an entry, name a key of it")
    here[last] = value


def _validated(raw: Mapping[str, Any], *, where: str) -> CampaignSpec:
    try:
        return CampaignSpec.model_validate(raw)
    except ValidationError as exc:
        raise ConfigError(f"{where} is not valid:\n{explain(exc, CampaignSpec)}") from exc


def explain(error: ValidationError, model: type[BaseModel]) -> str:
    """Tell each error of a validation on a line, unknown keys with the nearest known one."""
    lines = []
    for item in error.errors(include_url=False, include_context=False):
        at = ".".join(str(part) for part in item["loc"])
        if item["type"] == "extra_forbidden":
            known = _known_keys(model, item["loc"][:-1])
            near = difflib.get_close_matches(str(item["loc"][-1]), known, n=1, cutoff=0.5)
            hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(known)}"
            lines.append(f"  {at}: unknown key; {hint}")
        else:
            lines.append(f"  {at or 'the whole'}: {item['msg'].removeprefix('Value error, ')}")
    return "\n".join(lines)


def _known_keys(model: type[BaseModel], loc: tuple[int | str, ...]) -> list[str]:
    for part in loc:
        if part in model.model_fields:
            model = _inner_model(model.model_fields[str(part)].annotation) or model
    return sorted(model.model_fields)


def _inner_model(annotation: Any) -> Any:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for arg in getattr(annotation, "__args__", ()):
        if (found := _inner_model(arg)) is not None:
            return found
    return None


def _bind(use: CheckUse, folder: Path | None, modules: dict[str, types.ModuleType]) -> BoundCheck:
    function = _resolve(use.use, folder, modules, what="check")
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        raise ConfigError(f"check: {use.use} is async, must be a plain function")
    name = str(use.name or getattr(function, "__name__", type(function).__name__))
    return BoundCheck(name, function, use.args, use.hard)


def _resolve(
    use: str, folder: Path | None, modules: dict[str, types.ModuleType], *, what: str
) -> Callable[..., Any]:
    module_name, _, function_name = use.partition(":")
    if module_name not in modules:
        modules[module_name] = import_module(module_name, folder, what=what)
    module = modules[module_name]
    function = getattr(module, function_name, None)
    if function is None:
        near = difflib.get_close_matches(function_name, dir(module), n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ConfigError(f"{what}: {module_name} has no {function_name!r}{hint}")
    if not callable(function):
        raise ConfigError(f"{what}: {use} is {type(function).__name__}, not a function")
    return function  # type: ignore[no-any-return]


def _proposal(
    spec: CampaignSpec, folder: Path | None, modules: dict[str, types.ModuleType]
) -> type[Proposal]:
    ask = spec.producer
    if spec.campaign.proposal is None:
        return spec.space.proposal_model(batch=ask.batch, rationale_chars=ask.rationale_chars)
    model = _resolve(spec.campaign.proposal, folder, modules, what="campaign.proposal")
    if not (isinstance(model, type) and issubclass(model, Proposal)):
        raise ConfigError(
            f"campaign.proposal: {spec.campaign.proposal} must derive from batchgate.Proposal"
        )
    return model


def _read_prompt(folder: Path | None, name: str) -> str:
    if folder is None:
        return ""
    path = (folder / name).resolve()
    if not path.is_relative_to(folder.resolve()):
        raise ConfigError(f"campaign.prompt is {name!r}, which lies outside {folder}")
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        if name == "prompt.md":
            return ""
        raise ConfigError(f"campaign.prompt: {path} does not exist") from None
    except (OSError, UnicodeDecodeError) as exc:
        raise ConfigError(f"campaign.prompt: {path} cannot be read: {exc}") from exc
