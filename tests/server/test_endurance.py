"""Eight faults at random while campaigns of all backends run: nothing is lost, doubled or left.

For longer: `FAULTS=1000 SEED=1 python -m pytest -s tests/server/test_endurance.py`.
"""

from __future__ import annotations

import os
from importlib.util import find_spec

import pytest

from autotune.schemas.choices import TrialState
from tests.ray_nodes import RayNodes, ray_nodes
from tests.server import postgres
from tests.server.faults.endurance import Endurance
from tests.server.faults.stage import Stage

__all__ = ["ray_nodes"]

FAULTS = int(os.environ.get("FAULTS", "8"))
REAL_CAMPAIGNS = 3 * FAULTS // 8
SEED = int(os.environ.get("SEED", "50"))


pytestmark = pytest.mark.xdist_group("ray")  # its last: nothing follows on what faults leave


@pytest.fixture
def cluster(request: pytest.FixtureRequest) -> RayNodes | None:
    """That of other tests: seconds of a core to start, and some of every minute to keep. Without
    Ray there is none here either."""
    if not find_spec("ray"):
        return None
    found: RayNodes = request.getfixturevalue("ray_nodes")
    return found


@pytest.mark.soak
@pytest.mark.timeout(120 * FAULTS)
def test_every_trial_has_one_outcome_whatever_fails(cluster: RayNodes | None) -> None:
    """On PostgreSQL, where there are two runners; on SQLite where this machine has no such."""
    has_server = postgres.binary("initdb") and postgres.server_user()
    database = "postgresql" if has_server else "sqlite"
    with Stage(database=database, seed=SEED, ray=cluster) as stage:
        report = Endurance(stage, faults=FAULTS, real=REAL_CAMPAIGNS, tell=print).run()
    assert not report.violations, report
    assert report.faults.total() == FAULTS
    assert report.trials[TrialState.OK], report
    assert {state for _, state in report.campaigns} <= {"done", "paused"}, report
