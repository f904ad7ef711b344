"""Generated examples are the same in every run: what fails is then due to a change. A search for
others is `pytest --hypothesis-profile=default`. None has a deadline: a busy machine misses it."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
from hypothesis import settings

from tests.group_resources import end_all

COSTLY = {"alone", "backend", "chromium", "closed", "ran", "train", "trainers", "two_done"}
"""Fixtures that take a second or more to make, for all tests of a module."""

LONGEST = ("ray", "slurm", "slurm-service", "client", "cli-service", "slurm-pilot")
"""Groups that take a minute or more. Those on Ray and Slurm mostly wait: one process of four has
others from the beginning."""

SOAK_LIMIT_S = 600.0

# Looking for garbage took two fifths of collecting the tests, of which all that is made stays.
gc.disable()

settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")


@pytest.fixture(autouse=True, scope="session")
def _no_service_of_the_developer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Services are noted in folders of this run, where those that run already are not."""
    with pytest.MonkeyPatch.context() as environment:
        for name in ("XDG_DATA_HOME", "XDG_STATE_HOME"):
            environment.setenv(name, str(tmp_path_factory.mktemp(name.lower())))
        for name in ("AUTOTUNE_TOKEN", "AUTOTUNE_TOKEN_FILE"):
            environment.delenv(name, raising=False)
        yield


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run tests of a module that share what is costly to make in one process, and let the longest
    groups begin first, then all others and long tests, so that none is left alone at the end.

    First, because pytest-xdist reads the groups in a hook of the same name.
    """
    for item in items:
        if "benchmarks" in item.path.parts:
            item.add_marker(pytest.mark.soak)
        if item.get_closest_marker("soak") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(SOAK_LIMIT_S))
        alone = item.get_closest_marker("xdist_group") is None
        if alone and COSTLY & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.xdist_group(item.path.stem))
    items.sort(key=rank)


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


def rank(item: pytest.Item) -> int:
    """How early it begins."""
    group = item.get_closest_marker("xdist_group")
    if group and group.args[0] in LONGEST:
        return LONGEST.index(group.args[0])
    return len(LONGEST) + (group is None and item.get_closest_marker("long") is None)


def group_of(item: pytest.Item | None) -> object:
    marker = item and item.get_closest_marker("xdist_group")
    return marker.args if marker else item


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """End what a group shared after its last test. (Without xdist groups are not run as such.)"""
    if hasattr(item.config, "workerinput") and group_of(item) != group_of(nextitem):
        end_all()


def pytest_sessionfinish() -> None:
    end_all()
    gc.freeze()
