"""infra/ under the real terraform, with a provider that invents what AWS would answer; and what its errors become."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from terraform_here import INFRA, PROVIDER, plugins_or_skip

from fundoscope.deploy.terraform import HASHES, STATE, Change, Terraform, find_terraform
from fundoscope.deploy.troubles import TROUBLES, trouble
from fundoscope.errors import FundoscopeError

VARIABLES = {"prefix": "ana", "region": "us-east-1", "aws_endpoint": None, "endpoint": None}


@pytest.fixture(scope="module")
def modules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """infra/, ready for terraform's commands."""
    plugins = plugins_or_skip()
    folder = Path(shutil.copytree(INFRA, tmp_path_factory.mktemp("infra"), dirs_exist_ok=True))
    _terraform(folder, "init", "-input=false", "-lockfile=readonly", f"-plugin-dir={plugins}")
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


def test_the_providers_hashes_are_kept_with_infra_for_every_platform() -> None:
    text = (INFRA / HASHES).read_text()
    name, _, version = PROVIDER.rpartition("/")
    assert re.findall(r'^provider "(.*)"', text, re.MULTILINE) == [name]
    assert f'version     = "{version}"' in text
    # HashiCorp publishes 14 archives of it, and a manifest, which is one more of the zh.
    assert len(set(re.findall(r'"h1:[A-Za-z0-9+/]{43}="', text))) == 14
    assert len(set(re.findall(r'"zh:[0-9a-f]{64}"', text))) == 15
    ignored = subprocess.run(["git", "check-ignore", "-q", INFRA / HASHES], cwd=INFRA, check=False)
    assert ignored.returncode != 0


def test_a_deployment_takes_the_hashes_along_and_no_other_provider(tmp_path: Path) -> None:
    plugins = plugins_or_skip()
    work = Terraform(tmp_path / "ana", plugins=plugins)
    work.prepare(INFRA, VARIABLES)
    assert "init -input=false -no-color -lockfile=readonly" in work.log.read_text()
    assert (work.folder / HASHES).read_bytes() == (INFRA / HASHES).read_bytes()
    (real,) = Path(plugins, PROVIDER).iterdir()
    other = tmp_path / "plugins" / PROVIDER / real.name / "terraform-provider-aws_v5.100.0_x5"
    other.parent.mkdir(parents=True)
    other.write_text("#!/bin/sh\n")
    other.chmod(0o755)
    with pytest.raises(FundoscopeError) as refused:
        Terraform(tmp_path / "bia", plugins=tmp_path / "plugins").prepare(INFRA, VARIABLES)
    assert refused.value.message == "the AWS provider that is there is not the one whose hashes .terraform.lock.hcl has"
    assert refused.value.hint == "do not use it: get it again from Terraform's registry"


