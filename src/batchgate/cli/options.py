"""Options that several commands share."""

from __future__ import annotations

import math
import tomllib
from typing import Any

import click

from ..errors import ConfigError

overrides_option = click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="KEY=VALUE",
    help="Replace a value of campaign.toml: --set stop.jobs=4, --set level.verify.timeout_s=5. "
    "The value is TOML; a bare word is a text. May be given several times.",
)


def parse_overrides(given: tuple[str, ...]) -> dict[str, Any]:
    """Read `KEY=VALUE` pairs.

    Raises:
        ConfigError: One of them is no pair.
    """
    found: dict[str, Any] = {}
    for text in given:
        key, equals, raw = text.partition("=")
        if not equals or not key.strip():
            raise ConfigError(f"--set {text}: write KEY=VALUE, for example --set stop.jobs=4")
        found[key.strip()] = _value(raw.strip())
    return found


def _value(raw: str) -> Any:
    try:
        value = tomllib.loads(f"value = {raw}")["value"]
    except tomllib.TOMLDecodeError:
        return raw
    # No value of a campaign may be NaN, so the word is meant.
    return raw if isinstance(value, float) and not math.isfinite(value) else value
