"""`kill -9` at random moments: of the runner, of the service, of both. No trial runs again that no
kill had ended.

With `AUTOTUNE_KILLS=100` in the environment it is as many kills, on both kinds of database.
"""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx2
import psutil
import pytest

from autotune.schemas.choices import TrialState
from autotune.schemas.trials import Trial
from server.runner.trial_logs import attempt_folders
from server.settings import Settings
from server.store import Store
from server.store.campaigns import get_campaign
from server.store.events import last_event_id
from server.store.trials import all_trials
from tests.patience import PATIENCE_S, until
from tests.requirement import require
from tests.server.asking import body, read
from tests.server.faults.questions import ONE_RANK, SPACE, TINY

KILLS = int(os.environ.get("AUTOTUNE_KILLS", "0"))
"""So many at random; otherwise one, of both."""
EACH = ["sqlite", "postgresql"]
MARK = "AUTOTUNE_KILL_TEST"
LONGEST_S = PATIENCE_S + 30.0 * KILLS
SEED = 20
TARGETS = ("runner", "service", "both")

REAL_TRIALS = max(2, KILLS)
REAL = body(
    model=TINY,
    machine=ONE_RANK | {"name": "local", "max_nodes": 1, "memory_gib": 2.0},
    nodes=1,
    pool_nodes=1,
    evaluator="local",
    space=SPACE | {"micro_batch_size": {"minimum": 1, "maximum": max(8, REAL_TRIALS)}},
    budget={"max_trials": REAL_TRIALS},
    protocol={"confirmations": 1, "measured_iterations": 10},
)


@dataclass
class MarkedService:
    """`autotune serve`, started and killed as often as wanted; its processes carry a mark."""

    settings: Settings
    mark: str = field(default_factory=lambda: uuid4().hex)
    process: subprocess.Popen[str] | None = None
    url: str = ""

    def start(self) -> None:
        environment = os.environ | self.settings.environment() | {MARK: self.mark}
        environment["CUDA_VISIBLE_DEVICES"] = ""
        self.process = subprocess.Popen(
            [sys.executable, "-m", "server.cli", "serve", "--port", "0"],
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stderr is not None
        line = self.process.stderr.readline()
        found = re.search(r"http://\S+", line)
        assert found, line + self.process.stderr.read()
        self.url = found[0]

    def processes(self) -> list[psutil.Process]:
        """All that carry the mark, living ones only."""
        found = []
        for process in psutil.process_iter():
            try:
                marked = process.environ().get(MARK) == self.mark
                if marked and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
            except psutil.Error:
                continue
        return found

    def beneath(self) -> list[psutil.Process]:
        """The runner and all that it started."""
        assert self.process
        return [process for process in self.processes() if process.pid != self.process.pid]

    def kill(self, target: str) -> None:
        """Nothing of what was killed, or was below it, may live on."""
        assert self.process
        below = self.beneath()
        runners = [p for p in below if "server.runner" in " ".join(p.cmdline())]
        if target in {"runner", "both"}:
            for runner in runners:
                runner.kill()
        if target in {"service", "both"}:
            self.process.kill()
            self.process.communicate()
        _, alive = psutil.wait_procs(below, PATIENCE_S)
        assert not alive, f"outlived a kill of the {target}: {[p.cmdline() for p in alive]}"
        if target != "runner":
            self.start()

    def stop(self) -> None:
        assert self.process
        self.process.send_signal(signal.SIGTERM)
        self.process.communicate(timeout=PATIENCE_S)
        until(lambda: not self.processes(), "its processes have gone")


@contextmanager
def served(settings: Settings) -> Iterator[MarkedService]:
    service = MarkedService(settings)
    service.start()
    try:
        yield service
    finally:
        for process in service.processes():
            process.kill()


class FinishedTrials:
    """What has been seen of finished trials, and that it stays as it is."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.store = Store(settings.url)
        self.seen: dict[int, tuple[Trial, int]] = {}

    def state(self) -> str:
        return read(self.store, get_campaign, 1).state

    def events(self) -> int:
        return read(self.store, last_event_id)

    def check(self) -> list[Trial]:
        trials = read(self.store, all_trials, 1)
        for trial in trials:
            if trial.state is TrialState.PENDING:
                assert trial.number not in self.seen, "a finished trial was lost"
                continue
            now = (trial, self.result(trial).stat().st_mtime_ns)
            assert self.seen.setdefault(trial.number, now) == now, "a finished trial changed"
        return trials

    def result(self, trial: Trial) -> Path:
        return result_of(self.settings, trial)


def result_of(settings: Settings, trial: Trial) -> Path:
    """The file of the attempt that counts."""
    folder = settings.trial_dir(trial.token)
    return (attempt_folders(folder) or [folder])[-1] / "result.json"


def kill_at_random(
    settings: Settings, request: dict[str, Any], targets: Sequence[str]
) -> tuple[list[Trial], int]:
    """Kill each target at a random moment, then let the campaign end; its trials, and the kills."""
    rng = random.Random(SEED)
    if KILLS:
        targets = [*targets, *rng.choices(targets, k=KILLS - len(targets))]
    ends = time.monotonic() + LONGEST_S
    with served(settings) as service:
        finished = FinishedTrials(settings)
        record = json.loads((settings.data_dir / "service.json").read_text())
        posted = httpx2.post(
            f"{service.url}/api/v1/campaigns",
            json=request,
            headers={"Authorization": f"Bearer {record['token']}"},
            trust_env=False,
        )
        assert posted.status_code == 201, posted.text
        kills, events = 0, finished.events()
        while (state := finished.state()) not in {"done", "failed", "paused"}:
            assert time.monotonic() < ends, f"still {state} after {kills} kills"
            finished.check()
            # Most kills wait until the runner is at work again; some meet it as it starts.
            if kills < len(targets) and (finished.events() > events or rng.random() < 0.01):
                time.sleep(rng.uniform(0.0, 0.5))
                service.kill(targets[kills])
                kills, events = kills + 1, finished.events()
            time.sleep(0.1)
        assert state == "done"
        trials = finished.check()
        service.stop()
        finished.store.close()
    return trials, kills


def check_end(settings: Settings, trials: list[Trial]) -> None:
    """One row, one directory and one outcome for each trial."""
    assert all(trial.state is not TrialState.PENDING for trial in trials)
    directories = {path.name for path in settings.trials_dir.iterdir()}
    assert directories == {trial.token for trial in trials}
    assert len(directories) == len(trials)
    for trial in trials:
        assert result_of(settings, trial).exists()


@pytest.mark.soak
@pytest.mark.parametrize("database_url", EACH if KILLS else EACH[:1], indirect=True)
def test_a_campaign_of_real_trials_survives_every_kill(settings: Settings) -> None:
    require(find_spec("torch") and find_spec("deepspeed"), "torch and deepspeed")
    trials, kills = kill_at_random(settings, REAL, TARGETS if KILLS else ("both",))
    check_end(settings, trials)
    assert {trial.state for trial in trials} == {TrialState.OK}
    purposes = Counter(trial.purpose for trial in trials)
    assert purposes["baseline"] == 1
    assert purposes["search"] == REAL_TRIALS - 1
    assert purposes["confirmation"] in {1, 2}, "a second one where the first disappoints"
    attempts = Counter[int]()
    for trial in trials:
        logs = settings.trial_dir(trial.token).glob("attempt-*/trial.log")
        attempts[trial.number] = sum(log.read_text().count("tinier: TP 1") for log in logs)
    assert min(attempts.values()) == 1
    assert attempts.total() <= len(trials) + kills, "a trial ran again that no kill had ended"
