"""How the documentation is built: `sphinx-build -W docs docs/_build/html`."""
# ruff: noqa: PLR0917 - Sphinx calls its handlers with six arguments by place

import json
from importlib.metadata import version as version_of
from pathlib import Path
from typing import Any

import click
from docutils import nodes
from docutils.parsers.rst import Directive
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from sphinx.application import Sphinx

from batchgate.cli import main

project = "batchgate"
author = "the batchgate developers"
version = release = version_of("batchgate")

# No network is needed to build it: there is no intersphinx.
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = "batchgate"
html_copy_source = False
html_show_sourcelink = False

myst_heading_anchors = 3

# Docstrings write code in single backticks.
default_role = "code"
# The fields of a class stand in its `Attributes:` block and are not told twice.
napoleon_use_ivar = True
autodoc_default_options = {"members": True}
autodoc_type_aliases = {name: name for name in ("Producer", "Checks", "Fallback", "Feedback")}
autodoc_member_order = "bysource"
python_use_unqualified_type_names = True


def setup(app: Sphinx) -> None:
    """Connect the functions below; napoleon stands between at 500."""
    app.connect("autodoc-process-docstring", add_rules, priority=400)
    app.connect("autodoc-process-docstring", keep_text, priority=400)
    app.connect("autodoc-process-docstring", put_text_back, priority=600)
    app.connect("autodoc-process-signature", hide_fields)
    app.connect("autodoc-skip-member", skip_config)
    app.add_directive("command-help", CommandHelp)


def add_rules(
    app: Sphinx, what: str, name: str, obj: Any, options: object, lines: list[str]
) -> None:
    """Tell the default and the bounds of a pydantic model's fields in its `Attributes:` block."""
    if what != "class" or not issubclass(obj, BaseModel):
        return
    told: list[str] = []
    rules = ""
    for line in [*lines, ""]:
        field = obj.model_fields.get(line.strip().partition(":")[0])
        if rules and (field or not line.strip()):
            told.append(f"        {rules}")
            rules = ""
        if field:
            rules = rules_of(field)
        told.append(line)
    lines[:] = told


def rules_of(field: FieldInfo) -> str:
    """Return a field's bounds and default as a sentence."""
    words = {"ge": "at least", "gt": "above", "le": "at most", "lt": "below"}
    rules = [
        f"{word} {getattr(rule, key):.12g}"
        for rule in field.metadata
        for key, word in words.items()
        if hasattr(rule, key)
    ]
    default = None if field.is_required() else field.get_default(call_default_factory=True)
    match default:
        case bool() | int() | float() | str():
            rules.append(f"default `{json.dumps(default)}`")
        case Path():
            rules.append(f"default `{default}`")
    return ", ".join(rules).capitalize() + "." if rules else ""


kept: dict[str, list[str]] = {}


def keep_text(
    app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]
) -> None:
    """Keep what napoleon would take for something else."""
    if what in {"attribute", "data", "property"}:
        # Napoleon takes what stands before a colon in the first line for a type.
        kept[name] = list(lines)


def put_text_back(
    app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]
) -> None:
    """Put back what was kept."""
    lines[:] = kept.pop(name, lines)


def hide_fields(
    app: Sphinx, what: str, name: str, obj: Any, *rest: object
) -> tuple[str, None] | None:
    """Leave out a pydantic model's signature, which repeats every field with all of its rules."""
    return ("", None) if what == "class" and issubclass(obj, BaseModel) else None


def skip_config(app: Sphinx, what: str, name: str, *rest: object) -> bool | None:
    """Leave out how pydantic is configured."""
    return True if name == "model_config" else None


class CommandHelp(Directive):
    """Shows what `batchgate COMMAND --help` prints; without an argument, `batchgate --help`."""

    optional_arguments = 1

    def run(self) -> list[nodes.Node]:
        command: click.Command = main
        context = click.Context(
            main, info_name="batchgate", terminal_width=78, **main.context_settings
        )
        for name in self.arguments:
            command = main.get_command(click.Context(main), name)
            context = click.Context(command, parent=context, info_name=name)
        text = command.get_help(context)
        return [nodes.literal_block(text, text, language="text")]
