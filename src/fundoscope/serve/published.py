"""The published stack, repaired so that it works: nginx -> gunicorn -> uvicorn workers -> FastAPI -> SavedModel.

This process starts nginx and gunicorn, exits when either does, and on SIGTERM lets both finish what they have begun.
It imports nothing heavy: what it costs is no part of a comparison with the lean server.
"""

import http.client
import os
import pwd
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from types import FrameType

from fundoscope.artefact.files import AGAIN, TABLE, ModelFile, check_digest, check_files, read_artefact_json
from fundoscope.config import build
from fundoscope.errors import FundoscopeError, pick
from fundoscope.quota import cores
from fundoscope.serve.log import log
from fundoscope.serve.port import bind
from fundoscope.serve.settings import MB, Settings

CALLS = ("keras-predict", "signature")  # published_app.CALLS, which costs TensorFlow to import
PACKAGES = ("gunicorn", "uvicorn_worker", "fastapi", "tensorflow", "keras")
PING_S = 1.5  # SageMaker waits for 2: better a 503 than nothing
DRAIN_S = {"nginx": 20.0, "gunicorn": 5.0}  # one after the other: SIGKILL follows SIGTERM after 30 s

# As published, but for: paths of its own, the port, the body limit (5 MB), the read timeout (1200 s), its answers, and
# the address that boto3 calls.
NGINX = """\
{user}worker_processes 1;
daemon off;
pid {folder}/nginx.pid;
error_log stderr emerg;
worker_shutdown_timeout {drain_ms}ms;
events {{ worker_connections 2048; }}
http {{
  access_log off;
  client_body_temp_path {folder}/body;
  proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi;
  scgi_temp_path {folder}/scgi;
  default_type application/json;
  keepalive_timeout 5;
  client_max_body_size {limit_bytes};
  upstream gunicorn {{ server unix:{folder}/gunicorn.sock fail_timeout=0; }}
  server {{
    listen {host}:{port};
    error_page 404 @absent;
    error_page 413 @large;
    error_page 502 504 =503 @busy;
    proxy_set_header Host $http_host;
    proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
    proxy_redirect off;
    rewrite ^/endpoints/[a-zA-Z0-9-]+/invocations$ /invocations;
    location = /ping {{ proxy_pass http://gunicorn; proxy_read_timeout {ping_ms}ms; }}
    location = /invocations {{ proxy_pass http://gunicorn; proxy_read_timeout {timeout_ms}ms; }}
    location / {{ return 404; }}
    location @absent {{ return 404 '{{"error": "there is nothing here", "hint": "use /ping or /invocations"}}'; }}
    location @large {{
      return 413 '{{"error": "the request is larger than {limit_mb} MB", "hint": "send a smaller photograph"}}';
    }}
    location @busy {{
      add_header Retry-After 1 always;
      return 503 '{{"error": "the service is starting or busy", "hint": "try again"}}';
    }}
  }}
}}
"""


def run(settings: Settings) -> int:
    """Serve until SIGTERM (0), or until nginx or gunicorn ends by itself, which is an error."""
    nginx = _find_nginx()
    _check_installed()
    _check_model(settings)
    call = os.environ.get("FUNDOSCOPE_PUBLISHED_CALL", CALLS[0])
    pick(dict.fromkeys(CALLS), call, kind="way of calling the model (FUNDOSCOPE_PUBLISHED_CALL)")
    with bind(settings.host, settings.port) as probe:  # nginx cannot choose a free one itself
        port = int(probe.getsockname()[1])
    with TemporaryDirectory(prefix="fundoscope-", dir=_writable()) as folder, _told_to_stop() as stop:
        conf = Path(folder, "nginx.conf")
        conf.write_text(_nginx_conf(settings, port, folder), encoding="utf-8")
        children: dict[str, subprocess.Popen[bytes]] = {}
        try:
            children["nginx"] = subprocess.Popen([nginx, "-e", "stderr", "-p", folder, "-c", conf])
            command = _gunicorn(settings, call, folder)
            children["gunicorn"] = subprocess.Popen(command, env=os.environ | _ENVIRONMENT)
            threading.Thread(target=_announce, args=(settings.host, port, stop), daemon=True).start()
            while not stop.wait(0.1):
                if ended := [name for name, child in children.items() if child.poll() is not None]:
                    raise _gone(ended[0], children[ended[0]].returncode)
        finally:
            stop.set()
            _end(children)
    return 0


_ENVIRONMENT = {"KERAS_BACKEND": "tensorflow", "TF_CPP_MIN_LOG_LEVEL": "2"}


