"""The README's example does what the README says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

README = Path(__file__).parents[2] / "README.md"


def test_the_example_prints_what_stands_below_it() -> None:
    text = README.read_text(encoding="utf-8")
    example = re.search(r"```python\n(.*?)```", text, re.DOTALL)
    printed = re.search(r"It prints `(.*?)`\.", text)
    assert example is not None
    assert printed is not None

    done = subprocess.run(
        [sys.executable, "-c", example[1]], capture_output=True, text=True, check=False, timeout=60
    )

    assert done.stdout.strip() == printed[1], done.stderr


def test_both_commands_are_targets_of_the_makefile() -> None:
    makefile = (README.parent / "Makefile").read_text(encoding="utf-8")

    for target in ("demo", "test"):
        assert f"\n{target}:" in makefile
        assert f"$ make {target}" in README.read_text(encoding="utf-8")
