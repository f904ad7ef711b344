"""Failures in words."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from autotune.schemas.choices import CampaignState, TrialState

if TYPE_CHECKING:
    from autotune.schemas.campaigns import Campaign
    from autotune.schemas.trials import Trial

NUMBERS = re.compile(r"0x[0-9a-fA-F]+|\d+")
"""Addresses, ranks, times: what differs between two failures of one kind."""


def cause_of(error: str) -> str:
    """Return a failure's message without numbers, equal for failures of one kind.

    It groups failures and is never shown: users read the message of one of them.
    """
    return NUMBERS.sub("0", error)


FAILED_AS = {
    TrialState.OOM: "ran out of memory",
    TrialState.CRASHED: "crashed",
    TrialState.TIMEOUT: "ran out of time",
    TrialState.REFUSED: "were refused",
    TrialState.NODE_FAIL: "lost their nodes",
    TrialState.PREEMPTED: "were preempted",
    TrialState.LOST: "were lost",
    TrialState.CANCELLED: "were cancelled from outside",
}
"""What became of several trials that all ended in one state."""


def common_failure(trials: Iterable[Trial]) -> str:
    """Return the error that all trials ended with, as in `all 3 trials crashed with the same error:
    …`; empty if there is none."""
    ended = [trial for trial in trials if trial.state is not TrialState.PENDING]
    causes = {(trial.state, cause_of(trial.error or "")) for trial in ended}
    if len(causes) != 1 or len(ended) < 2 or not ended[-1].error:
        return ""
    return failure_sentence(f"all {len(ended)} trials", ended[-1])


def commands_to_try_again(campaign: Campaign) -> list[tuple[str, str]]:
    """Return what to run once the cause of a campaign's failures is mended, each with its purpose;
    empty while it runs."""
    resume = ("After a fix", f"autotune resume {campaign.id}")
    submit = ("With other options", f"autotune submit --like {campaign.id}")
    if campaign.state in {CampaignState.PAUSED, CampaignState.FAILED}:
        return [resume, submit]
    ended = campaign.state in {CampaignState.DONE, CampaignState.CANCELLED}
    return [("After a fix, or with other options", submit[1])] if ended else []


def failure_sentence(which: str, last: Trial) -> str:
    same = "" if last.state is TrialState.REFUSED else " with the same error"
    return f"{which} {FAILED_AS[last.state]}{same}: {last.error}"
