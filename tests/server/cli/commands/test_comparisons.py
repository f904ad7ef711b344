"""Campaigns side by side by command: in words, and drawn into a file."""

from __future__ import annotations

from pathlib import Path

from tests.server.cli.conftest import Autotune


def test_campaigns_are_compared_and_drawn(
    autotune: Autotune, finished: str, tmp_path: Path
) -> None:
    ran = autotune(
        "submit", "--model", "gpt-22b", "--machine", "frontier", "--nodes", "1", "--json"
    )
    other = str(ran.json()["id"])
    drawn = tmp_path / "new" / "compared.svg"
    ran = autotune("compare", finished, other, "--out", str(drawn), "--by", "trial")
    assert ran.code == 0, ran.err
    assert "shared" in ran.out
    assert "nodes" in ran.out
    assert f"Campaigns {finished} and {other}" in drawn.read_text()
    ran = autotune("compare", finished, other, "--out", "compared.gif")
    assert ran.code == 2
    assert "--out: its end names no format" in ran.err
    autotune("cancel", other)
