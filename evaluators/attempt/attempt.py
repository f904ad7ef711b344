"""One attempt at a trial, and its folder.

    <trials>/ended/<name>          an empty file for each attempt that has ended and is not yet read
    <trials>/<token>/result.json   the trial's outcome, once it is known
    <trials>/<token>/cancelled     it must end
    <trials>/<token>/attempt-1/    one attempt; a later one follows a node's failure

Each kind of backend documents its files in an attempt's folder; all have:

    trial.log                       the output
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
        """Return the unique name of its job or step, by which it is found again.

        A search for the same model may use the same token in another folder.
        """
        place = sha256(os.fsencode(self.request.directory.absolute())).hexdigest()
        return f"{self.request.token}.{self.number}-{place[:6]}"

    @property
    def folder(self) -> Path:
        return self.request.directory / f"attempt-{self.number}"

    @property
    def ended_folder(self) -> Path:
        """Return the folder in which each ended attempt of these trials leaves an empty file of its
        name."""
        return self.request.directory.parent / ENDED

    @property
    def end_notice(self) -> Path:
        """Return the empty file that marks this attempt as ended."""
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
