from __future__ import annotations

from autotune.schemas.trials import EnergyWindow, NodePower, TrialPower
from server.cli.tables.campaigns import BARS, BARS_SHOWN, NODES_SHOWN, power
from tests.server.cli.tables.printing import printed

RISING = NodePower(
    node="n01", samples=8, at_s=[1.0 * n for n in range(8)], watts=[*range(0, 701, 100)]
)


def shown(series: TrialPower) -> list[str]:
    return [line.rstrip() for line in printed(power(series), width=100).splitlines()]


def test_a_nodes_power_is_a_line_of_bars_with_its_figures() -> None:
    window = EnergyWindow(start_s=2.0, end_s=5.0)
    head, line, *sentence = shown(TrialPower(nodes=[RISING], energy_windows=[window]))
    assert head.split()[:4] == ["node", "power", "over", "time"]
    drawn = line.removeprefix("n01").rsplit(maxsplit=3)
    assert drawn[0].split() == list(BARS)
    assert drawn[1:] == ["0", "350", "700"]
    told = " ".join(sentence)
    assert "the GPUs alone, hosts left out" in told
    assert told.endswith("Energy was computed from 2 to 5 s.")


def test_many_nodes_are_counted_and_one_sample_is_a_line() -> None:
    one = NodePower(node="n", samples=1, at_s=[3.0], watts=[0.0])
    lines = shown(TrialPower(nodes=[one] * (NODES_SHOWN + 5)))
    assert len([line for line in lines if line.startswith("n ")]) == NODES_SHOWN
    assert "and 5 more nodes; --json has them all" in lines
    assert lines[-1].endswith("No energy was computed from it.")


def test_a_long_series_is_as_long_as_the_line() -> None:
    long = NodePower(node="n", samples=9, at_s=[float(n) for n in range(600)], watts=600 * [5.0])
    _, line, *_ = shown(TrialPower(nodes=[long]))
    assert line.split()[1] == BARS_SHOWN * BARS[-1]
