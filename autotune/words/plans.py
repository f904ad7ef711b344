"""Sentences about a campaign before it runs."""

from __future__ import annotations

from autotune.measurement.objectives import BETTER
from autotune.schemas.plans import CampaignPlan
from autotune.schemas.predictions import LIKELY_TO_FIT
from autotune.words.dimensions import capitalised
from autotune.words.quantities import token_count
from search_spaces.rules import experts_across_network

HARDLY = 0.005
"""Gain that is not worth a word."""

LEVEL = 0.05
"""Difference from the baseline within which a strategy counts as equally good."""


def plan_sentence(plan: CampaignPlan) -> str:
    """Return a plan in a few sentences: counts, the best prediction, and the expected gain of a
    campaign."""
    if plan.obstacle:
        named = plan.obstacle.startswith(plan.model.name)
        obstacle = plan.obstacle if named else capitalised(plan.obstacle)
        remedy = [f" {capitalised(plan.remedies[0].sentence)}"] if plan.remedies else []
        return "".join([f"{obstacle}.", *remedy])
    best = plan.best[0]
    strategy = best.strategy
    across = experts_across_network(strategy, plan.model, plan.machine)
    more = ""
    if plan.over_baseline is not None and plan.baseline is not None:
        if plan.baseline.fit_probability < LIKELY_TO_FIT:
            more = f"; {plan.baseline_name} probably runs out of memory"
        elif abs(plan.over_baseline - 1.0) < LEVEL:
            more = f", about as good as {plan.baseline_name}"
        else:
            more = f", {plan.over_baseline:.2g} times as good as {plan.baseline_name}"
    counted = (
        f"{_counted(plan.legal, 'strategy', 'strategies')} legal, {plan.fitting:,} of them "
        f"likely to fit, in {_counted(plan.layouts, 'layout', 'layouts', verb=False)}."
        if plan.fitting
        else f"{_counted(plan.legal, 'strategy', 'strategies')} legal, none of them likely to fit: "
        f"the likeliest fits with a probability of {best.fit_probability:.0%}."
    )
    return " ".join(
        [
            counted,
            f"{strategy.short()} is predicted best, with "
            f"{_rounded(best.tokens_per_s)} tokens/s ({_rounded(best.tokens_per_s_low)} to "
            f"{_rounded(best.tokens_per_s_high)}){more}.",
            *([f"Its {across}."] if across else []),
            *filter(None, [campaign_sentence(plan)]),
        ]
    )


def campaign_sentence(plan: CampaignPlan, *, than: str = "the best prediction") -> str:
    """Return the maximum cost and the expected gain of a campaign, in sentences; empty if nothing
    fits.

    Args:
        than: the layout of the best prediction in words.
    """
    cost, gain = plan.cost, plan.gain
    if cost is None or gain is None:
        return ""
    trials = _counted(cost.trials, "trial", "trials", verb=False)
    costs = f"A campaign of up to {trials} costs at most {_rounded(cost.node_hours)} node-hours"
    better = BETTER[plan.objective]
    if gain.rate_gain < HARDLY:
        return f"{costs}. The trials should find hardly anything {better} than {than}."
    found = f"The trials should find a layout about {_percent(gain.rate_gain)} {better} than {than}"
    text = f"{costs}. {found}"
    if gain.saved_node_hours is not None and gain.training_tokens is not None:
        saved = _rounded(gain.saved_node_hours)
        over = token_count(gain.training_tokens)
        return f"{text}, and save {saved} node-hours over {over} tokens."
    if gain.break_even_tokens is not None:
        after = tokens(gain.break_even_tokens)
        return f"{text}. Their cost is repaid after {after} tokens of training."
    return f"{text}."


def tokens(number: float) -> str:
    return token_count(float(f"{number:.2g}"))


def _counted(number: int, one: str, many: str, *, verb: bool = True) -> str:
    noun, be = (one, "is") if number == 1 else (many, "are")
    return f"{number:,} {noun} {be}" if verb else f"{number:,} {noun}"


def _rounded(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _percent(share: float) -> str:
    return f"{100 * share:.2g} %" if share < 0.1 else f"{100 * share:.0f} %"
