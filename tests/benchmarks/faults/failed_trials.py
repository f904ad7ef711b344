"""Trials that failed though their programs never do, and the faults that may have made them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from autotune.schemas.choices import TrialState
from autotune.schemas.trials import Trial
from tests.benchmarks.faults.kinds import DISK

EXPLAINS = frozenset({DISK})
"""Faults after which a trial may fail: what it wrote meanwhile is lost. After any other it runs
again, or its campaign goes on without having noticed."""
LINES_OF_A_LOG = 12


@dataclass(frozen=True, kw_only=True)
class InflictedFault:
    """From when to when it lasted, s since the run began."""

    name: str
    began_s: float
    ended_s: float


@dataclass(frozen=True, kw_only=True)
class FailedTrial:
    """`faults`: what happened in its time, from before it was seen until after it had ended.
    `log_end`: the last lines of its last attempt."""

    sentence: str
    faults: tuple[InflictedFault, ...]
    log_end: tuple[str, ...]

    @classmethod
    def of(cls, trial: Trial, *, backend: str, faults: tuple[InflictedFault, ...]) -> Self:
        return cls(
            sentence=f"trial {trial.token} ({backend}) is {trial.state}: {trial.error}",
            faults=faults,
            log_end=tuple(_log_end(trial)),
        )

    @property
    def is_explained(self) -> bool:
        return any(fault.name in EXPLAINS for fault in self.faults)

    @property
    def lines(self) -> list[str]:
        faults = ", ".join(map(_words, self.faults)) or "none"
        log = [f"    | {line}" for line in self.log_end]
        return [self.sentence, f"    faults in its time: {faults}", *log]


@dataclass
class LifeSpans:
    """When trials were there, as somebody knows who looks now and then: rather too long than too
    short."""

    looked_s: dict[int, float] = field(default_factory=dict)
    """By campaign: when its trials were looked at last."""
    since_s: dict[str, float] = field(default_factory=dict)
    until_s: dict[str, float] = field(default_factory=dict)

    def look(self, number: int, trials: Sequence[Trial], *, began_s: float, ended_s: float) -> None:
        """Take in how the trials of a campaign stood at some time between these two."""
        for trial in trials:
            self.since_s.setdefault(trial.token, self.looked_s[number])
            if trial.state is not TrialState.PENDING:
                self.until_s.setdefault(trial.token, ended_s)
        self.looked_s[number] = began_s

    def faults_in(
        self, trial: Trial, faults: Sequence[InflictedFault]
    ) -> tuple[InflictedFault, ...]:
        since_s = self.since_s.get(trial.token, 0.0)
        until_s = self.until_s.get(trial.token, float("inf"))
        return tuple(
            fault for fault in faults if fault.ended_s >= since_s and fault.began_s <= until_s
        )


def has_failed(trial: Trial) -> bool:
    """Whether it ended as no trial of these questions does by itself. Memory is short in
    simulated ones alone; nobody cancels a campaign, and a pause withdraws only what waits."""
    fine = {TrialState.PENDING, TrialState.OK}
    if trial.simulated:
        fine.add(TrialState.OOM)
    return trial.state not in fine and not trial.withdrawn


def _words(fault: InflictedFault) -> str:
    return f"{fault.name} ({fault.began_s:.1f} to {fault.ended_s:.1f} s)"


def _log_end(trial: Trial) -> list[str]:
    try:
        text = Path(trial.log_path or "").read_text(errors="replace")
    except OSError:
        return []
    return text.splitlines()[-LINES_OF_A_LOG:]
