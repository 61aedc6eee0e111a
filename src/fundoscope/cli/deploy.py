"""fundoscope deploy plan|apply|verify|destroy: an artefact behind a SageMaker endpoint, and away again."""

import argparse
import json
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from fundoscope.cli.command import Answer, Commands, bar, table, verb
from fundoscope.cli.trusted import add_trusted_key, trusted_keys
from fundoscope.errors import FundoscopeError, pick

if TYPE_CHECKING:
    from fundoscope.analysis.prices import PriceList
    from fundoscope.artefact.artefact import Artefact
    from fundoscope.deploy.endpoint import Autoscaling, Check, Endpoint, LocalImage, RealTime, Serverless, Wanted
    from fundoscope.deploy.terraform import Terraform


NOW = {"gone": "gone", "there": "STILL THERE", "unknown": "UNKNOWN"}


def add_commands(commands: Commands) -> None:
    about = "an artefact behind a SageMaker endpoint: plan, apply, verify, destroy"
    group = commands.add_parser(
        "deploy", help=about, description=about[0].upper() + about[1:] + ".", allow_abbrev=False
    )
    verbs = group.add_subparsers(title="commands", metavar="COMMAND", required=True)
    parser = verb(
        verbs,
        "plan",
        _plan,
        help="show what would exist, and what it would cost; changes nothing",
        example="fundoscope deploy plan artefacts/x --image build/images/lean --name ana --memory-mb 2048",
    )
    _add_wanted(parser)
    add = parser.add_argument
    add("--prices", metavar="LIST", help="a list's name, or a file (default: SageMaker's, us-east-1)")
    add("--request-ms", type=float, default=250.0, metavar="MS", help="a request's processing (default: 250; measure)")
    add("--request-kb", type=float, default=500.0, metavar="KB", help="a photograph and its answer (default: 500)")
    parser = verb(
        verbs,
        "apply",
        _apply,
        help="upload the artefact, push the image, and bring the endpoint up to date; resumes where it was interrupted",
        example="fundoscope deploy apply artefacts/x --image build/images/lean --name ana --instance ml.c7g.xlarge",
    )
    _add_wanted(parser)
    parser = verb(
        verbs,
        "verify",
        _verify,
        help="ask the endpoint which artefact and image it runs, and compare with what was deployed",
        example="fundoscope deploy verify --name ana",
    )
    _add_place(parser)
    parser.add_argument("--photo", type=Path, metavar="FILE", help="what to send, JPEG or PNG (default: a drawn eye)")
    parser = verb(
        verbs,
        "destroy",
        _destroy,
        help="remove everything of a deployment, and ask AWS of each part whether it is gone",
        example="fundoscope deploy destroy --name ana",
    )
    _add_place(parser)


