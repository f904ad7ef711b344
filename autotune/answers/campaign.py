"""A campaign in words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from autotune.answers.recommendation import projected
from autotune.schemas.campaigns import Campaign, StartWorth
from autotune.schemas.comparisons import ComparedCampaign
from autotune.words.quantities import figure, listed, mark, parameters, plural
from search_spaces.transformer import Transformer

REASONS_SHOWN = 3
CAMPAIGNS_SHOWN = 3


def not_started(reasons: Mapping[str, int]) -> str:
    """Return a remark: `2 trials not started yet: waiting for free nodes (Resources)`.

    Args:
        reasons: how many trials wait for each, "" where it is not known.
    """
    trials = f"{plural(sum(reasons.values()), 'trial')} not started yet"
    known = Counter({reason: number for reason, number in reasons.items() if reason})
    if len(known) < 2:
        return ": ".join([trials, *known])
    shown = [f"{number:,} × {reason}" for reason, number in known.most_common(REASONS_SHOWN)]
    others = len(known) - len(shown)
    return f"{trials}: " + ", ".join(shown + ([plural(others, "other reason")] if others else []))


def nothing_ran(campaign: Campaign) -> bool:
    return 0 < campaign.trials_in_all - campaign.pending <= campaign.failures


def reason_in_brief(campaign: Campaign) -> str:
    """Return why a campaign waits or ended, without details; empty if unknown."""
    waits, reason = (
        text.partition(": ")[0].rstrip(".") for text in (campaign.waits_for, campaign.reason)
    )
    if waits and waits != reason:
        return f"waiting: {waits}"
    return reason.removeprefix(f"{campaign.state} ")


def started_from(campaign: Campaign) -> str:
    """Return which earlier trials a search started from, and how much they improved predictions;
    empty before it starts, and if unknown."""
    starts = campaign.started_from
    if starts is None:
        return ""
    if not starts:
        fresh = campaign.request.fresh
        return "scratch, as requested" if fresh else "scratch: no earlier trials match"
    named = [f"{start.campaign_id}{' (deleted)' if start.deleted else ''}" for start in starts]
    if len(named) > CAMPAIGNS_SHOWN + 1:
        others = plural(len(named) - CAMPAIGNS_SHOWN, "other")
        named = [*named[:CAMPAIGNS_SHOWN], others]
    trials = plural(sum(start.trials for start in starts), "trial")
    noun = "campaign" if len(starts) == 1 else "campaigns"
    return "; ".join([f"{trials} of {noun} {listed(named)}", *_start_worth(campaign.start_worth)])


def surrogate_start(campaign: Campaign) -> str:
    """Return since when DeepHyper's surrogate chooses the trials; empty for another search and
    before the first trial."""
    if campaign.request.search != "deephyper" or not campaign.trials:
        return ""
    if campaign.surrogate_from is None:
        return "has not chosen a trial yet: all are initial points"
    return f"chose from trial {campaign.surrogate_from} on, after its initial points"


def searched_by(compared: ComparedCampaign) -> str:
    """Return the search of a campaign, with the surrogate if there is a choice."""
    if not compared.surrogate:
        return compared.search
    return f"{compared.search} ({compared.surrogate})"


def _start_worth(worth: StartWorth | None) -> list[str]:
    if worth is None:
        return []
    if worth.error_with > worth.error_without:
        return ["they did not help"]
    without, given = (
        f"{100 * error:.{0 if error >= 0.1 else 1}f} %"
        for error in (worth.error_without, worth.error_with)
    )
    return [f"they reduced the prediction error from {without} to {given}"]


def fastest_single(campaign: Campaign) -> str:
    """Return which single trial was faster than the recommendation; empty if none was."""
    fastest, best = campaign.fastest_objective, campaign.best_objective
    if fastest is None or best is None or figure(fastest) == figure(best):
        return ""
    return f"; fastest single trial: {figure(fastest)} (trial {campaign.fastest_trial})"


def origin(campaign: Campaign) -> str:
    """Return where a campaign's figures are from: `measured`, `simulated` or `imported`."""
    return "imported" if campaign.is_imported else mark(campaign.simulated)


def best_origin(campaign: Campaign) -> str:
    if not campaign.best_projected_from_nodes:
        return origin(campaign)
    return f"projected, {mark(campaign.simulated)}"


def best_projected_from(campaign: Campaign) -> str:
    return projected(campaign.best_projected_from_nodes, campaign.best_projected_from_layers)


def model_size(model: Transformer) -> str:
    """Return `70.6B parameters`, or `671B parameters, 37.6B active` for a mixture of experts."""
    whole = f"{parameters(model.parameters)} parameters"
    if model.experts is None:
        return whole
    return f"{whole}, {parameters(model.active_parameters)} active"
