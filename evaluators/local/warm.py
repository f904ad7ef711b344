"""The warm process imports torch and DeepSpeed once and forks a supervisor for each trial.

`python -m evaluators.local.warm SOCKET PARENT`: it receives {"run": request, "hang_limit_s":
seconds} or {"cancel": token} from its owner, and sends (token, exit code) of each ended trial
(`WarmProcess._run`). It ends, with every trial, when its owner does.
"""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

from evaluators import processes
from evaluators.trainer.libraries import device_of_trials, load
from evaluators.trainer.supervisor import owned, supervise
from evaluators.trial import TrialRequest

POLL_INTERVAL_S = 0.05
CANCEL_LIMIT_S = 5.0
"""Time that a supervisor has to cancel its trial before it is killed."""


@dataclass
class SupervisorProcess:
    """A trial's supervisor, and when to kill it, in seconds of the monotonic clock."""

    pid: int
    kill_at: float | None = None


@dataclass
class WarmProcess:
    """Runs the trials of one owner; single-threaded, so that it may fork."""

    owner: Connection[Any, Any]
    trials: dict[str, SupervisorProcess] = field(default_factory=dict)

    def serve(self) -> None:
        while self._receive():
            self._reap()

    def _receive(self) -> bool:
        timeout = POLL_INTERVAL_S if self.trials else None
        if not self.owner.poll(timeout):
            return True
        try:
            message = self.owner.recv()
        except (EOFError, OSError):
            return False
        if "run" in message:
            request = message["run"]
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
            pid = processes.fork(partial(self._run, request, message["hang_limit_s"]))
            self.trials[request.token] = SupervisorProcess(pid)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        elif trial := self.trials.get(message["cancel"]):
            os.kill(trial.pid, signal.SIGTERM)
            trial.kill_at = time.monotonic() + CANCEL_LIMIT_S
        return True

    def _run(self, request: TrialRequest, hang_limit_s: float) -> int:
        os.setpgid(0, 0)
        self.owner.close()
        try:
            with owned(request.directory) as mine:
                if mine:
                    supervise(request, hang_limit_s=hang_limit_s)
        except OSError as error:
            return error.errno or 1
        return 0

    def _reap(self) -> None:
        now = time.monotonic()
        for token, trial in list(self.trials.items()):
            if trial.kill_at is not None and now > trial.kill_at:
                os.kill(trial.pid, signal.SIGKILL)
            if (code := processes.exit_code_of(trial.pid)) is not None:
                del self.trials[token]
                self.owner.send((token, code))


def main() -> None:
    """Run the warm process for the command line's arguments."""
    owner = processes.owner()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C in a terminal reaches it too
    if device_of_trials() == "cpu":
        load()
    WarmProcess(owner).serve()


if __name__ == "__main__":
    main()
