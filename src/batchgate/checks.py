"""What a check is, and what its answer means: `Check.judge` is the one place that says so.

A check cannot pass by answering something odd, and what it raises is a rejection only where it
says so (`Check.rejects`); anything else is its own failure and says nothing of the value.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar, overload

from pydantic import ValidationError

from .breach import Breach
from .decision import PASSED, Fail, Rejected, Verdict, as_bool, cut, kind_of, texts

T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)

MAX_ERRORS: Final = 20
"""Errors told of one failed validation; the rest is counted."""

Answer = Verdict | bool | None
"""What a check may return: `None` and `True` pass, `False` does not, a `Verdict` says more."""
CheckFunction = Callable[[T], Answer | Awaitable[Answer]]
"""A check: a function of the value. It may also raise `Rejected`."""

REJECTIONS: Final[tuple[type[Exception], ...]] = (Rejected, ValidationError)


@dataclass(frozen=True, init=False)
class Check(Generic[T_contra]):
    """A check with its name and its rules. `check` and `as_check` make one of a function.

    To put something around a check, await its `judge` in a function of your own, and give that to
    `dataclasses.replace(check, function=own, thread=False, rejects=())`.

    Attributes:
        name: Name in every record. Few and short: it becomes a label.
        function: Called with the value; sync or async.
        hard: Whether it gates. A soft check is run in its place and only recorded.
        thread: Whether the function runs in a thread, with the caller's context variables. A
            sync function that takes long would hold up the event loop otherwise. A thread cannot
            be stopped: when the call is cancelled, the function still runs to its end.
        rejects: Exceptions that reject the value; any other is a failure. Narrow it to
            `(Rejected,)` for a check that uses pydantic inside, so that a `ValidationError` from
            a bug of its own does not pass for a bad value.
    """

    name: str
    function: CheckFunction[T_contra]
    hard: bool = True
    thread: bool = False
    rejects: tuple[type[Exception], ...] = REJECTIONS

    def __init__(
        self,
        name: str,
        function: CheckFunction[T_contra],
        hard: bool = True,
        thread: bool = False,
        rejects: tuple[type[Exception], ...] = REJECTIONS,
    ) -> None:
        if rejects is not REJECTIONS:
            _require_exceptions(rejects)
        fields = self.__dict__
        fields["name"] = name
        fields["function"] = function
        fields["hard"] = hard
        fields["thread"] = thread
        fields["rejects"] = rejects

    def __call__(self, value: T_contra) -> Answer | Awaitable[Answer]:
        """Call the function as it is."""
        return self.function(value)

    async def judge(self, value: T_contra) -> Verdict:
        """Run the function, and say what its answer means.

        Returns:
            A verdict; one that did not pass has at least one reason.

        Raises:
            TypeError: The function answered something that is no verdict.
            Exception: The check failed, which says nothing of the value. A time-out is a failure,
                and so is an `ExceptionGroup`, whatever it holds: a check with a `TaskGroup`
                inside must unwrap its rejections.
        """
        try:
            if self.thread:
                answer = await asyncio.to_thread(_called_in_thread, self.function, value)
            else:
                answer = self.function(value)
            if answer is None or answer is True:
                return PASSED
            if inspect.isawaitable(answer):
                answer = await answer
        except self.rejects as exc:
            return verdict_of(exc, by=self.name)
        return self._verdict(answer)

    def _verdict(self, answer: object) -> Verdict:
        if isinstance(answer, Verdict):
            if answer.passed or answer.reasons:
                return answer
            return Verdict(
                False,
                answer.score,
                self._default_reason(),
                answer.feedback,
                measured=answer.measured,
                check=answer.check,
                breaches=answer.breaches,
            )
        passed = True if answer is None else as_bool(answer)
        if passed is None:
            raise TypeError(
                f"check {self.name!r} returned {kind_of(answer)}; "
                "return None or True to pass, False or Fail(reason) to reject"
            )
        return PASSED if passed else Fail(self._default_reason())

    def _default_reason(self) -> str:
        lines = (_unwrapped(self.function).__doc__ or "").splitlines()
        return next((line.strip() for line in lines if line.strip()), f"{self.name} is false")


@overload
def check(function: CheckFunction[T], /) -> Check[T]: ...


@overload
def check(
    *,
    name: str | None = None,
    hard: bool = True,
    thread: bool = False,
    rejects: tuple[type[Exception], ...] = REJECTIONS,
) -> Callable[[CheckFunction[T]], Check[T]]: ...


def check(
    function: CheckFunction[T] | None = None,
    /,
    *,
    name: str | None = None,
    hard: bool = True,
    thread: bool = False,
    rejects: tuple[type[Exception], ...] = REJECTIONS,
) -> Check[T] | Callable[[CheckFunction[T]], Check[T]]:
    """Make a check of a function and say how it is to be run; a plain function needs none of it.

    Args:
        function: The function, when used without arguments.
        name: Instead of the function's own.
        hard: See `Check`, as for the rest.
        thread: Run it in a thread.
        rejects: Exceptions that reject.

    Raises:
        TypeError: `rejects` is not a tuple of `Exception` classes.
    """

    def made(function: CheckFunction[T]) -> Check[T]:
        return Check(name or name_of(function), function, hard, thread, rejects)

    return made if function is None else made(function)


def as_check(function: CheckFunction[T]) -> Check[T]:
    """Return a check as it is, and a function as a check of its own name.

    Raises:
        TypeError: It cannot be called.
    """
    if isinstance(function, Check):
        return function
    if not callable(function):
        raise TypeError(f"a check is {kind_of(function)}, must be a function of the value")
    return Check(name_of(function), function)


def name_of(function: Callable[..., object]) -> str:
    """Return a function's name as a label: without its module, and never `<lambda>`."""
    name = getattr(function, "__name__", None)
    if name is None:
        function = _unwrapped(function)
        name = getattr(function, "__name__", type(function).__name__)
    return str(name).strip("<>")


