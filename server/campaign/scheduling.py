"""What a campaign starts next, when a phase ends, and when it pauses.

Everything follows from the campaign's rows and the current time.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import takewhile
from statistics import fmean

from autotune.calibration import COVERAGE
from autotune.errors import NothingToPropose
from autotune.measurement.metrics import SECONDS_PER_HOUR
from autotune.recommendation.projected import nodes_at_hand
from autotune.recommendation.recommendation import (
    layout_to_repeat,
    repeats_best,
    strategies_to_confirm,
)
from autotune.schemas.campaigns import Campaign, FewNodes
from autotune.schemas.choices import TrialState
from autotune.schemas.requests import Budget
from autotune.schemas.trials import Trial
from autotune.schemas.wire import TrialPurpose
from autotune.search import (
    Projections,
    Proposal,
    Proposer,
    reason_to_be_content,
    reason_to_stop,
    search_trials,
)
from autotune.search.trial import SearchTrial, may_be_tried_again
from autotune.words.failures import cause_of, failure_sentence
from search_spaces.strategy import Strategy
from server.campaign.results import NewTrial
from server.campaign.worth import may_stop_early, reason_to_spare_trial, worth_confirming

WAITS = "waits for "
"""Beginning of each reason to wait."""
OWN_FAULTS = frozenset({TrialState.CRASHED, TrialState.TIMEOUT})
"""Failures that a strategy may have caused. A series of them is a coincidence once another trial
has trained."""
TRAINED = frozenset({TrialState.OK, TrialState.OOM})
FAILURES_TO_PAUSE = {TrialState.CRASHED: 3, TrialState.REFUSED: 3}
OTHER_FAILURES_TO_PAUSE = 5


def free_nodes(campaign: Campaign, pending: Sequence[Trial]) -> int:
    return nodes_at_hand(campaign) - sum(int(trial.strategy.num_nodes) for trial in pending)


class NodeHours:
    """Node-hours of a campaign: spent, and expected of trials that run, wait, or are about to
    start.

    A trial is expected to take as long as the ended ones on average, or its time limit before any
    has ended. Queueing costs nothing.
    """

    def __init__(self, campaign: Campaign, trials: Sequence[Trial]) -> None:
        durations = [trial.duration_s for trial in trials if trial.duration_s]
        limit_s = campaign.request.protocol.time_limit_s
        self._expected_s = fmean(durations) if durations else limit_s
        pending = (t.strategy.num_nodes for t in trials if t.state is TrialState.PENDING)
        spent = sum(trial.node_hours or 0.0 for trial in trials)
        self.committed = spent + self.expected(sum(pending))

    def expected(self, nodes: int) -> float:
        return nodes * self._expected_s / SECONDS_PER_HOUR


def reason_to_end_search(
    campaign: Campaign, trials: Sequence[Trial], *, now: datetime
) -> str | None:
    """Return why no further search trial may start; None if one may.

    A cancelled trial counts for its node-hours only: someone else ended it, and another takes its
    place. So does a refused one, which ran nowhere. The node-hours of the confirmations are
    reserved, each at the cost of an average trial on the most nodes.
    """
    node_hours = NodeHours(campaign, trials)
    confirmations = campaign.request.protocol.confirmations
    confirmations += repeats_best(campaign)
    reserved_nodes = min(campaign.request.nodes, nodes_at_hand(campaign))
    reserve = node_hours.expected(reserved_nodes * confirmations)
    uncounted = {TrialState.CANCELLED, TrialState.REFUSED}
    counted = [trial for trial in trials if trial.state not in uncounted]
    searched = sum(trial.purpose not in {"confirmation", "knob"} for trial in counted)
    has_ended = any(trial.duration_s for trial in trials)
    return reason_to_stop(
        campaign.request.budget,
        trials=searched,
        node_hours=node_hours.committed + (reserve if has_ended else 0.0),
        now=now,
    )


def reason_to_end_confirmations(
    campaign: Campaign, trials: Sequence[Trial], *, now: datetime
) -> str | None:
    """Return why no further confirmation or start of a knob may begin: node-hours and the deadline
    limit these, the number of trials does not."""
    node_hours = NodeHours(campaign, trials).committed
    return reason_to_stop(campaign.request.budget, trials=0, node_hours=node_hours, now=now)


def is_late(campaign: Campaign, *, now: datetime) -> bool:
    only_deadline = Budget(deadline=campaign.request.budget.deadline)
    return reason_to_stop(only_deadline, trials=0, node_hours=0.0, now=now) is not None


@dataclass(frozen=True, kw_only=True)
class NextTrials:
    """What to start now, if anything, or why this phase ends once nothing runs.

    Attributes:
        proposals: search trials.
        strategies: trials with another purpose.
        screening: the campaign's screening, if it was updated.
    """

    proposals: tuple[Proposal, ...] = ()
    strategies: tuple[Strategy, ...] = ()
    screening: FewNodes | None = None
    purpose: TrialPurpose = "search"
    phase_ends: str | None = None


def has_started(trials: Sequence[Trial]) -> bool:
    return any(map(_started, trials))


def _started(trial: Trial) -> bool:
    return trial.state not in {TrialState.PENDING, TrialState.REFUSED} and not trial.withdrawn


def without_early_refusals(trials: Sequence[Trial]) -> list[Trial]:
    """Return the trials without those that were refused before the first one that started.

    Such a refusal was not about the layout. While nothing has started, all are returned, so that
    other layouts are tried before the same ones.
    """
    first = min((trial.number for trial in trials if _started(trial)), default=0)
    return [t for t in trials if t.state is not TrialState.REFUSED or t.number > first]


def wants_baseline(trials: Sequence[Trial]) -> bool:
    """Return whether the baseline is still to be measured; nothing else has started before it.

    If its trial ended in a way that says nothing about the layout (its nodes were lost, it was
    withdrawn from a queue, or refused when every trial was), it is measured again, up to ATTEMPTS
    times in total.
    """
    own = [t for t in without_early_refusals(trials) if t.purpose == "baseline"]
    if not own:
        return not trials or any(trial.purpose == "baseline" for trial in trials)
    return may_be_tried_again(own)


def next_search(
    campaign: Campaign, trials: Sequence[Trial], proposer: Proposer, *, now: datetime
) -> NextTrials:
    """Return a search trial for the free nodes, if the budget allows one.

    One at a time: it and trials of other campaigns start while the next one is computed.
    """
    end = reason_to_end_search(campaign, trials, now=now)
    if end is not None:
        return NextTrials(phase_ends=end)
    pending = [trial for trial in trials if trial.state is TrialState.PENDING]
    free = free_nodes(campaign, pending)
    known = search_trials(without_early_refusals(trials))
    if (content := _content(campaign, known, proposer)) is not None:
        return NextTrials(phase_ends=content)
    try:
        proposed = proposer.propose(known, count=1, free_nodes=free)
    except NothingToPropose as error:
        refused = [trial for trial in known if trial.state == "refused"]
        if pending or has_started(trials) or not refused:
            return NextTrials(phase_ends=_exhausted(error, trials, refused=len(refused)))
        proposed = proposer.propose([], count=1, free_nodes=free)  # they were not about layouts
    if not proposed and not pending:
        return NextTrials(phase_ends=f"no remaining layout fits in {free} nodes")
    for proposal in proposed:
        spared = reason_to_spare_trial(campaign, trials, proposal, belief=proposer.belief)
        if spared is not None:
            return NextTrials(phase_ends=spared)
    return NextTrials(
        proposals=tuple(proposed), screening=_borne_out(campaign, proposer.projections(known))
    )


def _content(campaign: Campaign, known: Sequence[SearchTrial], proposer: Proposer) -> str | None:
    if not may_stop_early(campaign) or campaign.request.budget.train_tokens is not None:
        return None
    return reason_to_be_content(proposer.outlook(known), objective=campaign.request.objective)


def _exhausted(error: NothingToPropose, trials: Sequence[Trial], *, refused: int) -> str:
    if not refused:
        return str(error)
    errors = [trial.error for trial in trials if trial.state is TrialState.REFUSED]
    return f"{error}; {refused} of them refused: {errors[-1]}"


def _borne_out(campaign: Campaign, projections: Projections) -> FewNodes | None:
    if campaign.screening is None or not projections.count:
        return None
    took = f"{abs(projections.ratio - 1):.1%} {'more' if projections.ratio > 1 else 'less'}"
    outcome = f"Measured in full, a layout took {took} time than was projected"
    if projections.contradicted:
        outcome += f", outside of the {COVERAGE:.0%} interval: the search went on in full"
    return campaign.screening.model_copy(update={"outcome": f"{outcome}."})


def next_confirmations(
    campaign: Campaign, trials: Sequence[Trial], proposer: Proposer, *, now: datetime
) -> NextTrials:
    """Return the best layouts that are not yet confirmed, as far as nodes are free, and the
    runners-up that are worth confirming; after all, the best one once more."""
    end = reason_to_end_confirmations(campaign, trials, now=now)
    wanted = (
        [] if end is not None else strategies_to_confirm(campaign, trials, belief=proposer.belief)
    )
    if campaign.request.budget.stop_early:
        known = search_trials(trials)
        wanted = worth_confirming(campaign, trials, proposer, wanted, known=known)
    confirming = any(t.state is TrialState.PENDING for t in trials)
    if not wanted and end is None and not confirming:
        again = layout_to_repeat(campaign, trials, belief=proposer.belief)
        wanted = [] if again is None else [again]
    beyond = [strategy for strategy in wanted if strategy.num_nodes > nodes_at_hand(campaign)]
    wanted = [strategy for strategy in wanted if strategy not in beyond]
    if not wanted:
        return NextTrials(phase_ends=_unconfirmed(campaign, beyond))
    free = free_nodes(campaign, [t for t in trials if t.state is TrialState.PENDING])
    fitting: list[Strategy] = []
    for strategy in wanted:
        if strategy.num_nodes <= free:
            fitting.append(strategy)
            free -= strategy.num_nodes
    return NextTrials(strategies=tuple(fitting), purpose="confirmation")


def _unconfirmed(campaign: Campaign, beyond: Sequence[Strategy]) -> str:
    if not beyond:
        return while_confirming(campaign.reason, "")
    nodes = min(strategy.num_nodes for strategy in beyond)
    unmeasured = (
        f"the best cannot be measured in full: it takes {nodes} nodes, and all trials share "
        f"{nodes_at_hand(campaign)}"
    )
    ended = while_confirming(campaign.reason, "")
    return f"{ended.rstrip('.')}; {unmeasured}" if ended else unmeasured


def while_confirming(reason: str, wait: str) -> str:
    """Return the reason of a confirming campaign: why its search ended and, unless `wait` is empty,
    what it `waits for` now, replacing any previous wait."""
    ended = "" if reason.startswith(WAITS) else reason.partition(f" It {WAITS}")[0]
    if not (ended and wait):
        return ended or wait
    return f"{ended.rstrip('.')}. It {wait}"


def new_trials(
    following: NextTrials, trials: Sequence[Trial], proposer: Proposer
) -> list[NewTrial]:
    """Return the trials to start, each with its prediction after the campaign's trials."""
    expected = proposer.expect(
        following.strategies,
        search_trials(trials),
        at_own_accumulation=following.purpose in {"confirmation", "knob"},
    )
    return [
        NewTrial(
            strategy=proposal.run,
            stands_for_nodes=proposal.running.stands_for,
            num_layers=proposal.running.num_layers,
            purpose=following.purpose,
            predicted_iteration_time_s=proposal.iteration_time_s,
            predicted_memory_gib=proposal.memory_gib,
            expected=proposal.expected,
        )
        for proposal in (*following.proposals, *expected)
    ]


