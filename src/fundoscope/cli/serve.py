"""fundoscope serve …"""

import argparse
import os
import re
from pathlib import Path

from fundoscope.cli.command import Answer, Commands, verb
from fundoscope.cli.trusted import add_trusted_key, trusted_keys
from fundoscope.errors import FundoscopeError

PLATFORMS = ("real-time", "serverless", "batch")
MODEL = Path("/opt/ml/model")  # where SageMaker unpacks it


def add_commands(commands: Commands) -> None:
    parser = verb(
        commands,
        "serve",
        _serve,
        help="answer photographs over HTTP as SageMaker asks: /ping, /invocations",
        example="fundoscope serve artefacts/x --port 8080",
    )
    add = parser.add_argument
    add("model", nargs="?", type=Path, metavar="MODEL", help=f"an artefact (default: {MODEL}, or AZUREML_MODEL_DIR)")
    add("--stack", choices=("lean", "published"), default="lean", help="one lean process, or nginx and gunicorn")
    add("--host", help="address to listen on (default: 127.0.0.1, or FUNDOSCOPE_HOST)")
    add("--port", type=int, help="default: 8080, or SAGEMAKER_BIND_TO_PORT, AIP_HTTP_PORT; 0: any free one")
    add("--platform", choices=PLATFORMS, help="sets payload limit and batching (default: real-time)")
    add("--load", choices=("at-start", "first-request"), default="at-start", help="first-request: as published")
    add("--workers", type=_positive, metavar="N", help="processes, each with the model in memory (default: 1)")
    add("--threads", type=_positive, metavar="N", help="processors to use (default: what the CPU quota pays for)")
    add("--queue", type=_positive, metavar="N", default=64, help="photographs waiting before 503 (default: 64)")
    add("--batch", type=_positive, metavar="N", help="photographs predicted together (default: 4; serverless: 1)")
    add(
        "--batch-delay-ms",
        type=_at_least_0,
        metavar="MS",
        default=0.0,
        help="to wait for a batch to fill, while others work (default: 0)",
    )
    add("--timeout-s", type=_at_least_0, metavar="S", default=60.0, help="for one request (default: 60)")
    add("--operating-point", metavar="NAME", default="high_sensitivity", help="default: high_sensitivity")
    add("--multi-model", action="store_true", help="start empty; load by POST /models (or SAGEMAKER_MULTI_MODEL=true)")
    add("--models-root", type=Path, metavar="FOLDER", default=Path("/opt/ml/models"), help="where those may lie")
    add("--unsafe", action="store_true", help="serve even an artefact that was refused, or never judged")
    add_trusted_key(parser)
    add("--log-requests", action="store_true", help="a line for each request: route, status, milliseconds")


def _serve(arguments: argparse.Namespace) -> Answer:
    from fundoscope.serve.launch import serve
    from fundoscope.serve.settings import Settings

    chosen = {name: getattr(arguments, name) for name in Settings.__dataclass_fields__ if hasattr(arguments, name)}
    chosen["host"] = arguments.host or os.environ.get("FUNDOSCOPE_HOST", "127.0.0.1")
    chosen["port"] = _port() if arguments.port is None else arguments.port
    chosen["platform"] = arguments.platform or _platform()
    chosen["multi_model"] = arguments.multi_model or os.environ.get("SAGEMAKER_MULTI_MODEL", "").lower() == "true"
    chosen["model"] = arguments.model or _model()
    chosen["health_route"], chosen["predict_route"] = _route("AIP_HEALTH_ROUTE"), _route("AIP_PREDICT_ROUTE")
    chosen["image"] = _image()
    chosen["trusted_keys"] = trusted_keys(arguments)
    status = serve(Settings(**chosen))
    if status > 1:
        raise SystemExit(status)  # the worker has said why
    return Answer({"status": status}, ok=status == 0)


def _port() -> int:
    """The platform's: SageMaker's, or Vertex AI's."""
    name = next((name for name in ("SAGEMAKER_BIND_TO_PORT", "AIP_HTTP_PORT") if os.environ.get(name)), None)
    if name is None:
        return 8080
    text = os.environ[name]
    if not (text.isascii() and text.isdigit() and int(text) <= 65535):
        raise FundoscopeError(f"{name} is '{text}', not a port", "give a number up to 65535")
    return int(text)


def _model() -> Path:
    """Where the platform has put it: Azure ML below AZUREML_MODEL_DIR, Vertex AI nowhere, SageMaker at MODEL."""
    if folder := os.environ.get("AZUREML_MODEL_DIR"):
        return _artefact_in(Path(folder))
    address = os.environ.get("AIP_STORAGE_URI", "")
    if address.startswith("/"):
        return _artefact_in(Path(address))
    if address and not (MODEL / "artefact.json").is_file():
        hint = f"put the artefact into the image at {MODEL}, or mount it and name its folder: serve FOLDER"
        raise FundoscopeError(f"AIP_STORAGE_URI is {address[:200]}, which this server does not download", hint)
    return MODEL


def _artefact_in(folder: Path) -> Path:
    """`folder`, or the one below it that is an artefact: Azure ML keeps the name of the folder that was registered."""
    if (folder / "artefact.json").is_file():
        return folder
    below = sorted(path.parent for path in folder.glob("*/artefact.json"))
    if len(below) > 1:
        hint = "name one: serve FOLDER"
        raise FundoscopeError(f"there are {len(below)} artefacts in {folder}", hint)
    return below[0] if below else folder


def _route(name: str) -> str:
    """An address that the platform asks us to answer at; empty: none."""
    path = os.environ.get(name, "")
    if path and not re.fullmatch(r"/[!->@-~]{0,254}", path):  # no query
        raise FundoscopeError(f"{name} is not a path", "give one such as /health")
    return path


def _platform() -> str:
    name = os.environ.get("FUNDOSCOPE_PLATFORM", "real-time")
    if name not in PLATFORMS:
        raise FundoscopeError(f"FUNDOSCOPE_PLATFORM is '{name}'", "use one of " + ", ".join(PLATFORMS))
    return name


# A digest, or a reference to an image: no more than its answers should carry to every caller.
IMAGE = re.compile(r"sha256:[0-9a-f]{64}|(?!(?i:sha256):)[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,254}")


def _image() -> str | None:
    """What deployed us says we are. Not worth refusing to serve for."""
    from fundoscope.serve.log import log

    text = os.environ.get("FUNDOSCOPE_IMAGE", "")
    if text and not IMAGE.fullmatch(text):
        log("image unknown", problem="FUNDOSCOPE_IMAGE is neither a digest (sha256:…) nor a reference to an image")
        return None
    return text or None


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value} is not 1 or more")
    return value


def _at_least_0(text: str) -> float:
    value = float(text)
    if not 0 <= value < 1e6:
        raise argparse.ArgumentTypeError(f"{text} is not 0 or more")
    return value
