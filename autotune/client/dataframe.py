"""Trials as a pandas.DataFrame, if pandas is installed."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from typing import Any

from autotune.schemas.trials import Trial
from autotune.trial_table import columns_of


def dataframe(trials: Iterable[Trial]) -> Any:
    """Return one row per trial, indexed by trial number.

    Raises:
        ImportError: pandas is not installed.
    """
    try:
        pandas: Any = import_module("pandas")
    except ModuleNotFoundError as error:
        reason = (
            "to_dataframe() needs pandas, which is not installed: `pip install pandas`; "
            "autotune.trial_table.columns_of(campaign.trials()) gives the same as plain lists"
        )
        raise ImportError(reason) from error
    return pandas.DataFrame(columns_of(trials)).set_index("number", drop=False)
