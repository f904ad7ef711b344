"""Which starts come next, and which knobs to adopt: functions of the rows and the question.

Each option is compared with the baseline by itself, then those adopted together. After one start of
each, with the baseline among them, options that are worth another start go on in turns with the
baseline: A B C, then C B A.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from autotune.knobs.evidence import Effect, KnobEvidence
from autotune.knobs.losses import LIMITS, LossComparison, compare_losses
from autotune.knobs.question import (
    BASELINE,
    KnobOption,
    KnobQuestion,
    KnobStart,
    PlannedStart,
    Settings,
    check,
)
from autotune.schemas.knobs import KnobDecision
from autotune.words.quantities import probability

CERTAIN = 0.99
"""Probability of a gain from which an option is adopted."""

DOUBT = 0.05
"""Probability of a gain below which an option is rejected."""

FEWEST_STARTS = 2
"""Of an option before it is adopted, and of the options together."""

BASELINE_STARTS = 3
"""In the first round: first, last and in between, so that there is an A/A pair."""


@dataclass(frozen=True, kw_only=True)
class KnobVerdict:
    """The decision on one option, and its evidence.

    Attributes:
        effect: at the layout's micro-batch size; None without a successful start.
        at_other_size: at the other one.
        why: a sentence.
    """

    option: KnobOption
    decision: KnobDecision
    effect: Effect | None
    at_other_size: Effect | None
    why: str

    @property
    def sign_differs(self) -> bool:
        """Return whether it is probably faster at one micro-batch size and slower at the other."""
        one, other = self.effect, self.at_other_size
        if one is None or other is None:
            return False
        return max(min(one.faster, other.slower), min(one.slower, other.faster)) > 1.0 - DOUBT


@dataclass(frozen=True, kw_only=True)
class KnobReport:
    """The result of a series of starts.

    Attributes:
        settings: to use: the adopted options, without those with which the others are slower.
        together: the effect of `settings`; None if not measured.
        noise_floor: relative difference that is noise between two starts; None without a baseline.
    """

    verdicts: tuple[KnobVerdict, ...]
    settings: Settings
    together: Effect | None
    noise_floor: float | None


def next_starts(rows: Sequence[KnobStart], question: KnobQuestion) -> list[PlannedStart]:
    """Return the starts to make next, in order; none once all is decided.

    Rows are all starts so far, in one allocation if possible: the baseline is one for all.
    """
    check(rows)
    sides = [_Side(rows, question, size) for size in question.micro_batch_sizes]
    return [start for side in sides for start in side.singles()] or sides[0].together()


def report(rows: Sequence[KnobStart], question: KnobQuestion) -> KnobReport:
    """Return what the rows show so far."""
    check(rows)
    own, *others = (_Side(rows, question, size) for size in question.micro_batch_sizes)
    return KnobReport(
        verdicts=tuple(own.verdict(option, others) for option in question.options),
        settings=_settings(own.chosen),
        together=own.effects.get(_settings(own.chosen)),
        noise_floor=own.evidence.noise_floor if own.evidence else None,
    )


def _settings(options: Sequence[KnobOption]) -> Settings:
    return tuple(sorted((option.knob, option.value) for option in options))


class _Side:
    """All starts at one micro-batch size."""

    def __init__(self, rows: Sequence[KnobStart], question: KnobQuestion, size: int) -> None:
        is_own = size == question.micro_batch_sizes[0]
        self.question, self.size = question, size
        self.options = [option for option in question.options if is_own or option.reopens]
        self.rows: dict[Settings, list[KnobStart]] = {}
        for row in rows:
            if row.micro_batch_size == size:
                self.rows.setdefault(row.settings, []).append(row)

    def starts(self, settings: Settings) -> list[KnobStart]:
        return self.rows.get(settings, [])

    @cached_property
    def evidence(self) -> KnobEvidence[Settings] | None:
        """None before a successful start of the baseline."""
        times = {
            settings: [r.iteration_time_s for r in rows if r.iteration_time_s is not None]
            for settings, rows in self.rows.items()
        }
        measured = {settings: own for settings, own in times.items() if own}
        baseline = measured.pop(BASELINE, None)
        return KnobEvidence.of(baseline, measured) if baseline else None

    @property
    def effects(self) -> dict[Settings, Effect]:
        return dict(self.evidence.effects) if self.evidence else {}

    def losses(self, options: Sequence[KnobOption]) -> LossComparison | None:
        numerics = max((option.numerics for option in options), key=list(LIMITS).index)
        baseline = [row.losses for row in self.starts(BASELINE)]
        found = (
            compare_losses(baseline, row.losses, numerics=numerics)
            for row in self.starts(_settings(options))
        )
        return max(filter(None, found), key=lambda each: each.largest, default=None)

    def fault(self, options: Sequence[KnobOption]) -> str | None:
        """Return why the options cannot be used, however fast."""
        if any(row.iteration_time_s is None for row in self.starts(_settings(options))):
            return "A start failed."
        losses = self.losses(options)
        if losses is None or losses.within:
            return None
        return (
            f"The loss of step {losses.step} differs by {losses.largest:.1g}, more than the "
            f"{losses.limit:.1g} of its class."
        )

    def decision(self, option: KnobOption) -> KnobDecision:
        effect = self.effects.get(option.settings)
        if self.fault([option]):
            return "rejected"
        if effect is None:
            return "not decided"
        if effect.faster >= CERTAIN and effect.starts >= FEWEST_STARTS:
            return "adopted"
        return "rejected" if effect.faster < DOUBT else "not decided"

    def why_no_more(self, option: KnobOption) -> str | None:
        """Return why the option needs no other start; None if it does."""
        effect = self.effects.get(option.settings)
        if fault := self.fault([option]):
            return fault
        if effect is None or self.evidence is None:
            return None
        if self.decision(option) == "adopted":
            return f"Faster with a probability of {probability(effect.faster)}."
        if effect.starts >= self.question.most_starts:
            return f"{effect.starts} starts did not decide."
        training, cost = self.question.training_node_hours, self.question.start_node_hours
        if training is None:
            likely, enough = probability(effect.faster), effect.faster >= DOUBT
            return None if enough else f"Faster with a probability of only {likely}."
        saving = effect.saving * training / _starts_needed(effect, self.evidence.noise)
        if saving >= cost:
            return None
        return f"Another start costs {cost:.2g} node-hours and would save {saving:.2g}."

    def verdict(self, option: KnobOption, others: Sequence[_Side]) -> KnobVerdict:
        return KnobVerdict(
            option=option,
            decision=self.decision(option),
            effect=self.effects.get(option.settings),
            at_other_size=next((other.effects.get(option.settings) for other in others), None),
            why=self.why_no_more(option) or self._so_far(option),
        )

    def _so_far(self, option: KnobOption) -> str:
        if self.evidence is None and self.starts(option.settings):
            return "No start without knobs succeeded, so there is nothing to compare with."
        if self.decision(option) != "rejected":
            return "Not measured enough."
        likely = probability(self.effects[option.settings].faster)
        return f"Faster with a probability of only {likely} so far."

    def singles(self) -> list[PlannedStart]:
        """Return starts of the baseline and of one option each."""
        missing = [o.settings for o in self.options if not self.starts(o.settings)]
        baselines = BASELINE_STARTS - len(self.starts(BASELINE))
        if missing or (baselines > 0 and self.options):
            order = self._shuffled(missing)
            for place in np.linspace(len(order), 0, BASELINE_STARTS, dtype=int)[
                : max(baselines, 0)
            ]:
                order.insert(int(place), BASELINE)
            return self._planned(order)
        again = [o.settings for o in self.options if self.evidence and not self.why_no_more(o)]
        return self._in_turns(self._shuffled(again))

    @cached_property
    def chosen(self) -> list[KnobOption]:
        """Return the best adopted value of each knob, largest gain first; without the last ones
        while all together are not faster than the first by itself."""
        adopted = [option for option in self.options if self.decision(option) == "adopted"]
        adopted.sort(key=lambda option: -self.effects[option.settings].gain)
        knobs = [option.knob for option in adopted]
        chosen = [option for i, option in enumerate(adopted) if option.knob not in knobs[:i]]
        while len(chosen) > 1 and self._is_worse(chosen):
            chosen.pop()
        return chosen

    def _is_worse(self, chosen: Sequence[KnobOption]) -> bool:
        effect, best = self.effects.get(_settings(chosen)), self.effects[chosen[0].settings]
        if self.fault(chosen):
            return True
        return effect is not None and effect.starts >= FEWEST_STARTS and effect.gain < best.gain

    def together(self) -> list[PlannedStart]:
        """Return a start of the adopted options together: their confirmation."""
        settings = _settings(self.chosen)
        enough = len(settings) < 2 or len(self.starts(settings)) >= FEWEST_STARTS
        return [] if enough else self._in_turns([settings])

    def _in_turns(self, settings: list[Settings]) -> list[PlannedStart]:
        rounds = max((len(self.starts(each)) for each in settings), default=0)
        order = [BASELINE, *settings] if settings else []
        return self._planned(order[::-1] if rounds % 2 else order)

    def _shuffled(self, settings: list[Settings]) -> list[Settings]:
        generator = np.random.default_rng([self.question.seed, self.size])
        return [settings[i] for i in generator.permutation(len(settings))]

    def _planned(self, settings: Sequence[Settings]) -> list[PlannedStart]:
        return [PlannedStart(settings=each, micro_batch_size=self.size) for each in settings]


def _starts_needed(effect: Effect, noise: float) -> float:
    """Return how many more starts would show the gain to expect if it is one, at least one: each
    adds half the square of its ratio to the noise to the log odds."""
    if not effect.saving:
        return math.inf
    faster = min(max(effect.faster, 1e-12), CERTAIN)
    missing = math.log(CERTAIN / (1.0 - CERTAIN)) - math.log(faster / (1.0 - faster))
    return max(missing / (0.5 * (effect.saving / faster / noise) ** 2), 1.0)
