"""What must hold of campaigns and trials, whatever went wrong: each breach is a sentence; and the
faults that may have made trials fail though their programs never do."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from sqlalchemy import text

from autotune.schemas.campaigns import Campaign
from autotune.schemas.choices import TrialState
from autotune.schemas.trials import Trial
from evaluators.trial import read_result
from server.runner.trial_logs import attempt_folders
from server.settings import Settings
from tests.server.faults.kinds import DISK
from tests.server.faults.programs import marked
from tests.server.faults.stage import Stage

OF_TRIAL = re.compile(r"c\d+-t\d+-[0-9a-f]{12}")
"""Names of trial folders, which are tokens."""
AT_REST = {"done", "failed", "cancelled", "paused"}
STARTED = "rank 0 of"
"""What the stand-in for Megatron-DeepSpeed says once, when it starts."""
WITHOUT_RUN = {TrialState.CANCELLED, TrialState.REFUSED}


@dataclass
class FinishedTrials:
    """What has been seen of trials that had ended: from then on they stay as they are."""

    seen: dict[str, Trial] = field(default_factory=dict)

    def look(self, trials: Sequence[Trial]) -> Iterator[str]:
        for trial in trials:
            before = self.seen.get(trial.token)
            if trial.state is TrialState.PENDING:
                if before:
                    yield f"trial {trial.token}, which was {before.state}, is pending again"
            elif self.seen.setdefault(trial.token, trial) != trial:
                yield f"trial {trial.token} has changed after its end"


def audit(
    stage: Stage, campaigns: Sequence[Campaign], *, elapsed_s: float, disk_was_full: bool
) -> tuple[list[str], Counter[str]]:
    """Return what is wrong at the end, when all has been stopped, and how many trials ended how."""
    wrong: list[str] = []
    states: Counter[str] = Counter()
    tokens: list[str] = []
    for campaign in campaigns:
        trials = stage.trials(campaign.id)
        tokens += [trial.token for trial in trials]
        states.update(str(trial.state) for trial in trials)
        wrong += _of_campaign(campaign, trials)
        for trial in trials:
            wrong += _of_trial(
                stage.settings, campaign, trial, elapsed_s=elapsed_s, disk_was_full=disk_was_full
            )
    wrong += [f"token {token} stands twice" for token, n in Counter(tokens).items() if n > 1]
    folders = {path.name for path in stage.settings.trials_dir.glob("c*") if _is_of_trial(path)}
    wrong += [f"folder {name} has no row" for name in sorted(folders - set(tokens))]
    wrong += _of_database(stage)
    return wrong, states


def _of_campaign(campaign: Campaign, trials: Sequence[Trial]) -> Iterator[str]:
    name = f"campaign {campaign.id} ({campaign.request.evaluator})"
    if campaign.state not in AT_REST:
        yield f"{name} is still {campaign.state}: {campaign.reason or 'no reason'}"
    if campaign.state != "done" and not campaign.reason:
        yield f"{name} is {campaign.state} and does not say why"
    if [trial.number for trial in trials] != list(range(1, len(trials) + 1)):
        yield f"{name} has trials {[trial.number for trial in trials]}"
    counted = [trial for trial in trials if trial.state is not TrialState.CANCELLED]
    budgeted = sum(trial.purpose != "confirmation" for trial in counted)
    most = campaign.request.budget.max_trials
    if budgeted > most:
        yield f"{name} counts {budgeted} trials and had {most}"
    if campaign.reason.startswith("The budget of") and budgeted < most:
        yield f"{name} has spent its budget of {most} with {budgeted} trials"
    measured = Counter(
        str(trial.strategy)
        for trial in counted
        if trial.state is TrialState.OK and trial.purpose != "confirmation"
    )
    yield from (f"{name} measured {key} {n} times" for key, n in measured.items() if n > 1)
    whole = math.fsum(trial.node_hours or 0.0 for trial in trials)
    if not math.isclose(campaign.node_hours, whole, rel_tol=1e-9, abs_tol=1e-12):
        yield f"{name} says {campaign.node_hours} node-hours, its trials {whole}"


def _of_trial(
    settings: Settings,
    campaign: Campaign,
    trial: Trial,
    *,
    elapsed_s: float,
    disk_was_full: bool,
) -> Iterator[str]:
    name = f"trial {trial.token} ({campaign.request.evaluator})"
    if trial.state is TrialState.PENDING:
        yield f"{name} is pending"
        return
    duration_s = trial.duration_s or 0.0
    held = trial.strategy.num_nodes * duration_s / 3600
    if not math.isclose(trial.node_hours or 0.0, held, rel_tol=1e-6, abs_tol=1e-9):
        yield f"{name} held {held} node-hours and says {trial.node_hours}"
    if not trial.simulated and not 0.0 <= duration_s <= elapsed_s:
        yield f"{name} says that it took {duration_s} s, of {elapsed_s:.0f} s in all"
    if trial.state not in WITHOUT_RUN:
        yield from _of_folder(settings, campaign, trial, disk_was_full=disk_was_full)


def _of_folder(
    settings: Settings, campaign: Campaign, trial: Trial, *, disk_was_full: bool
) -> Iterator[str]:
    name = f"trial {trial.token} ({campaign.request.evaluator})"
    folder = settings.trial_dir(trial.token)
    own = campaign.request.evaluator == "local"
    result = read_result((attempt_folders(folder) or [folder])[-1] if own else folder)
    if result is not None and result.status is not trial.state:
        yield f"{name} is {trial.state}, and its result {result.status}"
    # What was measured while the disk was full is in the row alone.
    if result is None and trial.state is TrialState.OK and not disk_was_full:
        yield f"{name} is {trial.state} without a result"
    for log in folder.glob("attempt-*/trial.log"):
        starts = log.read_text(errors="replace").count(STARTED)
        if starts > 1:
            yield f"{name} was started {starts} times in {log.parent.name}"


def _is_of_trial(path: Path) -> bool:
    return bool(OF_TRIAL.fullmatch(path.name))


def _of_database(stage: Stage) -> Iterator[str]:
    if stage.database != "sqlite":
        return
    with stage.store.session() as session:
        for pragma in ("integrity_check", "foreign_key_check"):
            found = [str(row[0]) for row in session.execute(text(f"PRAGMA {pragma}"))]
            if found not in ([], ["ok"]):
                yield f"{pragma}: {found[:3]}"


def orphans(stage: Stage) -> Iterator[str]:
    """Yield what lives on when service and runners have ended and no campaign has work."""
    for process in marked(stage.mark):
        try:
            yield f"process {process.pid} lives on: {' '.join(process.cmdline())[:200]}"
        except psutil.Error:
            continue
    if stage.slurm:
        yield from (f"job {job} is {state}" for job, state in stage.slurm.jobs().items())
    for process in psutil.process_iter():
        try:
            if Path(process.cwd()).is_relative_to(stage.folder):
                yield f"process {process.pid} is in {process.cwd()}: {process.name()}"
        except (psutil.Error, OSError):
            continue


EXPLAINS = frozenset({DISK})
"""Faults after which a trial may fail: what it wrote meanwhile is lost. After any other it runs
again, or its campaign goes on without having noticed."""


@dataclass(frozen=True, kw_only=True)
class InflictedFault:
    """From when to when it lasted, s since the run began."""

    name: str
    began_s: float
    ended_s: float

    def __str__(self) -> str:
        return f"{self.name} ({self.began_s:.1f} to {self.ended_s:.1f} s)"


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


def unexplained(trial: Trial, faults: Sequence[InflictedFault]) -> str:
    """Why a trial ended as none of these questions does by itself, in a sentence; empty where it
    did not, or where a fault explains it. Memory is short in simulated ones alone; nobody cancels
    a campaign, and a pause withdraws only what waits.

    Args:
        faults: in its time.
    """
    fine = {TrialState.PENDING, TrialState.OK, *([TrialState.OOM] if trial.simulated else [])}
    if trial.state in fine or trial.withdrawn or any(fault.name in EXPLAINS for fault in faults):
        return ""
    happened = ", ".join(map(str, faults)) or "none"
    return f"trial {trial.token} is {trial.state}: {trial.error}; faults: {happened}"
