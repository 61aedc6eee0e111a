"""What may be asked of SageMaker: its limits, from "Serverless Inference" in its developer guide, read in 2026."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fundoscope.deploy.endpoint import Autoscaling, RealTime, Serverless, Wanted, endpoint_of
from fundoscope.errors import FundoscopeError

ARTEFACT = "a" * 64
IMAGE = "sha256:" + "b" * 64


@given(st.integers(-10_000, 20_000))
@settings(deadline=None)
def test_serverless_memory_is_one_of_six_sizes(memory_mb: int) -> None:
    if memory_mb in (1024, 2048, 3072, 4096, 5120, 6144):
        assert Serverless(memory_mb).memory_mb == memory_mb
    else:
        with pytest.raises(FundoscopeError) as refused:
            Serverless(memory_mb)
        assert refused.value.hint == "use one of 1024, 2048, 3072, 4096, 5120, 6144"


@pytest.mark.parametrize(
    ("most", "warm", "message"),
    [
        (0, 0, "a serverless endpoint cannot have 0 requests at once"),
        (201, 0, "a serverless endpoint cannot have 201 requests at once"),
        (5, 6, "6 workers kept warm do not fit into 5 at once"),
        (5, -1, "-1 workers kept warm do not fit into 5 at once"),
    ],
)
def test_concurrency_has_its_limits(most: int, warm: int, message: str) -> None:
    with pytest.raises(FundoscopeError) as refused:
        Serverless(1024, most, warm)
    assert refused.value.message == message


def test_the_limits_themselves_are_allowed() -> None:
    assert Serverless(6144, 200, 200).provisioned_concurrency == 200
    assert Serverless(1024, 1, 0).max_concurrency == 1


@pytest.mark.parametrize(
    ("machine", "architecture"),
    [
        ("ml.m4.xlarge", "x86-64"),
        ("ml.m5.xlarge", "x86-64"),
        ("ml.m6g.xlarge", "arm64"),
        ("ml.c7g.xlarge", "arm64"),
        ("ml.c6gn.4xlarge", "arm64"),
        ("ml.g4dn.xlarge", "x86-64"),
        ("ml.g5.2xlarge", "x86-64"),
        ("ml.inf2.xlarge", "x86-64"),
    ],
)
def test_the_machine_decides_the_architecture(machine: str, architecture: str) -> None:
    assert RealTime(machine).architecture == architecture


def test_an_instance_of_another_service_is_refused() -> None:
    with pytest.raises(FundoscopeError) as refused:
        RealTime("m5.xlarge")
    assert refused.value.message == "'m5.xlarge' is not how SageMaker names a machine"


def test_autoscaling_never_goes_to_none_and_holds_the_first_count() -> None:
    with pytest.raises(FundoscopeError, match="cannot scale between 0 and 4"):
        Autoscaling(0, 4, 300)
    with pytest.raises(FundoscopeError, match="cannot scale between 5 and 4"):
        Autoscaling(5, 4, 300)
    with pytest.raises(FundoscopeError, match="1 machines are not between 2 and 4"):
        RealTime("ml.m5.xlarge", 1, Autoscaling(2, 4, 300))


def test_an_image_for_the_wrong_architecture_is_refused_before_anything_is_uploaded() -> None:
    with pytest.raises(FundoscopeError) as refused:
        Wanted("ana", "us-east-1", ARTEFACT, RealTime("ml.c7g.xlarge"), architecture="x86-64")
    assert refused.value.message == "the image is for x86-64, and ml.c7g.xlarge runs arm64"
    assert refused.value.hint == "build it for that: fundoscope image build --platform linux/arm64"
    with pytest.raises(FundoscopeError, match="a serverless endpoint runs x86-64"):
        Wanted("ana", "us-east-1", ARTEFACT, Serverless(), architecture="arm64")


@pytest.mark.parametrize("name", ["a", "An", "ana_clinic", "-ana", "ana-", "a" * 25, "1ana"])
def test_a_name_that_no_bucket_could_begin_with_is_refused(name: str) -> None:
    with pytest.raises(FundoscopeError, match="cannot be the name of a deployment"):
        Wanted(name, "us-east-1", ARTEFACT, Serverless())


def test_the_variables_say_one_kind_and_every_number() -> None:
    serverless = Wanted("ana", "sa-east-1", ARTEFACT, Serverless(3072, 7, 2)).variables(IMAGE)["endpoint"]
    assert serverless["serverless"] == {"memory_mb": 3072, "max_concurrency": 7, "provisioned_concurrency": 2}
    assert "real_time" not in serverless
    scaled = RealTime("ml.c7g.xlarge", 2, Autoscaling(1, 4, 300))
    real_time = Wanted("ana", "sa-east-1", ARTEFACT, scaled, "arm64").variables(IMAGE)["endpoint"]
    assert real_time["real_time"] == {
        "instance_type": "ml.c7g.xlarge",
        "count": 2,
        "autoscaling": {"min_count": 1, "max_count": 4, "requests_per_minute": 300},
    }


def test_without_an_image_only_the_places_are_asked_for() -> None:
    variables = Wanted("ana", "sa-east-1", ARTEFACT, Serverless()).variables(None)
    assert variables == {"prefix": "ana", "region": "sa-east-1", "aws_endpoint": None, "endpoint": None}


def test_an_endpoint_that_was_never_made_is_not_made_up() -> None:
    wanted = Wanted("ana", "us-east-1", ARTEFACT, Serverless())
    with pytest.raises(FundoscopeError, match="has no endpoint yet"):
        endpoint_of({"bucket": "ana-artefacts-1", "endpoint": None}, wanted.variables(None))
