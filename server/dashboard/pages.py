"""The data that each page and fragment shows, read from the store."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from sqlalchemy.orm import Session

from autotune.answers.campaign import not_started, nothing_ran
from autotune.recommendation.baseline import baseline_result
from autotune.schemas.campaigns import Campaign
from autotune.schemas.choices import CampaignState, TrialState
from autotune.schemas.explanations import Explanation
from autotune.schemas.recommendations import Recommendation
from autotune.words.dimensions import capitalised
from autotune.words.failures import commands_to_try_again, common_failure
from autotune.words.quantities import age, count, duration, listed, plural
from server.api.trials import log_file, tail
from server.dashboard.bundle import bundle_name
from server.dashboard.trial_table import (
    NEWEST_FIRST,
    NEWEST_ROWS,
    NO_FAILURE,
    TableQuestion,
    TrialColumns,
    folds,
)
from server.figures.source import FigureSource
from server.settings import Settings
from server.store.campaigns import get_campaign
from server.store.trials import get_trial, list_trials, reasons_to_wait

MINUTE_S = 60

LOG_LINES = 15
"""Last lines of the log of a failed trial."""

MOST_PENDING = 6
"""Maximum pending trials listed while a campaign runs."""

TABS = {
    "answer": "Answer",
    "why": "Why",
    "space": "Space",
    "trials": "Trials",
    "launch": "Launch",
}
"""Parts of a campaign's page, by fragment of their address."""

ACTIONS: dict[CampaignState, tuple[str, ...]] = {
    CampaignState.QUEUED: ("pause", "extend", "cancel"),
    CampaignState.RUNNING: ("pause", "extend", "cancel"),
    CampaignState.CONFIRMING: ("pause", "extend", "cancel"),
    CampaignState.PAUSED: ("resume", "extend", "cancel", "delete"),
    CampaignState.DONE: ("extend", "delete"),
    CampaignState.FAILED: ("resume", "cancel", "delete"),
    CampaignState.CANCELLED: ("delete",),
    CampaignState.IMPORTED: ("delete",),
}
ACTION_LABELS = {"extend": "Extend budget"}
Context = dict[str, Any]


def progress_context(session: Session, source: FigureSource, *, logged: int | None) -> Context:
    """Return the header, with the buttons for the state, and the running and waiting trials.

    Args:
        logged: the trial whose log is shown.
    """
    campaign = source.campaign
    maximum = max(campaign.request.budget.max_trials, campaign.trials)
    done = campaign.state is CampaignState.DONE
    labels = [(a, ACTION_LABELS.get(a, a.capitalize())) for a in ACTIONS[campaign.state]]
    return {
        "campaign": campaign,
        "actions": labels,
        "progress_text": progress_text(campaign),
        "budget_trials": maximum,
        "searched": maximum if done else searched(campaign),
        "running": running(campaign),
        "not_started": why_not_started(session, campaign),
        "elapsed_s": elapsed_s(campaign),
        "pending": source.pending[:MOST_PENDING],
        "more_pending": len(source.pending[MOST_PENDING:]),
        "logged": logged,
    }


def logged_trial(source: FigureSource, settings: Settings) -> int | None:
    running = [trial for trial in source.pending[:1] if trial.phase == "running"]
    return next((t.number for t in running if log_file(t, settings) is not None), None)


def elapsed_s(campaign: Campaign) -> float:
    """Return the duration of a campaign. For a running one it is rounded down, to ten seconds at
    first and later to minutes, so that all viewers share one cached page."""
    start = campaign.started_at or campaign.created_at
    passed = ((campaign.finished_at or datetime.now(UTC)) - start).total_seconds()
    step = MINUTE_S if passed >= MINUTE_S else MINUTE_S / 6
    return passed if campaign.finished_at else passed // step * step


def times_shown(campaign: Campaign) -> tuple[str, str] | None:
    if campaign.finished_at and campaign.best_objective is not None:
        return None
    return duration(elapsed_s(campaign)), age(campaign.started_at or campaign.created_at)


def searched(campaign: Campaign) -> int:
    """Return the number of search trials that have finished.

    During confirmation, only confirmations and starts of knobs are pending.
    """
    confirming = campaign.state is CampaignState.CONFIRMING
    return campaign.trials - (0 if confirming else campaign.pending)


def running(campaign: Campaign) -> int:
    return campaign.pending - campaign.waiting


def why_not_started(session: Session, campaign: Campaign) -> str:
    if not campaign.waiting:
        return ""
    return not_started(reasons_to_wait(session, campaign.id))


