"""From a folder to a campaign: what is found, and what is said of what is wrong."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from batchgate.campaign import Campaign, load
from batchgate.errors import ConfigError

TOML = """
[campaign]
name = "parabola"

[variables]
x = { domain = [-10, 10] }

[constants]
shift = 2.0

[objectives]
y = "MINIMIZE"

[[check]]
use = "campaign:low"

[[level]]
name = "cheap"
use = "campaign:value"
timeout_s = 5

[[level]]
name = "job"
use = "campaign:value"
timeout_s = 60
resources = { nodes = 2 }

[fallback]

[stop]
node_h = 1.0
"""

CODE = """
def low(candidate):
    if candidate["x"] < candidate["shift"]:
        yield f"x={candidate['x']:g} is below {candidate['shift']:g}"


def value(candidate):
    return {"y": candidate["x"] ** 2}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write(tmp_path / "parabola")


def write(folder: Path, *, toml: str = TOML, code: str = CODE) -> Path:
    folder.mkdir()
    (folder / "campaign.toml").write_text(toml)
    (folder / "campaign.py").write_text(code)
    return folder


def changed(folder: Path, old: str, new: str) -> Path:
    assert old in TOML
    (folder / "campaign.toml").write_text(TOML.replace(old, new))
    return folder


def coded(folder: Path, code: str) -> Path:
    (folder / "campaign.py").write_text(code)
    return folder


def refused(where: Path, **options: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        load(where, **options)
    return str(caught.value)


def test_a_folder_becomes_a_campaign(folder: Path):
    (folder / "prompt.md").write_text("Find the lowest point.\n")

    campaign = load(folder)

    assert campaign.spec.campaign.name == "parabola"
    assert campaign.folder == folder.resolve()
    assert [check.name for check in campaign.checks] == ["low"]
    assert campaign.prompt == "Find the lowest point.\n"
    assert campaign.spec.objective == ("y", True)
    assert [level.name for level in campaign.spec.verifiers] == ["cheap"]
    assert campaign.spec.job.node_h == pytest.approx(2 * 60 / 3600)


def test_checks_see_the_constants(folder: Path):
    campaign = load(folder)

    assert campaign.candidate_model(x=1).model_dump() == {"x": 1.0}
    assert campaign.inputs({"x": 1.0}) == {"x": 1.0, "shift": 2.0}
    assert campaign.problems({"x": 1.0}) == ["x=1 is below 2"]
    assert campaign.problems({"x": 3.0}) == []


def test_checks_never_see_a_candidate_outside_the_space(folder: Path):
    coded(folder, "def low(candidate):\n    raise AssertionError\nvalue = low\n")

    assert load(folder).problems({"x": "rm -rf"}) == ["x='rm -rf' is not a number"]


def test_a_check_cannot_change_the_candidate(folder: Path):
    coded(folder, "def low(candidate):\n    candidate['x'] = 3\nvalue = low\n")
    candidate = {"x": 1.0}

    load(folder).problems(candidate)

    assert candidate == {"x": 1.0}


def test_a_soft_check_is_told_only_on_request(folder: Path):
    campaign = load(changed(folder, 'use = "campaign:low"', 'use = "campaign:low"\nhard = false'))

    assert campaign.problems({"x": 1.0}) == []
    assert campaign.problems({"x": 1.0}, hard_only=False) == ["x=1 is below 2"]


@pytest.mark.parametrize(
    ("body", "problems"),
    [
        ("return None", []),
        ("return []", []),
        ("return ''", []),
        ("return 'too low'", ["too low"]),
        ("return ['a', 'b']", ["a", "b"]),
        ("yield from ('a', 'b')", ["a", "b"]),
    ],
)
def test_a_check_yields_or_returns_sentences(folder: Path, body: str, problems: list[str]):
    campaign = load(coded(folder, f"def low(candidate):\n    {body}\nvalue = low\n"))

    assert campaign.problems({"x": 1.0}) == problems


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("return True", "check 'low' returned bool"),
        ("return False", "check 'low' returned bool"),
        ("return 3.5", "check 'low' returned float"),
        ("yield 3", "check 'low' yielded int, must be a sentence"),
        ("yield None", "check 'low' yielded NoneType"),
        ("return b'too low'", "check 'low' yielded int"),
    ],
)
def test_a_check_that_says_something_odd_is_never_a_pass(folder: Path, body: str, message: str):
    campaign = load(coded(folder, f"def low(candidate):\n    {body}\nvalue = low\n"))

    with pytest.raises(TypeError, match=message):
        campaign.problems({"x": 1.0})


