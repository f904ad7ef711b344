"""Faults one after the other while campaigns of all backends come and go, and what came of it."""

from __future__ import annotations

import math
import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from autotune.schemas.campaigns import Campaign
from autotune.schemas.trials import Trial
from evaluators.slurm.batch_script import LEASE_S
from server.runner.runner import DISK_FULL
from tests.server.faults.audit import (
    AT_REST,
    FinishedTrials,
    InflictedFault,
    LifeSpans,
    audit,
    orphans,
    unexplained,
)
from tests.server.faults.kinds import DISK, FaultKind, kinds_for
from tests.server.faults.programs import ENDED_WELL
from tests.server.faults.stage import Stage

LONGEST_CALM_S = 6.0
"""A fault waits until something has happened since the last, but no longer."""
LONGEST_PAUSE_S = 0.5
END_LIMIT_S = 420.0
"""In which all campaigns have to end after the last fault."""
QUIET_LIMIT_S = LEASE_S + 30.0
"""In which jobs and processes have to be gone after the end: the allocation of a runner that was
stopped, before it stood idle for long enough to be given back, lasts until its lease ends."""
LOOK_S = 0.4
AWAY = {503, 507}
"""Answers of a service whose database is away, or whose disk is full."""


@dataclass(kw_only=True)
class EnduranceReport:
    """What was done, and what was wrong of what came of it."""

    seed: int
    database: str
    absent: list[str]
    faults: Counter[str] = field(default_factory=Counter)
    campaigns: Counter[tuple[str, str]] = field(default_factory=Counter)
    trials: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)


