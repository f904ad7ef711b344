"""Strong and weak scaling of one layout over numbers of nodes, predicted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from autotune.calibration import Calibration
from autotune.calibration.projection import REPEATS, projected
from autotune.cost_model.columns import Array, Columns
from autotune.explanation.rates import interval
from autotune.explanation.steps import Surroundings, at_batch
from autotune.schemas.choices import ScalingKind, TrialState
from autotune.schemas.scaling import (
    ScaledStrategy,
    ScalingSeries,
    UnscaledStrategy,
)
from autotune.words.dimensions import value_words
from autotune.words.quantities import listed
from search_spaces.errors import InvalidInput
from search_spaces.lattice import Lattice
from search_spaces.machine import Machine
from search_spaces.program import ANY_PROGRAM, ProgramCapabilities
from search_spaces.strategy import Strategy
from search_spaces.transformer import Transformer

HALVINGS = 3
DOUBLINGS = 4
"""Doublings of the strategy's own number of nodes, used if no nodes are given."""

DRAWS = 1000
KINDS: tuple[ScalingKind, ...] = ("strong", "weak")

FAILED_WORDS: Mapping[TrialState, str] = {
    TrialState.OOM: "out of memory",
    TrialState.CRASHED: "crashed",
    TrialState.TIMEOUT: "out of time",
}
OTHERWISE_FAILED = "without a result"


def scaling_series(
    calibration: Calibration,
    transformer: Transformer,
    strategy: Strategy,
    *,
    nodes: Sequence[int],
    measured: Mapping[Strategy, float] | None = None,
    failed: Mapping[Strategy, TrialState] | None = None,
    simulated: bool = False,
    program: ProgramCapabilities = ANY_PROGRAM,
) -> list[ScalingSeries]:
    """Return strong and weak scaling of a layout, predicted where it was not measured; only one of
    them if the layout cannot run in the other way. Efficiencies are relative to the fewest nodes on
    which it has not failed.

    Args:
        calibration: of the machine, including the `measured` steps.
        strategy: the layout, with the global batch that strong scaling keeps and that weak scaling
            has on the strategy's own nodes.
        nodes: numbers of nodes; halves and doubles of the strategy's own by default.
        measured: strategy -> seconds per step.
        failed: strategy -> how its trial ended without a timed step.
        simulated: whether the measurements are simulated, for the sentence.

    Raises:
        InvalidInput: field `over_nodes`: the layout cannot run on any of them.
    """
    machine = calibration.machine
    beyond = [each for each in nodes if not 1 <= each <= machine.max_nodes]
    if beyond:
        reason = f"{machine.name} has {machine.max_nodes} nodes"
        raise InvalidInput("over_nodes", beyond[0], reason, valid=f"1 to {machine.max_nodes}")
    wanted = list(nodes) or list(usual_widths(strategy, machine))
    series: list[ScalingSeries] = []
    refused: InvalidInput | None = None
    for kind in KINDS:
        try:
            series.append(
                _scaling(
                    calibration,
                    transformer,
                    strategy,
                    kind=kind,
                    nodes=wanted,
                    measured=measured or {},
                    failed=failed or {},
                    simulated=simulated,
                    program=program,
                )
            )
        except InvalidInput as refusal:
            refused = refusal
    if refused is not None and not series:
        raise refused
    return series


def usual_widths(strategy: Strategy, machine: Machine) -> Iterator[int]:
    """Yield halves and doubles of a strategy's own number of nodes."""
    own = strategy.num_nodes
    for power in range(-HALVINGS, DOUBLINGS + 1):
        nodes = own << power if power >= 0 else own >> -power
        whole = power >= 0 or own % (1 << -power) == 0
        if whole and 1 <= nodes <= machine.max_nodes:
            yield nodes


def _scaling(
    calibration: Calibration,
    transformer: Transformer,
    strategy: Strategy,
    *,
    kind: ScalingKind,
    nodes: Sequence[int],
    measured: Mapping[Strategy, float],
    failed: Mapping[Strategy, TrialState],
    simulated: bool,
    program: ProgramCapabilities,
) -> ScalingSeries:
    legal, omitted = scaled_strategies(
        calibration.machine, transformer, strategy, kind=kind, nodes=nodes, program=program
    )
    if not legal:
        reasons = "; ".join(f"{count}: {reason}" for count, reason in omitted.items())
        reason = f"the layout can run on none of them ({reasons})"
        raise InvalidInput("over_nodes", list(nodes), reason, valid="numbers that it divides")
    fell = {each: failed[each] for each in legal if each in failed}
    ran = [each for each in legal if each not in fell]
    points = _timed(calibration, transformer, ran, measured) if ran else []
    return ScalingSeries(
        kind=kind,
        strategy=strategy,
        points=points,
        failed=[
            UnscaledStrategy(num_nodes=each.num_nodes, strategy=each, state=state)
            for each, state in fell.items()
        ],
        omitted=omitted,
        sentence=_sentence(kind, points, fell, simulated=simulated),
    )


