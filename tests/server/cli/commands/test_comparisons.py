"""Campaigns side by side by command."""

from __future__ import annotations

from tests.server.cli.conftest import Autotune


def test_a_campaign_is_repeated_with_another_search_and_both_are_compared(
    autotune: Autotune, finished: str
) -> None:
    refused = autotune("repeat", finished, "--search", "calibrated")
    assert refused.code == 2
    assert f"--search: campaign {finished} searched in this way" in refused.err
    ran = autotune.done("repeat", finished, "--search", "random", "--watch", "--json")
    repeated = ran.json()["campaign"]
    other = str(repeated["id"])
    assert repeated["name"] == "shared (random)"
    assert f"`autotune compare {finished} {other}`" in ran.err
    ran = autotune.done("compare", finished, other)
    [first, second, *improved] = [line for line in ran.out.splitlines() if " shared" in line]
    assert "calibrated" in first
    assert "random" in second
    assert improved[-1].startswith(f"{other} shared (random) (simulated)")
    assert improved[-1].endswith("tokens/s")
