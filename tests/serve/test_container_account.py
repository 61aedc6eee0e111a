"""What an answer says of the container that gave it, and where boto3 looks for the answer."""

import base64
import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pytest import approx
from running import Running, send, serving, until

from fundoscope.serve.container import Container, Origin, process_age_s

DIGEST = "sha256:" + "0123456789abcdef" * 4


@pytest.fixture(scope="module")
def named(artefact_folder: Path) -> Iterator[Running]:
    with serving(artefact_folder, "--workers", "2", FUNDOSCOPE_IMAGE=DIGEST) as running:
        running.wait_for("ready", 2)
        yield running


def test_an_answer_says_which_container_gave_it_and_what_its_start_took(artefact_folder: Path, jpeg: bytes) -> None:
    before = time.time()
    with serving(artefact_folder) as running:
        ready_s = time.time() - before
        first, second = (running.grade(jpeg).json["container"] for _ in range(2))
        measured = running.metrics()
    assert set(first) == {"id", "image", "started", "answered", "phases_s"}
    assert len(bytes.fromhex(first["id"])) == 8
    assert first["image"] is None
    assert before - 0.05 <= first["started"] <= before + ready_s  # the kernel counts in hundredths
    assert [first["answered"], second["answered"]] == [1, 2]
    assert set(first["phases_s"]) == {"boot", "import", "load", "warm_up", "first_prediction"}
    assert all(seconds > 0 for seconds in first["phases_s"].values())
    start = {phase: seconds for phase, seconds in first["phases_s"].items() if phase != "first_prediction"}
    assert sum(start.values()) <= ready_s + 0.05
    assert second == first | {"answered": 2}
    shown = {name: value for name, value in measured.items() if name.startswith("fundoscope_start_seconds")}
    assert shown == {f'fundoscope_start_seconds{{phase="{p}"}}': approx(s, abs=1e-4) for p, s in start.items()}


def test_the_first_prediction_is_that_of_the_first_callers_photograph(artefact_folder: Path, jpeg: bytes) -> None:
    with serving(artefact_folder) as running:
        assert running.grade(b"no picture").status == 400
        answer = running.grade(jpeg).json
    timings = answer["timings_ms"]
    assert answer["container"]["answered"] == 1  # a refusal is no answer
    taken_s = (timings["decode"] + timings["predict"]) / 1000
    assert answer["container"]["phases_s"]["first_prediction"] == approx(taken_s, abs=1e-4)


def test_several_photographs_get_one_account_of_the_container(named: Running, jpeg: bytes) -> None:
    sent = json.dumps({"photographs": [base64.b64encode(jpeg).decode()] * 2}).encode()
    answer = named.send("POST", "/invocations", sent, content_type="application/json").json
    assert set(answer) == {"gradings", "predictions", "container"}
    assert answer["container"]["image"] == DIGEST
    assert not [grading for grading in answer["gradings"] if "container" in grading]


def test_all_workers_are_of_one_container_and_each_counts_its_own_answers(named: Running, jpeg: bytes) -> None:
    before = [named.grade(jpeg).json["container"] for _ in range(8)]
    assert len({(said["id"], said["started"], said["image"]) for said in before}) == 1
    by_worker: dict[str, list[int]] = {}
    for said in before:
        by_worker.setdefault(json.dumps(said["phases_s"]), []).append(said["answered"])
    assert all(counts == sorted(set(counts)) for counts in by_worker.values())


def test_another_start_is_another_container(server: Running, named: Running, jpeg: bytes) -> None:
    assert server.grade(jpeg).json["container"]["id"] != named.grade(jpeg).json["container"]["id"]


def test_a_worker_that_replaces_another_is_of_the_same_container_and_boots_anew(
    artefact_folder: Path, jpeg: bytes
) -> None:
    with serving(artefact_folder) as running:
        first = running.grade(jpeg).json["container"]
        os.kill(running.worker, signal.SIGKILL)
        running.wait_for("ready", 2)
        second = running.grade(jpeg).json["container"]
    assert (second["id"], second["started"], second["answered"]) == (first["id"], first["started"], 1)
    assert second["phases_s"]["boot"] < first["phases_s"]["boot"]  # a fork, and no new interpreter


def test_a_model_loaded_at_the_first_request_has_phases_from_then_on(artefact_folder: Path, jpeg: bytes) -> None:
    with serving(artefact_folder, "--load", "first-request") as running:
        idle = {name for name in running.metrics() if name.startswith("fundoscope_start_seconds")}
        assert idle == {f'fundoscope_start_seconds{{phase="{phase}"}}' for phase in ("boot", "import")}
        phases = running.grade(jpeg).json["container"]["phases_s"]
    assert set(phases) == {"boot", "import", "load", "first_prediction"}  # the caller's photograph was the warm-up


