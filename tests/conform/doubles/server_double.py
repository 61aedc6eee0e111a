"""A server that keeps the contract, or breaks it in the one way it is told to. Standard library only, to start fast.

    python server_double.py serve --fault lazy --fault blocking --predict-ms 5

A front process speaks HTTP; a child of it predicts, one photograph at a time. FAULTS says what can be broken; the
first ones are the published server's own (predecessors' A2: ping never touches the model, the handler blocks, no
conversion to RGB, 5 MB in nginx).
"""

import argparse
import base64
import contextlib
import hashlib
import io
import json
import os
import re
import signal
import socket
import socketserver
import struct
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler
from pathlib import Path

MIB = 2**20
MANY = 1000  # brackets, commas and backslashes, in a JSON body that is worth reading
WIDE = struct.pack(">I", 7000)  # of a PNG
FAULTS = {
    "lazy": "ping says 200 at once; the model is loaded in the first invocation",
    "blocking": "one thing at a time: nothing else is answered during a prediction, and some take 2.3 s",
    "grey-500": "a grey photograph is an internal error",
    "deaf": "SIGTERM is ignored",
    "patient": "waits for every open connection before it ends",
    "five-mb": "bodies above 5 MB are refused",
    "no-replacement": "a predictor that died stays dead, and ping says 200",
    "port-ignored": "listens on --port, whatever SAGEMAKER_BIND_TO_PORT says",
    "other-default": "listens on another port than 8080 when told nothing",
    "second-port": "listens on a port outside the safe range too",
    "drops": "SIGTERM ends it at once, whatever is in flight",
    "chatty-ping": "ping has a body",
    "flapping-ping": "every seventh ping is a 503",
    "oversize-silence": "a body above the limit gets no answer, and the connection stays open",
    "oversize-crash": "a body above the limit ends the server",
    "short-attributes": "custom attributes come back cut to 256 characters",
    "no-attributes": "custom attributes never come back, which is allowed",
    "strict-headers": "unknown headers are refused",
    "header-500": "a long header is an internal error",
    "wordless": "refusals have no body",
    "any-route": "every route is 200",
    "any-method": "POST /ping is 200",
    "bad-parameters": "execution parameters have the wrong types",
    "writes": "needs to write its state beside itself before it starts",
    "stale-lock": "does not start while the lock of an earlier run is there",
    "short-backlog": "accepts one connection at a time and queues four",
    "wrong-unit": "timings_ms are in microseconds",
    "wrong-metrics": "seconds in /metrics are milliseconds",
    "load-again-200": "loading a loaded model is 200, not 409",
    "unload-unknown-200": "unloading an unknown model is 200, not 404",
    "no-pong": "the stream opens, but pings get no pong",
    "stream": "the stream works, which is allowed",
    "hangs": "a truncated photograph is never answered",
    "hoards-trailers": "takes trailers without end into memory",
    "hoards-headers": "takes headers without end into memory",
    "json-blocks": "nothing else is answered while JSON is read, which takes 4 s where there are many lists",
    "json-hoards": "needs thirty times a JSON body's size in memory to read it",
    "json-500": "JSON that it cannot read is an internal error",
    "eight-places": "has eight places, which an upload takes as soon as it is promised",
    "wide-in-line": "a photograph of many pixels holds up everybody for 7 s",
    "many-in-line": "several photographs of many pixels in one request do",
    "keeps-memory": "never lets go of what it needed for a photograph of many pixels",
}


class Predictor:
    """A child process that answers each line with a line, after `predict_ms`."""

    SOURCE = (
        "import sys, time\n"
        "time.sleep({load})\n"
        "print('ready', flush=True)\n"
        "for line in sys.stdin:\n"
        "    time.sleep({predict})\n"
        "    print(line.strip(), flush=True)\n"
    )

    def __init__(self, load_ms: float, predict_ms: float) -> None:
        self.source = self.SOURCE.format(load=load_ms / 1000, predict=predict_ms / 1000)
        self.lock, self.ready, self.child, self.replaced, self.made = threading.RLock(), False, None, True, 0
        self.slow_every = 0

    def start(self) -> None:
        with self.lock:
            self.begin()
        if self.replaced:
            threading.Thread(target=self.watch, daemon=True).start()

    def begin(self) -> None:
        self.child = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", self.source], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.ready = self.child.stdout.readline() == "ready\n"

    def predict(self, text: str) -> bool:
        with self.lock:
            if self.child is None:
                self.start()
            self.made += 1
            if self.slow_every and self.made % self.slow_every == 0:
                time.sleep(2.3)
            with contextlib.suppress(OSError, ValueError):
                self.child.stdin.write(text + "\n")
                self.child.stdin.flush()
                return self.child.stdout.readline() == text + "\n"
        return False

    def hold_up(self, seconds: float) -> None:
        with self.lock:
            time.sleep(seconds)

    def watch(self) -> None:
        """Replace the child whenever it dies."""
        while True:
            self.child.wait()
            self.ready = False
            with self.lock:
                self.begin()