class Endurance:
    """Keeps one campaign of each backend going while faults come, then lets all end.

    Args:
        real: so many campaigns of trials that are processes are asked for at most.
        tell: gets a line of progress now and then.
    """

    def __init__(
        self, stage: Stage, *, faults: int, tell: Callable[[str], None], real: float = math.inf
    ) -> None:
        self._stage = stage
        self._faults = faults
        self._real = real
        self._tell = tell
        self._chance = random.Random(stage.seed)
        self._open: dict[int, Campaign] = {}
        self._ended: dict[int, Campaign] = {}
        self._requested: dict[str, tuple[str, float]] = {}
        self._finished = FinishedTrials()
        self._spans = LifeSpans()
        self._inflicted: list[InflictedFault] = []
        self._failed: set[str] = set()
        self._began = time.monotonic()
        self._seen = -1
        self._report = EnduranceReport(
            seed=stage.seed, database=stage.database, absent=stage.absent
        )

    def run(self) -> EnduranceReport:
        """Return when all has ended and been looked at."""
        self._began = time.monotonic()
        all_kinds = kinds_for(self._stage)
        for number in range(1, self._faults + 1):
            self._calm()
            harmed = {"", *(str(each.request.evaluator) for each in self._open.values())}
            kinds = [kind for kind in all_kinds if kind.backend in harmed]
            kind = self._chance.choices(kinds, [kind.weight for kind in kinds])[0]
            self._inflict(kind, number)
        self._stage.clock.step(0)
        self._let_end()
        self._look_at_the_end(self._elapsed_s())
        return self._report

    def _elapsed_s(self) -> float:
        return time.monotonic() - self._began

    def _inflict(self, kind: FaultKind, number: int) -> None:
        time.sleep(self._chance.uniform(0.0, LONGEST_PAUSE_S))
        self._report.faults[kind.name] += 1
        began_s = self._elapsed_s()
        self._wrong(kind.inflict(self._stage, self._chance) or ())
        self._inflicted.append(
            InflictedFault(name=kind.name, began_s=began_s, ended_s=self._elapsed_s())
        )
        if number % 10 == 0 or number == self._faults:
            self._tell(
                f"{number} faults, {len(self._ended)} campaigns ended, {len(self._open)} open, "
                f"{len(self._finished.seen)} trials, {len(self._report.violations)} violations"
            )

    def _calm(self) -> None:
        """Wait for something to happen; ask for campaigns meanwhile."""
        before, ends = self._stage.last_event(), time.monotonic() + LONGEST_CALM_S
        while True:
            self._stage.keep_up()
            self._look()
            self._ask()
            if self._seen > before or time.monotonic() > ends:
                return
            time.sleep(LOOK_S)

    def _wrong(self, sentences: Iterable[str]) -> None:
        for sentence in sentences:
            if sentence not in self._report.violations:
                self._tell(f"VIOLATION: {sentence}")
                self._report.violations.append(sentence)

    def _ask(self) -> None:
        """Ask for a campaign of each backend that has none."""
        going = {str(campaign.request.evaluator) for campaign in self._open.values()}
        for name in sorted(set(self._stage.asks) - going):
            if name != "simulated" and self._real <= 0:
                continue
            # A question that was not answered is asked again by its key: it is to count once.
            attempt = f"{name}-{self._chance.getrandbits(64):x}", self._elapsed_s()
            key, requested_s = self._requested.setdefault(name, attempt)
            question = self._stage.asks[name](random.Random(key))
            answer = self._stage.post("/campaigns", question, key=key)
            if answer is not None and answer.status_code in {200, 201}:
                campaign = Campaign.model_validate(answer.json())
                self._open[campaign.id] = campaign
                self._spans.looked_s[campaign.id] = requested_s
                self._real -= name != "simulated"
                del self._requested[name]
            elif answer is not None and answer.status_code not in AWAY:
                found = f"a question for {name} was answered {answer.status_code}"
                self._wrong([f"{found}: {answer.text[:300]}"])

    def _look(self) -> None:
        """See how open campaigns stand, if anything has happened; one that a full disk paused goes
        on."""
        last = self._stage.last_event()
        if last == self._seen:
            return
        self._seen = last
        for number in list(self._open):
            began_s = self._elapsed_s()
            campaign, trials = self._stage.campaign(number), self._stage.trials(number)
            self._spans.look(number, trials, began_s=began_s, ended_s=self._elapsed_s())
            self._wrong(self._finished.look(trials))
            self._note_failures(trials)
            if campaign.state == "paused" and campaign.reason == DISK_FULL:
                self._stage.post(f"/campaigns/{number}/resume")
                self._seen = -1  # it may not have been heard
            elif campaign.state in AT_REST and not campaign.pending:
                self._ended[number] = campaign
                del self._open[number]

    def _let_end(self) -> None:
        ends = time.monotonic() + END_LIMIT_S
        while self._open and time.monotonic() < ends:
            self._stage.keep_up()
            self._look()
            time.sleep(LOOK_S)
        self._ended |= self._open

    def _look_at_the_end(self, elapsed_s: float) -> None:
        report, stage = self._report, self._stage
        for program in [*stage.runners, stage.service]:
            if program.lives and (code := program.stop()) not in ENDED_WELL:
                self._wrong([f"{' '.join(program.words)} ended with {code}"])
        ends = time.monotonic() + QUIET_LIMIT_S
        while (left := list(orphans(stage))) and time.monotonic() < ends:
            time.sleep(LOOK_S)
        self._wrong(left)
        campaigns = [stage.campaign(number) for number in self._numbers()]
        wrong, report.trials = audit(
            stage, campaigns, elapsed_s=elapsed_s, disk_was_full=bool(report.faults[DISK])
        )
        self._wrong(wrong)
        for campaign in campaigns:
            report.campaigns[str(campaign.request.evaluator), str(campaign.state)] += 1
            self._note_failures(stage.trials(campaign.id))

    def _note_failures(self, trials: Sequence[Trial]) -> None:
        for trial in trials:
            if trial.token in self._failed:
                continue
            if found := unexplained(trial, self._spans.faults_in(trial, self._inflicted)):
                self._failed.add(trial.token)
                self._wrong([found])

    def _numbers(self) -> list[int]:
        """Return all campaigns that the database knows; each was asked for once."""
        found = self._stage.campaign_ids()
        answered = len(self._ended)
        unanswered = len(self._requested)
        if not answered <= len(found) <= answered + unanswered:
            self._wrong([f"{answered} campaigns were asked for, {len(found)} exist"])
        return found
