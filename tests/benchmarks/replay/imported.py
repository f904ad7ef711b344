"""What the product knows after an import: rows of a stack's other models, read as a table, stored,
and selected for a campaign of the landscape's model."""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from autotune.calibration.history import observation_of
from autotune.calibration.observations import Observation, columns_of
from autotune.diagnosis.observed import ObservedRun, observed
from autotune.diagnosis.subject import subject_of_run
from autotune.schemas.requests import CampaignCreate
from evaluators.run_log import read_runs
from search_spaces.errors import InvalidInput, InvalidInputs
from search_spaces.machine import Machine
from search_spaces.transformer import Transformer
from server.campaign.start import space_of_campaign
from server.store import Store
from server.store.campaigns import IdempotencyKey, campaign_row, create_campaign
from server.store.history import starting_observations
from server.store.imports import import_runs
from tests.benchmarks.accuracy.tables import PublishedRow
from tests.benchmarks.replay.landscapes import Landscape, Measurements


def earlier_by_import(landscape: Landscape) -> Measurements:
    """Return the observations that a campaign of the landscape's model would start from."""
    machine = landscape.machine
    with TemporaryDirectory() as folder:
        [own, *_] = read(landscape.rows, machine, Path(folder))
        others = list(read(landscape.earlier_rows, machine, Path(folder)))
        store = Store(f"sqlite:///{folder}/autotune.db")
        store.upgrade()
        found = _started(store, own, others)
        store.close()
    times = [each.iteration_time_s or np.nan for each in found]
    return Measurements(columns=columns_of(found, machine), log_time=np.log(times))


def read(rows: Sequence[PublishedRow], machine: Machine, folder: Path) -> Iterator[ObservedRun]:
    """Yield the rows that an import believes."""
    cells = [{**row.words, **row.figures} for row in rows]
    table = folder / "rows.csv"
    with table.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(dict.fromkeys(name for each in cells for name in each)))
        writer.writeheader()
        writer.writerows(cells)
    for run in read_runs(table):
        with suppress(InvalidInput, InvalidInputs):
            yield observed(run, subject_of_run(run, machine=machine))


def _started(store: Store, own: ObservedRun, others: Sequence[ObservedRun]) -> list[Observation]:
    by_model: dict[Transformer, list[ObservedRun]] = defaultdict(list)
    for one in others:
        by_model[one.transformer].append(one)
    with store.transaction() as session:
        for number, (model, runs) in enumerate(by_model.items()):
            once = IdempotencyKey(key=str(number), digest="")
            about = {"model": model, "machine": own.machine, "profile": None, "owner": None}
            imported = [each.run for each in runs]
            import_runs(session, _request(runs[0]), imported, idempotency=once, **about)
        request = _request(own)
        space = space_of_campaign(request, own.transformer, own.machine, profile=None)
        created = create_campaign(
            session, request, model=own.transformer, machine=own.machine, simulated=False
        )
        now = campaign_row(session, created.id).created_at
        return [
            observation_of(each)
            for each in starting_observations(session, created.id, space, now=now)
        ]


def _request(one: ObservedRun) -> CampaignCreate:
    return CampaignCreate(
        model=one.transformer,
        machine=one.machine,
        nodes=one.run.strategy.num_nodes,
        evaluator="local",
        space={"global_batch_size": one.run.strategy.global_batch_size(one.machine.gpus_per_node)},
    )