def verdict_of(error: Exception, *, by: str) -> Verdict:
    """Return the verdict that an exception stands for which counts as a rejection.

    Args:
        error: `Rejected`, a `ValidationError`, or one that a check's `rejects` names.
        by: Name of the check, or the producer's stage.
    """
    score, stage = None, None
    breaches: tuple[Breach, ...] = ()
    match error:
        case Rejected():
            score, stage, breaches = error.score, error.check, error.breaches
            own_words = type(error).__str__ is not Rejected.__str__
            reasons = texts(str(error)) if own_words else error.reasons
        case ValidationError():
            reasons = validation_reasons(error)
        case _:
            reasons = (cut(f"{by}: {type(error).__name__}: {error}"),)
    reasons = reasons or (f"rejected by {stage or by}",)
    return Verdict(False, score, reasons, check=stage, breaches=breaches)


def validation_reasons(error: ValidationError) -> tuple[str, ...]:
    """Return `place: message` for each error of a validation, without the input.

    Not `str(error)`: that repeats the start of the input, which may be private, and a link.
    """
    errors = error.errors(include_url=False, include_input=False, include_context=False)
    lines = []
    for item in errors[:MAX_ERRORS]:
        place = ".".join(map(str, item["loc"]))
        lines.append(cut(f"{place}: {item['msg']}" if place else item["msg"]))
    if len(errors) > MAX_ERRORS:
        lines.append(f"and {len(errors) - MAX_ERRORS} more errors")
    return tuple(lines)


def _require_exceptions(rejects: object) -> None:
    if not isinstance(rejects, tuple):
        raise TypeError(f"rejects is {kind_of(rejects)}, must be a tuple of exception classes")
    for kind in rejects:
        # A cancellation or a Ctrl-C is never a rejection, and those are no Exceptions.
        if not (isinstance(kind, type) and issubclass(kind, Exception)):
            raise TypeError(f"rejects has {kind!r}, must be a class derived from Exception")


def _unwrapped(function: Callable[..., object]) -> Callable[..., object]:
    while isinstance(function, functools.partial):
        function = function.func
    return function


def _called_in_thread(function: Callable[[T], object], value: T) -> object:
    try:
        return function(value)
    except StopIteration as exc:
        # A future cannot hold it: asyncio would wait for ever (Python 3.11).
        raise RuntimeError("check raised StopIteration") from exc
