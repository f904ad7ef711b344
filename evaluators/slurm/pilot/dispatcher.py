"""The thread of pilot mode: sees trials end, and starts the next ones on free nodes."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from autotune.schemas import TrialState
from evaluators.slurm.evidence import read_evidence, write_over
from evaluators.slurm.outcome import why_unsent
from evaluators.slurm.pilot.allocation import Room
from evaluators.slurm.pilot.endings import Endings, PilotSite
from evaluators.slurm.pilot.entry import Entry, Phase
from evaluators.slurm.pilot.fitness import unfit
from evaluators.slurm.pilot.packing import PATIENCE_S, pack
from evaluators.slurm.pilot.shares import Shares
from evaluators.slurm.pilot.steps import Place, Run, prepare, read_place, start, this_host
from evaluators.slurm.pilot.strangers import Strangers
from evaluators.slurm.pilot.tenancy import Tenancy
from evaluators.trial import TrialProgress

BUSY_S = 0.02
"""Between two looks at running trials: what is lost when one ends."""
IDLE_S = 0.2
REPACK_S = 1.0
"""After so long waiting trials are looked at again even where nothing has changed."""
log = logging.getLogger(__name__)


class Dispatcher:
    """Safe to use from several threads: they hand in entries, and read what each is told.

    Args:
        trials: the folder of all trials.
        nodes: of an allocation that is asked for, at least.
    """

    def __init__(self, site: PilotSite, *, trials: Path, nodes: int | None) -> None:
        self._site = site
        self._endings = Endings(site)
        self._strangers = Strangers(trials)
        self._shares = Shares()
        self._tenancy = Tenancy(site, self._endings, self._strangers, trials=trials, nodes=nodes)
        self._entries: dict[str, Entry] = {}
        self._wake = threading.Condition()
        self._closed = False
        self._seen: object = None
        self._packed_at = float("-inf")
        self._thread = threading.Thread(target=self._run, name="slurm-pilot", daemon=True)
        self._thread.start()

    def entry(self, token: str) -> Entry | None:
        with self._wake:
            return self._entries.get(token)

    def add(self, entry: Entry) -> None:
        with self._wake:
            self._entries.setdefault(entry.request.token, entry)
            self._wake.notify_all()

    def remove(self, token: str) -> None:
        with self._wake:
            self._entries.pop(token, None)

    def close(self) -> None:
        """End the thread; trials run on."""
        with self._wake:
            self._closed = True
            self._wake.notify_all()
        self._thread.join()

    def _run(self) -> None:
        while True:
            with self._wake:
                if self._closed:
                    return
                entries = list(self._entries.values())
            pause_s = BUSY_S if any(e.phase is Phase.RUNNING for e in entries) else IDLE_S
            try:
                self._round(entries)
            except Exception:
                log.exception("an unexpected error while dispatching trials")
                pause_s = REPACK_S
            with self._wake:
                if not self._closed and len(entries) == len(self._entries):
                    self._wake.wait(pause_s)

    def _round(self, entries: Sequence[Entry]) -> None:
        self._strangers.look()
        for entry in entries:
            self._advance(entry)
        self._tenancy.advance(entries)
        now, room = time.monotonic(), self._site.allocation.room
        phases = Counter(entry.phase for entry in entries)
        seen = (phases, room and (room.job_id, room.nodes), self._site.controller.trouble)
        if seen != self._seen or now - self._packed_at > REPACK_S:
            self._start(entries, room, now)
            self._seen, self._packed_at = seen, now

    def _advance(self, entry: Entry) -> None:
        if entry.phase is Phase.NEW:
            self._take_up(entry)
        elif entry.phase is Phase.WAITING and entry.cancelled:
            self._endings.settle(entry, TrialState.CANCELLED, "cancelled")
        elif entry.phase is Phase.RUNNING:
            self._look_at(entry)
        elif entry.phase is Phase.OVER:
            self._endings.advance(entry)
        elif entry.reading and entry.reading.done():
            entry.told = entry.reading.result()

    def _take_up(self, entry: Entry) -> None:
        """Find out from its folder, and from the processes of this host, how far it has come."""
        folder = entry.attempt.folder
        evidence, place = read_evidence(folder), read_place(folder)
        process = self._strangers.claim(entry.attempt)
        here = place is None or place.host == this_host()
        if evidence.over:
            entry.next_attempt()
            entry.wait("to be started again")
        elif process and place:
            entry.runs(Run(entry.attempt, process, began_at=time.time()), place)
        elif evidence.end or (evidence.claimed and here):
            entry.place = place
            self._endings.over(entry)
        elif evidence.claimed and place:
            began_at = evidence.claim.at if evidence.claim else time.time()
            entry.runs(Run(entry.attempt, None, began_at=began_at), place)
        elif evidence.intended_at is not None and not (place and here):
            self._leave_behind(entry)
        else:
            entry.wait("")

    def _leave_behind(self, entry: Entry) -> None:
        """Another host, or a job of its own, may yet begin this attempt: it is not to."""
        self._site.controller.cancel(entry.attempt.name)
        write_over(entry.attempt.folder, status="lost", reason="it never began", duration_s=0.0)
        entry.next_attempt()
        entry.wait("to be started again")

    def _look_at(self, entry: Entry) -> None:
        assert entry.run
        if entry.run.alive():
            if entry.cancelled:
                entry.run.end()
            return
        self._shares.charge(entry.request.group, entry.width * (time.monotonic() - entry.began))
        self._endings.over(entry)

    def _start(self, entries: Sequence[Entry], room: Room | None, now: float) -> None:
        waiting = [entry for entry in entries if entry.phase is Phase.WAITING]
        waiting.sort(key=lambda entry: entry.arrived)
        trouble = self._site.controller.trouble
        if now < self._endings.no_step_before:
            trouble = trouble or "Slurm makes no steps at the moment"
        if room is None or trouble:
            for entry in waiting:
                _say(entry, trouble or self._site.allocation.waiting)
            return
        usable, free = self._tenancy.usable(room), self._free(room, entries)
        reasons = {e: unfit(e.request, room, usable, now=time.time()) for e in waiting}
        if not any(reason and now - e.arrived > PATIENCE_S for e, reason in reasons.items()):
            self._shares.at_work(e.request.group for e in entries if e.phase is not Phase.READING)
            ready = [e for e, reason in reasons.items() if not reason]
            self._pack(entries, ready, room, usable, free)
        for entry, reason in reasons.items():
            if reason:
                _say(entry, f"waiting for the next allocation: {reason}")
            elif entry.phase is Phase.WAITING:
                wanted = f"waiting for {entry.width} of the allocation's {len(usable)} nodes"
                _say(entry, f"{wanted}: {len(free)} are free")

    def _pack(
        self,
        entries: Sequence[Entry],
        ready: Sequence[Entry],
        room: Room,
        usable: Sequence[str],
        free: set[str],
    ) -> None:
        """Start what fits; its nodes are taken out of `free`."""
        now = time.monotonic()
        held: Counter[str] = Counter()
        for entry in entries:
            held[entry.request.group] += entry.width if entry.holds_nodes else 0
        packing = pack(
            usable,
            free=free,
            waiting=[entry.waiting(now) for entry in ready],
            shares=self._shares.of(held),
        )
        for entry in ready:
            token = entry.request.token
            if chosen := packing.starts.get(token):
                self._launch(entry, Place(job_id=room.job_id, nodes=chosen, host=this_host()))
                free -= set(chosen)
            elif token in packing.passed_over:
                entry.pass_over(packing.passed_over[token], now)

    def _launch(self, entry: Entry, place: Place) -> None:
        site = self._site
        try:
            prepare(entry.attempt, place, site.profile, site.program)
            run = start(entry.attempt, place, environment=site.controller.slurm.environment())
        except (OSError, ValueError) as error:
            self._endings.settle(entry, *why_unsent(error))
        else:
            entry.runs(run, place)

    def _free(self, room: Room, entries: Sequence[Entry]) -> set[str]:
        """On which nothing runs: neither a trial of ours, nor one of an earlier process."""
        places = [entry.place for entry in entries if entry.holds_nodes and entry.place]
        places += self._strangers.places(room.job_id)
        taken = {node for place in places if place.job_id == room.job_id for node in place.nodes}
        return set(room.nodes) - taken


def _say(entry: Entry, reason: str) -> None:
    if isinstance(entry.told, TrialProgress) and entry.told.reason != reason:
        entry.told = TrialProgress(phase="waiting", reason=reason)
