"""A campaign's function, found and called, where it runs: in a worker or in a job.

What it gives back must be data: what JSON has, non-finite floats, and whatever numpy turns into
these by `tolist`. As in JSON, a tuple becomes a list and a key becomes text.
"""

from __future__ import annotations

import asyncio
import inspect
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ..errors import ConfigError
from ..importing import import_module
from .output import one_line

RESULT_BYTES = 1 << 20
"""Most that a function may return, as JSON. It goes into the ledger, which is no place for more."""
TRACEBACK_CHARS = 8000


def find(use: str, folder: Path | None) -> Callable[..., Any]:
    """Return the function that `module:function` names.

    Args:
        use: The name.
        folder: Folder whose modules come first, or `None`.

    Raises:
        ConfigError: There is no such module or function; the message says which.
    """
    module_name, _, function_name = use.partition(":")
    module = import_module(module_name, folder, what=use)
    function = getattr(module, function_name, None)
    if not callable(function):
        raise ConfigError(f"{use}: {module_name} has no function {function_name!r}")
    return function  # type: ignore[no-any-return]


def call(function: Callable[..., Any], value: Any, args: Mapping[str, Any]) -> Any:
    """Call a function and return what it returned; one that is `async` is awaited.

    Args:
        function: The function.
        value: Its first argument, whatever it calls it.
        args: Further keyword arguments.
    """
    returned = function(value, **args)
    return asyncio.run(_awaited(returned)) if inspect.isawaitable(returned) else returned


def as_plain(value: Any) -> Any:
    """Turn a value that JSON does not have into one that it has; for `json.dumps(default=)`.

    Raises:
        TypeError: It is not data. The message is for the function's author.
    """
    if hasattr(value, "tolist"):
        return value.tolist()
    kind = type(value).__name__
    raise TypeError(f"the function returned {kind}, must be plain data: numbers, text, dict, list")


def check_size(text: str) -> None:
    """Refuse a result that is too long.

    Raises:
        ValueError: It has more than `RESULT_BYTES`. The message is for the function's author.
    """
    if len(text) > RESULT_BYTES:
        raise ValueError(f"the result has {len(text)} bytes, must be at most {RESULT_BYTES}")


def describe(exc: BaseException) -> tuple[str, str]:
    """Return an exception as `TaskEnd.error` and `TaskEnd.traceback` have it."""
    try:
        text = str(exc)
    except Exception:  # noqa: BLE001 - a campaign's own exception may have a broken __str__
        text = "(its text cannot be read)"
    name = type(exc).__name__
    tail = "".join(traceback.format_exception(exc))[-TRACEBACK_CHARS:]
    return one_line(f"{name}: {text}" if text else name), tail


async def _awaited(value: Any) -> Any:
    return await value
