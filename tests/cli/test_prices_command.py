"""fundoscope prices on the command line."""

import json
from pathlib import Path

import pytest

from fundoscope.cli.main import main


def test_all_lists_are_shown_and_one_with_its_sources(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["prices", "list"]) == 0
    assert "aws-ec2-us-east-1-2026-08-22" in capsys.readouterr().out
    assert main(["prices", "list", "azure-eastus-2025-09-11"]) == 0
    said = capsys.readouterr().out
    assert "NC4as_T4_v3      0.526   0.0627     4   28" in said
    assert "catalogue: skypilot-catalog, commit 0082b0435" in said


def test_a_machine_reads_them_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["prices", "list", "aws-sagemaker-us-east-1-2025-01-26", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["as_of"], found["machines"]) == ("2025-01-26", 15)
    assert found["instances"]["ml.m5.xlarge"]["usd_per_hour"] == 0.23


OLD = """provider = "p"
service = "s"
region = "r"
as_of = 2001-01-31
[sources]
page = "a page somewhere"
[instances]
"m" = { usd_per_hour = 0.5, source = "page", grade = "C" }
"""


def test_an_old_list_fails_the_check_and_says_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(OLD)
    assert main(["prices", "check", str(path)]) == 1
    assert "days old; prices have changed since; from third parties alone: m" in capsys.readouterr().out
    assert main(["prices", "check", "moura-filho-souza-2024"]) == 0


def test_a_list_that_is_not_there_is_one_sentence_and_a_hint(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["prices", "list", "azure-estus"]) == 2
    said = capsys.readouterr().err
    assert said == "error: there is no price list called 'azure-estus'\nhint: use azure-eastus-2025-09-11\n"
