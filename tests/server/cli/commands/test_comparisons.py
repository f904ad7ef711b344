"""Campaigns side by side by command."""

from __future__ import annotations

from tests.server.cli.conftest import Autotune


def test_a_campaign_is_submitted_again_with_another_search(
    autotune: Autotune, finished: str
) -> None:
    request = autotune.done("show", finished, "--json").json()["campaign"]["request"]
    ran = autotune.done(
        *("submit", "--like", finished, "--search", "random", "--name", "at random"),
        *("--max-trials", "1", "--max-node-hours", "900", "--tp", "1,2,4", "--watch", "--json"),
    )
    repeated = ran.json()["campaign"]
    assert repeated["request"] == request | {
        "name": "at random",
        "search": "random",
        "space": request["space"] | {"tensor_parallel": [1, 2, 4]},
        "budget": request["budget"] | {"max_trials": 1, "max_node_hours": 900.0},
    }
    other = str(repeated["id"])
    ran = autotune.done("compare", finished, other)
    for name in (f"{finished} shared (simulated)", f"{other} at random (simulated)"):
        assert name in ran.out


def test_deephypers_search_shows_when_its_surrogate_took_over(
    autotune: Autotune, finished: str
) -> None:
    """Of two dimensions, five points are random, the baseline included."""
    space = ("--tp", "1,2", "--pp", "4", "--mbs", "1,2,4", "--num-nodes", "4")
    ran = autotune.done(
        *("submit", "--like", finished, "--search", "deephyper", *space, "--max-trials", "6"),
        *("--baseline", "none", "--watch", "--json"),
    )
    number = str(ran.json()["campaign"]["id"])
    assert ran.json()["campaign"]["surrogate_from"] == 6
    shown = " ".join(autotune.done("show", number).out.split())
    assert "surrogate chose from trial 6 on, after its initial points" in shown
    assert "Chosen at random." in shown
    assert "Chosen by DeepHyper's surrogate." in shown


def test_options_replace_the_subject_of_the_copied_campaign(
    autotune: Autotune, finished: str
) -> None:
    machine = ("--machine", "dgx-h100", "--evaluator", "simulated")
    budget = ("--nodes", "1", "--num-nodes", "1", "--max-trials", "1")
    made = autotune.done(
        "submit", "--like", finished, "--model", "gpt-1.4b", *machine, *budget, "--json"
    ).json()
    request = made["request"]
    assert (request["model"], request["machine"], request["nodes"]) == ("gpt-1.4b", "dgx-h100", 1)
    assert request["budget"]["train_tokens"] == 300e9


def test_only_a_campaign_that_exists_is_copied(autotune: Autotune) -> None:
    refused = autotune("submit", "--like", "10000", "--search", "random")
    assert refused.code == 2
    assert "there is no campaign 10000" in refused.err
