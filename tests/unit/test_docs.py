"""Every example of the documentation is run, in the order of its page and in a folder of its own.

What a fenced block is follows from its language:

* `python` is run, and may await; all blocks of a page share their names.
* `pycon` is run as a doctest with the same names.
* `console` holds commands after `$ `, each with the output it must have; `...` stands for anything.
* `toml` is a whole campaign when its caption says `campaign.toml`, else some tables of one.
* Any block with a caption is written to the file of that name first.
* `sh` and `text` are not run: other programs' commands, and pictures.
"""

import ast
import asyncio
import contextlib
import doctest
import inspect
import io
import os
import re
import shlex
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import pytest
from pydantic import TypeAdapter

from batchgate.campaign import CampaignSpec, load
from batchgate.cli import exits, main
from batchgate.settings import Settings

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(
    str(p.relative_to(DOCS))
    for p in DOCS.rglob("*.md")
    if "_build" not in p.relative_to(DOCS).parts
)
FENCE = re.compile(r"^(`{3,})(.*)\n((?:.*\n)*?)\1$", re.MULTILINE)
NOT_RUN = {
    "sh",
    "text",
    "{toctree}",
    "{command-help}",
    "{eval-rst}",
    "{glossary}",
    "{note}",
    "{warning}",
    "{tip}",
}
PROGRAMS = {"batchgate", "cat", "ls", "python", "tail"}
LOOSELY = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


@dataclass
class Block:
    """A fenced block: its language, the file it is, its text."""

    language: str
    caption: str
    text: str


def blocks_of(page):
    for _, info, body in FENCE.findall((DOCS / page).read_text(encoding="utf-8")):
        directive, _, argument = info.partition(" ")
        caption = re.match(r":caption: (.*)\n+", body)
        text = body[caption.end() :] if caption else body
        language = argument if directive == "{code-block}" else info.strip() or "text"
        if directive in NOT_RUN:
            language = directive
        yield Block(language, caption[1] if caption else "", text)


def run_python(text, names):
    code = compile(text, "<example>", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    if code.co_flags & inspect.CO_COROUTINE:
        asyncio.run(eval(code, names))
    else:
        exec(code, names)


def run_doctest(text, names):
    example = doctest.DocTestParser().get_doctest(text, {}, "example", None, 0)
    example.globs = names
    told = io.StringIO()
    runner = doctest.DocTestRunner(optionflags=LOOSELY)
    with contextlib.redirect_stdout(told):
        runner.run(example, out=told.write, clear_globs=False)
    assert not runner.summarize(verbose=False).failed, told.getvalue()


def run_commands(text, folder):
    """Run `$ ` commands; one may fail only if `$ echo $?` asks for its exit code."""
    sessions = [part.partition("\n") for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]]
    code = 0
    for number, (command, _, wanted) in enumerate(sessions):
        if command == "echo $?":
            assert wanted.strip() == str(code)
            continue
        done = run_command(command, folder)
        code = done.returncode
        asked = sessions[number + 1 : number + 2]
        assert code == 0 or (asked and asked[0][0] == "echo $?"), f"{command}\n{done.stdout}"
        if wanted.strip():
            same = doctest.OutputChecker().check_output(wanted, done.stdout, LOOSELY)
            assert same, f"$ {command}\n{done.stdout}\nbut the page has\n{wanted}"


def run_command(command, folder):
    argv = shlex.split(command)
    assert argv[0] in PROGRAMS
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("BATCHGATE", "OTEL", "SLURM"))}
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        argv,
        cwd=folder,
        env={**kept, "PATH": path, "HOME": str(folder), "COLUMNS": "100"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
        timeout=300,
        check=False,
    )


def check_tables(text):
    """Validate each table of a part of a `campaign.toml`."""
    for key, value in tomllib.loads(text).items():
        annotation: Any = CampaignSpec.model_fields[key].annotation
        TypeAdapter(annotation).validate_python(value)


def run_block(block, folder, names):
    match block.language:
        case "python" if not block.caption:
            run_python(block.text, names)
        case "pycon":
            run_doctest(block.text, names)
        case "console":
            run_commands(block.text, folder)
        case "toml" if block.caption.endswith("batchgate.toml"):
            Settings(**tomllib.loads(block.text))
        case "toml" if not block.caption:
            check_tables(block.text)
        case "python" | "toml" | "markdown":
            assert block.caption
        case other:
            assert other in NOT_RUN, f"a block of {other!r} is not run by anything"


@pytest.mark.timeout(600)  # the tutorial runs campaigns
@pytest.mark.parametrize("page", PAGES)
def test_the_examples_of_a_page_do_what_it_says(page, tmp_path, monkeypatch):
    blocks = list(blocks_of(page))
    (tmp_path / "campaigns").symlink_to(ROOT / "campaigns")
    monkeypatch.chdir(tmp_path)
    for block in blocks:
        if block.caption:
            path = tmp_path / block.caption
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text, encoding="utf-8")
    for path in tmp_path.glob("*/campaign.toml"):
        load(path.parent)

    names = {"__name__": "__main__"}
    for block in blocks:
        run_block(block, tmp_path, names)


@pytest.mark.parametrize("page", PAGES)
def test_a_page_has_one_sentence_on_a_line(page):
    prose = FENCE.sub("", (DOCS / page).read_text(encoding="utf-8"))

    two = [line for line in prose.splitlines() if re.search(r"[a-z)`]\. [A-Z]", line)]

    # A row of a table cannot be broken.
    assert [line for line in two if not line.startswith("|")] == []


def test_every_dependency_has_its_reason():
    page = (DOCS / "explanation" / "dependencies.md").read_text(encoding="utf-8")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    needed = [re.split(r"[^\w.-]", entry)[0] for entry in project["dependencies"]]

    named = set(re.findall(r"`([^`]+)`", page))

    assert {*needed, *project["optional-dependencies"]} - named == set()


def test_the_commands_and_their_exit_codes_are_told():
    page = (DOCS / "reference" / "command.md").read_text(encoding="utf-8")

    told = re.findall(r"^```{command-help} (\S+)$", page, re.MULTILINE)

    assert sorted(told) == sorted(main.list_commands(click.Context(main)))
    assert (exits.__doc__ or "").partition("\n\n")[2].strip() in page