def _find_nginx() -> str:
    path = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"])  # not on every user's PATH
    if (found := shutil.which("nginx", path=path)) is None:
        raise FundoscopeError("the published stack needs nginx", "install it (apt-get install nginx-light)")
    return found


def _writable() -> str:
    """nginx keeps large bodies in files, and its own socket: unlike the lean server it cannot do without."""
    try:
        return gettempdir()
    except FileNotFoundError:
        raise FundoscopeError("the published stack needs a folder it can write to", "mount one at /tmp") from None


def _check_installed() -> None:
    if missing := [name for name in PACKAGES if find_spec(name) is None]:
        hint = "pip install 'fundoscope[published-server]'"
        raise FundoscopeError(f"the published stack needs {', '.join(missing)}", hint)


def _check_model(settings: Settings) -> None:
    """Every byte of the model, once and not in each worker; the workers open it, which takes NumPy."""
    folder, path = settings.model, settings.model / TABLE
    hint = "make one: fundoscope export runs/x --format savedmodel --out artefacts/x"
    if not path.is_file():
        raise FundoscopeError(f"{folder} is not an artefact: it has no artefact.json", hint)
    table = read_artefact_json(folder)
    try:
        format, points = table["format"], {point["name"]: point for point in table["operating_points"]}
        files = [build(ModelFile, file, where=f"'files' in {path}") for file in table["files"]]
    except (KeyError, TypeError):
        raise FundoscopeError(f"{path} is damaged: it is not the JSON of an artefact", AGAIN) from None
    if format != "savedmodel":
        raise FundoscopeError(f"the published stack serves a SavedModel, and {folder} holds {format}", hint)
    pick(points, settings.operating_point, kind="operating point")
    digest = check_digest(folder, table)
    if settings.trusted_keys:
        from fundoscope.artefact.signature import check_signed

        check_signed(folder, digest, settings.trusted_keys)
    check_files(folder, format, files)


@contextmanager
def _told_to_stop() -> Iterator[threading.Event]:
    """An event that SIGTERM and Ctrl-C set. A handler, and not the default, so that it works as PID 1 too."""
    stop = threading.Event()

    def handle(_: int, __: FrameType | None) -> None:
        stop.set()

    before = {number: signal.signal(number, handle) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _nginx_conf(settings: Settings, port: int, folder: str) -> str:
    return NGINX.format(
        # nginx's workers give root's rights away unless told otherwise, and then cannot reach the socket.
        user=f"user {pwd.getpwuid(0).pw_name};\n" if os.geteuid() == 0 else "",
        folder=folder,
        host=f"[{settings.host}]" if ":" in settings.host else settings.host,
        port=port,
        limit_bytes=settings.payload_bytes,
        limit_mb=settings.payload_bytes // MB,
        timeout_ms=round(1000 * settings.timeout_s),
        ping_ms=round(1000 * PING_S),
        drain_ms=round(1000 * DRAIN_S["nginx"]),
    )


def _gunicorn(settings: Settings, call: str, folder: str) -> list[str]:
    arguments = (str(settings.model.resolve()), settings.load, call, settings.operating_point, settings.unsafe)
    options = {
        "--worker-class": "uvicorn_worker.UvicornWorker",
        "--bind": f"unix:{folder}/gunicorn.sock",
        "--workers": str(settings.workers or cores()),
        "--timeout": f"{settings.timeout_s:.0f}",
        "--graceful-timeout": f"{DRAIN_S['gunicorn'] - 1:.0f}",
        "--worker-tmp-dir": folder,
        "--log-level": "warning",
    }
    app = f"fundoscope.serve.published_app:create_app{arguments!r}"
    words = [word for option in options.items() for word in option]
    return [sys.executable, "-m", "gunicorn", "--no-control-socket", *words, app]


def _announce(host: str, port: int, stop: threading.Event) -> None:
    """Say once that the service is up, as the lean server does, for those who wait for it."""
    reach = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    while not stop.wait(0.05):
        connection = http.client.HTTPConnection(reach, port, timeout=PING_S)
        with suppress(OSError, http.client.HTTPException):
            connection.request("GET", "/ping")
            if connection.getresponse().status == 200:
                log("ready", port=port, stack="published", pid=os.getpid())
                return
        connection.close()


def _gone(name: str, status: int) -> FundoscopeError:
    return FundoscopeError(f"{name} ended by itself with status {status}", "its own words are above")


def _end(children: dict[str, "subprocess.Popen[bytes]"]) -> None:
    """First the door, then what is behind it: what nginx has let in is still answered."""
    polite = {"nginx": signal.SIGQUIT, "gunicorn": signal.SIGTERM}
    for name, child in children.items():
        if child.poll() is None:
            child.send_signal(polite[name])
        try:
            child.wait(DRAIN_S[name])
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
