"""One attempt at a trial, and its folder: what survives a crash is what lies here.

    <trials>/ended/<name>          an empty file for each attempt that has ended and is not yet read
    <trials>/failed-nodes          "<node> <name>" for each attempt that a node's failure ended
    <trials>/<token>/result.json   the trial's outcome, once it is known
    <trials>/<token>/cancelled     it is to be ended
    <trials>/<token>/attempt-1/    one attempt; a later one follows a node's failure

and in an attempt's folder, in the order in which they appear:

    job.sh, body.sh, program files  what is run
    intent.json                     about to be submitted, and since when
    job.json                        submitted: what sbatch answered
    claim/job                       begun: "<job id> <epoch> <nodes>", in a folder that only one
                                    job of several can make
    trial.log                       all that it printed
    ended                           over: "<exit code> <epoch of begin> <epoch of end>"
    over.json                       given up, and why: a job that comes later only ends
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
CLAIM = "claim"
INTENT = "intent.json"
JOB = "job.json"
OVER = "over.json"
CANCELLED = "cancelled"


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """One attempt at a trial. `number` counts from 1."""

    request: TrialRequest
    number: int

    @cached_property
    def name(self) -> str:
        """Of the job or step: unique, so that it is found again by it.

        A token may be chosen again in another folder, by a search for the same model.
        """
        place = sha256(os.fsencode(self.request.directory.absolute())).hexdigest()
        return f"{self.request.token}.{self.number}-{place[:6]}"

    @property
    def folder(self) -> Path:
        return self.request.directory / f"attempt-{self.number}"

    @property
    def mailbox(self) -> Path:
        """Where every attempt of these trials leaves an empty file of its name when it ends."""
        return self.request.directory.parent / ENDED

    @property
    def notice(self) -> Path:
        """Its file there."""
        return self.mailbox / self.name

    @property
    def log(self) -> Path:
        return self.folder / LOG


def attempts_of(request: TrialRequest) -> list[Attempt]:
    """Those that have a folder, first to last."""
    numbers = sorted(
        int(number)
        for folder in request.directory.glob("attempt-*")
        if (number := folder.name.removeprefix("attempt-")).isdigit()
    )
    return [Attempt(request=request, number=number) for number in numbers]
