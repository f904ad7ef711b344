"""Energy from samples of power."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from evaluators.program.power import (
    FEWEST_POINTS,
    MOST_POINTS,
    MOST_POINTS_OF_ALL,
    Energy,
    energy,
    sampled_power,
)
from evaluators.training_log import Iteration, LoggedRun, Power, PowerSample, TrainingLog

# Two iterations of warm-up and three that are measured, two seconds each.
ITERATIONS = tuple(Iteration(line=n, number=n, elapsed_s=2.0) for n in range(1, 6))
MEASURED = ITERATIONS[2:]


def sampled(watts: float, *, start: float = 1000.0) -> tuple[PowerSample, ...]:
    """Twice in each iteration; ten times as much before the first ends."""
    return tuple(
        PowerSample(at_s=start + half, watts=watts if half > 1 else 10 * watts, after=half // 2)
        for half in range(10)
    )


def run(**nodes: float) -> LoggedRun:
    samples = {node: sampled(watts) for node, watts in nodes.items()}
    return LoggedRun(iterations=ITERATIONS, power=Power(samples=samples))


def told_of(run: LoggedRun, *, nodes: int = 1, tokens: int = 1) -> Energy:
    return energy(TrainingLog(runs=(run,)), run, MEASURED, nodes=nodes, tokens=tokens)


def test_energy_is_the_mean_power_of_all_nodes_over_the_measured_time() -> None:
    told = told_of(run(n01=300.0, n02=500.0), nodes=2, tokens=1200)
    assert told.gpu_joules_per_token == pytest.approx((300 + 500) * 6.0 / 1200)
    assert "12 times on 2 nodes" in told.note


def test_power_outside_the_measured_iterations_is_left_out() -> None:
    high = tuple(
        PowerSample(at_s=float(n), watts=100.0 if n in (2, 3, 4) else 9e9, after=n)
        for n in (0, 1, 2, 3, 4, 5)
    )
    told = told_of(LoggedRun(iterations=ITERATIONS, power=Power(samples={"n01": high})), tokens=600)
    assert told.gpu_joules_per_token == pytest.approx(1.0)


def test_without_a_tool_the_note_says_so() -> None:
    reason = "neither nvidia-smi nor rocm-smi is on its PATH"
    before = LoggedRun(power=Power(absent={"n01": reason, "n02": reason}))
    run = LoggedRun(iterations=ITERATIONS)
    told = energy(TrainingLog(runs=(before, run)), run, MEASURED, nodes=2, tokens=1)
    assert told.gpu_joules_per_token is None
    assert told.note == f"no power was sampled: {reason}"


FEW = tuple(PowerSample(at_s=float(n), watts=1.0, after=n) for n in (0, 3))


@pytest.mark.parametrize(
    ("logged", "nodes", "note"),
    [
        (LoggedRun(), 2, "on 0 of 2 nodes"),
        (run(n01=300.0), 2, "on 1 of 2 nodes"),  # which is not guessed
        (LoggedRun(iterations=ITERATIONS, power=Power(samples={"n01": FEW})), 1, "too few samples"),
    ],
)
def test_without_samples_enough_there_is_no_figure(
    logged: LoggedRun, nodes: int, note: str
) -> None:
    told = told_of(logged, nodes=nodes)
    assert told.gpu_joules_per_token is None
    assert note in told.note


STARTED_AT = datetime.fromtimestamp(990.0, UTC)


def test_few_samples_of_all_starts_are_kept_as_they_are_with_the_seconds_of_the_energy() -> None:
    first = Power(samples={"n01": (PowerSample(at_s=991.5, watts=60.0, after=0),)})
    last = run(n02=500.0, n01=300.0)
    told = told_of(last, nodes=2, tokens=1200)
    kept = sampled_power([first, last.power], started_at=STARTED_AT, energy=told)
    assert kept is not None
    assert [node.node for node in kept.nodes] == ["n01", "n02"]
    assert kept.nodes[0].at_s == (1.5, *(10.0 + n for n in range(10)))
    assert kept.nodes[0].watts == (60.0, 3000.0, 3000.0, *(8 * [300.0]))
    assert kept.energy_windows_s == ((14.0, 19.0),)


def test_energy_rests_on_stretches_apart_where_what_ran_between_does_not_count() -> None:
    watched = run(n01=300.0)
    told = energy(
        TrainingLog(runs=(watched,)),
        watched,
        [ITERATIONS[1], *ITERATIONS[3:]],
        nodes=1,
        tokens=1,
    )
    assert told.windows == ((1002.0, 1003.0), (1006.0, 1009.0))


@pytest.mark.parametrize(
    ("nodes", "most"),
    [(1, MOST_POINTS), (90, MOST_POINTS_OF_ALL // 90), (4000, FEWEST_POINTS)],
)
def test_points_are_bounded_and_keep_the_mean(nodes: int, most: int) -> None:
    taken = tuple(
        PowerSample(at_s=1000.0 + n, watts=float(n % 700), after=0) for n in range(7 * most)
    )
    power = Power(samples={f"n{n:04}": taken for n in range(nodes)})
    kept = sampled_power([power], started_at=STARTED_AT)
    assert kept is not None
    assert len(kept.nodes) == nodes
    for node in kept.nodes[:3]:
        assert len(node.at_s) == len(node.watts) == most
        assert node.samples == len(taken)
        assert list(node.at_s) == sorted(node.at_s)
        mean = sum(sample.watts for sample in taken) / len(taken)
        assert sum(node.watts) / most == pytest.approx(mean, rel=0.02)
    assert kept.energy_windows_s == ()


def test_samples_of_one_moment_are_one_point() -> None:
    taken = tuple(PowerSample(at_s=1000.0, watts=70.0, after=0) for _ in range(MOST_POINTS + 1))
    kept = sampled_power([Power(samples={"n01": taken})], started_at=STARTED_AT)
    assert kept is not None
    assert (kept.nodes[0].at_s, kept.nodes[0].watts) == ((10.0,), (70.0,))


def test_without_samples_there_is_no_power() -> None:
    assert sampled_power([Power(absent={"n01": "no tool"})], started_at=STARTED_AT) is None
