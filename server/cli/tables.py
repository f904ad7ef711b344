"""Campaigns, trials and recommendations as text for people."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from autotune.schemas import (
    Campaign,
    CampaignCreate,
    Ranked,
    Recommendation,
    StrategyShape,
    Trial,
    TrialMetrics,
)
from search_spaces.strategy import Strategy
from server.cli.figures import (
    NO_VALUE,
    figure,
    mark,
    moment,
    percent,
    seconds,
    tokens,
    with_unit,
)


def strategy_line(shape: StrategyShape) -> str:
    """`TP 4 · PP 8 · MBS 2 …`, as everywhere else."""
    return Strategy(**shape.model_dump()).short()


def headed(*columns: str, title: str | None = None) -> Table:
    """An empty table; a column whose name begins with > is aligned to the right."""
    table = Table(title=title, box=None, pad_edge=False, title_justify="left", header_style="bold")
    for column in columns:
        table.add_column(column.lstrip(">"), justify="right" if column.startswith(">") else "left")
    return table


def facts(pairs: Iterable[tuple[str, str]], *, title: str | None = None) -> Table:
    """Two columns: what it is, and its value."""
    table = Table(title=title, box=None, pad_edge=False, show_header=False, title_justify="left")
    table.add_column(style="bold", no_wrap=True)
    table.add_column()
    for name, value in pairs:
        table.add_row(Text(name), Text(value))
    return table


def campaigns(items: Sequence[Campaign]) -> Table:
    table = headed(
        ">id", "name", "state", "model", "machine", ">nodes", ">trials", ">failed", ">best", ""
    )
    for item in items:
        table.add_row(
            str(item.id),
            Text(item.name or NO_VALUE),
            item.state,
            Text(item.model.name),
            Text(item.machine.name),
            str(item.request.nodes),
            f"{item.trials}/{item.request.budget.max_trials}",
            str(item.failures),
            with_unit(item.best_objective, "tokens/s"),
            mark(item.simulated),
        )
    return table


def campaign(item: Campaign) -> Table:
    budget = item.request.budget
    pairs = [
        ("campaign", f"{item.id} {item.name}".strip()),
        ("state", f"{item.state}: {item.reason}" if item.reason else item.state),
        ("model", item.model.name),
        ("machine", f"{item.machine.name}, at most {item.request.nodes} nodes"),
        ("evaluator", f"{_evaluator(item.request)} ({mark(item.simulated)})"),
        (
            "trials",
            f"{item.trials} of {budget.max_trials}, {item.failures} failed, "
            f"{item.confirmations} confirmations, {item.pending} open"
            + (f" ({item.waiting} of them waiting for nodes)" if item.waiting else ""),
        ),
        ("node-hours", figure(item.node_hours)),
        ("created", moment(item.created_at)),
        ("best so far", with_unit(item.best_objective, "tokens/s")),
    ]
    return facts(pairs)


def _evaluator(request: CampaignCreate) -> str:
    slurm = request.slurm
    how = f": profile {slurm.profile}, {slurm.mode}" if slurm else ""
    return f"{request.evaluator}{how}"


def trials(items: Sequence[Trial]) -> Table:
    """A row for each; jobs and energy have columns where there are any."""
    with_jobs = any(item.job_id for item in items)
    with_energy = any(item.joules_per_token is not None for item in items)
    table = headed(
        *(">no", "purpose", "state", "strategy", ">s/iteration", ">tokens/s", ">peak GiB"),
        *([">J/token"] if with_energy else []),
        *([">job"] if with_jobs else []),
        "why",
    )
    for item in items:
        table.add_row(
            *_cells(item),
            *([figure(item.joules_per_token)] if with_energy else []),
            *([item.job_id or NO_VALUE] if with_jobs else []),
            Text(item.error or item.phase_reason, overflow="ellipsis", no_wrap=True),
        )
    return table


def _cells(item: Trial) -> list[str]:
    metrics = item.metrics
    return [
        str(item.number),
        item.purpose,
        standing(item),
        strategy_line(item.strategy),
        seconds(metrics.iteration_time_s) if metrics else NO_VALUE,
        figure(metrics.tokens_per_s) if metrics else NO_VALUE,
        figure(metrics.peak_memory_gib) if metrics else NO_VALUE,
    ]


def standing(item: Trial) -> str:
    """Its state; of one that has not ended, whether it waits or runs."""
    return item.phase or item.state.value


def energy(item: Trial) -> str:
    """Of the GPUs, as it was sampled; or why it was not."""
    if item.joules_per_token is None:
        return item.energy_note or NO_VALUE
    return f"{item.joules_per_token:.3g} J/token by the GPUs ({item.energy_note})"


def trial(item: Trial) -> Table:
    pairs = [
        ("trial", f"{item.number} of campaign {item.campaign_id} ({item.purpose})"),
        ("state", ": ".join(filter(None, [standing(item), item.phase_reason]))),
        ("strategy", strategy_line(item.strategy)),
        *(_metrics(item.metrics, simulated=item.simulated) if item.metrics else []),
        ("duration", seconds(item.duration_s)),
        ("energy", energy(item)),
        ("job", item.job_id or NO_VALUE),
        ("host", item.host or NO_VALUE),
        ("log", item.log_path or NO_VALUE),
    ]
    return facts(pairs + ([("error", item.error)] if item.error else []))


def _metrics(metrics: TrialMetrics, *, simulated: bool) -> list[tuple[str, str]]:
    efficiency = f", MFU {percent(metrics.mfu)}, HFU {percent(metrics.hfu)}" if metrics.mfu else ""
    spread = seconds(metrics.iteration_time_spread_s)
    return [
        ("iteration", f"{seconds(metrics.iteration_time_s)} ± {spread}, {mark(simulated)}"),
        (
            "throughput",
            f"{with_unit(metrics.tokens_per_s, 'tokens/s')}, "
            f"{with_unit(metrics.tokens_per_s_per_gpu, 'tokens/s')} per GPU",
        ),
        (
            "model FLOPs",
            f"{with_unit(metrics.model_tflops_per_gpu, 'TFLOP/s')} per GPU{efficiency}",
        ),
        ("global batch", f"{metrics.global_batch_size} samples"),
        ("peak memory", with_unit(metrics.peak_memory_gib, "GiB on the fullest rank")),
    ]


def recommendation(answer: Recommendation) -> RenderableType:
    """The best strategy, what training with it would take, and those behind it."""
    return Group(
        facts(_best(answer)),
        *([_runners_up(answer.runners_up)] if answer.runners_up else []),
        *(Text(f"note: {caveat}") for caveat in answer.caveats),
    )


def recommendation_in_brief(answer: Recommendation) -> Table:
    """The figures that matter, without runners-up and caveats."""
    metrics, training = answer.best.metrics, answer.training
    utilisation = f" · MFU {percent(metrics.mfu)}" if metrics.mfu else ""
    return facts(
        [
            ("best layout", strategy_line(answer.best.strategy)),
            ("throughput", f"{with_unit(metrics.tokens_per_s, 'tokens/s')}{utilisation}"),
            ("iteration", f"{seconds(metrics.iteration_time_s)} ({mark(answer.simulated)})"),
            ("peak memory", with_unit(metrics.peak_memory_gib, "GiB on the fullest rank")),
            (
                "to train",
                f"{tokens(training.tokens)} tokens: {figure(training.days)} days, "
                f"{with_unit(training.node_hours, 'node-hours')}",
            ),
            ("found by", f"{answer.trials} trials, {answer.failures} of them failed"),
        ]
    )


def _best(answer: Recommendation) -> list[tuple[str, str]]:
    training = answer.training
    energy = f", {with_unit(training.energy_mwh, 'MWh')}" if training.energy_mwh else ""
    standing = "provisional" if answer.provisional else "confirmed by another run"
    if not answer.provisional and not answer.best.confirmed:
        standing = "measured once"
    return [
        ("best", strategy_line(answer.best.strategy)),
        *_metrics(answer.best.metrics, simulated=answer.simulated),
        ("standing", standing),
        (
            "to train",
            f"{tokens(training.tokens)} tokens: {figure(training.days)} days, "
            f"{with_unit(training.node_hours, 'node-hours')}{energy}",
        ),
        (
            "found by",
            f"{answer.trials} trials, {answer.failures} failed, "
            f"{with_unit(answer.node_hours, 'node-hours')}",
        ),
        ("files", ", ".join(answer.artefacts)),
    ]


def _runners_up(items: Sequence[Ranked]) -> Table:
    table = headed(">rank", "runners-up", ">tokens/s", ">of the best", ">peak GiB", "")
    for item in items:
        table.add_row(
            str(item.rank),
            strategy_line(item.strategy),
            figure(item.metrics.tokens_per_s),
            percent(item.relative_to_best),
            figure(item.metrics.peak_memory_gib),
            "" if item.significant else "within the spread",
        )
    return table
