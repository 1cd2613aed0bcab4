"""A model server that dies, hangs, does not start or does not end."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import stat
import sys
from pathlib import Path

import pytest

from batchgate.errors import ConfigError, ProducerError, ServerError
from batchgate.producers import Endpoint, VllmServer, group
from batchgate.producers import server as server_module
from batchgate.producers.connection import Connection
from batchgate.testing import ScriptedServer, completion, cut, hang

FAKE = (sys.executable, str(Path(__file__).with_name("fake_vllm.py")), "serve")


@pytest.fixture
def make(tmp_path, monkeypatch):
    """Return a function that makes a server; nothing of one may be left at the end."""
    monkeypatch.setattr("batchgate.producers.probe._LOOK_S", 0.05)
    (tmp_path / "model").mkdir()
    log = tmp_path / "run" / "vllm.log"

    def made(modes: str = "", *, env=None, **options) -> VllmServer:
        options = {"command": FAKE, "ready_s": 30.0, "grace_s": 5.0, "backoff_s": 0.0, **options}
        options = {"look_s": 0.05, "answer_s": 0.5, "stall_s": 1.0, **options}
        variables = {"FAKE_VLLM": modes, "FAKE_HANG": str(tmp_path / "hang"), **(env or {})}
        return VllmServer(path=str(tmp_path / "model"), log=log, env=variables, **options)

    yield made
    assert group.marked(str(log)) == []


async def answers(server: VllmServer | Endpoint) -> bool:
    connection = Connection(server.url)
    try:
        await connection.request("GET", "/health", deadline_s=10)
    except ProducerError:
        return False
    finally:
        await connection.aclose()
    return True


def processes(server: VllmServer) -> list[int]:
    return group.marked(str(server.log))


class TestStart:
    async def test_it_is_ready_under_its_name_in_a_private_folder(self, make):
        async with make() as server:
            folder = Path(server.url.removeprefix("unix:")).parent
            mode = stat.S_IMODE(folder.stat().st_mode)

            assert await answers(server)
            assert server.model == "model"
            assert mode == 0o700

        assert not folder.exists()

    async def test_its_temporary_files_go_with_it(self, make):
        async with make() as server:
            (pid,) = processes(server)
            variables = Path(f"/proc/{pid}/environ").read_text().split("\0")
            folder = Path(server.url.removeprefix("unix:")).parent

        assert f"TMPDIR={folder}" in variables
        assert not folder.exists()

    async def test_log_is_ours_alone_and_holds_what_it_prints(self, make):
        async with make() as server:
            assert "fake vLLM starts" in server.log.read_text()
            assert stat.S_IMODE(server.log.stat().st_mode) == 0o600

    async def test_its_arguments_name_the_backend_and_forbid_white_space(self, make):
        async with make(flags=("--dtype", "float32")) as server:
            said = server.log.read_text()

        assert r"{\"backend\":\"xgrammar\",\"disable_any_whitespace\":true}" in said
        assert '"--dtype", "float32"' in said
        assert '"serve", "' in said

    async def test_module_gets_the_model_as_an_option(self, make):
        async with make(command=FAKE[:-1], model="smol") as server:
            said = server.log.read_text()

        assert '"--model", "' in said

    async def test_it_may_listen_on_loopback(self, make):
        async with make(port=0) as server:
            assert server.url.startswith("http://127.0.0.1:")
            assert f'"--port", "{server.url.rpartition(":")[2]}"' in server.log.read_text()
            assert await answers(server)

    async def test_neither_our_settings_nor_our_pythonpath_reach_it(self, make):
        environ = {**os.environ, "BATCHGATE_API_KEY": "s3cret", "PYTHONPATH": "/x"}
        async with make(environ=environ) as server:
            (pid,) = processes(server)
            variables = Path(f"/proc/{pid}/environ").read_bytes()

        assert b"s3cret" not in variables
        assert b"PYTHONPATH" not in variables
        assert b"HF_HUB_OFFLINE=1" in variables

    async def test_progress_is_told_while_it_starts(self, make, monkeypatch):
        monkeypatch.setattr("batchgate.producers.probe._TELL_S", 0)
        lines: asyncio.Queue[str] = asyncio.Queue()
        server = make("unready", progress=lines.put_nowait)
        starting = asyncio.create_task(server.start())

        line = await lines.get()
        starting.cancel()
        await asyncio.wait([starting])
        await server.stop()

        assert "the model server starts" in line


class TestNoStart:
    async def test_death_at_the_start_tells_the_code_and_the_log(self, make):
        server = make("die")

        with pytest.raises(ServerError, match=r"exited with 1.*no engine today") as caught:
            await server.start()
        await server.stop()

        assert str(server.log) in str(caught.value)

    async def test_server_that_never_gets_ready_is_ended(self, make):
        server = make("unready", ready_s=2.0)

        with pytest.raises(ServerError, match=r"not ready after 2 s.*503"):
            await server.start()
        await server.stop()

        assert processes(server) == []

    async def test_server_that_ignores_the_schema_is_never_ready(self, make):
        with pytest.raises(ServerError, match="ignores the schema"):
            async with make("unbound", ready_s=2.0):
                pass

    async def test_deaf_server_that_never_gets_ready_is_killed_at_once(self, make):
        server = make("unready deaf parent", ready_s=2.0, grace_s=600.0)

        with pytest.raises(ServerError):
            await server.start()

        assert processes(server) == []
        await server.stop()

    async def test_cancelled_start_leaves_nothing(self, make):
        server = make("unready")
        starting = asyncio.create_task(server.start())
        while not processes(server):
            await asyncio.sleep(0.01)
        starting.cancel()

        with pytest.raises(asyncio.CancelledError):
            await starting
        await server.stop()

        assert processes(server) == []

    async def test_port_in_use_is_told_before_anything_starts(self, make):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            server = make(port=taken.getsockname()[1])

            with pytest.raises(ConfigError, match=r"cannot be used.*choose another"):
                await server.start()

        assert not server.log.exists()

    async def test_missing_program_is_told_with_the_remedy(self, make):
        with pytest.raises(ConfigError, match=r"/none/vllm.*batchgate vllm-env"):
            await make(command=("/none/vllm", "serve")).start()

    async def test_program_that_cannot_run_is_told(self, make, tmp_path):
        broken = tmp_path / "broken"
        broken.write_text("#!/no/interpreter\n")
        broken.chmod(0o700)
        server = make(command=(str(broken), "serve"))

        with pytest.raises(ServerError, match="cannot be started"):
            await server.start()
        await server.stop()

    async def test_missing_model_is_told_with_the_remedy(self, tmp_path):
        server = VllmServer(path=str(tmp_path / "none"), log=tmp_path / "log", command=FAKE)

        with pytest.raises(ConfigError, match=r"no model at .*batchgate vllm-env"):
            await server.start()

    async def test_empty_command_is_told(self, make):
        with pytest.raises(ConfigError, match="command is empty"):
            await make(command=()).start()

    async def test_long_temporary_folder_is_passed_over(self, make, tmp_path):
        long = tmp_path / ("x" * 120)
        long.mkdir()
        environ = {**os.environ, "TMPDIR": str(long), "XDG_RUNTIME_DIR": str(tmp_path / "none")}

        async with make(environ=environ) as server:
            assert await answers(server)
            assert str(long) not in server.url

    async def test_no_place_for_a_socket_is_told(self, make, monkeypatch):
        monkeypatch.setattr("tempfile.mkdtemp", lambda **_: os.mkdir("/proc/none"))  # noqa: PTH102

        with pytest.raises(ConfigError, match="set a short TMPDIR"):
            await make().start()

    def test_log_that_is_gone_is_told(self, tmp_path):
        assert server_module._tail(tmp_path / "none") == "there is no log"
        (tmp_path / "empty").touch()
        assert server_module._tail(tmp_path / "empty") == "it said nothing"


class TestWatch:
    async def test_death_is_seen(self, make):
        async with make() as server:
            watching = asyncio.create_task(server.watch())
            for pid in processes(server):
                os.kill(pid, signal.SIGKILL)

            assert "SIGKILL, perhaps for want of memory" in await watching

    async def test_hang_is_seen_while_the_health_page_is_fine(self, make, tmp_path):
        async with make() as server:
            (tmp_path / "hang").touch()
            problem = await server.watch()

            assert "no token for" in problem
            assert await answers(server)

    async def test_server_that_was_not_started_cannot_be_watched(self, make):
        with pytest.raises(ServerError, match="start it first"):
            await make().watch()


class TestRestart:
    async def test_it_comes_back_at_the_same_place(self, make):
        async with make() as server:
            place, before = server.url, processes(server)
            for pid in before:
                os.kill(pid, signal.SIGKILL)
            await server.watch()

            await server.restart()

            assert server.url == place
            assert await answers(server)
            assert set(processes(server)).isdisjoint(before)

    async def test_hung_server_is_replaced(self, make, tmp_path):
        async with make("deaf", grace_s=0.1) as server:
            (tmp_path / "hang").touch()
            await server.watch()
            (tmp_path / "hang").unlink()

            await server.restart()

            assert len(processes(server)) == 1

    async def test_it_is_not_started_without_end(self, make):
        async with make(restarts=1) as server:
            await server.restart()
            with pytest.raises(ServerError, match="was started 2 times"):
                await server.restart()


class TestStop:
    async def test_every_process_is_gone_wherever_it_went(self, make):
        async with make("deaf parent", grace_s=0.1) as server:
            before = processes(server)

        assert len(before) == 3
        assert processes(server) == []

    async def test_children_are_ended_when_their_parent_was_killed(self, make):
        async with make("parent") as server:
            leader = server._running.process.pid
            os.kill(leader, signal.SIGKILL)
            await server.watch()
            assert len(processes(server)) == 2

        assert processes(server) == []

    async def test_stopping_twice_or_before_the_start_does_nothing(self, make):
        server = make()
        await server.stop()
        async with server:
            pass
        await server.stop()

        assert processes(server) == []

    async def test_next_life_ends_what_an_earlier_one_left(self, make):
        left = make("parent deaf")
        await left.start()
        before = processes(left)

        async with make() as server:
            assert set(processes(server)).isdisjoint(before)
            assert len(processes(server)) == 1

        await left.stop()

    async def test_process_that_cannot_be_ended_is_named(self, make, monkeypatch):
        async with make() as server:
            with monkeypatch.context() as patched:
                patched.setattr("batchgate.producers.server._KILL_S", 0.1)
                patched.setattr(os, "kill", lambda *_: None)
                server.grace_s = 0.1
                running = server._running
                patched.setattr(running.process, "terminate", lambda: None)
                with pytest.raises(ServerError, match=rf"\[{running.process.pid}\].*by hand"):
                    await server.stop()
            await group.kill(str(server.log), within_s=10)
            await running.exited


class TestEndpoint:
    canary = completion("7", finish_reason="length")

    async def test_it_is_asked_the_same_questions(self):
        async with ScriptedServer([self.canary], model="m") as there:
            endpoint = Endpoint(url=there.url, model="m", environ={"BATCHGATE_API_KEY": "k"})
            assert await endpoint.start() >= 0
            await endpoint.stop()
            await endpoint.stop()

        assert [request.path for request in there.requests] == [
            "/health",
            "/v1/models",
            "/v1/chat/completions",
        ]
        assert there.requests[0].headers["authorization"] == "Bearer k"

    async def test_one_that_does_not_get_ready_is_told(self):
        with pytest.raises(ServerError, match="not ready after 0"):
            await Endpoint(url="unix:/none", model="m", ready_s=0).start()

    async def test_hang_is_seen(self):
        script = [self.canary, hang(), hang(), hang(), hang()]
        async with ScriptedServer(script, model="m") as there:
            endpoint = Endpoint(url=there.url, model="m", look_s=0, answer_s=0.1, stall_s=0.2)
            await endpoint.start()

            assert "no token for" in await endpoint.watch()
            await endpoint.stop()

    async def test_it_is_waited_for_again_so_often(self):
        async with ScriptedServer([self.canary] * 2, model="m") as there:
            endpoint = Endpoint(url=there.url, model="m", restarts=1)
            await endpoint.start()
            await endpoint.restart()
            with pytest.raises(ServerError, match="waited for 2 times"):
                await endpoint.restart()
            await endpoint.stop()


async def test_cut_connection_while_waiting_is_no_end():
    async with ScriptedServer([cut(), TestEndpoint.canary], model="m") as there:
        endpoint = Endpoint(url=there.url, model="m")
        await endpoint.start()
        await endpoint.stop()

    assert len(there.asked) == 2
