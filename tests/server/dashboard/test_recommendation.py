"""The fragment of a page that tells what a campaign recommends."""

from __future__ import annotations

from autotune.schemas import Trial
from server.dashboard.rendering import TEMPLATES
from tests.autotune.recommendation.examples import answer, campaign, strategy, trial


def fragment(*trials: Trial) -> str:
    template = TEMPLATES.env.get_template("_recommendation.html")
    return template.render(
        campaign=campaign(),
        recommendation=answer([*trials]),
        accumulation_summary="",
        baseline=None,
    )


def test_a_front_is_shown_where_there_is_a_choice() -> None:
    wide, narrow = (
        trial(1, strategy(nodes=4), seconds=1.0),
        trial(2, strategy(nodes=2), seconds=1.2),
    )
    both = fragment(wide, narrow)
    assert "Fastest on so many nodes" in both
    assert "Fastest for so much energy" in both
    assert "not confirmed, energy predicted" in both
    assert "Fastest" not in fragment(wide)
