"""Trials that an earlier process left running on this host, until somebody asks about them."""

from __future__ import annotations

from pathlib import Path

import psutil

from evaluators.slurm.attempt import Attempt
from evaluators.slurm.pilot.steps import Place, absolute, read_place, runs, survivors


class Strangers:
    """Found once, when first needed; their nodes are not free while they run.

    Args:
        trials: the folder of all trials; what lies elsewhere is another service's.
    """

    def __init__(self, trials: Path) -> None:
        self._trials = absolute(trials)
        self._found: dict[Path, tuple[psutil.Process, Place]] = {}
        self._looked = False

    def look(self) -> None:
        """Find them, the first time that this is called."""
        if self._looked:
            return
        self._looked = True
        for folder, process in survivors().items():
            place = read_place(folder)
            if place and self._trials in folder.parents:
                self._found[folder] = (process, place)

    def claim(self, attempt: Attempt) -> psutil.Process | None:
        """The process of this attempt, which is no stranger any more."""
        process, _ = self._found.pop(absolute(attempt.folder), (None, None))
        return process

    def places(self, job_id: str) -> list[Place]:
        """Where those run that still do, in this allocation."""
        self._found = {
            folder: (process, place)
            for folder, (process, place) in self._found.items()
            if runs(process)
        }
        return [place for _, place in self._found.values() if place.job_id == job_id]
