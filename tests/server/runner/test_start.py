"""What the search of a campaign starts from: trials of those that ran before it."""

from __future__ import annotations

from autotune.schemas.calibrations import EarlierObservation
from autotune.schemas.campaigns import Campaign
from autotune.schemas.choices import TrialState
from autotune.schemas.trials import Trial
from server.runner.runner import Runner
from server.store.campaigns import delete_campaign
from server.store.history import earlier_observations
from server.store.tables import TrialRow
from tests.pace import QUICK
from tests.server.asking import created, read, write
from tests.server.running import Running

UNLIKE = 6
"""Seed of a simulated machine that runs 12 % off the priors: there is something to learn."""
SMALLER = {"model": "gpt-1.4b", "budget": {"max_trials": 6}, "seed": 1}
ONE = {"budget": {"max_trials": 1}, "protocol": {"confirmations": 0}}
FEW = SMALLER | {"budget": {"max_trials": 2}, "protocol": {"confirmations": 0}}
"""Enough to be started from, and not to learn from."""


def earlier_of(running: Running, campaign: Campaign) -> list[EarlierObservation]:
    return read(running.store, earlier_observations, campaign.id)


def _of_another_model(running: Running, trial: Trial) -> Trial:
    """Let the trainer of a trial have counted twice the parameters."""
    assert trial.metrics is not None
    counts = {"trainer_parameters": 2_000_000, "model_parameters": 1_000_000}
    with running.store.transaction() as session:
        row = session.get_one(TrialRow, trial.id)
        row.metrics = trial.metrics.model_dump() | counts
    return trial


def test_a_campaign_starts_from_those_before_it_on_its_machine(running: Running) -> None:
    first = running.done(**SMALLER | {"seed": UNLIKE})
    ended = [t for t in running.trials(first) if t.state in {TrialState.OK, TrialState.OOM}]
    other = _of_another_model(running, next(t for t in ended if t.state is TrialState.OK))
    ended.remove(other)
    second = done = running.done(
        budget={"max_trials": 4}, protocol={"confirmations": 0}, seed=UNLIKE
    )
    (start,) = done.started_from or []
    assert (start.campaign_id, start.name, start.trials) == (first.id, first.name, len(ended))
    assert not start.deleted
    found = earlier_of(running, second)
    assert {observation.model.name for observation in found} == {"gpt-1.4b"}
    assert all(observation.versions for observation in found)
    assert all(0 <= observation.age_days < 1 for observation in found)
    worth = done.start_worth
    assert worth is not None
    assert worth.trials == sum(t.state is TrialState.OK for t in running.trials(second))
    assert worth.error_with < worth.error_without
    assert running.campaign(first).started_from == []


def test_a_stored_start_stays_whatever_runs_or_goes_later(running: Running) -> None:
    """So the next trial follows from the campaign's own rows, whichever runner asks."""
    store = running.store
    first = running.done(**FEW)
    second = created(store, time_scale=1.0, seed=1)
    running.until(lambda: running.campaign(second).pending > 0)
    before = earlier_of(running, second)
    assert before
    running.done(**FEW)
    write(store, delete_campaign, first.id)
    running.runner.close()
    runner = Runner(running.settings, store, pace=QUICK)
    running.until(lambda: running.campaign(second).pending > 1, runner=runner)
    runner.close()
    assert earlier_of(running, second) == before
    (start,) = running.campaign(second).started_from or []
    assert start.deleted


def test_a_fresh_campaign_or_another_machine_starts_from_nothing(
    running: Running,
) -> None:
    """Another seed simulates another machine."""
    running.done(**FEW)
    done = running.done(**ONE, fresh=True, seed=1)
    assert done.started_from == []
    assert done.start_worth is None
    assert earlier_of(running, done) == []
    assert running.done(**ONE, seed=3).started_from == []
