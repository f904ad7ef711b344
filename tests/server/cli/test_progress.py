"""What `watch` says of a campaign, event by event."""

from __future__ import annotations

from autotune.schemas.campaigns import Event
from autotune.schemas.choices import TrialState
from autotune.schemas.trials import Trial
from server.cli.progress import CampaignProgress
from tests.server.figures.subjects import campaign, trial

PROJECTED = {"best_objective": 70.0, "best_projected_from_nodes": 4}


def ended(progress: CampaignProgress, item: Trial) -> None:
    event = Event(id=item.number, campaign_id=1, kind="trial", trial=item)
    assert progress.apply(event)


def test_the_best_is_the_services_and_not_the_fastest_trial() -> None:
    progress = CampaignProgress(campaign())
    assert progress.figures == "0 failed · no result yet (simulated)"
    ended(progress, trial(1, 90.0))
    assert "no result yet" in progress.figures
    for best, origin in (({"best_objective": 50.0}, ""), (PROJECTED, "projected, ")):
        now = campaign().model_copy(update=best)
        event = Event(id=2, campaign_id=1, kind="campaign", campaign=now)
        assert not progress.apply(event)
        assert f"best {best['best_objective']:g} tokens/s ({origin}simulated)" in progress.figures


def test_how_long_it_takes_at_most_follows_from_the_pace_so_far() -> None:
    progress = CampaignProgress(campaign())
    ended(progress, trial(1, 50.0))  # ended after a minute
    ended(progress, trial(2, None))
    left = progress.total - 2 + progress.campaign.request.protocol.confirmations
    assert f"at most {left} min left" in progress.figures


def test_confirmations_are_no_trials_of_the_search() -> None:
    """With at most 12 trials it never counts to more."""
    progress = CampaignProgress(campaign())
    for number in range(1, progress.total + 1):
        ended(progress, trial(number, 50.0))
    most = progress.campaign.request.budget.max_trials
    ended(progress, trial(most + 1, 51.0, purpose="confirmation"))
    assert (progress.searched, progress.total) == (most, most)
    assert "1 confirmation ·" in progress.figures


def test_starts_of_knobs_are_counted_by_themselves() -> None:
    subject = campaign()
    wanted = subject.request.model_copy(update={"knobs": "all"})
    progress = CampaignProgress(subject.model_copy(update={"request": wanted}))
    for number, purpose in enumerate(("search", "confirmation", "knob", "knob"), start=1):
        ended(progress, trial(number, 50.0, purpose=purpose))
    assert progress.searched == 1
    assert "1 confirmation · 2 starts of knobs · 0 failed" in progress.figures
    assert progress.remaining == ""  # how many more are worth it is not known


def test_a_trial_that_never_had_a_node_is_not_counted() -> None:
    progress = CampaignProgress(campaign())
    withdrawn = trial(1, None, state=TrialState.CANCELLED, node_hours=0.0)
    assert not progress.apply(Event(id=1, campaign_id=1, kind="trial", trial=withdrawn))
    ended(progress, trial(2, None, state=TrialState.REFUSED))
    assert progress.searched == 1
    assert progress.figures.startswith("1 failed · ")
