"""How well the cost model predicts measured trials: as it comes, and calibrated on a few."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
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
QUANTITIES = {
    "time": ("iteration_time_s", "iteration_time{}_s"),
    "memory": ("peak_memory_gib", "memory{}_gib"),
    "energy": ("gpu_joules_per_token", "joules_per_token{}"),
}
"""By name: the figure of a trial, and those of a forecast."""

PREDICTED = (
    *(pattern.format(end) for _, pattern in QUANTITIES.values() for end in ("", "_low", "_high")),
    "fit_probability",
)
Forecasts = Mapping[str, Array]
"""By PREDICTED, shape (n,) each; NaN where nothing can be said."""


def document(table: Table, *, draws: int = DRAWS) -> dict[str, Any]:
    """Errors zero-shot, and calibrated on five random trials, `draws` times, of all others.

    Raises:
        InvalidInput: too few trials say something.
    """
    rows = [row for row in table.rows if row.observation]
    needed = CALIBRATED_ON + FEWEST_PREDICTED
    if len(rows) < needed or not any(row.status == "ok" for row in rows):
        reason = "too few ran or ran out of memory to judge by"
        raise InvalidInput("trials", len(rows), reason, valid=f"{needed} or more, some that ran")
    generator = np.random.default_rng(0)
    held_out: list[MeasuredTrial] = []
    parts: list[Forecasts] = []
    for _ in range(draws):
        drawn = generator.choice(len(rows), CALIBRATED_ON, replace=False).tolist()
        others = [row for place, row in enumerate(rows) if place not in drawn]
        parts.append(_predicted(table.machine, [rows[place] for place in drawn], others))
        held_out += others
    after = {name: np.concatenate([part[name] for part in parts]) for name in PREDICTED}
    return {
        "machine": asdict(table.machine),
        "trials": dict(Counter(row.status for row in table.rows)),
        "calibrated_on": CALIBRATED_ON,
        "no_energy": _why_no_energy(rows, table.machine),
        "methods": [
            _judged("zero-shot", 1, rows, _predicted(table.machine, [], rows)),
            _judged(f"calibrated on {CALIBRATED_ON}", draws, held_out, after),
        ],
    }


def _predicted(
    machine: Machine, known: Sequence[MeasuredTrial], rows: Sequence[MeasuredTrial]
) -> Forecasts:
    calibration = Calibration.of(machine, [row.observation for row in known if row.observation])
    of_model: dict[Transformer, list[int]] = defaultdict(list)
    for place, row in enumerate(rows):
        of_model[row.transformer].append(place)
    found = {name: np.full(len(rows), np.nan) for name in PREDICTED}
    for transformer, places in of_model.items():
        strategies = [rows[place].strategy for place in places]
        one = calibration.forecast(transformer, Lattice.of(strategies, gpus_per_node=1))
        for name in PREDICTED:
            if hasattr(one, name):
                found[name][places] = getattr(one, name)
        if one.energy_joule is not None:
            samples = np.array([strategy.global_batch_size(1) for strategy in strategies])
            tokens = samples * transformer.seq_length
            found["joules_per_token"][places] = one.energy_joule / tokens
    return found


def _judged(
    name: str, draws: int, rows: Sequence[MeasuredTrial], found: Forecasts
) -> dict[str, Any]:
    ran = np.array([row.status == "ok" for row in rows])
    return {
        "name": name,
        "draws": draws,
        **{each: _errors(found, rows, *names) for each, names in QUANTITIES.items()},
        "fit": _fit(found["fit_probability"], ran),
    }


def _errors(
    found: Forecasts, rows: Sequence[MeasuredTrial], figure: str, pattern: str
) -> dict[str, float | None]:
    measured = np.array([getattr(row, figure) or np.nan for row in rows], dtype=np.float64)
    predicted, low, high = (found[pattern.format(end)] for end in ("", "_low", "_high"))
    known = np.isfinite(measured) & np.isfinite(predicted)
    off = predicted[known] / measured[known] - 1.0
    if not len(off):
        return {"predictions": 0, **dict.fromkeys(("mean", "median", "p90", "bias", "coverage"))}
    within = ((low <= measured) & (measured <= high))[known]
    return {
        "predictions": len(off),
        "mean": float(np.abs(off).mean()),
        "median": float(np.median(np.abs(off))),
        "p90": float(np.percentile(np.abs(off), 90)),
        "bias": float(np.median(off)),
        "coverage": float(within.mean()) if np.isfinite(low[known]).any() else None,
    }


def _fit(probability: Array, ran: Mask) -> dict[str, float | None]:
    given_up = probability < 0.5
    return {
        "ran_out": int((~ran).sum()),
        "ran": int(ran.sum()),
        "foreseen": float(given_up[~ran].mean()) if (~ran).any() else None,
        "wrongly_given_up": float(given_up[ran].mean()) if ran.any() else None,
        "brier": float(np.mean((probability - ran) ** 2)),
    }


def _why_no_energy(rows: Sequence[MeasuredTrial], machine: Machine) -> str:
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


def report(table: Table, figures: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines that are printed."""
    machine = table.machine
    counts = ", ".join(f"{count} {status}" for status, count in figures["trials"].items())
    yield f"{machine.gpu}, {machine.memory_gib:g} GiB: {counts}"
    yield from (f"measured with {name}" for name in sorted({row.framework for row in table.rows}))
    yield "\nOff by, |predicted / measured - 1|; the interval is to hold 80 %:"
    heads = ("predictions", "mean", "median", "90 %", "bias", "in interval")
    yield f"{'quantity':13}{'method':16}" + "".join(f"{head:>13}" for head in heads)
    for quantity in QUANTITIES:
        for method in figures["methods"]:
            found = method[quantity]
            cells = [f"{found['predictions']}"]
            cells += [_percent(found[name]) for name in ("mean", "median", "p90")]
            cells += [_percent(found["bias"], "+.0%"), _percent(found["coverage"])]
            yield f"{quantity:13}{method['name']:16}" + "".join(f"{cell:>13}" for cell in cells)
    if figures["no_energy"]:
        yield f"energy: {figures['no_energy']}"
    yield "\nOut of memory, a strategy being given up where it fits with less than 50 %:"
    for method in figures["methods"]:
        fit = method["fit"]
        yield (
            f"{method['name']:16}{_percent(fit['foreseen'])} of {fit['ran_out']} foreseen, "
            f"{_percent(fit['wrongly_given_up'])} of {fit['ran']} that ran wrongly given up, "
            f"Brier score {fit['brier']:.3f}"
        )


def _percent(share: float | None, form: str = ".0%") -> str:
    return "-" if share is None else format(share, form)
