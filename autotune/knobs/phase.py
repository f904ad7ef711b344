"""The knobs of a campaign: what its starts show, and which one is next."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from statistics import fmean, median

from autotune.knobs.decision import DOUBT, KnobReport, KnobVerdict, next_starts, report
from autotune.knobs.evidence import Effect, noise_floor
from autotune.knobs.question import (
    BASELINE,
    KnobOption,
    KnobQuestion,
    KnobStart,
    PlannedStart,
    Settings,
)
from autotune.schemas.choices import TrialState
from autotune.schemas.knobs import KnobFindings, KnobResult, KnobSign
from autotune.schemas.trials import CONCLUSIVE, Trial
from search_spaces.dimensions import Scalar, setting_text
from search_spaces.knob import Knob
from search_spaces.strategy import Strategy, strategy_with

VISIBLE = 0.01
"""Relative difference of peak memory that shows that a knob was on."""


def without_knobs(trials: Sequence[Trial]) -> list[Trial]:
    """Return the trials of layouts: the search and the ranking know no others."""
    return [trial for trial in trials if trial.purpose != "knob"]


def knob_trials(
    trials: Sequence[Trial], layout: Strategy, knobs: Collection[str]
) -> list[tuple[Trial, Settings]]:
    """Return the trials of knobs on a layout, each with what it changes, in order."""
    return [
        (trial, changed)
        for trial in sorted(trials, key=lambda trial: trial.number)
        if trial.purpose == "knob"
        if (changed := settings_on(layout, trial.strategy, knobs)) is not None
    ]


def settings_on(layout: Strategy, strategy: Strategy, knobs: Collection[str]) -> Settings | None:
    """Return the knobs that a strategy changes on a layout; None for another layout.

    The micro-batch size may differ at the same global batch.
    """
    own, other = layout.as_dict(), strategy.as_dict()
    changed = {
        name: other[name] for name in knobs if name in other and other[name] != own.get(name)
    }
    same = with_settings(at_size(layout, strategy.micro_batch_size), tuple(changed.items()))
    return tuple(sorted(changed.items())) if same == strategy else None


def with_settings(strategy: Strategy, settings: Settings) -> Strategy:
    return strategy_with(strategy.as_dict() | dict(settings))


def at_size(layout: Strategy, micro_batch_size: int) -> Strategy:
    """Return the layout with another micro-batch size and, if possible, the same global batch."""
    samples = layout.micro_batch_size * layout.gradient_accumulation_steps
    return replace(
        layout,
        micro_batch_size=micro_batch_size,
        gradient_accumulation_steps=max(1, samples // micro_batch_size),
    )


def starts_of(trials: Sequence[tuple[Trial, Settings]], *, timed_steps: int) -> list[KnobStart]:
    """Return the starts that say something: not those that lost their nodes or were cancelled."""
    return [
        KnobStart(
            settings=settings,
            micro_batch_size=trial.strategy.micro_batch_size,
            iteration_time_s=trial.metrics.iteration_time_s if trial.metrics else None,
            timed_steps=timed_steps,
            losses=tuple(
                float("nan") if loss is None else loss
                for loss in (trial.metrics.first_losses if trial.metrics else ())
            ),
        )
        for trial, settings in trials
        if trial.state in CONCLUSIVE
    ]


def start_node_hours(layout: Strategy, trials: Sequence[Trial]) -> float:
    """Return the expected node-hours of a start: those of the layout's confirmations, or of all its
    trials. Knobs' own starts do not count, so that decisions can be repeated."""
    same = [t for t in without_knobs(trials) if t.strategy.layout_key() == layout.layout_key()]
    in_full = [t for t in same if t.purpose == "confirmation"]
    hours = [t.node_hours for t in in_full or same if t.node_hours and t.state is TrialState.OK]
    return fmean(hours) if hours else 0.0


def next_start(rows: Sequence[KnobStart], question: KnobQuestion) -> PlannedStart | None:
    """Return the next start; None once all is decided.

    Starts are planned in rounds. Each round is planned again from the rows before it, so that no
    plan is stored.
    """
    finished = 0
    while planned := next_starts(rows[:finished], question):
        if finished + len(planned) > len(rows):
            return planned[len(rows) - finished]
        finished += len(planned)
    return None


