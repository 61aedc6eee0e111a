"""`fundoscope advise` as a user types it, on studies that the library's own log wrote; and the wrong thing."""

import json
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from invoked_study import REFUSED, both_studies
from typed import Said, typed

from fundoscope.cli.main import build_parser

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "clinic-day.csv"
PRICES = ("--prices", "aws-sagemaker-us-east-1-2025-01-26")


def advise(*words: str, cwd: Path) -> Said:
    return typed("advise", *words, cwd=cwd)


@pytest.fixture(scope="module", autouse=True)
def _no_region() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as environment:
        environment.delenv("AWS_REGION", raising=False)
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("advise")
    both_studies(folder)
    return folder


@pytest.fixture(scope="module")
def said(folder: Path) -> str:
    clinic = ("--traffic", str(EXAMPLE), "--working-days", "--objective", "p95<2s")
    found = advise(*clinic, "--study", "memory", "--study", "instances", *PRICES, "--out", "advice.html", cwd=folder)
    assert (found.returncode, found.stderr) == (0, "")
    return found.stdout


def row(said: str, way: str) -> str:
    return next(line for line in said.splitlines() if line.startswith(f"{way}  "))


def test_the_advice_comes_first_in_a_sentence(said: str) -> None:
    lines = said.splitlines()
    assert lines[0] == "traffic:   clinic-day; 20,504 a month, 0.0389 a second at the busiest"
    assert lines[3] == "measured:  memory (48 trials); instances (12 trials)"
    assert lines[5].startswith(
        "advised: mobilenet: serverless 1024 MB, 5 at once: 0.18 USD a month, 0.0087 a thousand; "
    )
    assert lines[6].startswith("how sure: in ")
    assert lines[7].startswith("what would change it: if ")
    assert lines[8].startswith("break-even: ")


def test_every_way_that_was_measured_is_in_the_table_and_those_not_advisable_last(said: str) -> None:
    for way in ("serverless 3072 MB, 5 at once", "1 × ml.c5.large", "1 to 2 × ml.c7g.xlarge", "0 to 2 × ml.c5.large"):
        assert row(said, f"mobilenet: {way}").rstrip().endswith("%")
    assert row(said, "vgg19: nightly at 22 h on ml.c7g.xlarge").endswith("its p95 is 13.9 h")
    refused = row(said, "mobilenet-int8: serverless 1024 MB, 5 at once")
    assert refused.endswith(f"its artefact failed its guard: {REFUSED}")
    ready = row(said, "mobilenet: serverless 1024 MB, 5 at once, 1 kept ready")
    assert ready.endswith("the price of provisioned concurrency is not known")
    assert said.index("vgg19: 1 × ml.c7g.xlarge") < said.index(refused)
    assert (
        "vgg19: serverless 1024 MB  out of memory: the server was ended for want of memory at 1024 MB (3 trials)"
        in said
    )


def test_old_prices_are_warned_of_and_the_page_is_there(said: str, folder: Path) -> None:
    assert "warning: aws-sagemaker-us-east-1-2025-01-26 is " in said
    assert f"the page: {folder / 'advice.html'}" in said
    page = (folder / "advice.html").read_text(encoding="utf-8")
    assert "--working-days --objective" in page  # the command, as typed


def test_the_next_command_deploys_the_advised_way(said: str) -> None:
    words = shlex.split(said.splitlines()[-1].removeprefix("next: "))
    wanted = build_parser("deploy").parse_args(words[1:])
    assert (str(wanted.artefact), wanted.memory_mb, wanted.max_concurrency) == ("mobilenet", 1024, 5)


def test_rare_requests_are_cold_and_get_a_machine(folder: Path) -> None:
    words = ("--traffic", "1/hour", "--objective", "p95<200ms", "--study", "memory", "--study", "instances")
    found = json.loads(advise(*words, *PRICES, "--json", cwd=folder).stdout)
    assert found["advised"] == "mobilenet: 1 × ml.c5.large"
    wanted = build_parser("deploy").parse_args(shlex.split(found["next"])[1:])
    assert (wanted.instance, wanted.count, wanted.autoscale) == ("ml.c5.large", 1, None)


def test_whoever_can_wait_a_day_is_told_what_to_run_at_night(folder: Path) -> None:
    words = ("--traffic", str(EXAMPLE), "--objective", "p95<24h", "--study", "instances", *PRICES)
    said = advise(*words, cwd=folder).stdout.splitlines()[-1]
    assert said == (
        "next: every night on 1 × ml.c5.large: fundoscope screen PHOTOGRAPHS --artefact mobilenet --out results.parquet"
    )


def test_json_has_everything(folder: Path) -> None:
    found = advise("--traffic", "5000/day", "--study", "memory", "--study", "instances", *PRICES, "--json", cwd=folder)
    assert found.returncode == 0
    values = json.loads(found.stdout)
    assert values["advised"] == "mobilenet: serverless 1024 MB, 5 at once"
    assert values["requests_per_month"] == pytest.approx(150_000)
    assert values["certainty"]["resamples"] == 200
    assert {"estimates", "pareto", "break_evens", "flip", "assumptions", "notes", "studies"} <= values.keys()
    assert values["cannot_be_had"][0]["name"] == "vgg19: serverless 1024 MB"
    assert len(values["studies"][0]["outcomes_sha256"]) == 64
    assert {each["option"] for each in values["assumptions"]} >= {"--idle", "--start", "--workers", "--network-ms"}
    assert values["country"] is None
    assert values["next"].startswith("fundoscope deploy plan mobilenet ")


