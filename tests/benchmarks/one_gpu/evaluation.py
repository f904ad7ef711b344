"""How well the cost model foresees measured trials: as it comes, and calibrated on a few."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from autotune.calibration import Calibration
from autotune.cost_model.columns import Array, Mask
from search_spaces.errors import InvalidInput
from search_spaces.lattice import Lattice
from search_spaces.machine import Machine
from search_spaces.transformer import Transformer
from tests.benchmarks.one_gpu.table import MeasuredTrial, Table

CALIBRATED_ON, DRAWS = 5, 20
FEWEST_PREDICTED = 3


@dataclass(frozen=True, kw_only=True)
class Errors:
    """Of one quantity over all predictions; None throughout where there were none.

    Attributes:
        mean, median, p90: of |predicted / measured - 1|.
        bias: median of predicted / measured - 1.
        coverage: share of measurements within the 80 % interval; None where none is predicted.
    """

    predictions: int
    mean: float | None = None
    median: float | None = None
    p90: float | None = None
    bias: float | None = None
    coverage: float | None = None


@dataclass(frozen=True, kw_only=True)
class Fit:
    """How out-of-memory was foreseen: a strategy is given up where fitting is improbable.

    Attributes:
        ran_out, ran: predictions of trials that did, and that did not, run out of memory.
        foreseen: share of the first that would have been given up; wrongly: of the second.
        brier: mean square of what the probability of fitting is off.
    """

    ran_out: int
    ran: int
    foreseen: float | None
    wrongly_given_up: float | None
    brier: float


@dataclass(frozen=True, kw_only=True)
class Method:
    """One way to predict, over all its draws. `no_energy` says why no energy was compared."""

    name: str
    draws: int
    time: Errors
    memory: Errors
    energy: Errors
    fit: Fit
    no_energy: str = ""


@dataclass(frozen=True, eq=False)
class Predicted:
    """Of n rows, shape (n,) each; NaN where nothing was measured or can be said."""

    time: Array
    time_low: Array
    time_high: Array
    memory: Array
    memory_low: Array
    memory_high: Array
    fit: Array
    energy: Array


def usable(table: Table) -> list[MeasuredTrial]:
    """Rows that say something; raises InvalidInput where they are too few."""
    rows = [row for row in table.rows if row.observation]
    needed = CALIBRATED_ON + FEWEST_PREDICTED
    if len(rows) < needed or not any(row.status == "ok" for row in rows):
        reason = "too few ran or ran out of memory to judge by"
        raise InvalidInput("trials", len(rows), reason, valid=f"{needed} or more, some that ran")
    return rows


def evaluate(table: Table, *, draws: int = DRAWS, say: Callable[[str], None]) -> list[Method]:
    """Zero-shot, then calibrated on five random trials, `draws` times, predicting all others."""
    rows = usable(table)
    say("zero-shot\n")
    methods = [_method("zero-shot", table.machine, rows, [()])]
    generator = np.random.default_rng(0)
    drawn = [
        tuple(generator.choice(len(rows), CALIBRATED_ON, replace=False).tolist())
        for _ in range(draws)
    ]
    name = f"calibrated on {CALIBRATED_ON}"
    methods.append(_method(name, table.machine, rows, drawn, say=say))
    return methods


def _method(
    name: str,
    machine: Machine,
    rows: Sequence[MeasuredTrial],
    draws: Sequence[tuple[int, ...]],
    *,
    say: Callable[[str], None] = lambda _: None,
) -> Method:
    """Args: `draws` are the rows that are calibrated on, each time."""
    held_out: list[MeasuredTrial] = []
    parts: list[Predicted] = []
    for number, draw in enumerate(draws, 1):
        known = [rows[i] for i in draw]
        others = [row for i, row in enumerate(rows) if i not in draw]
        parts.append(predict(machine, known, others))
        held_out += others
        if len(draws) > 1:
            say(f"draw {number} of {len(draws)}\n")
    return _judged(name, len(draws), held_out, _joined(parts), machine)


def _joined(parts: Sequence[Predicted]) -> Predicted:
    names = Predicted.__dataclass_fields__
    return Predicted(**{n: np.concatenate([getattr(p, n) for p in parts]) for n in names})


def predict(
    machine: Machine, known: Sequence[MeasuredTrial], rows: Sequence[MeasuredTrial]
) -> Predicted:
    """What a calibration on `known` says of `rows`."""
    observations = [row.observation for row in known if row.observation]
    calibration = Calibration.of(machine, observations)
    return Predicted(**_forecast(calibration, rows))


def _forecast(calibration: Calibration, rows: Sequence[MeasuredTrial]) -> dict[str, Array]:
    """All that a calibration says, in the rows' order: a forecast is of one model at a time."""
    results = {name: np.empty(len(rows)) for name in Predicted.__dataclass_fields__}
    for transformer, places in _by_model(rows).items():
        strategies = [rows[i].strategy for i in places]
        one = calibration.forecast(transformer, Lattice.of(strategies, gpus_per_node=1))
        results["time"][places] = one.iteration_time_s
        results["time_low"][places] = one.iteration_time_low_s
        results["time_high"][places] = one.iteration_time_high_s
        results["memory"][places] = one.memory_gib
        results["memory_low"][places] = one.memory_low_gib
        results["memory_high"][places] = one.memory_high_gib
        results["fit"][places] = one.fit_probability
        samples = [strategy.global_batch_size(1) for strategy in strategies]
        joule = np.nan if one.energy_joule is None else one.energy_joule
        results["energy"][places] = joule / (np.array(samples) * transformer.seq_length)
    return results


