"""What the Frontier study printed: its memory table, settings, scaling and energy."""

from __future__ import annotations

import pytest

from autotune.cost_model import state_bytes_per_parameter
from tests.autotune.cost_model.examples import FRONTIER
from tests.autotune.cost_model.study import ENERGIES, SCALINGS, SETTINGS, Scaling, Setting

GIGABYTE = 1e9


@pytest.mark.parametrize(
    ("parameters", "printed"),
    [(22e9, (132, 88, 176)), (175e9, (1050, 700, 1400)), (1e12, (6000, 4000, 8000))],
)
def test_memory_table(parameters: float, printed: tuple[float, float, float]) -> None:
    """GB of parameters, gradients and optimizer states before anything is divided."""
    per_parameter = state_bytes_per_parameter()
    parts = (per_parameter.parameters, per_parameter.gradients, per_parameter.optimizer)
    assert tuple(float(part) * parameters / GIGABYTE for part in parts) == pytest.approx(printed)
    assert float(per_parameter.total) == 18


@pytest.mark.parametrize(("setting", "printed"), SETTINGS, ids=lambda each: str(each))
def test_three_settings(setting: Setting, printed: float) -> None:
    """Percent of the peak, recomputation counted, within 3 points; and each fits in memory."""
    batch = setting.strategy.global_batch_size(FRONTIER.gpus_per_node)
    assert batch == setting.batch
    assert setting.percent_of_peak == pytest.approx(printed, abs=3)
    assert setting.estimate().fits[0]


@pytest.mark.parametrize("scaling", SCALINGS, ids=lambda scaling: scaling.name)
def test_scaling(scaling: Scaling) -> None:
    """Rate for each GPU at more GPUs over that at fewer, within 3 points of a hundred, or 10 where
    the study's loss has no known cause."""
    for setting in (scaling.small, scaling.large):
        assert setting.strategy.global_batch_size(FRONTIER.gpus_per_node) == setting.batch
    assert scaling.percent == pytest.approx(scaling.printed, abs=3 if scaling.explained else 10)


@pytest.mark.parametrize(("setting", "printed"), ENERGIES, ids=lambda each: str(each))
def test_energy_of_the_gpus(setting: Setting, printed: float) -> None:
    assert setting.gpu_joules_per_token == pytest.approx(printed, rel=0.15)
