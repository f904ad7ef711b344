"""How the next trial is chosen, and when to stop."""

from autotune.search.observation import Observation
from autotune.search.proposer import Proposer
from autotune.search.stopping import reason_to_stop

__all__ = ["Observation", "Proposer", "reason_to_stop"]
