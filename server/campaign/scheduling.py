"""What a campaign starts next, when a phase of it ends, and when it pauses.

It follows from the campaign's rows and the time.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import takewhile
from statistics import fmean

from autotune.calibration import COVERAGE
from autotune.errors import NothingToPropose
from autotune.measurement import (
    SECONDS_PER_HOUR,
)
from autotune.recommendation import nodes_at_hand, strategies_to_confirm
from autotune.resolution import strategy_shape
from autotune.schemas import (
    AT_OWN_ACCUMULATION,
    Budget,
    Campaign,
    Expectation,
    FewNodes,
    Trial,
    TrialPurpose,
    TrialState,
)
from autotune.search import (
    Projections,
    Proposal,
    Proposer,
    reason_to_be_content,
    reason_to_stop,
    search_trials,
)
from autotune.search.trial import may_be_tried_again
from search_spaces.strategy import Strategy
from server.campaign.trials import NewTrial
from server.campaign.waiting import while_confirming
from server.campaign.worth import may_stop_early, reason_to_spare_trial, worth_confirming

FAILURE_WORDS = {
    TrialState.CRASHED: "crashed",
    TrialState.TIMEOUT: "ran out of time",
    TrialState.REFUSED: "were refused",
    TrialState.NODE_FAIL: "lost their nodes",
    TrialState.PREEMPTED: "were preempted",
    TrialState.LOST: "were lost",
    TrialState.CANCELLED: "were cancelled from outside",
}
OWN_FAULTS = frozenset({TrialState.CRASHED, TrialState.TIMEOUT})
"""What a strategy may have brought about: alike by chance, once others have gone otherwise."""


def free_nodes(campaign: Campaign, pending: Sequence[Trial]) -> int:
    """Return how many nodes of the campaign's pool no trial holds or waits for."""
    return nodes_at_hand(campaign) - sum(int(trial.strategy.num_nodes) for trial in pending)


class NodeHours:
    """Node-hours of a campaign: spent, and expected of what runs, waits, or is about to start.

    A trial is expected to hold its nodes as long as the ended ones did on average; before any has
    ended, until its time limit. Waiting in a queue costs nothing.
    """

    def __init__(self, campaign: Campaign, trials: Sequence[Trial]) -> None:
        durations = [trial.duration_s for trial in trials if trial.duration_s]
        limit_s = campaign.request.protocol.time_limit_s
        self._expected_s = fmean(durations) if durations else limit_s
        pending = (t.strategy.num_nodes for t in trials if t.state is TrialState.PENDING)
        spent = sum(trial.node_hours or 0.0 for trial in trials)
        self.committed = spent + self.expected(sum(pending))

    def expected(self, nodes: int) -> float:
        """Return the node-hours of one trial on this many nodes."""
        return nodes * self._expected_s / SECONDS_PER_HOUR


def reason_to_end_search(
    campaign: Campaign, trials: Sequence[Trial], *, now: datetime
) -> str | None:
    """Return why no further trial of the search may start; None while one may.

    A cancelled trial counts for its node-hours alone: somebody else has ended it, and another one
    takes its place. The confirmations' node-hours are kept back from the budget, each at the cost
    of an average trial on the most nodes.
    """
    node_hours = NodeHours(campaign, trials)
    confirmations = campaign.request.protocol.confirmations
    reserved_nodes = min(campaign.request.nodes, nodes_at_hand(campaign))
    reserve = node_hours.expected(reserved_nodes * confirmations)
    asked = [trial for trial in trials if trial.state is not TrialState.CANCELLED]
    searched = sum(trial.purpose != "confirmation" for trial in asked)
    has_ended = any(trial.duration_s for trial in trials)
    return reason_to_stop(
        campaign.request.budget,
        trials=searched,
        node_hours=node_hours.committed + (reserve if has_ended else 0.0),
        now=now,
    )


def is_late(campaign: Campaign, *, now: datetime) -> bool:
    """Return whether the campaign has a deadline that has passed."""
    only_deadline = Budget(deadline=campaign.request.budget.deadline)
    return reason_to_stop(only_deadline, trials=0, node_hours=0.0, now=now) is not None


@dataclass(frozen=True, kw_only=True)
class NextTrials:
    """What to start now, if anything; or why this phase ends as soon as nothing runs.

    Attributes:
        proposals: of the search.
        strategies: of another purpose.
        screening: the campaign's, where more is known of it.
    """

    proposals: tuple[Proposal, ...] = ()
    strategies: tuple[Strategy, ...] = ()
    screening: FewNodes | None = None
    purpose: TrialPurpose = "search"
    phase_ends: str | None = None


def wants_baseline(trials: Sequence[Trial]) -> bool:
    """Return whether the baseline is still to be measured: nothing else has been started yet.

    Where its trial ended in a way that says nothing of the layout (its nodes were lost, it was
    withdrawn from a queue), it is measured again, up to ATTEMPTS times in all.
    """
    own = [trial for trial in trials if trial.purpose == "baseline"]
    if not own:
        return not trials
    return may_be_tried_again(own)


