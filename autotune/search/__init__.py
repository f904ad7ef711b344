"""How the next trial is chosen, and when to stop."""

from autotune.search.cost import TrialCost
from autotune.search.outlook import Outlook
from autotune.search.proposer import Proposal, Proposer
from autotune.search.stopping import reason_to_be_content, reason_to_stop
from autotune.search.trial import SearchTrial

__all__ = [
    "Outlook",
    "Proposal",
    "Proposer",
    "SearchTrial",
    "TrialCost",
    "reason_to_be_content",
    "reason_to_stop",
]