def test_waiting_for_the_first_request_is_no_phase() -> None:
    origin = Origin.of_this_process(None)
    container = Container(origin, time.monotonic() - 1000)
    container.ended("import")
    container._last -= 1000  # as if so long had gone by
    container.resume()
    container.ended("load")
    assert container.start_s == {"boot": approx(1000, abs=1), "import": approx(0, abs=1), "load": approx(0, abs=1)}


def test_a_process_knows_when_it_started() -> None:
    stat = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    up_s = float(Path("/proc/uptime").read_text().split()[0])
    assert process_age_s() == approx(up_s - int(stat[19]) / os.sysconf("SC_CLK_TCK"), abs=0.5)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (DIGEST, DIGEST),
        ("registry.example/fundoscope:lean", "registry.example/fundoscope:lean"),
        (f"registry.example/fundoscope@{DIGEST}", f"registry.example/fundoscope@{DIGEST}"),
        ("", None),
        ("sha256:0123", None),
        (DIGEST.upper(), None),
        ("x" * 256, None),
        ("two words", None),
        ("imagem-é", None),
        ("one\nline", None),
    ],
)
def test_an_image_is_said_if_it_has_the_form_of_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], given: str, said: str | None
) -> None:
    from fundoscope.cli.serve import _image

    monkeypatch.setenv("FUNDOSCOPE_IMAGE", given)
    assert _image() == said
    told = capsys.readouterr().err
    assert told.count("image unknown") == (1 if given and said is None else 0)
    assert not given or given not in told


def test_an_image_of_no_such_form_is_null_and_logged_once(artefact_folder: Path, jpeg: bytes) -> None:
    with serving(artefact_folder, "--workers", "2", FUNDOSCOPE_IMAGE="Maria's image") as running:
        assert running.grade(jpeg).json["container"]["image"] is None
        running.wait_for("ready", 2)
        assert len(running.events("image unknown")) == 1
        assert "Maria" not in "".join(running.lines)


@pytest.mark.parametrize("name", ["x", "dr-mobilenet", "A1--b2", "9" * 63])
def test_the_runtimes_own_address_is_answered_as_invocations_is(server: Running, jpeg: bytes, name: str) -> None:
    there = server.send("POST", f"/endpoints/{name}/invocations", jpeg, content_type="image/jpeg")
    here = server.grade(jpeg)
    assert there.status == 200
    assert there.json["probabilities"] == approx(here.json["probabilities"], abs=1e-5)
    assert set(there.json) == set(here.json)
    assert there.json["container"]["answered"] < here.json["container"]["answered"]


@pytest.mark.parametrize("name", ["", "-x", "x-", "a_b", "a%2Fb", "a/b", "9" * 64, "%C3%A9"])
def test_what_is_no_name_of_an_endpoint_is_not_found(server: Running, jpeg: bytes, name: str) -> None:
    assert server.send("POST", f"/endpoints/{name}/invocations", jpeg, content_type="image/jpeg").status == 404


def test_the_log_does_not_tell_an_endpoints_name(artefact_folder: Path, jpeg: bytes) -> None:
    with serving(artefact_folder, "--log-requests") as running:
        send(running.port, "POST", "/endpoints/Maria/invocations", jpeg, content_type="image/jpeg")
        send(running.port, "GET", "/endpoints/Maria/invocations")
        assert until(lambda: len(running.events("request")) == 2)
        assert [(event["route"], event["status"]) for event in running.events("request")] == [
            ("/endpoints", 200),
            ("/endpoints", 405),
        ]
        assert "Maria" not in "".join(running.lines)


def test_boto3_is_answered_as_the_cloud_answers_it(server: Running, jpeg: bytes) -> None:
    boto3 = pytest.importorskip("boto3", reason="boto3 is not installed")
    from botocore.config import Config

    client = boto3.client(
        "sagemaker-runtime",
        endpoint_url=f"http://127.0.0.1:{server.port}",
        region_name="sa-east-1",
        aws_access_key_id="nobody",
        aws_secret_access_key="nothing",
        config=Config(retries={"total_max_attempts": 1}),
    )
    try:
        answer = client.invoke_endpoint(
            EndpointName="dr-mobilenet", ContentType="image/jpeg", CustomAttributes="trial=7", Body=jpeg
        )
        said = json.loads(answer["Body"].read())
        assert answer["ResponseMetadata"]["HTTPStatusCode"] == 200
        assert (answer["ContentType"], answer["CustomAttributes"]) == ("application/json", "trial=7")
        assert said["container"]["phases_s"]["boot"] > 0
        with pytest.raises(client.exceptions.ClientError) as refused:
            client.invoke_endpoint(EndpointName="dr-mobilenet", ContentType="text/csv", Body=b"1,2")
        assert refused.value.response["ResponseMetadata"]["HTTPStatusCode"] == 415
    finally:
        client.close()
