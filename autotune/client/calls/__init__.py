"""Every request of the API as a value: what to send, and how its answer is read.

Nothing is sent here. What a caller gives is checked against the wire models first: each function
raises InvalidInputs naming every field that is refused, or InvalidInput for a file that is no model
or machine.
"""

from autotune.client.calls import (
    access,
    calibrations,
    campaigns,
    catalog,
    figures,
    predictions,
    trials,
)

__all__ = ["access", "calibrations", "campaigns", "catalog", "figures", "predictions", "trials"]
