"""Importing what a user wrote: an installed module, or a file of a campaign's folder.

Apart from the rest of a campaign, because every worker and job begins with it: with the campaign's
data model it would take twice as long.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import sys
import traceback
import types
from pathlib import Path

from .errors import ConfigError


def import_module(name: str, folder: Path | None, *, what: str = "campaign") -> types.ModuleType:
    """Import an installed module, or `NAME.py` of a campaign's folder.

    Two campaigns may both have a `campaign.py`: a folder's module is known to Python by the
    folder's path too, and never found by another campaign. For the same reason the modules of a
    folder cannot import one another; what they share belongs in an installed package.

    Raises:
        ConfigError: It cannot be imported; the message has the error and its line.
    """
    path = folder / f"{name}.py" if folder is not None else None
    if path is not None and not path.is_file():
        path = None
    if path is None and name == "campaign":
        raise ConfigError(f"{what}: {folder or 'the campaign'} has no campaign.py")
    try:
        return importlib.import_module(name) if path is None else _import_file(path)
    except SyntaxError as exc:
        raise ConfigError(f"{what}: {exc.filename}:{exc.lineno}: {exc.msg}") from exc
    except (Exception, SystemExit) as exc:
        problem = f"{type(exc).__name__}: {exc}"
        raise ConfigError(f"{what}: {_line(exc, path) or name} fails on import: {problem}") from exc


def _import_file(path: Path) -> types.ModuleType:
    digest = hashlib.sha256(bytes(path.resolve())).hexdigest()[:16]
    known_as = f"_batchgate_{path.stem}_{digest}"
    if known_as in sys.modules:
        return sys.modules[known_as]
    spec = importlib.util.spec_from_file_location(known_as, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[known_as] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[known_as]
        raise
    return module


def _line(exc: BaseException, path: Path | None) -> str:
    """Tell which line of a campaign's own file an error came through, `""` if none."""
    frames = traceback.extract_tb(exc.__traceback__)
    lines = [frame.lineno for frame in frames if path and frame.filename == str(path)]
    return f"{path}:{lines[-1]}" if lines else ""