def next_search(
    campaign: Campaign, trials: Sequence[Trial], proposer: Proposer, *, now: datetime
) -> NextTrials:
    """Return a strategy of the search for the free nodes, if the budget has room for it.

    One at a time: it starts while the next is computed, and so do those of other campaigns.
    """
    end = reason_to_end_search(campaign, trials, now=now)
    if end is not None:
        return NextTrials(phase_ends=end)
    pending = [trial for trial in trials if trial.state is TrialState.PENDING]
    free = free_nodes(campaign, pending)
    known = search_trials(trials)
    if may_stop_early(campaign) and campaign.request.budget.train_tokens is None:
        content = reason_to_be_content(
            proposer.outlook(known), objective=campaign.request.objective
        )
        if content is not None:
            return NextTrials(phase_ends=content)
    try:
        proposed = proposer.propose(known, count=1, free_nodes=free)
    except NothingToPropose as error:
        return NextTrials(phase_ends=str(error))
    if not proposed and not pending:
        return NextTrials(phase_ends=f"no remaining layout fits in {free} nodes")
    for proposal in proposed:
        spared = reason_to_spare_trial(campaign, trials, proposal, belief=proposer.belief)
        if spared is not None:
            return NextTrials(phase_ends=spared)
    return NextTrials(
        proposals=tuple(proposed), screening=_borne_out(campaign, proposer.projections(known))
    )


def _borne_out(campaign: Campaign, projections: Projections) -> FewNodes | None:
    """Return a campaign's screening with what a layout that was measured both ways says of it."""
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
    """Return the best few that are still to be measured once more, as far as nodes are free, and
    of the runners-up those that are worth it.

    Node-hours and the deadline end the confirmations, the number of trials never does.
    """
    node_hours = NodeHours(campaign, trials).committed
    end = reason_to_stop(campaign.request.budget, trials=0, node_hours=node_hours, now=now)
    wanted = (
        [] if end is not None else strategies_to_confirm(campaign, trials, belief=proposer.belief)
    )
    if campaign.request.budget.stop_early:
        known = search_trials(trials)
        wanted = worth_confirming(campaign, trials, proposer, wanted, known=known)
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
    """Return why the confirmations end, with what is left unmeasured for want of nodes."""
    if not beyond:
        return while_confirming(campaign.reason, "")
    nodes = min(strategy.num_nodes for strategy in beyond)
    unmeasured = (
        f"the best cannot be measured in full: it takes {nodes} nodes, and all trials share "
        f"{nodes_at_hand(campaign)}"
    )
    ended = while_confirming(campaign.reason, "")
    return f"{ended.rstrip('.')}; {unmeasured}" if ended else unmeasured


def new_trials(
    following: NextTrials, trials: Sequence[Trial], proposer: Proposer
) -> list[NewTrial]:
    """Return what is to be started, with what is expected of each after the campaign's trials."""
    expected = proposer.expect(
        following.strategies,
        search_trials(trials),
        at_own_accumulation=following.purpose in AT_OWN_ACCUMULATION,
    )
    return [
        NewTrial(
            strategy=strategy_shape(proposal.run),
            stands_for_nodes=proposal.running.stands_for,
            num_layers=proposal.num_layers,
            purpose=following.purpose,
            predicted_iteration_time_s=proposal.iteration_time_s,
            predicted_memory_gib=proposal.memory_gib,
            expected=Expectation(
                objective=proposal.objective,
                iteration_time_low_s=proposal.iteration_time_low_s,
                iteration_time_high_s=proposal.iteration_time_high_s,
                fit_probability=proposal.fit_probability,
                node_hours=proposal.node_hours,
                best_so_far=proposal.best_so_far,
                probability_better=proposal.probability_better,
            ),
        )
        for proposal in (*following.proposals, *expected)
    ]


def same_failure(
    trials: Sequence[Trial], *, fresh: Collection[int], times: int, withdrawn: Collection[str] = ()
) -> str | None:
    """Return why to pause where the last trials, `times` or more, failed in one way; else None.

    A budget is not spent on failures that are all alike. Crashes and time limits count while no
    trial has ended otherwise, the other failures always. The campaign pauses once for each `times`
    trials, so that one that was resumed is not paused at its very next trial.

    Args:
        fresh: numbers of the trials that have ended since this was last asked.
        withdrawn: tokens of the trials that were cancelled for this campaign's own sake.
    """
    never = datetime.min.replace(tzinfo=UTC)
    ended = [t for t in trials if t.state is not TrialState.PENDING and t.token not in withdrawn]
    ended.sort(key=lambda t: (t.finished_at or never, t.number), reverse=True)
    if not ended or (state := ended[0].state) not in FAILURE_WORDS:
        return None
    if state is not TrialState.CANCELLED:
        ended = [trial for trial in ended if trial.state is not TrialState.CANCELLED]
    alike = list(takewhile(lambda t: (t.state, t.error) == (state, ended[0].error), ended))
    count, before = len(alike), sum(trial.number not in fresh for trial in alike)
    if count // times == before // times or (state in OWN_FAULTS and count < len(ended)):
        return None
    which = f"all {count} trials so far" if count == len(ended) else f"the last {count} trials"
    return f"{which} {FAILURE_WORDS[state]} in the same way: {ended[0].error}"
