"""Terraform, run in a folder of its own for every deployment, and its errors in one sentence.

    deployments/NAME/
        *.tf, modules/           a copy of infra/ as it was applied last, so that `destroy` fits what is up
        .terraform.lock.hcl      with it, the provider's hashes: `init` takes no other provider
        terraform.tfvars.json    what was asked for
        terraform.tfstate        what is up: lose it, and Terraform no longer knows what to destroy
        terraform.log            all that it said
        unfinished               there while something is changed, and afterwards if Terraform was killed over it

The folder is all there is to a deployment: an apply that was interrupted is resumed by the same command, or undone by
`destroy`, and whoever prefers to can type `terraform plan` in it.
"""

import fcntl
import json
import os
import re
import secrets
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

from fundoscope.deploy.troubles import BUSY, trouble
from fundoscope.errors import FundoscopeError
from fundoscope.provenance import sha256_of, write_json

VARIABLES, STATE, LOG, SEEN = "terraform.tfvars.json", "terraform.tfstate", "terraform.log", ".terraform/fundoscope"
SAID, LOCK, UNFINISHED = ".terraform.said", ".lock", "unfinished"
HASHES = ".terraform.lock.hcl"
INSTALL = "install it (https://developer.hashicorp.com/terraform/install), version 1.9 or later, and have it on PATH"
GRACE_S = 60.0  # for Terraform to end what it has begun, once interrupted
LOOK_S = 0.1  # between two looks at what it has said


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

    @property
    def unfinished(self) -> bool:
        """Terraform was killed while it changed something: there may be parts that it had no time to write down."""
        return (self.folder / UNFINISHED).is_file()

    def mark_unfinished(self) -> None:
        """The next command looks for parts that Terraform does not know of."""
        (self.folder / UNFINISHED).touch()

    @property
    def deployment(self) -> str:
        """What its parts are tagged with: whoever else uses the same name draws another."""
        before = self.variables.get("deployment") if (self.folder / VARIABLES).is_file() else None
        return before or secrets.token_hex(4)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Nobody else changes this folder meanwhile; nor does a Terraform whose starter was killed."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / LOCK).open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if (self.folder / STATE).is_file():  # as Terraform locks it; closing gives it back at once
                    with (self.folder / STATE).open("r+") as state:
                        fcntl.lockf(state, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise FundoscopeError(*BUSY) from None
            try:
                yield
            finally:
                if [path.name for path in self.folder.glob("*")] == [LOCK]:  # refused before anything was done
                    shutil.rmtree(self.folder)

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
        write_json(self.folder / VARIABLES, variables | {"deployment": self.deployment})
        self.init()

    def init(self) -> None:
        """Fetching the provider takes a while: only where the modules have changed since it was fetched."""
        seen = sha256_of(b"".join(path.read_bytes() for path in _modules(self.folder)))
        mark = self.folder / SEEN
        if mark.is_file() and mark.read_text() == seen:
            return
        plugins = [f"-plugin-dir={self._plugins.resolve()}"] if self._plugins else []
        # A deployment from before there were hashes has none to hold to; Terraform then writes them.
        hashes = ["-lockfile=readonly"] if (self.folder / HASHES).is_file() else []
        self._run("init", "-input=false", "-no-color", *hashes, *plugins)
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
        return {".".join((part["module"], part["type"], part["name"])) for part in self._state()}

    def names(self) -> set[tuple[str, str]]:
        """The kind of all that is up, and AWS's name of it."""
        return {(part["type"], made["attributes"]["id"]) for part in self._state() for made in part["instances"]}

    def _state(self) -> list[dict[str, Any]]:
        """As Terraform last wrote it down, which it does after each part."""
        path = self.folder / STATE
        text = path.read_text(encoding="utf-8") if path.is_file() else ""
        try:
            resources = json.loads(text)["resources"] if text.strip() else []
        except (ValueError, KeyError):
            hint = f"copy {STATE}.backup over it, and run the same again: what that lacks is found by its tags"
            raise FundoscopeError(f"{path} is not whole", hint) from None
        return [part for part in resources if part["mode"] == "managed" and part["instances"]]

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
        """What it prints, as it prints it. Interrupted, it is given time to write down what it has done.

        It prints to a file: should we be killed, it still ends what it has begun, where a pipe would break.
        """
        errors: list[str] = []
        if arguments[0] in ("apply", "destroy"):
            self.mark_unfinished()
        with self.log.open("a", encoding="utf-8", buffering=1) as log, (self.folder / SAID).open("w+b") as said:
            log.write(f"\n$ terraform {' '.join(arguments)}\n")
            with self._start(arguments, said, log) as process:
                try:
                    for line in _follow(process, self.folder / SAID):
                        log.write(line)
                        errors += _errors(line)
                        yield line
                except BaseException:
                    _interrupt(process)
                    raise
                finally:
                    self._ended(process)
        if process.returncode < 0:
            message = f"terraform was ended by {signal.Signals(-process.returncode).name}"
            raise FundoscopeError(message, "run the same command again: it goes on from there; or `deploy destroy`")
        if process.returncode > 0:
            raise trouble("\n".join(errors) or _tail(self.log), log=self.log)

    def _start(self, arguments: tuple[str, ...], said: IO[bytes], log: IO[str]) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(
            [self._program, *arguments],
            cwd=self.folder,
            env=os.environ | {"TF_IN_AUTOMATION": "1", "CHECKPOINT_DISABLE": "1"},
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=log,
            process_group=0,  # an interrupt is ours to pass on, once: a second makes it drop everything
        )

    def _ended(self, process: "subprocess.Popen[bytes]") -> None:
        """Killed, it leaves its provider running, and cannot say what it was doing; else it has said all."""
        if process.returncode is not None and process.returncode >= 0:
            (self.folder / UNFINISHED).unlink(missing_ok=True)
            return
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def _follow(process: "subprocess.Popen[bytes]", path: Path) -> Iterator[str]:
    """Lines of a file, as the process writes them."""
    with path.open(encoding="utf-8", errors="replace") as file:
        part, ended = "", False
        while not ended:
            with suppress(subprocess.TimeoutExpired):
                process.wait(LOOK_S)
            ended = process.returncode is not None  # and only then a last look
            *lines, part = (part + file.read()).split("\n")
            yield from (line + "\n" for line in lines)
        if part:
            yield part


def _interrupt(process: "subprocess.Popen[bytes]") -> None:
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
    try:
        process.wait(GRACE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _modules(folder: Path) -> list[Path]:
    return sorted([*folder.glob("*.tf"), *folder.glob("modules/*/*.tf"), *folder.glob(HASHES)])


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
