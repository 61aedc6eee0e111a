"""What of Terraform is installed here; tests that need more than that are skipped, and say so."""

import os
import shutil
from pathlib import Path

import pytest

FOLDERS = (os.environ.get("FUNDOSCOPE_TF_PLUGINS", ""), "/opt/tf-plugins", "/usr/local/share/terraform/plugins")
PROVIDER = "registry.terraform.io/hashicorp/aws/5.100.0"
INFRA = Path(__file__).resolve().parents[2] / "infra"


def plugins_or_skip() -> Path:
    """The folder with the AWS provider that infra/versions.tf pins."""
    if not shutil.which("terraform"):
        pytest.skip("terraform is not installed: nothing about infra/ was tried")
    for folder in filter(None, FOLDERS):
        if Path(folder, PROVIDER).is_dir():
            return Path(folder)
    pytest.skip(f"no folder has {PROVIDER}; name one in FUNDOSCOPE_TF_PLUGINS: nothing about infra/ was tried")
