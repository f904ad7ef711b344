"""How the next trial is chosen, and when to stop."""

from autotune.search.proposer import Proposer
from autotune.search.stopping import reason_to_stop
from autotune.search.trial import SearchTrial

__all__ = ["Proposer", "SearchTrial", "reason_to_stop"]
