"""fundoscope serve …"""

import argparse
import os
from pathlib import Path

from fundoscope.cli.command import Answer, Commands, verb
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
    add("model", nargs="?", type=Path, metavar="MODEL", default=MODEL, help=f"an artefact (default: {MODEL})")
    add("--stack", choices=("lean", "published"), default="lean", help="one lean process, or nginx and gunicorn")
    add("--host", help="address to listen on (default: 127.0.0.1, or FUNDOSCOPE_HOST)")
    add("--port", type=int, help="default: 8080, or SAGEMAKER_BIND_TO_PORT; 0: any free one")
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
    add("--unsafe", action="store_true", help="serve even an artefact that was refused")
    add("--log-requests", action="store_true", help="a line for each request: route, status, milliseconds")


def _serve(arguments: argparse.Namespace) -> Answer:
    from fundoscope.serve.launch import serve
    from fundoscope.serve.settings import Settings

    chosen = {name: getattr(arguments, name) for name in Settings.__dataclass_fields__}
    chosen["host"] = arguments.host or os.environ.get("FUNDOSCOPE_HOST", "127.0.0.1")
    chosen["port"] = _port() if arguments.port is None else arguments.port
    chosen["platform"] = arguments.platform or _platform()
    chosen["multi_model"] = arguments.multi_model or os.environ.get("SAGEMAKER_MULTI_MODEL", "").lower() == "true"
    status = serve(Settings(**chosen))
    if status > 1:
        raise SystemExit(status)  # the worker has said why
    return Answer({"status": status}, ok=status == 0)


def _port() -> int:
    text = os.environ.get("SAGEMAKER_BIND_TO_PORT", "8080")
    if not text.isdigit() or int(text) > 65535:
        raise FundoscopeError(f"SAGEMAKER_BIND_TO_PORT is '{text}', not a port", "give a number up to 65535")
    return int(text)


def _platform() -> str:
    name = os.environ.get("FUNDOSCOPE_PLATFORM", "real-time")
    if name not in PLATFORMS:
        raise FundoscopeError(f"FUNDOSCOPE_PLATFORM is '{name}'", "use one of " + ", ".join(PLATFORMS))
    return name


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