def test_a_syntax_error_in_the_toml_is_told_with_its_line(folder: Path):
    (folder / "campaign.toml").write_text('[campaign]\nname = "a\n')

    message = refused(folder)

    assert "campaign.toml" in message
    assert "line 2" in message


def test_every_mistake_in_the_toml_is_told_at_once(folder: Path):
    changed(folder, "domain = [-10, 10]", "domain = [10, -10]")
    path = folder / "campaign.toml"
    path.write_text(path.read_text().replace("timeout_s = 5", "tmeout_s = 5"))

    message = refused(folder)

    assert "variables.x: domain is [10, -10], must be increasing" in message
    assert "level.0.tmeout_s: unknown key; did you mean 'timeout_s'?" in message
    assert "level.0.timeout_s: Field required" in message


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("[fallback]\n", "", "fallback: Field required"),
        ("node_h = 1.0", "", "stop.node_h: Field required"),
        ("node_h = 1.0", "node_h = 0.01", "reserves 0.0333333 node-hours"),
        ("[fallback]", "[fallbck]", "fallbck: unknown key; did you mean 'fallback'?"),
        ("domain = [-10, 10]", "domian = [-10, 10]", "did you mean 'domain'?"),
        ("[fallback]", "[fallback]\n[duplicates]\nqqq = 1", "known: digits, tolerance"),
        ('name = "cheap"', 'name = "job"', "level names must differ"),
        ('name = "cheap"', 'name = "low"', "['low'] name more than one check or level"),
        ('name = "parabola"', 'name = "../parabola"', "campaign.name: String should match"),
        ('y = "MINIMIZE"', 'y = "MINIMISE"', "objectives.y: Input should be 'MINIMIZE' or"),
        ('y = "MINIMIZE"', 'y = "MINIMIZE"\nz = "MAXIMIZE"', "at most 1 item"),
        ('y = "MINIMIZE"', 'shift = "MINIMIZE"', "['shift'] are both inputs and results"),
        ("shift = 2.0", "x = 2.0", "['x'] are both variables and constants"),
        ("shift = 2.0", "shift = nan", "finite number"),
        ("node_h = 1.0", "node_h = 1.0\ntarget = { z = 1 }", "['z'], which are no objectives"),
        ("timeout_s = 5", "timeout_s = 5\naccept = { y = 3 }", "a constraint is"),
        ("timeout_s = 5", "timeout_s = 5\nargs = { n = inf }", "args must be text, finite"),
        ("timeout_s = 5", "timeout_s = 5\nargs = { d = 2026-01-01 }", "args must be text"),
        (
            'use = "campaign:value"\ntimeout_s = 5',
            'command = ["a", "{result}"]\nparse = "campaign:value"\ntimeout_s = 5',
            "level 'cheap' is a verifier and needs use, not command",
        ),
        (
            'use = "campaign:value"\ntimeout_s = 60',
            'command = ["a"]\nparse = "campaign:value"\ntimeout_s = 60',
            "command must have '{result}'",
        ),
        (
            'use = "campaign:value"\ntimeout_s = 60',
            'command = ["a", "{result}"]\ntimeout_s = 60',
            "parse = 'module:function' goes with command",
        ),
        ('use = "campaign:value"\ntimeout_s = 60', "timeout_s = 60", "give either use"),
        ("[fallback]", '[producer]\nform = "samples"\nsamples = 2\nbatch = 3\n[fallback]', "batch"),
    ],
)
def test_a_mistake_in_the_data_says_where_and_what(folder: Path, old: str, new: str, message: str):
    assert message in refused(changed(folder, old, new))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("campaign:low", "campaign:lwo", "check: campaign has no 'lwo'; did you mean 'low'?"),
        ("campaign:value", "campaign:nothing", "level 'cheap': campaign has no 'nothing'"),
        ("campaign:low", "campaign:LIMIT", "check: campaign:LIMIT is int, not a function"),
        ("campaign:low", "campaign:late", "check: campaign:late is async, must be a plain"),
        ("campaign:low", "campaign:stream", "check: campaign:stream is async, must be a plain"),
        ("campaign:low", "no_such_module:low", "No module named 'no_such_module'"),
        ("campaign:low", "campaign..x:low", "check: campaign..x"),
    ],
)
def test_a_function_that_cannot_be_used_is_told_at_load(
    folder: Path, old: str, new: str, message: str
):
    more = "LIMIT = 3\nasync def late(c): return None\nasync def stream(c): yield 'x'\n"
    coded(folder, CODE + more)

    assert message in refused(changed(folder, old, new))


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("def low(:\n    pass", "campaign.py:1: "),
        ("x = 1\nraise KeyError('k')", "campaign.py:2 fails on import: KeyError: 'k'"),
        ("import sys\nsys.exit(0)", "campaign.py:2 fails on import: SystemExit: 0"),
        ("import no_such_thing", "campaign.py:1 fails on import: ModuleNotFoundError"),
    ],
)
def test_an_error_in_the_code_is_told_with_its_line(folder: Path, code: str, message: str):
    assert message in refused(coded(folder, code))


