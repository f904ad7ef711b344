from __future__ import annotations

import pytest

from autotune.schemas.choices import TrialState
from autotune.words.failures import common_failure
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