def same_failure(
    trials: Sequence[Trial], *, fresh: Collection[int], withdrawn: Collection[str] = ()
) -> str | None:
    """Return why to pause if the last trials failed with the same error; else None.

    This protects the budget from systematic failures. Crashes and timeouts count only while no
    trial has trained; other failures always. Refusals need not follow each other: they are counted
    since the last trial that was not refused. The campaign pauses once per FAILURES_TO_PAUSE, so
    that a resumed campaign does not pause at its next trial.

    Args:
        fresh: numbers of the trials that have ended since the last call.
        withdrawn: tokens of trials that the campaign itself cancelled.
    """
    never = datetime.min.replace(tzinfo=UTC)
    ended = [t for t in trials if t.state is not TrialState.PENDING and t.token not in withdrawn]
    ended.sort(key=lambda t: (t.finished_at or never, t.number), reverse=True)
    if not ended or (state := ended[0].state) in TRAINED:
        return None
    if state is not TrialState.CANCELLED:
        ended = [trial for trial in ended if trial.state is not TrialState.CANCELLED]
    cause = _cause(ended[0])
    if state is TrialState.REFUSED:
        refused = takewhile(lambda t: t.state is TrialState.REFUSED, ended)
        alike = [trial for trial in refused if _cause(trial) == cause]
    else:
        alike = list(takewhile(lambda t: (t.state, _cause(t)) == (state, cause), ended))
    times = FAILURES_TO_PAUSE.get(state, OTHER_FAILURES_TO_PAUSE)
    count, before = len(alike), sum(trial.number not in fresh for trial in alike)
    if count // times == before // times:
        return None
    if state in OWN_FAULTS and any(trial.state in TRAINED for trial in ended):
        return None
    which = f"all {count} trials" if count == len(ended) else f"the last {count} trials"
    return failure_sentence(which, ended[0])


def _cause(trial: Trial) -> str:
    return cause_of(trial.error or "")
