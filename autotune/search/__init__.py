"""How the next trial is chosen, and when to stop."""

from autotune.search.campaign_belief import CampaignBelief, Projections, belief_without_start
from autotune.search.proposal import Proposal, TrialCost
from autotune.search.proposer import Proposer
from autotune.search.screening import few_nodes
from autotune.search.stand_ins import stand_ins_of
from autotune.search.stopping import (
    Outlook,
    Rival,
    is_worth_confirming,
    reason_to_be_content,
    reason_to_spare,
    reason_to_stop,
)
from autotune.search.trial import SearchTrial, ended_of, search_trials

__all__ = [
    "CampaignBelief",
    "Outlook",
    "Projections",
    "Proposal",
    "Proposer",
    "Rival",
    "SearchTrial",
    "TrialCost",
    "belief_without_start",
    "ended_of",
    "few_nodes",
    "is_worth_confirming",
    "reason_to_be_content",
    "reason_to_spare",
    "reason_to_stop",
    "search_trials",
    "stand_ins_of",
]
