"""Scheduling, as a pure function: what must hold whatever is asked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from evaluators.slurm.pilot.scheduler import (
    MOST_PASSED_OVER,
    PATIENCE_S,
    GroupShare,
    GroupShares,
    Schedule,
    WaitingTrial,
    schedule_trials,
)

NODES = tuple(f"n{number:02d}" for number in range(1, 33))


def waiting(*widths: int, group: str = "") -> list[WaitingTrial]:
    return [WaitingTrial(name=f"{group}{i}", width=w, group=group) for i, w in enumerate(widths)]


@st.composite
def queues(draw: st.DrawFn, most: int = 12) -> list[WaitingTrial]:
    trial = st.tuples(st.integers(1, 10), st.sampled_from("abc"), st.integers(0, 60))
    trials = draw(st.lists(trial, max_size=most))
    return [
        WaitingTrial(name=f"t{i}", width=width, group=group, passed_over=passed_over)
        for i, (width, group, passed_over) in enumerate(trials)
    ]


free_nodes = st.sets(st.sampled_from(NODES[:8]))


def packed(queue: Sequence[WaitingTrial], nodes: Sequence[str], free: set[str]) -> Schedule:
    return schedule_trials(nodes, free=free, waiting=queue, shares={})


@given(queues(), free_nodes, st.sets(st.sampled_from(NODES[:8])))
def test_a_node_has_one_trial_and_only_if_it_is_free_and_usable(
    queue: list[WaitingTrial], free: set[str], usable: set[str]
) -> None:
    nodes = [node for node in NODES if node in usable]
    starts = packed(queue, nodes, free).starts
    used = [node for chosen in starts.values() for node in chosen]
    assert len(used) == len(set(used))
    assert set(used) <= free & usable
    widths = {trial.name: trial.width for trial in queue}
    assert all(len(chosen) == widths[name] for name, chosen in starts.items())


@given(queues(), free_nodes)
def test_nothing_that_fits_waits_unless_nodes_are_reserved(
    queue: list[WaitingTrial], free: set[str]
) -> None:
    nodes = NODES[:8]
    packing = packed(queue, nodes, free)
    left = [trial for trial in queue if trial.name not in packing.starts]
    room = len(free) - sum(len(chosen) for chosen in packing.starts.values())
    reserved = any(trial.first_of_all and trial.width <= len(nodes) for trial in left)
    assert reserved or all(trial.width > room for trial in left)


@given(queues(), free_nodes)
def test_whoever_is_passed_over_waits_still(queue: list[WaitingTrial], free: set[str]) -> None:
    packing = packed(queue, NODES[:8], free)
    assert not packing.passed_over.keys() & packing.starts.keys()


@given(st.lists(st.integers(1, 8), min_size=1, max_size=6), st.integers(1, 3))
def test_nothing_starves_while_others_keep_coming(widths: list[int], rival: int) -> None:
    """A trial of a rival group is always waiting; one trial ends at a time."""
    nodes = NODES[:8]
    queue = [replace(trial, group="a") for trial in waiting(*widths)]
    running: list[tuple[str, ...]] = []
    shares = GroupShares()
    for step in range(1000):
        if not any(trial.group == "a" for trial in queue):
            return
        if sum(trial.group == "b" for trial in queue) < 3:
            queue.append(WaitingTrial(name=f"rival{step}", width=rival, group="b"))
        free = set(nodes) - {node for chosen in running for node in chosen}
        packing = schedule_trials(nodes, free=free, waiting=queue, shares=shares.of({}))
        running += packing.starts.values()
        queue = [
            replace(t, passed_over=t.passed_over + packing.passed_over.get(t.name, 0))
            for t in queue
            if t.name not in packing.starts
        ]
        if running:
            running.pop(0)
    raise AssertionError(f"still waiting: {queue}")


def test_a_wide_and_two_narrow_trials_run_side_by_side() -> None:
    starts = packed(waiting(16, 8, 8), NODES, set(NODES)).starts
    assert starts == {"0": NODES[:16], "1": NODES[16:24], "2": NODES[24:]}


def test_neighbours_are_chosen_from_the_gap_that_fits_tightest() -> None:
    free = {*NODES[0:5], *NODES[6:8]}
    assert packed(waiting(2), NODES[:8], free).starts["0"] == NODES[6:8]


def test_without_a_gap_wide_enough_the_widest_are_filled_first() -> None:
    free = {NODES[0], *NODES[2:5], NODES[7]}
    assert packed(waiting(4), NODES[:8], free).starts["0"] == (NODES[0], *NODES[2:5])


def test_a_narrow_trial_overtakes_a_wide_one_that_does_not_fit() -> None:
    packing = packed(waiting(8, 2), NODES[:8], set(NODES[:4]))
    assert packing.starts.keys() == {"1"}
    assert packing.passed_over == {"0": 2}


def test_free_nodes_wait_for_a_wide_trial_often_passed_over() -> None:
    often, long = WaitingTrial(name="w", width=8, passed_over=8 * MOST_PASSED_OVER), PATIENCE_S + 1
    for wide in (often, WaitingTrial(name="w", width=8, waited_s=long)):
        queue = [*waiting(2), wide]
        assert not packed(queue, NODES[:8], set(NODES[:4])).starts
        assert packed(queue, NODES[:8], set(NODES[:8])).starts.keys() == {"w"}


def test_a_trial_wider_than_all_nodes_keeps_none_of_them() -> None:
    queue = [WaitingTrial(name="w", width=9, passed_over=99), *waiting(2)]
    assert packed(queue, NODES[:8], set(NODES[:8])).starts.keys() == {"0"}


def test_the_group_with_the_fewest_nodes_goes_first() -> None:
    queue = [*waiting(2, 2, 2, group="a"), *waiting(2, group="b")]
    shares = {"a": GroupShare(nodes=4), "b": GroupShare(nodes=2)}
    starts = schedule_trials(NODES[:8], free=NODES[:2], waiting=queue, shares=shares).starts
    assert starts.keys() == {"b0"}


def test_the_least_served_of_groups_with_equal_nodes_goes_first() -> None:
    queue = [*waiting(1, group="a"), *waiting(1, group="b")]
    shares = {"a": GroupShare(node_seconds=9.0), "b": GroupShare(node_seconds=8.0)}
    starts = schedule_trials(NODES[:8], free=NODES[:1], waiting=queue, shares=shares).starts
    assert starts.keys() == {"b0"}


def test_nodes_are_dealt_out_in_turn() -> None:
    queue = [t for group in "abcd" for t in waiting(1, 1, 1, group=group)]
    starts = packed(queue, NODES[:8], set(NODES[:8])).starts
    assert sorted(name[0] for name in starts) == list("aabbccdd")


def test_a_group_that_comes_late_is_owed_nothing() -> None:
    shares = GroupShares()
    shares.at_work(["old", "older"])
    shares.charge("old", 100.0)
    shares.charge("older", 120.0)
    shares.at_work(["old", "older", "new"])
    assert shares.of({"new": 3})["new"] == GroupShare(nodes=3, node_seconds=100.0)


def test_a_group_that_comes_back_keeps_what_it_used() -> None:
    shares = GroupShares()
    shares.at_work(["a", "b"])
    shares.charge("a", 100.0)
    shares.at_work(["b"])
    shares.at_work(["a", "b"])
    assert shares.of({})["a"].node_seconds == 100.0