def _add_place(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--name", required=True, help="the deployment's: what the names of all its parts begin with")
    add("--deployments", type=Path, default=Path("deployments"), metavar="FOLDER", help="default: deployments")
    plugins = os.environ.get("FUNDOSCOPE_TF_PLUGINS") or None
    about = "that has the AWS provider, where Terraform cannot download it (default: FUNDOSCOPE_TF_PLUGINS)"
    add("--plugins", type=Path, metavar="FOLDER", default=plugins, help=about)


def _add_wanted(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("artefact", type=Path, metavar="ARTEFACT", help="an artefact's folder")
    _add_place(parser)
    add("--image", required=True, metavar="IMAGE", help="folder of an image's build, or sha256:… of one pushed before")
    add("--region", default=os.environ.get("AWS_REGION", "us-east-1"), help="default: AWS_REGION, or us-east-1")
    add("--memory-mb", type=int, metavar="MB", help="serverless, with 1024 … 6144 (default: 2048)")
    add("--max-concurrency", type=int, metavar="N", help="serverless: requests at once (default: 5)")
    add("--provisioned", type=int, metavar="N", help="serverless: workers kept warm (default: 0)")
    add("--instance", metavar="TYPE", help="real-time, on such machines: ml.c7g.xlarge")
    add("--count", type=int, metavar="N", help="real-time: how many (default: 1)")
    add("--autoscale", metavar="MIN:MAX:N", help="real-time: so many, for N requests a minute each")
    add("--latency-alarm-ms", type=int, default=2000, metavar="MS", help="95th percentile (default: 2000)")
    add("--alarm-topic", metavar="ARN", help="an SNS topic that alarms tell")
    add("--source", type=Path, metavar="FOLDER", help="the repository, for infra/ (default: the one this runs from)")
    add("--aws-endpoint", metavar="URL", help="an emulator of AWS, such as moto's server")
    add("--unsafe", action="store_true", help="deploy even an artefact that was refused, or never judged")
    add_trusted_key(parser)


def _plan(arguments: argparse.Namespace) -> Answer:
    from fundoscope.analysis.prices import SAGEMAKER, open_prices
    from fundoscope.deploy.cloud import plan

    artefact, image = _artefact(arguments), _image(arguments.image)
    wanted = _wanted(arguments, artefact, image)
    costs, notes = _costs(wanted.serving, open_prices(arguments.prices or SAGEMAKER), arguments)
    changes = plan(wanted, image, _work(arguments), _infra(arguments))
    rows = [[change.action, change.kind.removeprefix("aws_"), change.address] for change in changes]
    lines = table(rows, header=["action", "kind", "address"]) if rows else ["nothing would change"]
    values = {"changes": [vars(change) for change in changes], "costs": costs, "notes": notes}
    return Answer(values, [*lines, "", *notes], next="the same with apply in the place of plan")


def _apply(arguments: argparse.Namespace) -> Answer:
    from fundoscope.deploy.cloud import apply

    artefact, image = _artefact(arguments), _image(arguments.image)
    wanted = _wanted(arguments, artefact, image)
    with _ended_as_interrupted():
        endpoint = apply(wanted, artefact, image, _work(arguments), _infra(arguments), track=bar)
    lines = [f"{name.replace('_', ' ')}: {value}" for name, value in endpoint.to_json().items() if value]
    where = "" if arguments.deployments == Path("deployments") else f" --deployments {arguments.deployments}"
    return Answer(endpoint.to_json(), lines, next=f"fundoscope deploy verify --name {endpoint.name}{where}")


def _verify(arguments: argparse.Namespace) -> Answer:
    from fundoscope.deploy.aws import Cloud
    from fundoscope.deploy.checks import verify

    endpoint = _up(_folder(arguments))
    photo, content_type = _photo(arguments.photo)
    with Cloud(endpoint.region, endpoint.aws_endpoint) as cloud:
        checks = verify(cloud, endpoint, photo, content_type=content_type)
    rows = [[_verdict(check), check.kind, check.what, check.found, check.source] for check in checks]
    broken = [f"{check.what}: {check.why or f'{check.wanted} was deployed'}" for check in checks if not check.holds]
    holds = not broken
    values = {"holds": holds, "checks": [{**vars(check), "holds": check.holds} for check in checks]}
    lines = [*table(rows, header=["as deployed", "how", "what", "found", "by"]), *broken]
    return Answer(values, lines, next="" if holds else "fundoscope deploy apply …", ok=holds)


def _destroy(arguments: argparse.Namespace) -> Answer:
    from fundoscope.deploy.cloud import destroy

    _folder(arguments)
    with _ended_as_interrupted():
        items = destroy(_work(arguments))
    left = [item for item in items if not item.gone]
    unknown = sum(item.now == "unknown" for item in items)
    rows = [
        [NOW[item.now], item.kind.removeprefix("aws_"), item.id or "that Terraform did not know of"] for item in items
    ]
    lines = table(rows, header=["now", "kind", "name"]) if items else []
    lines += [f"{item.kind.removeprefix('aws_')} {item.id}: {item.why}" for item in left if item.why]
    if left:
        lines.append(f"{len(left) - unknown} parts are still there, and AWS did not say of {unknown} whether they are")
        lines.append(f"their names and Terraform's state stay in {arguments.deployments / arguments.name}")
    else:
        lines.append(f"nothing of {arguments.name} is left")
    values = {"items": [item.to_json() for item in items], "left": len(left), "unknown": unknown}
    return Answer(values, lines, next="the same again, once that is mended" if left else "", ok=not left)


@contextmanager
def _ended_as_interrupted() -> Iterator[None]:
    """SIGTERM as Ctrl-C: Terraform writes down what it has done, and the registry's login goes."""
    if threading.current_thread() is not threading.main_thread():  # which alone is told of signals
        yield
        return
    before = signal.signal(signal.SIGTERM, _as_interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _as_interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _verdict(check: "Check") -> str:
    if check.why:
        return "UNKNOWN"
    return "yes" if check.holds else "NO"


def _artefact(arguments: argparse.Namespace) -> "Artefact":
    from fundoscope.artefact.artefact import Artefact, usable

    opened = Artefact.open(arguments.artefact)
    return usable(opened, unsafe=arguments.unsafe, trusted_keys=trusted_keys(arguments))


def _image(text: str) -> "LocalImage | str":
    from fundoscope.deploy.endpoint import read_image

    return text if text.startswith("sha256:") else read_image(Path(text))


def _wanted(arguments: argparse.Namespace, artefact: "Artefact", image: "LocalImage | str") -> "Wanted":
    from fundoscope.deploy.endpoint import Wanted

    serving = _serving(arguments)
    return Wanted(
        name=arguments.name,
        region=arguments.region,
        artefact=artefact.digest,
        serving=serving,
        architecture=serving.architecture if isinstance(image, str) else image.architecture,
        latency_alarm_ms=arguments.latency_alarm_ms,
        alarm_topic_arn=arguments.alarm_topic,
        aws_endpoint=arguments.aws_endpoint,
    )


def _serving(arguments: argparse.Namespace) -> "Serverless | RealTime":
    from fundoscope.deploy.endpoint import RealTime, Serverless

    real_time = {"instance_type": arguments.instance, "count": arguments.count, "autoscaling": arguments.autoscale}
    serverless = {
        "memory_mb": arguments.memory_mb,
        "max_concurrency": arguments.max_concurrency,
        "provisioned_concurrency": arguments.provisioned,
    }
    said = [{name: value for name, value in kind.items() if value is not None} for kind in (serverless, real_time)]
    if all(said):
        message = "an endpoint is serverless or real-time, and options of both were given"
        raise FundoscopeError(message, "give --memory-mb, or --instance")
    if not said[1]:
        return Serverless(**said[0])
    if not arguments.instance:
        raise FundoscopeError("a real-time endpoint needs a machine", "give --instance ml.m5.xlarge")
    if arguments.autoscale:
        said[1]["autoscaling"] = _autoscaling(arguments.autoscale)
    return RealTime(**said[1])


def _autoscaling(text: str) -> "Autoscaling":
    from fundoscope.deploy.endpoint import Autoscaling

    parts = text.split(":")
    if len(parts) != 3 or not all(part.isdigit() for part in parts):
        raise FundoscopeError(f"'{text}' does not say how to scale", "write it as 1:4:300")
    return Autoscaling(*map(int, parts))


def _costs(
    serving: "Serverless | RealTime", prices: "PriceList", arguments: argparse.Namespace
) -> tuple[dict[str, float | None], list[str]]:
    """SageMaker's part of the bill, which is nearly all of it. What is not known is None."""
    from fundoscope.analysis.inference_cost import as_billed, back_to_back, rented
    from fundoscope.deploy.endpoint import Serverless

    each = f"at {arguments.request_ms:g} ms"
    if isinstance(serving, Serverless):
        if prices.serverless is None:
            raise FundoscopeError(f"{prices.name} has no serverless prices", "see `fundoscope prices list`")
        memory_gb, moved_bytes = serving.memory_mb // 1024, int(arguments.request_kb * 1000)
        one = as_billed(
            prices.serverless, memory_gb=memory_gb, processing_ms=[arguments.request_ms], moved_bytes=moved_bytes
        )
        busy = one.per_thousand
        idle = None if serving.provisioned_concurrency else 0.0
        each += f" and {arguments.request_kb:g} kB"
    else:
        machine = prices.instance(serving.instance_type)
        idle = rented(machine, count=serving.count).usd
        busy = back_to_back(machine, total_latency_s=arguments.request_ms / 1000).per_thousand
        each += ", one after another without a pause; part of the above"
    hourly = "not known, the list has no price for workers kept warm" if idle is None else f"{idle:.4f} USD an hour"
    elsewhere = "" if prices.region == arguments.region else f", not of {arguments.region}"
    lines = [
        f"idle: {hourly}",
        f"1000 requests: {busy:.4f} USD, {each}",
        f"prices of {prices.region}{elsewhere}, {prices.as_of}; alarms, logs and storage are not in them",
    ]
    return {"idle_usd_per_hour": idle, "usd_per_1000_requests": busy}, lines


def _work(arguments: argparse.Namespace) -> "Terraform":
    from fundoscope.deploy.terraform import Terraform

    return Terraform(arguments.deployments / arguments.name, plugins=arguments.plugins)


def _infra(arguments: argparse.Namespace) -> Path:
    from fundoscope.deploy.image import find_source

    source: Path = arguments.source or find_source()
    return source / "infra"


def _folder(arguments: argparse.Namespace) -> Path:
    there: dict[str, Path] = {path.name: path for path in sorted(arguments.deployments.glob("*")) if path.is_dir()}
    if not there:
        raise FundoscopeError(f"there are no deployments in {arguments.deployments}", "fundoscope deploy apply …")
    return pick(there, arguments.name, kind="deployment")


def _up(folder: Path) -> "Endpoint":
    from fundoscope.config import build
    from fundoscope.deploy.endpoint import Endpoint

    path = folder / "endpoint.json"
    if not path.is_file():
        raise FundoscopeError(f"{folder.name} was never brought up whole", "finish it: fundoscope deploy apply …")
    return build(Endpoint, json.loads(path.read_text(encoding="utf-8")), where=str(path))


def _photo(path: Path | None) -> tuple[bytes, str]:
    if path is None:
        from fundoscope.data.draw import draw_eye
        from fundoscope.data.photo import encode_png

        return encode_png(draw_eye(1, 0, size=256).pixels), "image/png"
    if not path.is_file():
        raise FundoscopeError(f"there is no file {path}", "check the path")
    return path.read_bytes(), "image/png" if path.suffix.lower() == ".png" else "image/jpeg"