def test_a_country_comes_out_as_one_table(folder: Path) -> None:
    found = advise("--country", "brazil", "--objective", "p95<200ms", "--study", "instances", *PRICES, cwd=folder)
    assert found.returncode == 0
    assert "= 67,200,000 photographs a year, 8.84 a second from 8 to 16 h of working days" in found.stdout
    assert "IDF Diabetes Atlas" in found.stdout
    assert found.stdout.count("  ----") < 8  # of one table
    header = next(line for line in found.stdout.splitlines() if line.startswith("way "))
    assert header.split() == ["way", "USD/year", "takes", "p95", "cannot"]
    assert "warning: the prices are of us-east-1; Brazil has sa-east-1" in found.stdout
    assert row(found.stdout, "mobilenet: 1 × ml.c7g.xlarge").endswith("more than 18.1 a second wait without end")
    assert row(found.stdout, "mobilenet: 1 × ml.c5.large").endswith("its p95 is 0.285 s")
    assert found.stdout.splitlines()[-1].endswith("--instance ml.c5.large --count 1 --autoscale 1:4:426")


def test_a_country_of_other_numbers(folder: Path) -> None:
    some = ("--people", "1000000", "--eyes", "1", "--photographs", "1", "--per-year", "0.5", "--hours", "9-12")
    values = json.loads(advise(*some, "--study", "instances", *PRICES, "--json", cwd=folder).stdout)
    assert values["country"]["photographs_per_year"] == 500_000
    assert values["country"]["peak_per_s"] == pytest.approx(500_000 / 12 / (22 * 3 * 3600))


def test_nothing_advisable_is_said_and_is_not_success(folder: Path) -> None:
    found = advise("--traffic", "1/hour", "--objective", "p95<1ms", "--study", "instances", *PRICES, cwd=folder)
    assert found.returncode == 1
    assert "not advised: no way that was measured can be advised for p95<0.001s: " in found.stdout
    assert "next:" not in found.stdout


def test_assumptions_can_be_given(folder: Path) -> None:
    given = ("--provisioned-usd", "0.000005:0.000015", "--provisioned", "3", "--max-concurrency", "7", "--idle", "60")
    more = ("--network-ms", "50", "--region", "eu-west-1")
    words = ("--traffic", "0.01/s", "--study", "memory", *PRICES, *given, *more, "--json")
    values = json.loads(advise(*words, cwd=folder).stdout)
    ready = next(
        each
        for each in values["estimates"]
        if each["name"].endswith("mobilenet: serverless 1024 MB, 7 at once, 3 kept ready")
    )
    assert ready["usd"] == pytest.approx(3 * 0.000005 * 2_592_000, rel=0.05)
    assert ready["latency_s"]["p50"] == pytest.approx(0.2 + 0.004 + 0.05, rel=0.05)
    assert "the prices are of us-east-1, not of eu-west-1" in values["warnings"]


@pytest.mark.parametrize(
    ("words", "error", "hint"),
    [
        ("--traffic 5/fortnight", "'5/fortnight' is no rate: 'fortnight' is no time we know", "write 0.2/s"),
        ("--traffic fast", "'fast' is neither a rate nor a file", "write 0.2/s"),
        ("--traffic 1 --objective p95", "'p95' is no objective", "write it as p95<2s"),
        ("--country brasil", "there is no country called 'brasil'", "use brazil"),
        ("--traffic 1 --eyes 2", "--eyes goes with --country or --people", "leave it out"),
        ("--country brazil --hours 8", "'8' does not say from when to when", "write it as --hours 8-16"),
        ("--country brazil --hours 16-8", "no clinic is open from 16 to 8", "write it as 8-16"),
        ("--traffic 1 --provisioned-usd 3", "'3' are not two prices", "write it as"),
        ("--traffic 1 --max-concurrency 500", "max_concurrency cannot be 500", "use 1 to 200"),
        ("--traffic 1 --network-ms -5", "--network-ms cannot be -5", "give 0 or more"),
        ("--traffic 1 --machine ml.m5.xlarg", "no price for 'ml.m5.xlarg'", "near it: ml.m5.xlarge"),
        ("--traffic 1 --working-days", "a rate has no working days", "give a CSV file"),
        ("--traffic 1 --study nowhere", "nowhere is not a study that was run", "give the folder"),
    ],
)
def test_the_wrong_thing_gets_one_sentence_and_a_hint(folder: Path, words: str, error: str, hint: str) -> None:
    found = advise(*words.split(), "--study", "instances", *PRICES, cwd=folder)
    assert found.returncode == 2
    assert found.stdout == ""
    first, second = found.stderr.splitlines()
    assert first.startswith("error: ")
    assert error in first
    assert second.startswith(f"hint: {hint}")
