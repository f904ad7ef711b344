"""The unseen script on a real Slurm."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from autotune.schemas.choices import TrialState
from evaluators.adapter.adapter import AdapterReader
from evaluators.slurm.backend import SlurmBackend
from evaluators.trial import TrialProtocol, TrialRequest
from tests.evaluators.adapter.samples import MACHINE, MODEL, my_script, strategy
from tests.evaluators.slurm.trials import PROFILE, finish, run
from tests.patience import TRIAL_LIMIT_S

pytestmark = [pytest.mark.xdist_group("slurm"), pytest.mark.usefixtures("slurm")]


TOLD_IN_A_FILE = '"1000000"\n"--told" = "{out}/told"'


def test_a_script_trains_on_two_nodes(tmp_path: Path) -> None:
    adapter = my_script(tmp_path)
    profile = replace(PROFILE, adapter=adapter)
    request = TrialRequest(
        token="job",
        transformer=MODEL,
        machine=MACHINE,
        strategy=strategy(num_nodes=2, tensor_parallel=2, gradient_accumulation_steps=4),
        protocol=TrialProtocol(accumulations=(1, 4), time_limit_s=TRIAL_LIMIT_S),
        directory=tmp_path / "job",
    )
    # What it tells in a file alone is to be had though Slurm kills it at once.
    endless = my_script(tmp_path, change=('"{iterations}"', TOLD_IN_A_FILE))
    reader = AdapterReader(json_lines="told", step="update", iteration_time_s="ms / 1000")
    prompt = replace(profile, adapter=replace(endless, read=(reader,)))
    protocol = replace(request.protocol, most_iterations=4, target_spread=100.0)
    early = replace(request, token="early", protocol=protocol, directory=tmp_path / "early")
    with closing(SlurmBackend(profile)) as jobs, closing(SlurmBackend(prompt)) as others:
        jobs.submit(request)
        [ended] = run(others, early)
        [outcome] = finish(jobs, request)
    assert ended.status is TrialState.OK, ended.error
    assert [len(m.iteration_times_s) >= 3 for m in ended.measurements] == [True, True]
    assert outcome.status is TrialState.OK, outcome.error
    assert [m.gradient_accumulation_steps for m in outcome.measurements] == [1, 4]
    assert {len(m.iteration_times_s) for m in outcome.measurements} == {3}
    assert list(outcome.peak_memory_gib) == pytest.approx(
        [(300 + 10 * rank + 1) / 1024 for rank in range(4)]
    )
    assert outcome.versions["adapter"] == adapter.label
