# Generated from `asynchronous` by `make client`: change that and run it again.
"""What is predicted, and counted, without running anything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from autotune.client import calls
from autotune.client.calls.subject import SlurmInput
from autotune.client.files import MachineInput, ModelInput
from autotune.client.synchronous.catalog import Catalog
from autotune.schemas import (
    EvaluatorName,
    Prediction,
    ScalingStudy,
    SpaceReport,
    SpaceSpec,
    StrategyShape,
    Sweep,
)


class Predictions(Catalog):
    """Questions about a strategy or a space that run nothing."""

    def predict(
        self,
        *,
        model: ModelInput,
        machine: MachineInput | None = None,
        strategy: StrategyShape | Mapping[str, Any],
        calibration: str | None = None,
        min_headroom_gib: float = 0.0,
        evaluator: EvaluatorName | None = None,
        slurm: SlurmInput | None = None,
    ) -> Prediction:
        """Predict whether a strategy is legal and fits, and how long an iteration takes.

        Where it does not fit, `memory_changes` of the answer are the fewest changes that make it
        fit and leave `min_headroom_gib` of the fullest GPU.

        `calibration` is a name, or "none"; where nothing is said, the newest of the machine.
        Legal is what the program can do that `evaluator` and `slurm` choose. These and the machine
        are, where nothing is said, as in `create`.
        """
        call = calls.predictions.predict(
            model=model,
            machine=self._machine_of(machine, slurm),
            strategy=strategy,
            calibration=calibration,
            min_headroom_gib=min_headroom_gib,
            evaluator=evaluator,
            slurm=slurm,
        )
        return self._transport.send(call)

    def scaling(
        self,
        *,
        model: ModelInput,
        machine: MachineInput | None = None,
        strategy: StrategyShape | Mapping[str, Any],
        nodes: Sequence[int] = (),
        calibration: str | None = None,
        evaluator: EvaluatorName | None = None,
        slurm: SlurmInput | None = None,
    ) -> ScalingStudy:
        """Predict how a strategy's layout scales over `nodes`, strongly and weakly; over halves and
        doubles of its own where none are given. The other arguments are those of `predict`."""
        call = calls.predictions.scaling(
            model=model,
            machine=self._machine_of(machine, slurm),
            strategy=strategy,
            nodes=nodes,
            calibration=calibration,
            evaluator=evaluator,
            slurm=slurm,
        )
        return self._transport.send(call)

    def space(
        self,
        *,
        model: ModelInput,
        machine: MachineInput | None = None,
        nodes: int = 1,
        space: SpaceSpec | Mapping[str, Any] | None = None,
        evaluator: EvaluatorName | None = None,
        slurm: SlurmInput | None = None,
    ) -> SpaceReport:
        """Return how many strategies there are, and which rule removes how many."""
        call = calls.predictions.space(
            model=model,
            machine=self._machine_of(machine, slurm),
            nodes=nodes,
            space=space,
            evaluator=evaluator,
            slurm=slurm,
        )
        return self._transport.send(call)

    def sweep(
        self,
        *,
        model: ModelInput,
        machine: MachineInput | None = None,
        nodes: int = 1,
        space: SpaceSpec | Mapping[str, Any] | None = None,
        calibration: str | None = None,
        most: int = 10,
        evaluator: EvaluatorName | None = None,
        slurm: SlurmInput | None = None,
    ) -> Sweep:
        """Return the `most` fastest strategies of a space, as predicted, among those that fit."""
        call = calls.predictions.sweep(
            model=model,
            machine=self._machine_of(machine, slurm),
            nodes=nodes,
            space=space,
            calibration=calibration,
            most=most,
            evaluator=evaluator,
            slurm=slurm,
        )
        return self._transport.send(call)