def test_without_the_provider_one_sentence_and_how_to_bring_it(tmp_path: Path) -> None:
    plugins_or_skip()
    (tmp_path / "empty").mkdir()
    with pytest.raises(FundoscopeError, match="terraform cannot get the AWS provider") as refused:
        Terraform(tmp_path / "ana", plugins=tmp_path / "empty").prepare(INFRA, VARIABLES)
    assert refused.value.hint == "reach the network, or give a folder that has it: --plugins FOLDER"


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
        (
            "api error ExpiredToken: The provided token has expired.",
            "AWS does not accept these credentials",
        ),
        (
            "An error occurred (UnrecognizedClientException) when calling the DescribeImages operation: The security "
            "token included in the request is invalid.",
            "AWS does not accept these credentials",
        ),
        (
            "The SSO session associated with this profile has expired or is otherwise invalid.",
            "the sign-in to AWS has expired",
        ),
        (
            "InvalidSignatureException: Signature expired: 20261115T200000Z is now earlier than 20261115T210000Z",
            "AWS finds that this machine's clock is wrong",
        ),
        ("AccessDenied: Access Denied", "AWS does not allow these credentials what this needs"),
        (
            "api error LimitExceeded: Cannot exceed quota for RolesPerAccount: 1000",
            "a limit of this account is reached",
        ),
        ("api error TooManyBuckets: You have attempted to create more", "a limit of this account is reached"),
        (
            "Error: Failed to query available provider packages: Could not retrieve the list of available versions for "
            "provider hashicorp/aws: could not connect to registry.terraform.io",
            "terraform cannot get the AWS provider",
        ),
        (
            "Error while installing hashicorp/aws v5.100.0: the local package for registry.terraform.io/hashicorp/aws "
            "5.100.0 doesn't match any of the\nchecksums previously recorded in the dependency lock file",
            "the AWS provider that is there is not the one whose hashes .terraform.lock.hcl has",
        ),
        (
            "(ModelError) when calling the InvokeEndpoint operation: Received client error (415) from primary with",
            "the container answered the photograph with an error, 415",
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
        (
            "Resource postcondition failed: SageMaker went back to the former configuration.",
            "the endpoint did not come up with what it was given, and goes on with what it had before",
        ),
        ("Error: Error acquiring the state lock", "another command is at work on this deployment"),
        ("\n\nSomething else\nand more", "it did not work: Something else"),
    ],
)
def test_an_error_of_aws_is_one_sentence(said: str, message: str) -> None:
    assert trouble(said).message == message
    assert trouble(said).hint or message.startswith("it did not work")


def test_every_trouble_has_one_sentence_and_a_hint() -> None:
    for _, message, hint in TROUBLES:
        assert message
        assert hint
        assert not message.endswith(".")


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


def test_killed_terraform_is_said_and_may_have_left_something(tmp_path: Path) -> None:
    work = Terraform(tmp_path, program=str(_program(tmp_path, "kill -9 $$")))
    with pytest.raises(FundoscopeError) as killed:
        work.apply()
    assert killed.value.message == "terraform was ended by SIGKILL"
    assert killed.value.hint == "run the same command again: it goes on from there; or `deploy destroy`"
    assert work.unfinished
    assert Terraform(tmp_path, program=str(_program(tmp_path, "exit 0"))).apply() == []
    assert not work.unfinished


def test_two_at_once_are_refused_and_so_is_one_beside_a_terraform_that_was_left_alone(tmp_path: Path) -> None:
    work, other = (Terraform(tmp_path / "ana", program="none") for _ in "12")
    with (
        work.alone(),
        pytest.raises(FundoscopeError, match="another command is at work on this deployment"),
        other.alone(),
    ):
        pass
    assert not (tmp_path / "ana").exists()  # nothing was done, nothing stays
    with other.alone():
        (tmp_path / "ana" / STATE).touch()
    holder = "import fcntl, sys; file = open(sys.argv[1], 'r+'); fcntl.lockf(file, fcntl.LOCK_EX); print(); input()"
    command = [sys.executable, "-c", holder, str(tmp_path / "ana" / STATE)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as terraform:
        assert terraform.stdout
        terraform.stdout.readline()
        with pytest.raises(FundoscopeError, match="another command is at work on this deployment"), work.alone():
            pass
        terraform.communicate(b"\n")
    with work.alone():
        assert work.parts() == work.names() == set()


def test_a_state_that_is_not_whole_is_said_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / STATE).write_text('{"resources": [{"mode"')
    with pytest.raises(FundoscopeError, match="terraform.tfstate is not whole") as torn:
        Terraform(tmp_path, program="none").names()
    assert torn.value.hint.startswith("copy terraform.tfstate.backup over it")


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
    assert re.fullmatch("[0-9a-f]{8}", work.deployment)  # drawn once
    assert work.variables == VARIABLES | {"deployment": work.deployment}
    asked = (tmp_path / "asked").read_text().splitlines()
    assert asked == [f"init -input=false -no-color -lockfile=readonly -plugin-dir={tmp_path}"] * 2
    (infra / HASHES).unlink()  # a source from before there were hashes
    work.prepare(infra, VARIABLES)
    assert (tmp_path / "asked").read_text().splitlines()[2] == f"init -input=false -no-color -plugin-dir={tmp_path}"
