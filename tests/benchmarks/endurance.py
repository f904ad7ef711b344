"""Random faults over campaigns of all backends: nothing may be lost, doubled or left behind.

    python -m tests.benchmarks.endurance [--faults N] [--seed N] [--database sqlite|postgresql]
                                         [--logs FOLDER]

A service with its runners (one on SQLite, two on PostgreSQL), a virtual Slurm, a Ray of several
nodes and, on PostgreSQL, the server: all on this machine, in folders that go at the end, and all
started here. A campaign of each kind is kept going: simulated, with a script or the bundled trainer
on this machine, on Slurm as jobs or in pilot mode, on Ray. Meanwhile runners and service are
killed, ended or stopped, the database is restarted or locked, the disk is filled, the clock is
stepped, and the clusters lose controllers, heads and nodes. Then all campaigns end, all is stopped,
and it is looked at: each trial has one outcome that never changes, no campaign stands still without
a reason, the counts of budgets, tokens, folders and node-hours agree, and no process and no job is
left. A fault that this machine cannot have (without root, a C compiler, Slurm or Ray) is left out,
and named.

A seed decides what is drawn; how faults meet trials is chance.
"""

from __future__ import annotations

import argparse
import random
import shutil
import signal
import sys
import time
from pathlib import Path

from tests.benchmarks.faults.endurance import Endurance, EnduranceReport
from tests.benchmarks.faults.stage import Stage


def table(report: EnduranceReport) -> str:
    lines = _failures(report)
    lines += [
        f"{report.database}, seed {report.seed}: {report.faults.total()} faults "
        f"in {report.elapsed_s:,.0f} s"
    ]
    lines += [f"  {count:6}  {name}" for name, count in sorted(report.faults.items())]
    lines += [f"       -  left out for want of {what}" for what in report.absent]
    lines.append(f"campaigns: {report.campaigns.total()}")
    lines += [
        f"  {count:6}  {name}, {state}" for (name, state), count in sorted(report.campaigns.items())
    ]
    lines += [f"  {count:6}  {reason}" for reason, count in report.reasons.most_common()]
    lines.append(f"trials: {report.trials.total()}")
    lines += [f"  {count:6}  {state}" for state, count in report.trials.most_common()]
    lines += [f"          {count:6}  {error}" for error, count in report.errors.most_common(12)]
    lines.append(f"violations: {len(report.violations)}")
    lines += [f"  {sentence}" for sentence in report.violations]
    return "\n".join(lines)


def _failures(report: EnduranceReport) -> list[str]:
    """Return what is told of failed trials, first of those that no fault explains."""
    lines = []
    for explained, words in ((False, "that no fault explains"), (True, "with a full disk")):
        found = [trial for trial in report.failed.values() if trial.is_explained is explained]
        lines.append(f"failed trials {words}: {len(found)}")
        lines += [f"  {line}" for trial in found for line in trial.lines]
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--faults", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=None, help="drawn and printed otherwise")
    parser.add_argument("--database", choices=["sqlite", "postgresql"], default="sqlite")
    parser.add_argument("--logs", type=Path, help="folder that the programs' logs are kept in")
    asked = parser.parse_args()
    seed = random.randrange(1_000_000) if asked.seed is None else asked.seed
    began = time.monotonic()

    def tell(line: str) -> None:
        print(f"{time.monotonic() - began:7.0f} s  {line}", flush=True)

    tell(f"seed {seed}, {asked.database}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # all that was started ends with it
    with Stage(database=asked.database, seed=seed) as stage:
        report = Endurance(stage, faults=asked.faults, tell=tell).run()
        print(table(report))
        if asked.logs:
            asked.logs.mkdir(parents=True, exist_ok=True)
            for log in [*stage.folder.glob("*.log"), *stage.settings.data_dir.glob("*.log")]:
                shutil.copy(log, asked.logs)
    return 1 if report.violations else 0


if __name__ == "__main__":
    sys.exit(main())
