"""What an earlier `destroy` could not see gone is asked about again."""

import json
from pathlib import Path

from fundoscope.deploy.cloud import LEFT, _left
from fundoscope.deploy.terraform import Terraform


def test_what_was_left_is_read_back_and_nothing_is_left_at_first(tmp_path: Path) -> None:
    work = Terraform(tmp_path, program="terraform")
    assert _left(work) == set()
    left = [["aws_ecr_repository", "dr"], ["aws_s3_bucket", "dr-artefacts"]]
    (tmp_path / LEFT).write_text(json.dumps(left))
    assert _left(work) == {("aws_ecr_repository", "dr"), ("aws_s3_bucket", "dr-artefacts")}
