"""Terraform, run in a folder of its own for every deployment, and its errors in one sentence.

    deployments/NAME/
        *.tf, modules/           a copy of infra/ as it was applied last, so that `destroy` fits what is up
        terraform.tfvars.json    what was asked for
        terraform.tfstate        what is up: lose it, and Terraform no longer knows what to destroy
        terraform.log            all that it said

The folder is all there is to a deployment: an apply that was interrupted is resumed by the same command, or undone by
`destroy`, and whoever prefers to can type `terraform plan` in it.
"""

import json
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fundoscope.errors import FundoscopeError
from fundoscope.provenance import sha256_of, write_json

VARIABLES, STATE, LOG, SEEN = "terraform.tfvars.json", "terraform.tfstate", "terraform.log", ".terraform/fundoscope"
INSTALL = "install it (https://developer.hashicorp.com/terraform/install), version 1.9 or later, and have it on PATH"
GRACE_S = 60.0  # for Terraform to end what it has begun, once interrupted
# What AWS, Terraform and botocore say; what we say instead, and what to do about it. The first that fits is taken.
TROUBLES: tuple[tuple[str, str, str], ...] = (
    (
        r"No valid credential sources|Unable to locate credentials|NoCredentials",
        "there are no credentials for AWS here",
        "run `aws configure`, or set AWS_PROFILE",
    ),
    (
        r"InvalidClientTokenId|UnrecognizedClient|SignatureDoesNotMatch|InvalidAccessKeyId|ExpiredToken|InvalidToken",
        "AWS does not accept these credentials",
        "renew them; `aws sts get-caller-identity` says whether they work",
    ),
    (
        r"not authorized to perform:? (?P<what>[\w-]+:\w+)",
        "these credentials are not allowed {what}",
        "ask for that permission, or set AWS_PROFILE to who has it",
    ),
    (
        r"AccessDenied|UnauthorizedOperation|Forbidden",
        "AWS does not allow these credentials what this needs",
        "ask for the permission named in the log, or set AWS_PROFILE to who has it",
    ),
    (
        r"account-level service limit '(?P<what>[^']+)'",
        "this account may have no more: {what}",
        "ask for more at Service Quotas, or use another size or machine",
    ),
    (
        r"ResourceLimitExceeded|LimitExceeded|ServiceQuotaExceeded|TooManyBuckets",
        "a limit of this account is reached",
        "ask for more at Service Quotas; the log says which",
    ),
    (
        r"exec format error|architecture|no matching manifest",
        "the image is for another architecture than the machine",
        "build it for that: fundoscope image build --platform linux/arm64, or linux/amd64",
    ),
    (
        r"ping health check",
        "the container did not answer /ping in time",
        "try the image here: fundoscope conform IMAGE --model ARTEFACT",
    ),
    (
        r"BucketAlreadyExists|AlreadyExistsException|EntityAlreadyExists|Cannot create already existing",
        "something of that name exists, and is not part of this deployment",
        "use another --name, or remove it first; the log says what it is",
    ),
    (
        r"Could not find (?P<what>endpoint|model)",
        "AWS has no such {what} any more",
        "bring it up again: fundoscope deploy apply …",
    ),
    (
        r"acquiring the state lock",
        "another command is at work on this deployment",
        "wait until it has ended",
    ),
    (
        r"(query available provider packages|install provider|Inconsistent dependency lock|locked provider)",
        "terraform cannot get the AWS provider",
        "reach the network, or give a folder that has it: --plugins FOLDER",
    ),
    (
        r"connection refused|no such host|Could not connect|EndpointConnectionError|timed out",
        "AWS cannot be reached",
        "check the network, the region and --aws-endpoint",
    ),
)


@dataclass(frozen=True)
class Change:
    """One part of a deployment, and what becomes of it."""

    address: str  # module.bucket.aws_s3_bucket.artefacts
    kind: str  # aws_s3_bucket
    action: str  # create, update, delete, replace
    id: str = ""  # AWS's name for it, once that is known


def find_terraform() -> str:
    found = shutil.which("terraform")
    if not found:
        raise FundoscopeError("terraform is not installed here", INSTALL)
    return found


def trouble(said: str, *, log: Path | None = None) -> FundoscopeError:
    """An error of AWS or Terraform, as one sentence and a hint."""
    for pattern, message, hint in TROUBLES:
        if match := re.search(pattern, said, re.IGNORECASE):
            return FundoscopeError(message.format(**match.groupdict()), hint)
    first = next((line.strip() for line in said.splitlines() if line.strip()), "nothing")
    return FundoscopeError(f"it did not work: {first[:300]}", f"all that was said is in {log}" if log else "")