def progress_text(campaign: Campaign) -> str:
    """Return the campaign's progress as a sentence."""
    trials, pending = plural(campaign.trials, "trial"), f"{count(running(campaign))} running"
    pending += f", {count(campaign.waiting)} waiting for nodes" if campaign.waiting else ""
    so_far = f"{count(searched(campaign))} of {count(campaign.request.budget.max_trials)} trials"
    confirmed = campaign.confirmations - campaign.pending
    again = f"measuring the best once more: {count(confirmed)} finished"
    starts = plural(campaign.knob_starts, "start")
    after = [plural(campaign.confirmations, "confirmation")] if campaign.confirmations else []
    after += [f"{starts} of knobs"] if campaign.knob_starts else []
    return {
        CampaignState.QUEUED: "Waiting for a runner to take it up",
        CampaignState.RUNNING: f"{so_far} finished, {pending}",
        CampaignState.CONFIRMING: f"{trials} searched; "
        + (f"trying knobs on the best: {starts} so far" if campaign.knob_starts else again)
        + f", {pending}",
        CampaignState.PAUSED: f"Paused after {so_far}",
        CampaignState.DONE: f"{'Ended' if nothing_ran(campaign) else 'Done'}: "
        + listed([trials, *after]),
        CampaignState.CANCELLED: f"Cancelled after {so_far}",
        CampaignState.FAILED: f"Failed after {so_far}",
        CampaignState.IMPORTED: f"Imported: {plural(campaign.trials, 'run')}",
    }[campaign.state]


def campaign_context(
    session: Session,
    source: FigureSource,
    event: int,
    *,
    recommendation: Recommendation | None,
    explanation: Explanation | None,
    trajectory: str,
    logged: int | None,
    settings: Settings,
) -> Context:
    """Return the whole page of one campaign as of an event.

    Changes made while the page is rendered are sent again, because its event stream resumes after
    that event. Without an explanation the page requests one. `trajectory` is that figure's
    sentence.
    """
    shown = ("answer", "trials") if source.campaign.is_imported else TABS
    return (
        progress_context(session, source, logged=logged)
        | recommendation_context(source, recommendation)
        | failure_context(source, explanation, settings)
        | {
            "here": "campaign",
            "last_event": event,
            "bundle": bundle_name(),
            "trajectory": trajectory,
            "tabs": [(name, label) for name, label in TABS.items() if name in shown],
            "measured": bool(source.measured) and not source.campaign.is_imported,
            "states": [state.value for state in TrialState],
        }
        | rows_context(session, source)
    )


def failure_context(
    source: FigureSource, explanation: Explanation | None, settings: Settings
) -> Context:
    """Return the cause of a campaign's failures, unless its reason already gives it, the end of a
    log, and the commands to try again; `failure` is None if a trial succeeded."""
    found = explanation.failures if explanation else None
    if found is None:
        return {"campaign": source.campaign, "explanation": explanation, "failure": None}
    common = "" if found.need_low_gib is not None else common_failure(source.trials)
    cause = "" if common and common == source.campaign.reason else capitalised(common)
    failed = (trial for trial in reversed(source.trials) if trial.state not in NO_FAILURE)
    logged = next((trial for trial in failed if log_file(trial, settings) is not None), None)
    return {
        "campaign": source.campaign,
        "explanation": explanation,
        "failure": {
            "cause": cause if common else found.sentence,
            "trial": logged.number if logged else None,
            "log": tail(logged, settings, lines=LOG_LINES) if logged else "",
            "commands": commands_to_try_again(source.campaign),
        },
    }


def rows_context(
    session: Session, source: FigureSource, query: TableQuestion = NEWEST_ROWS
) -> Context:
    """Return the first rows of the trial table, filtered and sorted.

    Equal failures are folded into one row per cause, unless a state or numbers are selected.

    Raises:
        NotFound: there is no such campaign.
        InvalidInput: trials cannot be sorted this way.
    """
    state, purpose, shown = query.state, query.purpose, query.shown
    numbers = query.numbers or {trial.number for trial in source.trials}
    chosen = [t for t in source.trials if t.number in numbers and purpose in (None, t.purpose)]
    folded = folds(chosen) if state is None and not query.numbers else []
    without = {trial.number for fold in folded for trial in fold.trials}
    without |= {trial.number for trial in source.trials if trial.number not in numbers}
    if state is None and query.sort == NEWEST_FIRST:  # already read
        newest = [trial for trial in reversed(chosen) if trial.number not in without]
        page, more = newest[:shown], len(newest) > shown
    else:
        found = list_trials(
            session, source.campaign.id, state, purpose, query.sort, None, shown, without=without
        )
        page, more = found.items, found.next is not None
    opened = {t.number for fold in folded if fold.key in query.unfolded for t in fold.trials}
    among = opened | {trial.number for trial in page}
    apart = [t for t in source.trials if t.number == query.also and t.number not in among]
    return {
        "campaign": source.campaign,
        "columns": TrialColumns.of(source.trials),
        "trials": [*apart, *page],
        "folds": folded,
        "unfolded": query.unfolded,
        "more": more,
        "filtered": any((state, purpose, query.numbers)),
    }


def recommendation_context(source: FigureSource, recommendation: Recommendation | None) -> Context:
    """Return the recommendation of a campaign; None if it has none yet."""
    if recommendation is None:
        baseline, _ = baseline_result(source.campaign, source.trials)
    else:
        baseline = recommendation.baseline
    return {
        "campaign": source.campaign,
        "recommendation": recommendation,
        "baseline": baseline,
    }


def trial_context(session: Session, campaign_id: int, number: int, settings: Settings) -> Context:
    """Return the details of one trial; raises NotFound."""
    campaign = get_campaign(session, campaign_id)
    trial = get_trial(session, campaign_id, number)
    return {
        "trial": trial,
        "machine": campaign.machine,
        "has_log": log_file(trial, settings) is not None,
    }
