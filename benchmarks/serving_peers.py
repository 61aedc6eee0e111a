"""The peers: LitServe, BentoML, MLServer, each in an environment of its own, each with a few settings to be best with.

Each serves the same ONNX artefact by the same preparation, quality measure and grading as ours
(serving_handlers/peer.py), is sent the bytes of the photograph as ours is, and batches as its documentation says. Where
what is raw cannot be batched (BentoML, MLServer) both are tried, and the faster one counts.
"""

import base64
import json
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

from serving_servers import Server, free_port

HERE = Path(__file__).resolve().parent
PINS = {
    "litserve": ("litserve==0.2.19",),
    "bentoml": ("bentoml==1.4.39",),
    "mlserver": ("mlserver==1.7.1", "uvloop==0.21.0"),  # its workers do not start on a later uvloop
    "openvino": ("openvino==2026.4.1",),
}
SAME = ("onnxruntime", "numpy", "pillow", "simplejpeg")  # in the versions we use ourselves

BOUNDARY = "a-photograph-ends-here"
# For two processors: one prediction over both and batches, or a process on each; batches small enough for 500 ms.
ONE, TWO = {"workers": 1, "threads": 2}, {"workers": 2, "threads": 1}
SETTINGS: dict[str, tuple[dict[str, Any], ...]] = {
    "litserve": (
        TWO | {"batch": 1, "delay_s": 0.0, "fast_queue": False},
        TWO | {"batch": 4, "delay_s": 0.005, "fast_queue": True},
        ONE | {"batch": 8, "delay_s": 0.005, "fast_queue": True},
    ),
    "bentoml": (
        TWO | {"batch": 8, "latency_ms": 500, "sent": "base64"},
        TWO | {"batch": 8, "latency_ms": 500, "sent": "multipart"},
        ONE | {"batch": 8, "latency_ms": 500, "sent": "multipart"},
        TWO | {"batch": 1, "latency_ms": 0, "sent": "raw"},
    ),
    "mlserver": (
        TWO | {"batch": 0, "delay_s": 0.0, "sent": "raw"},
        TWO | {"batch": 4, "delay_s": 0.005, "sent": "base64"},
        ONE | {"batch": 8, "delay_s": 0.005, "sent": "base64"},
    ),
}


def environment_of(peer: str, cache: Path) -> Path:
    """The Python of an environment that holds the peer, made when there is none; raises CalledProcessError."""
    wanted = [*PINS[peer], *(f"{name}=={version(name)}" for name in SAME)]
    folder, python = cache / "environments" / peer, cache / "environments" / peer / "bin" / "python"
    marker = folder / "installed.json"
    if marker.is_file() and json.loads(marker.read_text()) == wanted:
        return python
    print(f"installing {', '.join(wanted)} into {folder} …", file=sys.stderr, flush=True)
    subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
    quiet = ["--quiet", "--disable-pip-version-check"]
    subprocess.run([python, "-m", "pip", "install", *quiet, *wanted], check=True, stderr=subprocess.DEVNULL)
    marker.write_text(json.dumps(wanted))
    return python


def servers_of(peer: str, artefact: Path, cache: Path) -> list[Server]:
    """The peer with each of its settings."""
    python = environment_of(peer, cache)
    return [_BUILDERS[peer](python, artefact, settings) for settings in SETTINGS[peer]]


def _server(name: str, artefact: Path, settings: dict[str, Any], **how: Any) -> Server:
    said = ", ".join(f"{key} {value}" for key, value in settings.items())
    packed = json.dumps(settings | {"artefact": str(artefact.resolve())})
    source = HERE.parent / "src"
    environment = {
        "PYTHONPATH": f"{HERE / 'serving_handlers'}:{source}",
        "PEER_SETTINGS": packed,
        "BENTOML_DO_NOT_TRACK": "True",
        "OMP_NUM_THREADS": "1",  # NumPy's; the model's threads are set
    }
    return Server(name, environment=environment, settings=said, **how)


def _litserve(python: Path, artefact: Path, settings: dict[str, Any]) -> Server:
    def command(port: int) -> list[str]:
        return [str(python), str(HERE / "serving_handlers" / "litserve_api.py"), str(port)]

    return _server("LitServe", artefact, settings, command=command)


def _bentoml(python: Path, artefact: Path, settings: dict[str, Any]) -> Server:
    def command(port: int) -> list[str]:
        folder = HERE / "serving_handlers"
        words = ["serve", "bento_service:Service", "--working-dir", str(folder), "--port", str(port)]
        return [str(python), "-m", "bentoml", *words, "--host", "127.0.0.1"]

    def pack(photo: bytes) -> tuple[bytes, str]:
        if settings["sent"] == "raw":
            return photo, "image/jpeg"
        if settings["sent"] == "multipart":
            head = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="photographs"; filename="a.jpg"\r\n'
            part = f"{head}Content-Type: image/jpeg\r\n\r\n".encode() + photo + f"\r\n--{BOUNDARY}--\r\n".encode()
            return part, f"multipart/form-data; boundary={BOUNDARY}"
        return json.dumps({"photographs": [base64.b64encode(photo).decode()]}).encode(), "application/json"

    def predictions(answer: Any) -> list[float]:
        return list(answer[0]["predictions"])

    return _server("BentoML", artefact, settings, command=command, pack=pack, predictions=predictions)


def _mlserver(python: Path, artefact: Path, settings: dict[str, Any]) -> Server:
    def command(_: int) -> list[str]:
        return [str(python.parent / "mlserver"), "start", "."]

    def prepare(port: int, folder: Path) -> None:
        ports = {"http_port": port, "grpc_port": free_port(), "metrics_port": free_port()}
        server = {"host": "127.0.0.1", "debug": False, "parallel_workers": settings["workers"], **ports}
        (folder / "settings.json").write_text(json.dumps(server))
        batching = {"max_batch_size": settings["batch"], "max_batch_time": settings["delay_s"]}
        model = {"name": "grading", "implementation": "mlserver_runtime.Model", **batching}
        (folder / "model-settings.json").write_text(json.dumps(model))

    if settings["sent"] == "raw":
        return _server("MLServer", artefact, settings, command=command, prepare=prepare)

    def pack(photo: bytes) -> tuple[bytes, str]:
        data = [base64.b64encode(photo).decode()]
        sent = {"inputs": [{"name": "photographs", "datatype": "BYTES", "shape": [1, 1], "data": data}]}
        return json.dumps(sent).encode(), "application/json"

    def predictions(answer: Any) -> list[float]:
        return list(json.loads(answer["outputs"][0]["data"][0])["predictions"])

    how = {"command": command, "pack": pack, "predictions": predictions, "prepare": prepare}
    return _server("MLServer", artefact, settings, path="/v2/models/grading/infer", **how)


_BUILDERS = {"litserve": _litserve, "bentoml": _bentoml, "mlserver": _mlserver}
