"""A stand-in for `vllm serve` that starts at once and misbehaves as `FAKE_VLLM` says.

Words of it: `die` at the start, `unready` for ever, `deaf` to SIGTERM, `parent` of a process that
leaves the session, `unbound` by a schema. While the file `FAKE_HANG` exists, no answer comes.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socketserver
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler
from pathlib import Path

MODES = set(os.environ.get("FAKE_VLLM", "").split())


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        if self.path == "/health" and "unready" in MODES:
            self.reply(503, {})
        elif self.path == "/v1/models":
            self.reply(200, {"data": [{"id": arguments.served_model_name}]})
        else:
            self.reply(200, {})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        hang = Path(os.environ.get("FAKE_HANG", "/nowhere"))
        while hang.exists():
            time.sleep(0.05)
        schema = body["response_format"]["json_schema"]["schema"]
        said = "Hello" if "unbound" in MODES else json.dumps(schema["const"])
        choice = {"message": {"content": said}, "finish_reason": "length"}
        self.reply(200, {"id": "x", "choices": [choice]})

    def reply(self, status: int, data: object) -> None:
        raw = json.dumps(data).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def address_string(self) -> str:
        return "client"


class Unix(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True


class Tcp(socketserver.ThreadingMixIn, socketserver.TCPServer):
    daemon_threads = True
    allow_reuse_address = True


parser = argparse.ArgumentParser()
parser.add_argument("words", nargs="*")
for name in ("--uds", "--host", "--port", "--served-model-name", "--model"):
    parser.add_argument(name)
arguments, _ = parser.parse_known_args()

sys.stdout.write(f"fake vLLM starts {json.dumps(sys.argv)}\n")
sys.stdout.flush()
if "die" in MODES:
    sys.exit("RuntimeError: no engine today")
if "deaf" in MODES:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
sleeper = [sys.executable, "-c", "import time; time.sleep(600)"]
if "parent" in MODES:
    subprocess.Popen(sleeper)
    subprocess.Popen(sleeper, start_new_session=True)
if arguments.uds:
    server: socketserver.BaseServer = Unix(arguments.uds, Handler)
else:
    server = Tcp((arguments.host, int(arguments.port)), Handler)
server.serve_forever(poll_interval=0.05)
