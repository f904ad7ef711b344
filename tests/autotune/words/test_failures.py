from __future__ import annotations

import pytest

from autotune.schemas.choices import CampaignState, TrialState
from autotune.words.failures import commands_to_try_again, common_failure
from tests.autotune.recommendation import examples

CRASHED, REFUSED = TrialState.CRASHED, TrialState.REFUSED


@pytest.mark.parametrize(
    ("ends", "sentence"),
    [
        (
            [(CRASHED, "rank 3: no flash_attn"), (CRASHED, "rank 0: no flash_attn")],
            "all 2 trials crashed with the same error: rank 0: no flash_attn",
        ),
        ([(REFUSED, "use -A"), (REFUSED, "use -A")], "all 2 trials were refused: use -A"),
        ([(CRASHED, "one"), (CRASHED, "other")], ""),
        ([(CRASHED, "same"), (REFUSED, "same")], ""),
        ([(CRASHED, "same"), (TrialState.OK, None)], ""),
        ([(TrialState.OK, None), (TrialState.OK, None)], ""),
        ([(CRASHED, "same"), (TrialState.PENDING, None)], ""),
        ([], ""),
    ],
)
def test_the_error_of_all_trials(ends: list[tuple[TrialState, str | None]], sentence: str) -> None:
    trials = [
        examples.trial(number, examples.A, seconds=1.0).model_copy(
            update={"state": state, "error": error}
        )
        for number, (state, error) in enumerate(ends, start=1)
    ]
    assert common_failure(trials) == sentence


@pytest.mark.parametrize(
    ("state", "commands"),
    [
        (CampaignState.RUNNING, []),
        (CampaignState.PAUSED, ["autotune resume 1", "autotune submit --like 1"]),
        (CampaignState.DONE, ["autotune submit --like 1"]),
    ],
)
def test_what_tries_again_depends_on_the_state(state: CampaignState, commands: list[str]) -> None:
    campaign = examples.campaign().model_copy(update={"id": 1, "state": state})
    assert [command for _, command in commands_to_try_again(campaign)] == commands
