"""A pytest plugin: whom a process works for, how long tests and fixtures take, and fixtures made once for all mutants.

WATCH_TESTS     a file for one line of JSON per test and fixture
WATCH_ORDER     a file with the tests in the order in which they are to run, whatever others say
WATCH_NOW       a file that holds the test that runs now
MADE            a folder with the values of fixtures, pickled; what they name lies where it was made
MADE_FRESH      fixtures to make again all the same, since the mutant has a part in making them
MADE_KEEP       fixtures whose values are to be put there
"""

import json
import os
import pickle
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

Setup = Generator[None, Any, Any]


def _work_for(whom: str) -> None:
    """All that runs from here on, in this process and in those it starts (inside/reached.py)."""
    os.environ["REACH_FOR"] = whom


def _names(variable: str) -> list[str]:
    return os.environ.get(variable, "").split()


def _write(**line: Any) -> None:
    if path := os.environ.get("WATCH_TESTS"):
        with Path(path).open("a") as file:
            file.write(json.dumps(line) + "\n")


def _key(fixture: Any) -> str:
    return f"{fixture.baseid}::{fixture.argname}"


def _made(fixture: Any) -> Path:
    return Path(os.environ.get("MADE", "none"), _key(fixture).replace("/", "+"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Setup:
    _work_for(item.nodeid)
    if path := os.environ.get("WATCH_NOW"):
        Path(path).write_text(item.nodeid)
    try:
        return (yield)
    finally:
        _work_for("")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Setup:
    report = yield
    info = getattr(item, "_fixtureinfo", None)
    fixtures = [] if info is None else [_key(found[-1]) for found in info.name2fixturedefs.values() if found]
    _write(test=item.nodeid, when=report.when, outcome=report.outcome, seconds=report.duration, fixtures=fixtures)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: Any, request: Any) -> Setup:  # noqa: ARG001
    if fixturedef.scope == "function":
        return (yield)
    before, began = os.environ.get("REACH_FOR", ""), time.perf_counter()
    _work_for(f"fixture {_key(fixturedef)}")
    try:
        value = yield
        if _key(fixturedef) in _names("MADE_KEEP"):
            _made(fixturedef).write_bytes(pickle.dumps(value))
        return value
    finally:
        _work_for(before)
        _write(fixture=_key(fixturedef), seconds=time.perf_counter() - began)


class Made:
    """Beside the wrapper: the first of these hooks to answer makes the fixture."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_fixture_setup(self, fixturedef: Any, request: Any) -> Any:
        path = _made(fixturedef)
        if fixturedef.scope == "function" or _key(fixturedef) in _names("MADE_FRESH") or not path.is_file():
            return None
        value = pickle.loads(path.read_bytes())
        fixturedef.cached_result = (value, fixturedef.cache_key(request), None)
        return value


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if path := os.environ.get("WATCH_ORDER"):
        place = {name: number for number, name in enumerate(Path(path).read_text().splitlines())}
        items.sort(key=lambda item: place.get(item.nodeid, len(place)))


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Made(), "made")
