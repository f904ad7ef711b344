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
from tests.evaluators.slurm.trials import PROFILE, run
from tests.patience import TRIAL_LIMIT_S

pytestmark = [pytest.mark.xdist_group("slurm"), pytest.mark.usefixtures("slurm")]


FIGURES_IN_A_FILE = '"1000000"\n"--figures" = "{out}/figures"'


def test_what_a_trial_tells_in_a_file_outlives_its_end(tmp_path: Path) -> None:
    """Slurm kills it at once, for its times agree."""
    endless = my_script(tmp_path, change=('"{iterations}"', FIGURES_IN_A_FILE))
    reader = AdapterReader(json_lines="figures", step="update", iteration_time_s="ms / 1000")
    adapter = replace(endless, read=(reader,))
    request = TrialRequest(
        token="early",
        transformer=MODEL,
        machine=MACHINE,
        strategy=strategy(num_nodes=2, tensor_parallel=2, gradient_accumulation_steps=4),
        protocol=TrialProtocol(
            accumulations=(1, 4),
            time_limit_s=TRIAL_LIMIT_S,
            most_iterations=4,
            target_spread=100.0,
        ),
        directory=tmp_path / "early",
    )
    with closing(SlurmBackend(replace(PROFILE, adapter=adapter))) as backend:
        [outcome] = run(backend, request)
    assert outcome.status is TrialState.OK, outcome.error
    assert [len(m.iteration_times_s) >= 3 for m in outcome.measurements] == [True, True]
