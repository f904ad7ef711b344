"""One attempt at a trial, and its folder.

    <trials>/ended/<name>          an empty file for each attempt that has ended and is not yet read
    <trials>/<token>/result.json   the trial's outcome, once it is known
    <trials>/<token>/cancelled     it is to be ended
    <trials>/<token>/attempt-1/    one attempt; a later one follows a node's failure

What lies in an attempt's folder is told by each kind of machine; on all of them:

    trial.log                       all that it printed
    abandoned.json                  abandoned, and why (`abandonment`)
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path

from evaluators.trial import TrialRequest

LOG = "trial.log"
ENDED = "ended"
CANCELLED = "cancelled"


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """One attempt at a trial. `number` counts from 1."""

    request: TrialRequest
    number: int

    @cached_property
    def name(self) -> str:
        """Return the name of its job or step: unique, so that it is found again by it.

        A token may be chosen again in another folder, by a search for the same model.
        """
        place = sha256(os.fsencode(self.request.directory.absolute())).hexdigest()
        return f"{self.request.token}.{self.number}-{place[:6]}"

    @property
    def folder(self) -> Path:
        return self.request.directory / f"attempt-{self.number}"

    @property
    def ended_folder(self) -> Path:
        """Return where each attempt of these trials leaves an empty file of its name in the end."""
        return self.request.directory.parent / ENDED

    @property
    def end_notice(self) -> Path:
        """Return the empty file that says that this attempt has ended."""
        return self.ended_folder / self.name

    @property
    def log(self) -> Path:
        return self.folder / LOG


def attempts_of(request: TrialRequest) -> list[Attempt]:
    """Return the attempts that have a folder, first to last."""
    numbers = sorted(
        int(number)
        for folder in request.directory.glob("attempt-*")
        if (number := folder.name.removeprefix("attempt-")).isdigit()
    )
    return [Attempt(request=request, number=number) for number in numbers]