def knob_findings(
    layout: Strategy,
    trials: Sequence[Trial],
    knobs: Mapping[str, Knob],
    *,
    training_node_hours: float | None,
) -> KnobFindings | None:
    """Return what the starts of knobs on a layout show; None before a knob was tried."""
    own = knob_trials(trials, layout, knobs)
    starts = starts_of(own, timed_steps=1)
    tried = dict.fromkeys(row.settings[0] for row in starts if len(row.settings) == 1)
    if not tried:
        return None
    sizes = dict.fromkeys((layout.micro_batch_size, *(row.micro_batch_size for row in starts)))
    question = KnobQuestion(
        options=tuple(option_of(name, value, knobs[name]) for name, value in tried),
        micro_batch_sizes=tuple(sizes),
        start_node_hours=start_node_hours(layout, trials),
        training_node_hours=training_node_hours,
    )
    found = report(starts, question)
    results = [
        _result(verdict, seen=_seen_in(verdict, own, layout.micro_batch_size))
        for verdict in found.verdicts
    ]
    return KnobFindings(
        strategy=layout,
        settings=dict(found.settings),
        **_gains(found.together),
        starts=len(starts),
        node_hours=sum(trial.node_hours or 0.0 for trial, _ in own),
        other_micro_batch_size=next(iter(list(sizes)[1:]), None),
        reopened=_reopened(layout, starts, found),
        results=sorted(results, key=lambda each: -(each.gain or 0.0)),
    )


def option_of(name: str, value: Scalar, knob: Knob) -> KnobOption:
    return KnobOption(knob=name, value=value, numerics=knob.numerics, reopens=knob.reopens)


def _reopened(layout: Strategy, starts: Sequence[KnobStart], found: KnobReport) -> str:
    """Return which start at the other size was faster than the layout with the adopted knobs, by
    more than the noise and at the same global batch."""
    own = _median_s(starts, layout.micro_batch_size, found.settings)
    if own is None or found.noise_floor is None:
        return ""
    samples = layout.micro_batch_size * layout.gradient_accumulation_steps
    others = {
        (row.micro_batch_size, row.settings)
        for row in starts
        if row.micro_batch_size != layout.micro_batch_size and samples % row.micro_batch_size == 0
    }
    best: tuple[float, int, Settings] | None = min(
        (
            (seconds, size, settings)
            for size, settings in others
            if (seconds := _median_s(starts, size, settings)) is not None
        ),
        default=None,
    )
    if best is None or best[0] * (1.0 + found.noise_floor) >= own:
        return ""
    seconds, size, settings = best
    chosen = ", ".join(f"{name} = {setting_text(value)}" for name, value in settings)
    return (
        f"At MBS {size} with {chosen or 'no knob'} an iteration takes {seconds:.4g} s instead of "
        f"{own:.4g} s: search the layout again with these."
    )


def _median_s(starts: Sequence[KnobStart], size: int, settings: Settings) -> float | None:
    times = [
        row.iteration_time_s
        for row in starts
        if (row.micro_batch_size, row.settings) == (size, settings)
        and row.iteration_time_s is not None
    ]
    return median(times) if times else None


def _gains(effect: Effect | None) -> dict[str, float]:
    if effect is None:
        return {}
    low, high = effect.interval
    return {"gain": effect.gain, "gain_low": low, "gain_high": high}


def _result(verdict: KnobVerdict, *, seen: KnobSign | None) -> KnobResult:
    effect, other = verdict.effect, verdict.at_other_size
    return KnobResult(
        knob=verdict.option.knob,
        value=verdict.option.value,
        decision=verdict.decision,
        why=verdict.why,
        starts=effect.starts if effect else 0,
        **_gains(effect),
        probability_faster=effect.faster if effect else None,
        gain_at_other_size=other.gain if other else None,
        sign_differs=verdict.sign_differs,
        seen_in=seen,
    )


def _seen_in(
    verdict: KnobVerdict, own: Sequence[tuple[Trial, Settings]], size: int
) -> KnobSign | None:
    effect = verdict.effect
    if effect and max(effect.faster, effect.slower) > 1.0 - DOUBT:
        return "time"
    peaks: dict[Settings, list[float]] = {}
    for trial, settings in own:
        if trial.metrics is None or trial.strategy.micro_batch_size != size:
            continue
        if settings == verdict.option.settings and verdict.option.knob in trial.metrics.confirmed:
            return "log"
        if peak := trial.metrics.peak_memory_gib:
            peaks.setdefault(settings, []).append(peak)
    with_knob, baseline = peaks.get(verdict.option.settings), peaks.get(BASELINE)
    if not with_knob or not baseline:
        return None
    lowest, highest = min(baseline), max(baseline)
    visible = VISIBLE * highest + 2.0 * (highest - lowest)  # processes on CPUs vary
    apart = max(min(with_knob) - highest, lowest - max(with_knob))
    return "memory" if apart > visible else None


def repeated_noise(trials: Sequence[Trial]) -> float | None:
    """Return the relative difference that is noise between two starts of a layout at its own GAS;
    None until one has been started twice."""
    times: dict[tuple[Strategy, str], list[float]] = {}
    for trial in trials:
        in_full = trial.purpose in {"confirmation", "knob"} and trial.state is TrialState.OK
        if in_full and trial.metrics:
            alike = trial.strategy, trial.purpose  # knobs' starts time more iterations
            times.setdefault(alike, []).append(trial.metrics.iteration_time_s)
    repeated = [same for same in times.values() if len(same) > 1]
    return noise_floor(repeated) if repeated else None
