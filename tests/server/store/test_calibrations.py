from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from autotune.schemas.calibrations import CalibrationDocument, CalibrationSummary
from search_spaces.catalog import load_machine
from server.store import Conflict, NotFound, Store
from server.store.calibrations import (
    calibration_document,
    check_name,
    delete_calibration,
    get_calibration,
    list_calibrations,
    newest_of,
    save_calibration,
)
from tests.server.asking import read, write
from tests.server.calibrations import document

FRONTIER = load_machine("frontier")


def saved(store: Store, name: str, content: CalibrationDocument) -> CalibrationSummary:
    return write(store, save_calibration, name, content)


def test_a_calibration_is_read_as_it_was_saved(store: Store) -> None:
    before = datetime.now(UTC)
    content = document(simulated=True)
    summary = saved(store, "mine", content)
    assert read(store, get_calibration, "mine") == summary
    found = CalibrationDocument.model_validate(read(store, calibration_document, "mine"))
    assert found == content
    assert (summary.machine, summary.software, summary.simulated) == ("frontier", "stack 1", True)
    assert (summary.observations, summary.timed, summary.out_of_memory) == (3, 2, 1)
    assert summary.models == ["gpt-22b"]
    assert summary.created_at is not None
    assert before <= summary.created_at <= datetime.now(UTC)


def test_a_name_is_taken_once_and_free_again_after_deletion(store: Store) -> None:
    saved(store, "mine", document())
    with pytest.raises(Conflict, match="there is a calibration mine already") as conflict:
        saved(store, "mine", document(slower=3.0))
    assert (conflict.value.field, conflict.value.value) == ("name", "mine")
    with store.session() as session, pytest.raises(Conflict):
        check_name(session, "mine")
    write(store, delete_calibration, "mine")
    read(store, check_name, "mine")
    assert read(store, list_calibrations) == []
    saved(store, "mine", document())


def test_of_several_at_once_one_gets_the_name(store: Store) -> None:
    def attempt(slower: float) -> bool:
        try:
            saved(store, "mine", document(slower=slower))
        except Conflict:
            return False
        return True

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(attempt, (1.0, 2.0, 3.0, 4.0))) == 1
    assert len(read(store, list_calibrations)) == 1


def test_what_is_not_there_is_not_found(store: Store) -> None:
    for call in (get_calibration, calibration_document):
        with store.session() as session, pytest.raises(NotFound, match="no calibration absent"):
            call(session, "absent")
    with pytest.raises(NotFound), store.transaction() as session:
        delete_calibration(session, "absent")


def newest(store: Store, machine: str = "frontier", *, simulated: bool = False) -> str | None:
    found = read(store, newest_of, load_machine(machine), simulated=simulated)
    return found.name if found else None


def test_the_newest_of_a_machine_by_its_figures_measured_or_simulated(store: Store) -> None:
    """A user's own shape may have a catalog's name and other figures."""
    assert newest(store) is None
    saved(store, "simulated", document(simulated=True))
    saved(store, "theirs", document(replace(FRONTIER, memory_gib=96.0)))
    assert newest(store) is None
    saved(store, "first", document())
    saved(store, "second", document(replace(FRONTIER, max_nodes=4, description="a part of it")))
    saved(store, "elsewhere", document("perlmutter"))
    saved(store, "simulated later", document(simulated=True))
    assert newest(store) == "second"
    assert newest(store, simulated=True) == "simulated later"
    assert newest(store, "perlmutter") == "elsewhere"
    assert newest(store, "dgx-a100") is None
    names = [each.name for each in read(store, list_calibrations)]
    assert names[:2] == ["simulated later", "elsewhere"], "newest first"
