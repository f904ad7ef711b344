"""The state machine of an attempt, and its drawing in the guide."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

import pytest

from evaluators.attempt import TRANSITIONS, AttemptState, transition

GUIDE = (Path(__file__).parents[2] / "docs" / "cluster.md").read_text()
ARROW = re.compile(r"^    (\w+) --> (\w+)", re.MULTILINE)


def test_the_diagram_draws_what_the_code_allows() -> None:
    (diagram,) = re.findall(r"```mermaid\n(.*?)```", GUIDE, re.DOTALL)
    drawn = defaultdict(set)
    arrows = ARROW.findall(diagram)
    for state, following in arrows:
        drawn[state].add(following)
    assert len(arrows) == len(set(arrows)), "each arrow is drawn once"
    assert drawn == {state: after for state, after in TRANSITIONS.items() if after}


def test_what_is_decided_stays_so() -> None:
    for state in (AttemptState.ENDED, AttemptState.ABANDONED):
        assert transition(state, state) is state
        for other in set(AttemptState) - {state}:
            with pytest.raises(ValueError, match=f"is {state} cannot become {other}"):
                transition(state, other)


def test_nothing_becomes_new_again() -> None:
    assert not [state for state, after in TRANSITIONS.items() if AttemptState.NEW in after]