def _by_model(rows: Sequence[MeasuredTrial]) -> Mapping[Transformer, list[int]]:
    places: dict[Transformer, list[int]] = {}
    for i, row in enumerate(rows):
        places.setdefault(row.transformer, []).append(i)
    return places


def _column(rows: Sequence[MeasuredTrial], name: str) -> Array:
    return np.array([getattr(row, name) or np.nan for row in rows], dtype=np.float64)


# --- judging ---


def _judged(
    name: str, draws: int, rows: Sequence[MeasuredTrial], said: Predicted, machine: Machine
) -> Method:
    joules = _column(rows, "gpu_joules_per_token")
    seconds, peaks = _column(rows, "iteration_time_s"), _column(rows, "peak_memory_gib")
    return Method(
        name=name,
        draws=draws,
        time=errors(said.time, seconds, interval=(said.time_low, said.time_high)),
        memory=errors(said.memory, peaks, interval=(said.memory_low, said.memory_high)),
        energy=errors(said.energy, joules),
        fit=_fit(said.fit, np.array([row.status == "ok" for row in rows])),
        no_energy=_why_no_energy(rows, machine),
    )


def errors(
    predicted: Array,
    measured: Array,
    *,
    interval: tuple[Array, Array] | None = None,
) -> Errors:
    """Of those that were measured."""
    known = np.isfinite(measured) & np.isfinite(predicted)
    if not known.any():
        return Errors(predictions=0)
    off = predicted[known] / measured[known] - 1.0
    coverage = None
    if interval:
        within = (interval[0] <= measured) & (measured <= interval[1])
        coverage = float(within[known].mean())
    return Errors(
        predictions=int(known.sum()),
        mean=float(np.abs(off).mean()),
        median=float(np.median(np.abs(off))),
        p90=float(np.percentile(np.abs(off), 90)),
        bias=float(np.median(off)),
        coverage=coverage,
    )


def _fit(probability: Array, ran: Mask) -> Fit:
    given_up = probability < 0.5
    return Fit(
        ran_out=int((~ran).sum()),
        ran=int(ran.sum()),
        foreseen=float(given_up[~ran].mean()) if (~ran).any() else None,
        wrongly_given_up=float(given_up[ran].mean()) if ran.any() else None,
        brier=float(np.mean((probability - ran) ** 2)),
    )


def _why_no_energy(rows: Sequence[MeasuredTrial], machine: Machine) -> str:
    """Empty where there is something to compare."""
    if not any(row.gpu_joules_per_token for row in rows):
        notes = sorted({row.note for row in rows if row.status == "ok" and row.note})
        return "not measured" + (f" ({notes[0]})" if notes else "")
    lacking = {
        "its peak": machine.peak_tflops,
        "its power when idle": machine.gpu_idle_watt,
        "its power cap": machine.gpu_max_watt,
    }
    unknown = [what for what, value in lacking.items() if value is None]
    return f"not predicted: {' and '.join(unknown)} is not known" if unknown else ""


def document(table: Table, methods: Sequence[Method]) -> dict[str, Any]:
    """JSON-ready."""
    return {
        "machine": asdict(table.machine),
        "trials": dict(Counter(row.status for row in table.rows)),
        "calibrated_on": CALIBRATED_ON,
        "methods": [asdict(method) for method in methods],
    }
