"""Imports the modules that need the extra `surrogate`, and says how to install it."""

from __future__ import annotations

import importlib
from types import ModuleType

from ..errors import ConfigError

_LIBRARIES = {"gest_api", "numpy", "scipy", "sklearn"}


def load_extra(module: str) -> ModuleType:
    """Import a module of this package, given as `.name`.

    Raises:
        ConfigError: One of the libraries is not installed.
    """
    try:
        return importlib.import_module(module, __package__)
    except ModuleNotFoundError as exc:
        library = (exc.name or "").partition(".")[0]
        if library not in _LIBRARIES:
            raise
        raise ConfigError(
            f'the surrogate needs {library}: pip install "batchgate[surrogate]"'
        ) from exc
