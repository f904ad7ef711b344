"""What 500 campaigns in flight cost one runner: processor time, memory, and how late it looks.

    python tests/benchmarks/runner_load.py [--campaigns N] [--seconds S] [--json OUT]

Simulated campaigns, each with all its nodes in a trial that outlasts the benchmark, and one real
runner, which has started them all and waits. The bars: 20 % of a core, and 5 s until a campaign
that is cancelled then has been brought to its end.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path

from sqlalchemy import func, select

from server.settings import Settings
from server.store import Store
from server.store.campaigns import cancel_campaign
from server.store.tables import CampaignRow, TrialRow
from tests.benchmarks.jobs_in_flight import processor_time_s, share
from tests.server.asking import created
from tests.server.slurm.scene import RunnerProcess, until

CORE_SHARE = 0.2
LATEST_S = 5.0
OUTLASTING = {
    "confirmations": 0,
    "measured_iterations": 1000,
    "most_iterations": 1000,
    "time_limit_s": 86400.0,
}
START_LIMIT_S = 1800.0
QUIET_S = 5.0


def in_flight(store: Store) -> int:
    """Campaigns with a trial that runs."""
    with store.session() as session:
        running = select(func.count(TrialRow.campaign_id.distinct()))
        return session.scalar(running.where(TrialRow.phase == "running")) or 0


def lateness_s(store: Store) -> float:
    """Until a campaign that is cancelled has been given back by its runner."""
    with store.transaction() as session:
        campaign_id = session.scalars(select(CampaignRow.id).limit(1)).one()
        cancel_campaign(session, campaign_id)
    began = time.monotonic()
    while True:
        with store.session() as session:
            if session.get_one(CampaignRow, campaign_id).lease_owner is None:
                return time.monotonic() - began
        time.sleep(0.02)


def measure(folder: Path, *, campaigns: int, seconds: float) -> dict[str, float]:
    settings = Settings(data_dir=folder)
    settings.trials_dir.mkdir(parents=True)
    store = Store(settings.url)
    store.upgrade()
    for seed in range(campaigns):
        created(store, seed=seed, pool_nodes=4, time_scale=1.0, protocol=OUTLASTING)
    began = time.monotonic()
    runner = RunnerProcess(settings)
    try:
        until(lambda: in_flight(store) >= campaigns, START_LIMIT_S, f"{campaigns} in flight")
        starting_s, starting_cpu_s = time.monotonic() - began, processor_time_s(runner.process)
        time.sleep(QUIET_S)
        used = share(runner.process, lambda: time.sleep(seconds))
        memory_mib = runner.process.memory_info().rss / 2**20
        late_s = lateness_s(store)
    finally:
        runner.stop()
        store.close()
    return {
        "campaigns": campaigns,
        "core_share": used,
        "memory_mib": memory_mib,
        "late_s": late_s,
        "starting_s": starting_s,
        "starting_processor_s": starting_cpu_s,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--campaigns", type=int, default=500)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--json", type=Path, metavar="OUT")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="autotune-load-") as folder:
        found = measure(Path(folder), campaigns=given.campaigns, seconds=given.seconds)
    print(
        f"{given.campaigns} campaigns in flight. The runner takes {found['core_share']:.1%} of a "
        f"core (bar {CORE_SHARE:.0%}) and {found['memory_mib']:.0f} MiB, and ends a cancelled one "
        f"after {found['late_s']:.2f} s (bar {LATEST_S:g}). It started them within "
        f"{found['starting_s']:.0f} s, with {found['starting_processor_s']:.0f} s of a core."
    )
    if given.json:
        given.json.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
