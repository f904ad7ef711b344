"""How often the cost model is fitted, and whether a connection to the database waits for it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import QueuePool

from autotune.calibration import Calibration, Observation
from search_spaces.machine import Machine
from server.store import Store


@contextmanager
def noted_fits(store: Store) -> Iterator[list[int]]:
    """Note of each fit to trials how many connections to the store's database were held.

    What is known before any trial is worked out once in a process, whoever asks first.
    """
    noted: list[int] = []
    fitted, pool = Calibration.of, store.engine.pool
    assert isinstance(pool, QueuePool)

    def of(
        machine: Machine, observations: Sequence[Observation] = (), **options: Any
    ) -> Calibration:
        if observations:
            noted.append(pool.checkedout())
        return fitted(machine, observations, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Calibration, "of", of)
        yield noted