def test_a_folder_without_code_is_told(folder: Path):
    (folder / "campaign.py").unlink()

    assert "has no campaign.py" in refused(folder)


def test_what_is_no_campaign_is_told(tmp_path: Path):
    assert "has no campaign.toml" in refused(tmp_path)
    assert "neither a folder nor an installed campaign" in refused(tmp_path / "nowhere")


def test_a_campaign_file_that_is_no_text_is_told(folder: Path):
    (folder / "campaign.toml").write_bytes(b"\xff\xfe")

    assert "campaign.toml cannot be read" in refused(folder)


def test_two_campaigns_may_have_modules_of_the_same_name(tmp_path: Path):
    low = load(write(tmp_path / "one"))
    high = load(write(tmp_path / "two", code=CODE.replace("is below", "is under")))

    assert low.problems({"x": 1.0}) == ["x=1 is below 2"]
    assert high.problems({"x": 1.0}) == ["x=1 is under 2"]


@pytest.mark.parametrize("name", ["a'; echo foo", "a b", "ünïcode", "{candidate}", "a\nb", "%s"])
def test_a_hostile_folder_name_is_only_a_name(tmp_path: Path, name: str):
    assert load(write(tmp_path / name)).problems({"x": 1.0}) == ["x=1 is below 2"]


def test_overrides_replace_single_keys(folder: Path):
    campaign = load(
        folder,
        overrides={
            "stop.jobs": 4,
            "constants.shift": -1.0,
            "level.job.timeout_s": 30,
            "check.0.hard": False,
            "producer.batch": 2,
        },
    )

    assert campaign.spec.stop.jobs == 4
    assert campaign.spec.constants == {"shift": -1.0}
    assert campaign.spec.job.timeout_s == 30
    assert not campaign.checks[0].hard
    assert campaign.spec.producer.batch == 2


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("stop.jbs", "stop.jbs: unknown key; did you mean 'jobs'?"),
        ("level.nothing.timeout_s", "--set level.nothing.timeout_s: there is no 'nothing'"),
        ("level.job", "'job' is an entry, name a key of it"),
        ("campaign.name.first", "'name' is a value, not a table"),
        ("variables.x.domain.0", "'0' is an entry, name a key of it"),
        ("variables.x.domain.0.low", "'0' is a value, not a table"),
        ("variables.x.domain.7.low", "there is no '7'"),
    ],
)
def test_an_override_that_names_nothing_is_told(folder: Path, key: str, message: str):
    assert message in refused(folder, overrides={key: 1})


