"""Energy from samples of power."""

from __future__ import annotations

import pytest

from evaluators.program.power import (
    Energy,
    energy,
)
from evaluators.training_log import Iteration, Power, PowerSample

# Two iterations of warm-up and three that are measured, two seconds each.
ITERATIONS = tuple(Iteration(line=n, number=n, elapsed_s=2.0) for n in range(1, 6))
MEASURED = ITERATIONS[2:]


def sampled(watts: float) -> tuple[PowerSample, ...]:
    """Twice in each iteration; ten times as much before the first ends."""
    return tuple(
        PowerSample(watts=watts if half > 1 else 10 * watts, after=half // 2) for half in range(10)
    )


def of(**nodes: float) -> Power:
    return Power(samples={node: sampled(watts) for node, watts in nodes.items()})


def energy_of(power: Power, *, nodes: int = 1, tokens: int = 1) -> Energy:
    return energy(power, MEASURED, nodes=nodes, tokens=tokens)


def test_energy_is_the_mean_power_of_all_nodes_while_measured() -> None:
    found = energy_of(of(n01=300.0, n02=500.0), nodes=2, tokens=1200)
    assert found.gpu_joules_per_token == pytest.approx((300 + 500) * 6.0 / 1200)
    assert "12 times on 2 nodes" in found.note


def test_power_outside_the_measured_iterations_is_left_out() -> None:
    high = tuple(
        PowerSample(watts=100.0 if n in (2, 3, 4) else 9e9, after=n) for n in (0, 1, 2, 3, 4, 5)
    )
    found = energy_of(Power(samples={"n01": high}), tokens=600)
    assert found.gpu_joules_per_token == pytest.approx(1.0)


def test_without_a_tool_the_note_says_so() -> None:
    reason = "neither nvidia-smi nor rocm-smi is on its PATH"
    now = energy(Power(absent={"n01": reason, "n02": reason}), MEASURED, nodes=2, tokens=1)
    before = energy(Power(), MEASURED, nodes=2, tokens=1, absent=[reason])
    for found in (now, before):
        assert found.gpu_joules_per_token is None
        assert found.note == f"no power was sampled: {reason}"


FEW = tuple(PowerSample(watts=1.0, after=n) for n in (0, 3))


@pytest.mark.parametrize(
    ("logged", "nodes", "note"),
    [
        (Power(), 2, "on 0 of 2 nodes"),
        (of(n01=300.0), 2, "on 1 of 2 nodes"),  # which is not guessed
        (Power(samples={"n01": FEW}), 1, "too few samples"),
    ],
)
def test_without_samples_enough_there_is_no_figure(logged: Power, nodes: int, note: str) -> None:
    found = energy_of(logged, nodes=nodes)
    assert found.gpu_joules_per_token is None
    assert note in found.note


def test_energy_rests_only_on_the_separate_measured_stretches() -> None:
    stretches = [ITERATIONS[1], *ITERATIONS[3:]]
    found = energy(of(n01=300.0), stretches, nodes=1, tokens=1)
    assert found.gpu_joules_per_token is not None
    assert "sampled 6 times" in found.note
