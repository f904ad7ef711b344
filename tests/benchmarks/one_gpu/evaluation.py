"""How well the cost model foresees measured trials: as it comes, and calibrated on a few."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
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

Said = Mapping[str, Array]
"""What a calibration says of n rows by the forecast's names, shape (n,) each, and joules of a
token; NaN where nothing can be said."""


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


def evaluate(table: Table, *, draws: int = DRAWS, say: Callable[[str], None]) -> list[Method]:
    """Zero-shot, then calibrated on five random trials, `draws` times, predicting all others.

    Raises:
        InvalidInput: too few trials say something.
    """
    rows = [row for row in table.rows if row.observation]
    needed = CALIBRATED_ON + FEWEST_PREDICTED
    if len(rows) < needed or not any(row.status == "ok" for row in rows):
        reason = "too few ran or ran out of memory to judge by"
        raise InvalidInput("trials", len(rows), reason, valid=f"{needed} or more, some that ran")
    say("zero-shot\n")
    methods = [_judged("zero-shot", 1, rows, predict(table.machine, [], rows), table.machine)]
    generator = np.random.default_rng(0)
    held_out: list[MeasuredTrial] = []
    parts: list[Said] = []
    for number in range(1, draws + 1):
        drawn = generator.choice(len(rows), CALIBRATED_ON, replace=False).tolist()
        others = [row for place, row in enumerate(rows) if place not in drawn]
        parts.append(predict(table.machine, [rows[place] for place in drawn], others))
        held_out += others
        say(f"draw {number} of {draws}\n")
    said = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    name = f"calibrated on {CALIBRATED_ON}"
    return [*methods, _judged(name, draws, held_out, said, table.machine)]


PREDICTED = (
    *(f"iteration_time{end}_s" for end in ("", "_low", "_high")),
    *(f"memory{end}_gib" for end in ("", "_low", "_high")),
    "fit_probability",
)
ENERGY = "joules_per_token"


def predict(
    machine: Machine, known: Sequence[MeasuredTrial], rows: Sequence[MeasuredTrial]
) -> Said:
    """What a calibration on `known` says of `rows`, in their order: a forecast is of one model."""
    calibration = Calibration.of(machine, [row.observation for row in known if row.observation])
    of_model: dict[Transformer, list[int]] = defaultdict(list)
    for place, row in enumerate(rows):
        of_model[row.transformer].append(place)
    said = {name: np.empty(len(rows)) for name in (*PREDICTED, ENERGY)}
    for transformer, places in of_model.items():
        strategies = [rows[place].strategy for place in places]
        one = calibration.forecast(transformer, Lattice.of(strategies, gpus_per_node=1))
        for name in PREDICTED:
            said[name][places] = getattr(one, name)
        samples = np.array([strategy.global_batch_size(1) for strategy in strategies])
        joule = np.nan if one.energy_joule is None else one.energy_joule
        said[ENERGY][places] = joule / (samples * transformer.seq_length)
    return said


# --- judging ---


def _judged(
    name: str, draws: int, rows: Sequence[MeasuredTrial], said: Said, machine: Machine
) -> Method:
    return Method(
        name=name,
        draws=draws,
        time=_errors(said, rows, "iteration_time_s", "iteration_time{}_s"),
        memory=_errors(said, rows, "peak_memory_gib", "memory{}_gib"),
        energy=_errors(said, rows, "gpu_joules_per_token", ENERGY, intervals=False),
        fit=_fit(said["fit_probability"], np.array([row.status == "ok" for row in rows])),
        no_energy=_why_no_energy(rows, machine),
    )


def _errors(
    said: Said, rows: Sequence[MeasuredTrial], name: str, told: str, *, intervals: bool = True
) -> Errors:
    """Of those that were measured."""
    measured = np.array([getattr(row, name) or np.nan for row in rows], dtype=np.float64)
    predicted = said[told.format("")]
    known = np.isfinite(measured) & np.isfinite(predicted)
    if not known.any():
        return Errors(predictions=0)
    off = predicted[known] / measured[known] - 1.0
    coverage = None
    if intervals:
        low, high = (said[told.format(end)] for end in ("_low", "_high"))
        coverage = float(((low <= measured) & (measured <= high))[known].mean())
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


# --- what is told ---


def document(table: Table, methods: Sequence[Method]) -> dict[str, Any]:
    """JSON-ready."""
    return {
        "machine": asdict(table.machine),
        "trials": dict(Counter(row.status for row in table.rows)),
        "calibrated_on": CALIBRATED_ON,
        "methods": [asdict(method) for method in methods],
    }


def report(table: Table, methods: Sequence[Method]) -> str:
    counts = Counter(row.status for row in table.rows)
    told = ", ".join(f"{count} {status}" for status, count in counts.most_common())
    lines = [
        f"{table.machine.gpu}, {table.machine.memory_gib:g} GiB: {told}",
        *(f"measured with {name}" for name in sorted({row.framework for row in table.rows})),
        "",
        "Off by, |predicted / measured - 1|; the interval is to hold 80 %:",
        f"{'quantity':13}{'method':18}{'predictions':>12}{'mean':>8}{'median':>8}{'90 %':>8}"
        f"{'bias':>8}{'in interval':>13}",
    ]
    for quantity in ("time", "memory", "energy"):
        lines += [f"{quantity:13}{each.name:18}{_cells(quantity, each)}" for each in methods]
    return "\n".join([*lines, "", *_told_of_fit(methods)])


def _cells(quantity: str, method: Method) -> str:
    found: Errors = getattr(method, quantity)
    if found.bias is None:
        return method.no_energy if quantity == "energy" else "nothing was measured"
    shares = "".join(f"{_percent(value):>8}" for value in (found.mean, found.median, found.p90))
    coverage = _percent(found.coverage)
    return f"{found.predictions:>12}{shares}{f'{found.bias:+.0%}':>8}{coverage:>13}"


def _told_of_fit(methods: Sequence[Method]) -> Iterator[str]:
    yield "Out of memory, a strategy being given up where it fits with less than 50 %:"
    for method in methods:
        fit = method.fit
        foreseen = f"{_percent(fit.foreseen)} of {fit.ran_out} foreseen"
        yield (
            f"{method.name:18}{foreseen if fit.ran_out else 'none ran out of memory'}, "
            f"{_percent(fit.wrongly_given_up)} of {fit.ran} that ran wrongly given up, "
            f"Brier score {fit.brier:.3f}"
        )


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.0%}"