class Server(socketserver.ThreadingMixIn, socketserver.TCPServer):
    allow_reuse_address = True
    request_queue_size = 128
    block_on_close = True
    daemon_threads = False

    def server_activate(self) -> None:
        self.socket.listen(4 if "short-backlog" in self.faults else self.request_queue_size)

    def process_request(self, request: socket.socket, address: object) -> None:
        if {"blocking", "short-backlog"} & self.faults:
            socketserver.TCPServer.process_request(self, request, address)
        else:
            super().process_request(request, address)

    def handle_error(self, *_: object) -> None:
        return  # a caller that left


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def setup(self) -> None:
        if not {"patient", "eight-places"} & self.server.faults:
            self.request.settimeout(1)  # for a caller who stops in the middle
        super().setup()

    def log_message(self, *_: object) -> None:
        return

    def has(self, fault: str) -> bool:
        return fault in self.server.faults

    def say(self, status: int, body: object = None, **headers: str) -> None:
        data = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        if status >= 400 and self.has("wordless"):
            data = b""
        self.send_response(status)
        for name, value in {"Content-Length": str(len(data)), "Connection": "close", **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(data)
        self.close_connection = True

    def refuse(self, status: int, sentence: str) -> None:
        self.say(status, {"error": sentence, "hint": "send one photograph as image/jpeg or image/png"})

    def send_error(self, code: int, *_: object) -> None:
        """What http.server itself finds wrong: 431 above 64 KB of header, 501 for unknown methods."""
        self.refuse(500 if self.has("header-500") and code == 431 else code, "not understood")

    def parse_request(self) -> bool:
        if not self.has("hoards-headers"):
            return super().parse_request()
        head = [b""]
        while head[-1] != b"\r\n" and (line := self.rfile.readline()):
            head.append(line)
        rest, self.rfile = self.rfile, io.BytesIO(b"".join(head))
        try:
            return super().parse_request()
        finally:
            self.rfile = rest

    def do_GET(self) -> None:
        if self.path == "/ping":
            with self.server.reading:
                pass
            self.server.pings += 1
            if self.has("flapping-ping") and self.server.pings % 7 == 0:
                return self.refuse(503, "not just now")
            ready = self.server.predictor.ready or {"lazy", "no-replacement"} & self.server.faults
            return self.say(200 if ready else 503, b'{"status": "ok"}' if self.has("chatty-ping") else None)
        if self.path == "/execution-parameters":
            size = "6 MB" if self.has("bad-parameters") else 6
            return self.say(
                200, {"MaxConcurrentTransforms": 1, "BatchStrategy": "SINGLE_RECORD", "MaxPayloadInMB": size}
            )
        if self.path == "/metrics":
            return self.say(200, f"double_predict_seconds_sum {self.server.spent_s}\n".encode())
        if self.path == "/invocations-bidirectional-stream" and {"stream", "no-pong"} & self.server.faults:
            return self.stream()
        if self.path == "/models" or self.path.startswith("/models/"):
            return self.models_get()
        if self.has("any-route"):
            return self.say(200, {"hello": "there"})
        if self.path == "/invocations":
            return self.refuse(405, "POST a photograph")
        return self.refuse(404, "there is no such route")

    def do_DELETE(self) -> None:
        name = self.path.removeprefix("/models/")
        if not self.server.many or not self.path.startswith("/models/"):
            return self.refuse(405 if self.path == "/invocations" else 404, "there is no such thing to delete")
        if self.server.models.pop(name, None) is None and not self.has("unload-unknown-200"):
            return self.refuse(404, "no such model")
        return self.say(200, {"unloaded": name})

    def do_POST(self) -> None:
        body = self.body()
        if body is None:
            return None
        if self.path == "/ping":
            return self.say(200) if self.has("any-method") else self.refuse(405, "GET it")
        if self.path == "/invocations":
            return self.invoke(body)
        if self.server.many and self.path == "/models":
            return self.models_post(json.loads(body))
        if self.server.many and (found := re.fullmatch(r"/models/([^/]+)/invoke", self.path)):
            known = found.group(1) in self.server.models
            return self.invoke(body) if known else self.refuse(404, "no such model")
        return self.refuse(404, "there is no such route")

    def body(self) -> bytes | None:
        """What was sent, or None where it has been refused already."""
        if self.has("strict-headers") and any(name.startswith("X-Conform") for name in self.headers):
            return self.refuse(400, "unknown header")
        if "Transfer-Encoding" in self.headers:
            return self.chunks() if self.has("hoards-trailers") else self.refuse(411, "say the length")
        length = int(self.headers.get("Content-Length") or 0)
        if length > (5 * MIB if self.has("five-mb") else self.server.limit):
            return self.oversize()
        if not self.server.places.acquire(blocking=False):
            return self.refuse(503, "all places are taken")
        try:
            return self.rfile.read(length)
        finally:
            self.server.places.release()

    def chunks(self) -> bytes:
        body = b""
        while length := int(self.rfile.readline(), 16):
            body += self.rfile.read(length + 2)[:-2]
        trailers = [b""]
        while trailers[-1] != b"\r\n" and (line := self.rfile.readline()):
            trailers.append(line)
        return body

    def oversize(self) -> None:
        if self.has("oversize-crash"):
            os._exit(3)
        if self.has("oversize-silence"):
            return self.until_the_caller_leaves()
        return self.refuse(413, "too large")

    def until_the_caller_leaves(self) -> None:
        self.connection.settimeout(None)
        while self.rfile.read1(65536):
            pass
        self.close_connection = True

    def invoke(self, body: bytes) -> None:
        began = time.perf_counter()
        if self.has("hangs") and body.startswith(b"\xff\xd8") and not body.endswith(b"\xff\xd9"):
            return self.until_the_caller_leaves()
        if self.headers.get("Content-Type") == "application/json":
            return self.invoke_several(body)
        refused = self.refusal(body)
        if refused:
            return self.refuse(*refused)
        if body[16:20] == WIDE:
            self.wide()
        if not self.server.predictor.predict(hashlib.sha256(body).hexdigest()):
            return self.refuse(500, "the predictor is gone")
        seconds = time.perf_counter() - began
        self.server.spent_s += seconds * (1000 if self.has("wrong-metrics") else 1)
        took = seconds * (1e6 if self.has("wrong-unit") else 1e3)
        back = {}
        if (sent := self.headers.get("X-Amzn-SageMaker-Custom-Attributes")) and not self.has("no-attributes"):
            back["X-Amzn-SageMaker-Custom-Attributes"] = sent[: 256 if self.has("short-attributes") else 1024]
        return self.say(200, {"predictions": [1, 0, 0, 0, 0], "timings_ms": {"total": took}}, **back)

    def wide(self) -> None:
        if self.has("wide-in-line"):
            self.server.predictor.hold_up(7)
        if self.has("keeps-memory"):
            self.server.kept.append(b"x" * 100 * MIB)

    def invoke_several(self, body: bytes) -> None:
        """{"photographs": [base64, …]}; how much there is to read is looked at first."""
        if len(body) > MIB:
            if self.has("json-blocks") and body.count(b"]") > MANY:
                with self.server.reading:
                    time.sleep(4)
            if self.has("json-hoards"):
                hoard = b"x" * 30 * len(body)
                time.sleep(0.3)
                del hoard
        try:
            if sum(body.count(sign) for sign in (b"[", b",", b"\\")) > MANY:
                raise ValueError
            photographs = [base64.b64decode(text) for text in json.loads(body)["photographs"]]
        except (ValueError, KeyError, TypeError):
            return self.refuse(500 if self.has("json-500") else 400, "cannot read the JSON")
        if self.has("many-in-line") and photographs[0][16:20] == WIDE:
            self.server.predictor.hold_up(7)
        return self.say(200, {"predictions": [[1, 0, 0, 0, 0]] * len(photographs)})

    def refusal(self, body: bytes) -> tuple[int, str] | None:
        if body.startswith(b"\xff\xd8") and body.endswith(b"\xff\xd9"):
            frame = re.search(rb"\xff[\xc0\xc2]..\x08....(.)", body, re.DOTALL)
            if self.has("grey-500") and frame and frame.group(1) == b"\x01":
                return 500, "expected 3 channels, got 1"
            return None
        return None if body.startswith(b"\x89PNG") else (400, "cannot read the photograph")

    def models_get(self) -> None:
        name = self.path.removeprefix("/models").strip("/")
        found = [{"modelName": key, "modelUrl": url} for key, url in self.server.models.items()]
        if not self.server.many or (name and name not in self.server.models):
            return self.refuse(404, "no such model")
        return self.say(200, next(m for m in found if m["modelName"] == name) if name else {"models": found})

    def models_post(self, asked: dict[str, str]) -> None:
        name = asked["model_name"]
        if name in self.server.models and not self.has("load-again-200"):
            return self.refuse(409, "loaded already")
        if len(self.server.models) >= 4 and name not in self.server.models:
            return self.refuse(507, "no memory")
        self.server.models[name] = asked["url"]
        return self.say(200, {"loaded": name})

    def stream(self) -> None:
        self.wfile.write(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n")
        frame = self.rfile.read(6)
        if frame and self.has("stream"):
            self.wfile.write(bytes([0x8A, 0]))
        self.rfile.read(1)
        self.close_connection = True


def give_back() -> None:
    """Blocks above 64 kB go back to the system when they are freed; by itself glibc keeps them for later."""
    with contextlib.suppress(ImportError, OSError, AttributeError):
        import ctypes

        ctypes.CDLL(None).mallopt(-3, 64 * 1024)  # M_MMAP_THRESHOLD


def bound(faults: set[str], port: int) -> Server:
    server = Server.__new__(Server)
    server.faults = faults
    server.__init__(("127.0.0.1", port), Handler)
    return server


def claim(faults: set[str], state: Path) -> None:
    """The state that the careless ones leave about."""
    if "writes" in faults:
        state.write_text("state")
    if "stale-lock" in faults:
        with contextlib.suppress(OSError):
            state.write_text(str(os.getpid()))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("verb", choices=["serve"])
    parser.add_argument("--fault", action="append", default=[], choices=FAULTS)
    parser.add_argument("--port", type=int, default=8080)
    parser.add_argument("--load-ms", type=float, default=100)
    parser.add_argument("--predict-ms", type=float, default=4)
    parser.add_argument("--limit", type=int, default=25 * MIB)
    parser.add_argument("--state", type=Path, default=Path("state"))
    asked = parser.parse_args()
    faults = {*asked.fault, *filter(None, os.environ.get("DOUBLE_FAULTS", "").split(","))}  # a container's are told so
    told = os.environ.get("SAGEMAKER_BIND_TO_PORT")
    port = int(told) if told and "port-ignored" not in faults else asked.port
    if "stale-lock" in faults and asked.state.exists():
        sys.exit(f"{asked.state} is there: is another server running?")
    if told is None and "other-default" in faults:
        port = 0
    claim(faults, asked.state)

    give_back()
    server = bound(faults, port)
    server.limit, server.pings, server.spent_s, server.models = asked.limit, 0, 0.0, {}
    server.reading, server.kept = threading.Lock(), []
    server.places = threading.Semaphore(8 if "eight-places" in faults else 1000)
    server.many = os.environ.get("SAGEMAKER_MULTI_MODEL") == "true"
    server.predictor = Predictor(asked.load_ms, asked.predict_ms)
    # Loading late is slow enough to block with.
    server.predictor.slow_every = 40 if "blocking" in faults and "lazy" not in faults else 0
    if "second-port" in faults:
        other = socket.create_server(("127.0.0.1", 0))
        other.listen()
    signal.signal(signal.SIGTERM, signal.SIG_IGN if "deaf" in faults else lambda *_: stop())

    def stop() -> None:
        if "drops" in faults:
            server.predictor.child.kill()
            os._exit(0)
        threading.Thread(target=server.shutdown).start()

    if "no-replacement" in faults:
        server.predictor.replaced = False
    if "lazy" not in faults:
        threading.Thread(target=server.predictor.start, daemon=True).start()
    server.serve_forever(poll_interval=0.02)
    drain(server)
    if "stale-lock" in faults:
        asked.state.unlink(missing_ok=True)
    os._exit(0)


def drain(server: Server) -> None:
    """Those whom the kernel has let in and we have not, then everything in flight."""
    server.socket.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        while True:
            server.process_request(*server.get_request())
    server.server_close()


if __name__ == "__main__":
    main()
