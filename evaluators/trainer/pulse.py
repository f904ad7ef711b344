"""Whether the ranks of a trial still work, told from the processor time that they use."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from evaluators.processes import processor_time_s

HANG_S = 15.0
CHECK_INTERVAL_S = 1.0
# Ranks that wait for one another: their main threads sleep, and the threads of their communicators
# wake now and then, 0.2 % of a core each. Both must be quiet: in a long all-reduce the main threads
# sleep too, and on a crowded machine working ranks may get as little as 2 % of a core.
MAIN_THREADS_S = 0.05
SHARE_OF_CORE = 0.05


@dataclass
class Pulse:
    """Watches the processor time of one trial's ranks."""

    _checked: float = field(default_factory=time.monotonic)
    _since: float = field(default_factory=time.monotonic)
    _main_s: float = 0.0
    _total_s: float = 0.0

    def lost(self, pids: Sequence[int]) -> bool:
        """Whether no rank has worked for HANG_S; looks at most every CHECK_INTERVAL_S."""
        now = time.monotonic()
        if now - self._checked < CHECK_INTERVAL_S:
            return False
        self._checked = now
        main_s = sum(processor_time_s(pid, main_thread_only=True) for pid in pids)
        total_s = sum(processor_time_s(pid) for pid in pids)
        idle_s = SHARE_OF_CORE * len(pids) * (now - self._since)
        if main_s - self._main_s > MAIN_THREADS_S or total_s - self._total_s > idle_s:
            self._since, self._main_s, self._total_s = now, main_s, total_s
        return now - self._since > HANG_S
