"""How often the cost model is fitted, and whether a connection to the database waits for it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import QueuePool

from autotune.calibration import Calibration
from server.store import Store


@contextmanager
def noted_fits(store: Store) -> Iterator[list[int]]:
    """Note of each fit within how many connections to the store's database were held meanwhile."""
    noted: list[int] = []
    fitted, pool = Calibration.of, store.engine.pool
    assert isinstance(pool, QueuePool)

    def of(*args: Any, **options: Any) -> Calibration:
        noted.append(pool.checkedout())
        return fitted(*args, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Calibration, "of", of)
        yield noted
