from pathlib import Path

import pytest

SHARED_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The real photographs and weights beside the checkout; not part of the repository."""
    if not SHARED_DATA.is_dir():
        pytest.skip(f"no real photographs here: {SHARED_DATA} is absent")
    return SHARED_DATA
