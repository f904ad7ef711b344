"""What a user is told that a launch script still needs."""

from __future__ import annotations

from evaluators.artefacts import artefact_names, artefacts, launch_script
from evaluators.cluster.profile import ClusterProfile
from search_spaces.catalog import load_machine
from tests.evaluators.artefacts.test_artefacts import SMALL, TINY, launch
from tests.evaluators.frameworks.strategies import STRATEGIES


def test_where_nothing_trained_the_job_names_its_trainer() -> None:
    """Megatron-DeepSpeed does not train GPTs with sequence parallelism, and Megatron-LM does."""
    cut = launch(STRATEGIES["ZeRO-2 with tensor parallelism"])
    for subject, trainer in ((launch(), "megatron-deepspeed"), (cut, "megatron-lm")):
        told = launch_script(subject, artefact_names(subject))
        assert told is not None
        assert (told.file, [need.variable for need in told.needs]) == (
            "launch.sbatch",
            ["TRAINER_DIR"],
        )
        assert f"with {trainer}, which ran none of the trials" in told.remark
        assert f"({trainer} " in artefacts(subject)["launch.sbatch"]


def test_the_bundled_trainers_script_runs_as_it_is() -> None:
    here = launch(SMALL, transformer=TINY, machine=load_machine("local"), evaluator="local")
    there = launch(profile=ClusterProfile(name="mine"))
    for subject, file in ((here, "train.sh"), (there, "train.sbatch")):
        told = launch_script(subject, artefact_names(subject))
        assert told is not None
        assert (told.file, told.needs) == (file, [])
        assert "random tokens" in told.remark


def test_where_no_file_launches_anything_there_is_no_script() -> None:
    assert launch_script(launch(), ["nemo.yaml"]) is None