class Terraform:
    """The program, at work in one deployment's folder."""

    def __init__(self, folder: Path, *, plugins: Path | None = None, program: str | None = None) -> None:
        """`plugins`: a folder with the AWS provider, for a machine that cannot reach Terraform's registry."""
        self.folder, self._plugins = folder, plugins
        self._program = program or find_terraform()
        self.log = folder / LOG

    @property
    def variables(self) -> dict[str, Any]:
        table: dict[str, Any] = json.loads((self.folder / VARIABLES).read_text(encoding="utf-8"))
        return table

    def prepare(self, infra: Path, variables: dict[str, Any]) -> None:
        """Bring the modules and what is wanted into the folder, and fetch the provider where that is not done."""
        if not (infra / "main.tf").is_file():
            raise FundoscopeError(f"{infra} has no main.tf", "say where the repository is: --source FOLDER")
        self.folder.mkdir(parents=True, exist_ok=True)
        sources = {path.relative_to(infra): path for path in _modules(infra)}
        for stale in [path for path in _modules(self.folder) if path.relative_to(self.folder) not in sources]:
            stale.unlink()
        for name, path in sources.items():
            (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, self.folder / name)
        write_json(self.folder / VARIABLES, variables)
        self.init()

    def init(self) -> None:
        """Fetching the provider takes a while: only where the modules have changed since it was fetched."""
        seen = sha256_of(b"".join(path.read_bytes() for path in _modules(self.folder)))
        mark = self.folder / SEEN
        if mark.is_file() and mark.read_text() == seen:
            return
        plugins = [f"-plugin-dir={self._plugins.resolve()}"] if self._plugins else []
        self._run("init", "-input=false", "-no-color", *plugins)
        mark.write_text(seen)

    def plan(self) -> list[Change]:
        """What an apply would change; it changes nothing."""
        return [
            _change(message["change"])
            for message in self._stream("plan", "-input=false", "-json", "-lock=false")
            if message.get("type") == "planned_change" and message["change"]["action"] not in ("no-op", "read")
        ]

    def apply(self, *, told: Callable[[Change], None] = lambda _: None) -> list[Change]:
        return self._change("apply", told)

    def destroy(self, *, told: Callable[[Change], None] = lambda _: None) -> list[Change]:
        return self._change("destroy", told)

    def parts(self) -> set[str]:
        """Addresses of all that is up."""
        return set(self._run("state", "list").split()) if (self.folder / STATE).is_file() else set()

    def outputs(self) -> dict[str, Any]:
        """What infra/ says of what is up: names and digests."""
        values = json.loads(self._run("output", "-json", "-no-color"))
        return {name: output["value"] for name, output in values.items()}

    def _change(self, verb: str, told: Callable[[Change], None]) -> list[Change]:
        """What was changed. AWS's name of what is deleted is said when that begins, of what is created when it ends."""
        done: list[Change] = []
        names: dict[tuple[str, str], str] = {}
        for message in self._stream(verb, "-input=false", "-json", "-auto-approve"):
            hook = message.get("hook", {})
            if message.get("type") not in ("apply_start", "apply_complete") or hook.get("action") in ("no-op", "read"):
                continue
            change = _change(hook)
            names[change.address, change.action] = change.id or names.get((change.address, change.action), "")
            if message["type"] == "apply_complete":
                done.append(replace(change, id=names[change.address, change.action]))
                told(done[-1])
        return done

    def _run(self, *arguments: str) -> str:
        return "".join(self._lines(*arguments))

    def _stream(self, *arguments: str) -> Iterator[dict[str, Any]]:
        for line in self._lines(*arguments):
            if line.startswith("{"):
                yield json.loads(line)

    def _lines(self, *arguments: str) -> Iterator[str]:
        """What it prints, as it prints it. Interrupted, it is given time to write down what it has done."""
        errors: list[str] = []
        with self.log.open("a", encoding="utf-8", buffering=1) as log:
            log.write(f"\n$ terraform {' '.join(arguments)}\n")
            process = subprocess.Popen(
                [self._program, *arguments],
                cwd=self.folder,
                env=os.environ | {"TF_IN_AUTOMATION": "1", "CHECKPOINT_DISABLE": "1"},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                errors="replace",
                process_group=0,  # an interrupt is ours to pass on, once: a second makes it drop everything
            )
            with process:
                assert process.stdout is not None
                try:
                    for line in process.stdout:
                        log.write(line)
                        errors += _errors(line)
                        yield line
                except BaseException:
                    _interrupt(process)
                    raise
        if process.returncode != 0:
            raise trouble("\n".join(errors) or _tail(self.log), log=self.log)


def _interrupt(process: "subprocess.Popen[str]") -> None:
    process.send_signal(signal.SIGINT)
    try:
        process.communicate(timeout=GRACE_S)
    except subprocess.TimeoutExpired:
        process.kill()


def _modules(folder: Path) -> list[Path]:
    return sorted([*folder.glob("*.tf"), *folder.glob("modules/*/*.tf")])


def _errors(line: str) -> list[str]:
    """What is wrong, of a line of the JSON that it prints."""
    if '"diagnostic"' not in line or not line.startswith("{"):
        return []
    found = json.loads(line).get("diagnostic", {})
    return [f"{found['summary']}: {found.get('detail', '')}"] if found.get("severity") == "error" else []


def _tail(log: Path) -> str:
    """The last command's words, where it said no JSON: from its first complaint on."""
    text = log.read_text(encoding="utf-8", errors="replace").rpartition("\n$ terraform")[2]
    bare = re.sub(r"\x1b\[[0-9;]*m|[│╷╵]", "", text)
    complaint = bare.find("Error:")
    return bare[complaint:] if complaint >= 0 else bare.partition("\n")[2]


def _change(table: dict[str, Any]) -> Change:
    resource = table["resource"]
    return Change(resource["addr"], resource["resource_type"], table["action"], table.get("id_value", ""))
