"""infra/ under the real terraform, with a provider that invents what AWS would answer; and what its errors become."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from terraform_here import INFRA, PROVIDER, plugins_or_skip

from fundoscope.deploy.terraform import Change, Terraform, find_terraform, trouble
from fundoscope.errors import FundoscopeError

VARIABLES = {"prefix": "ana", "region": "us-east-1", "aws_endpoint": None, "endpoint": None}


@pytest.fixture(scope="module")
def modules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """infra/, ready for terraform's commands."""
    plugins = plugins_or_skip()
    folder = Path(shutil.copytree(INFRA, tmp_path_factory.mktemp("infra"), dirs_exist_ok=True))
    _terraform(folder, "init", "-input=false", f"-plugin-dir={plugins}")
    return folder


def _terraform(folder: Path, *arguments: str) -> str:
    ran = subprocess.run(
        ["terraform", *arguments, "-no-color"], cwd=folder, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def _program(folder: Path, text: str) -> Path:
    """Something that stands where terraform would."""
    program = folder / "bin" / "terraform"
    program.parent.mkdir(exist_ok=True)
    program.write_text(f"#!/bin/sh\n{text}\n")
    program.chmod(0o755)
    return program


def test_infra_is_written_as_terraform_writes_it() -> None:
    plugins_or_skip()
    assert _terraform(INFRA, "fmt", "-check", "-recursive") == ""


def test_infra_is_valid(modules: Path) -> None:
    assert json.loads(_terraform(modules, "validate", "-json"))["valid"]


def test_modules_hold_what_they_promise(modules: Path) -> None:
    said = _terraform(modules, "test")
    runs = sum(path.read_text().count("\nrun ") for path in INFRA.glob("tests/*.tftest.hcl"))
    assert f"Success! {runs} passed, 0 failed." in said


def test_the_provider_is_pinned_to_the_version_the_tests_look_for() -> None:
    assert f'version = "{PROVIDER.rpartition("/")[2]}"' in (INFRA / "versions.tf").read_text()


def test_everything_is_named_after_the_prefix() -> None:
    text = "".join(path.read_text() for path in INFRA.glob("modules/*/main.tf"))
    names = re.findall(r"^  (?:name|name_prefix|bucket_prefix|alarm_name) += (.*)$", text, re.MULTILINE)
    assert len(names) == 10
    assert [name for name in names if "var.prefix" not in name] == ['"endpoint"']  # the role's own policy


def test_without_terraform_one_sentence_and_where_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(FundoscopeError) as refused:
        find_terraform()
    assert refused.value.message == "terraform is not installed here"
    assert "developer.hashicorp.com/terraform/install" in refused.value.hint


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ("Error: No valid credential sources found", "there are no credentials for AWS here"),
        (
            "api error InvalidClientTokenId: The security token included in the request is invalid.",
            "AWS does not accept these credentials",
        ),
        (
            "AccessDeniedException: User: arn:aws:iam::1:user/ana is not authorized to perform: sagemaker:CreateModel "
            "on resource: x",
            "these credentials are not allowed sagemaker:CreateModel",
        ),
        (
            "ResourceLimitExceeded: The account-level service limit 'ml.c7g.xlarge for endpoint usage' is 0 Instances",
            "this account may have no more: ml.c7g.xlarge for endpoint usage",
        ),
        ("exec /usr/bin/fundoscope: exec format error", "the image is for another architecture than the machine"),
        (
            "The primary container for production variant grader did not pass the ping health check.",
            "the container did not answer /ping in time",
        ),
        (
            "RepositoryAlreadyExistsException: The repository with name 'ana-server' already exists",
            "something of that name exists, and is not part of this deployment",
        ),
        ("dial tcp 127.0.0.1:9: connect: connection refused", "AWS cannot be reached"),
        ("Error: Error acquiring the state lock", "another command is at work on this deployment"),
        ("\n\nSomething else\nand more", "it did not work: Something else"),
    ],
)
def test_an_error_of_aws_is_one_sentence(said: str, message: str) -> None:
    assert trouble(said).message == message


def test_an_error_in_terraforms_json_is_found_and_the_log_keeps_the_rest(tmp_path: Path) -> None:
    said = {
        "@level": "error",
        "type": "diagnostic",
        "diagnostic": {"severity": "error", "summary": "creating Model", "detail": "ExpiredToken: expired"},
    }
    program = _program(tmp_path, f"echo '{json.dumps(said)}'; echo 'more words' >&2; exit 1")
    work = Terraform(tmp_path, program=str(program))
    with pytest.raises(FundoscopeError, match="AWS does not accept these credentials"):
        work.apply()
    assert "more words" in work.log.read_text()


def test_what_is_changed_is_told_with_the_names_that_aws_gave(tmp_path: Path) -> None:
    resource = {"addr": "module.bucket.aws_s3_bucket.artefacts", "resource_type": "aws_s3_bucket"}
    lines = [
        {"type": "apply_start", "hook": {"resource": resource, "action": "delete", "id_value": "ana-artefacts-1"}},
        {"type": "apply_complete", "hook": {"resource": resource, "action": "delete"}},
        {"type": "apply_complete", "hook": {"resource": resource, "action": "create", "id_value": "ana-artefacts-2"}},
    ]
    program = _program(tmp_path, "\n".join(f"echo '{json.dumps(line)}'" for line in lines))
    changes = Terraform(tmp_path, program=str(program)).apply()
    assert [(change.action, change.id) for change in changes] == [
        ("delete", "ana-artefacts-1"),
        ("create", "ana-artefacts-2"),
    ]


def test_interrupted_terraform_may_write_down_what_it_has_done(tmp_path: Path) -> None:
    resource = {"addr": "module.registry.aws_ecr_repository.server", "resource_type": "aws_ecr_repository"}
    line = {"type": "apply_complete", "hook": {"resource": resource, "action": "create", "id_value": "ana-server"}}
    text = f"trap 'kill $!; echo saved > saved; exit 1' INT\nsleep 600 &\necho '{json.dumps(line)}'\nwait"
    told = []

    def interrupt(change: Change) -> None:
        told.append(change.id)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Terraform(tmp_path, program=str(_program(tmp_path, text))).apply(told=interrupt)
    assert told == ["ana-server"]
    assert (tmp_path / "saved").read_text() == "saved\n"


def test_modules_that_are_gone_from_infra_go_from_the_deployment_too(tmp_path: Path) -> None:
    program = _program(tmp_path, f'echo "$@" >> {tmp_path}/asked; mkdir -p .terraform')
    infra = Path(shutil.copytree(INFRA, tmp_path / "infra"))
    (infra / "old.tf").write_text("# once\n")
    work = Terraform(tmp_path / "work", program=str(program), plugins=tmp_path)
    work.prepare(infra, VARIABLES)
    assert (work.folder / "old.tf").is_file()
    work.prepare(infra, VARIABLES)  # nothing has changed: the provider is not fetched again
    (infra / "old.tf").unlink()
    work.prepare(infra, VARIABLES)
    assert not (work.folder / "old.tf").exists()
    assert work.variables == VARIABLES
    asked = (tmp_path / "asked").read_text().splitlines()
    assert asked == [f"init -input=false -no-color -plugin-dir={tmp_path}"] * 2
