"""Recommendations as text."""

from __future__ import annotations

from io import StringIO

from rich.console import Console

from autotune.schemas import Recommendation
from server.cli.tables.campaigns import recommendation
from tests.autotune.recommendation.examples import answer, strategy, trial


def printed(found: Recommendation) -> str:
    console = Console(width=160, file=StringIO())
    with console.capture() as text:
        console.print(recommendation(found))
    return text.get()


def test_a_front_is_shown_where_there_is_a_choice() -> None:
    wide, narrow = (
        trial(1, strategy(nodes=4), seconds=1.0),
        trial(2, strategy(nodes=2), seconds=1.2),
    )
    both = printed(answer([wide, narrow]))
    assert "fastest on so many nodes" in both
    assert "fastest for so much energy" in both
    assert "energy predicted" in both
    assert "hosts included (predicted)" in both
    assert "fastest" not in printed(answer([wide]))