def test_a_campaign_is_known_by_its_data(folder: Path):
    one, same = load(folder), load(folder)
    other = load(folder, overrides={"stop.jobs": 4})

    assert len(one.spec.digest) == 64
    assert one.spec.digest == same.spec.digest
    assert one.spec.digest != other.spec.digest


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        ("../secret.md", "lies outside"),
        ("/etc/hostname", "lies outside"),
        ("none.md", "does not exist"),
        (".", "cannot be read"),
    ],
)
def test_a_prompt_is_a_file_of_the_folder(folder: Path, prompt: str, message: str):
    (folder.parent / "secret.md").write_text("secret")

    assert message in refused(changed(folder, "[variables]", f'prompt = "{prompt}"\n[variables]'))


def test_a_prompt_cannot_lead_outside_by_a_link(folder: Path):
    (folder.parent / "secret.md").write_text("secret")
    (folder / "prompt.md").symlink_to(folder.parent / "secret.md")

    assert "lies outside" in refused(folder)


def test_an_installed_campaign_is_found_by_its_name(folder: Path, monkeypatch: pytest.MonkeyPatch):
    package = SimpleNamespace(__file__=str(folder / "__init__.py"))
    install(monkeypatch, parabola=lambda: package)

    assert load("parabola").folder == folder.resolve()
    with pytest.raises(ConfigError, match="did you mean 'parabola'"):
        load("parabla")


def test_an_installed_campaign_that_cannot_be_loaded_is_told(monkeypatch: pytest.MonkeyPatch):
    def broken() -> Any:
        raise ImportError("no module named rebound")

    install(monkeypatch, broken=broken, empty=lambda: SimpleNamespace(__file__=None))

    with pytest.raises(ConfigError, match=r"'broken'.*no module named rebound"):
        load("broken")
    with pytest.raises(ConfigError, match="no package"):
        load("empty")


def install(monkeypatch: pytest.MonkeyPatch, **campaigns: Any) -> None:
    entries = [SimpleNamespace(name=n, value=n, load=make) for n, make in campaigns.items()]
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: entries)


def test_a_campaign_can_be_made_of_data_alone():
    campaign = Campaign.of(
        {
            "campaign": {"name": "data"},
            "variables": {"x": {"domain": (0, 1)}},
            "objectives": {"y": "MAXIMIZE"},
            "level": [{"name": "job", "use": "math:fsum", "timeout_s": 1}],
            "fallback": {},
            "stop": {"node_h": 1},
        },
        prompt="Find it.",
    )

    assert campaign.folder is None
    assert campaign.prompt == "Find it."
    assert campaign.spec.objective == ("y", False)


def test_a_proposal_model_of_ones_own_must_derive_from_proposal(folder: Path):
    own = "from batchgate.campaign import Proposal\nclass Own(Proposal):\n    mood: str\n"
    coded(folder, CODE + own + "class Other: pass\n")

    good = load(folder, overrides={"campaign.proposal": "campaign:Own"})

    assert "mood" in good.proposal_model.model_fields
    message = refused(folder, overrides={"campaign.proposal": "campaign:Other"})
    assert "campaign:Other must derive from batchgate.Proposal" in message


def test_the_function_that_reads_a_result_is_found(folder: Path):
    coded(folder, CODE + "def read(path):\n    return path.name\n")
    changed(
        folder,
        'use = "campaign:value"\ntimeout_s = 60',
        'command = ["a", "{result}"]\nparse = "campaign:read"\ntimeout_s = 60',
    )
    campaign = load(folder)

    assert campaign.parse(campaign.spec.job)(Path("a/result.json")) == "result.json"