def _timed(
    calibration: Calibration,
    transformer: Transformer,
    points: Sequence[Strategy],
    measured: Mapping[Strategy, float],
) -> list[ScaledStrategy]:
    lattice = Lattice.of(points, gpus_per_node=calibration.machine.gpus_per_node)
    columns = Columns.of(transformer, lattice)
    seconds = [measured.get(each) for each in points]
    logs = _log_times(calibration, columns, seconds)
    tokens = lattice.global_batch_size * float(transformer.seq_length)
    each_gpu = np.log(tokens / lattice.world_size) - logs
    relative = np.exp(each_gpu - each_gpu[:, :1])
    times, fits = np.exp(logs), calibration.fit_probability(columns)
    time_low, time_high = interval(times[0], times[1:])
    low, high = interval(relative[0], relative[1:])
    return [
        ScaledStrategy(
            strategy=each,
            num_nodes=each.num_nodes,
            gpus=int(lattice.world_size[row]),
            global_batch_size=int(lattice.global_batch_size[row]),
            iteration_time_s=float(times[0, row]),
            iteration_time_low_s=float(time_low[row]),
            iteration_time_high_s=float(time_high[row]),
            measured=seconds[row] is not None,
            tokens_per_s=float(tokens[row] / times[0, row]),
            efficiency=float(relative[0, row]),
            efficiency_low=float(low[row]),
            efficiency_high=float(high[row]),
            fit_probability=1.0 if seconds[row] is not None else float(fits[row]),
        )
        for row, each in enumerate(points)
    ]


def scaled_strategies(
    machine: Machine,
    transformer: Transformer,
    strategy: Strategy,
    *,
    kind: ScalingKind,
    nodes: Sequence[int],
    program: ProgramCapabilities = ANY_PROGRAM,
) -> tuple[list[Strategy], dict[int, str]]:
    """Return the strategy on each number of nodes, and why there is none on the others."""
    around = Surroundings(transformer=transformer, machine=machine, program=program)
    own = strategy.global_batch_size(machine.gpus_per_node)
    points: list[Strategy] = []
    omitted: dict[int, str] = {}
    for count in sorted(set(nodes)):
        batch = own if kind == "strong" else own * count / strategy.num_nodes
        other = replace(strategy, num_nodes=count)
        refusal = around.refusal(other)
        scaled = at_batch(other, batch, machine.gpus_per_node)
        if refusal is None and scaled is None:
            refusal = (
                f"{other.data_parallel(machine.gpus_per_node)} replicas of micro-batches of "
                f"{strategy.micro_batch_size} make no global batch of {batch:g}"
            )
        elif refusal is None and scaled is not None:
            refusal = around.refusal(scaled)
        if refusal is None and scaled is not None:
            points.append(scaled)
        else:
            omitted[count] = refusal or ""
    return points, omitted


def _log_times(
    calibration: Calibration, columns: Columns, seconds: Sequence[float | None]
) -> Array:
    """Return the logarithm of each time, shape (1 + draws, n): the median first, then joint draws.

    Measured times vary between draws by the noise of a repeated run. Unmeasured ones are projected
    from the nearest measured number of nodes, since the residual of one layout is similar on all of
    them.
    """
    generator = np.random.default_rng(0)
    ran = [row for row, measured_s in enumerate(seconds) if measured_s is not None]
    if not ran:
        mean, _, _ = calibration.time.predict(columns)
        draws = calibration.time.draws(columns, count=DRAWS, generator=generator)
        return np.vstack([mean, draws])
    widths = np.broadcast_to(np.log2(columns["data_parallel"]), len(columns))
    rows = np.arange(len(columns))
    nearest = np.array(ran)[np.abs(widths[:, np.newaxis] - widths[ran]).argmin(axis=1)]
    timed = np.array([np.nan if each is None else np.log(each) for each in seconds])
    others = np.setdiff1d(rows, ran)
    logs = np.vstack([timed, timed + generator.normal(0.0, REPEATS, (DRAWS, len(rows)))])
    if len(others):
        base = nearest[others]
        mean, variance = projected(
            calibration.time,
            narrow=columns.take(base),
            wide=columns.take(others),
            log_time=timed[base],
        )
        noise = generator.normal(size=(DRAWS, len(others))) * np.sqrt(variance)
        logs[:, others] = np.vstack([mean, mean + noise])
    return np.asarray(logs)


def _sentence(
    kind: ScalingKind,
    points: Sequence[ScaledStrategy],
    failed: Mapping[Strategy, TrialState],
    *,
    simulated: bool,
) -> str:
    fell = "; ".join(_failures(failed))
    if not points:
        return f"No step could be timed: {fell}"
    least, most = points[0], points[-1]
    if least is most:
        sentence = f"Only {value_words('num_nodes', least.num_nodes)}: nothing to compare"
        return f"{sentence}; {fell}" if fell else sentence
    batch = (
        f"the same batch of {most.global_batch_size}"
        if kind == "strong"
        else f"a batch that grows from {least.global_batch_size} to {most.global_batch_size}"
    )
    origin = "predicted"
    if least.measured and most.measured:
        origin = "simulated" if simulated else "measured"
    sentence = (
        f"From {least.num_nodes} to {most.num_nodes} nodes with {batch}, "
        f"{100 * most.efficiency:.0f} % of the rate per GPU is kept, {origin} "
        f"({100 * most.efficiency_low:.0f} to {100 * most.efficiency_high:.0f} %)"
    )
    return f"{sentence}; {fell}" if fell else sentence


def _failures(failed: Mapping[Strategy, TrialState]) -> Iterator[str]:
    words = {each: FAILED_WORDS.get(state, OTHERWISE_FAILED) for each, state in failed.items()}
    for why in dict.fromkeys(words.values()):
        nodes = [str(each.num_nodes) for each, cause in words.items() if cause == why]
        yield f"{why} on {listed(nodes)} node{'s' if nodes != ['1'] else ''}"
