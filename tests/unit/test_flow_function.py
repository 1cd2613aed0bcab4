import json

import pytest

from batchgate.errors import ConfigError
from batchgate.flow.function import RESULT_BYTES, as_plain, call, check_size, describe, find


class Array:
    def tolist(self):
        return [1.5, 2]


class Unreadable(Exception):
    def __str__(self):
        raise RuntimeError("no text")


async def doubled(value, *, by=2):
    return value * by


def test_a_function_of_an_installed_module_is_found():
    assert find("os.path:basename", None)("/a/b") == "b"


def test_a_function_of_a_folder_is_found(tmp_path):
    (tmp_path / "campaign.py").write_text("def energy(c): return c['x']")

    assert find("campaign:energy", tmp_path)({"x": 3}) == 3


@pytest.mark.parametrize("use", ["os.path:nothing", "os.path:sep", "os.path", "os.path:"])
def test_what_is_no_function_is_refused_by_name(use):
    with pytest.raises(ConfigError, match=r"os\.path has no function"):
        find(use, None)


def test_the_value_is_given_by_position_and_the_rest_by_name():
    assert call(lambda c, n: (c, n), "candidate", {"n": 3}) == ("candidate", 3)


def test_an_async_function_is_awaited():
    assert call(doubled, 3, {"by": 4}) == 12


def test_arrays_and_their_scalars_become_plain():
    assert json.dumps({"a": Array()}, default=as_plain) == '{"a": [1.5, 2]}'


@pytest.mark.parametrize("odd", [object(), lambda: 7, (i for i in [1]), b"x", {1}])
def test_what_is_no_data_is_refused_by_its_type(odd):
    with pytest.raises(TypeError, match=rf"returned {type(odd).__name__}, must be plain data"):
        json.dumps(odd, default=as_plain)


def test_the_largest_result_passes_and_a_larger_one_does_not():
    check_size("x" * RESULT_BYTES)

    with pytest.raises(ValueError, match=r"has 1048577 bytes, must be at most 1048576"):
        check_size("x" * (RESULT_BYTES + 1))


@pytest.mark.parametrize(
    ("exc", "error"),
    [
        (ValueError("bad\nvalue"), "ValueError: bad value"),
        (SystemExit(), "SystemExit"),
        (Unreadable(), "Unreadable: (its text cannot be read)"),
        (ValueError("x" * 5000), ("ValueError: " + "x" * 5000)[:2000]),
    ],
)
def test_an_exception_is_described_on_one_line(exc, error):
    assert describe(exc)[0] == error


def test_the_tail_of_a_traceback_is_kept():
    tail = describe(ValueError("x" * 9000 + "end"))[1]

    assert len(tail) == 8000
    assert tail.endswith("xend\n")
