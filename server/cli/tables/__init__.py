"""What commands print of results.

A module is imported when it is first asked for (`tables.campaigns`): --help shows no table.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from server.cli.tables import activity as activity
    from server.cli.tables import calibrations as calibrations
    from server.cli.tables import campaigns as campaigns
    from server.cli.tables import comparisons as comparisons
    from server.cli.tables import elements as elements
    from server.cli.tables import figures as figures
    from server.cli.tables import models as models
    from server.cli.tables import predictions as predictions
    from server.cli.tables import recommendations as recommendations
    from server.cli.tables import scaling as scaling
    from server.cli.tables import storage as storage
    from server.cli.tables import trials as trials
    from server.cli.tables import users as users

MODULES = (
    "activity",
    "calibrations",
    "campaigns",
    "comparisons",
    "elements",
    "figures",
    "models",
    "predictions",
    "recommendations",
    "scaling",
    "storage",
    "trials",
    "users",
)
__all__ = list(MODULES)


def __getattr__(name: str) -> Any:
    if name not in MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module(f"{__name__}.{name}")  # which makes it an attribute: asked for once
