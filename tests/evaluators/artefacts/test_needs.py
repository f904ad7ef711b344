"""What a launch script still needs."""

from __future__ import annotations

from autotune.schemas.recommendations import TrainerOffer
from evaluators.artefacts import artefact_names, artefacts, launch_script, trainer_offers
from evaluators.cluster.profile import ClusterProfile
from search_spaces.catalog import load_machine
from tests.evaluators.artefacts.test_artefacts import SMALL, TINY, launch


def test_where_nothing_trained_the_job_names_its_trainer() -> None:
    subject = launch()
    script = launch_script(subject, artefact_names(subject))
    assert script is not None
    assert script.file == "train.sbatch"
    needed = [need.variable for need in script.needs]
    assert needed == ["TRAINER_DIR", "DATA", "TOKENIZER", "SAVE", "TRAIN_ITERS", "LR"]
    assert "with megatron-lm, which ran none of the trials" in script.remark
    assert "# Trainer: megatron-lm " in artefacts(subject)["train.sbatch"]


def test_a_folder_that_no_trial_saw_is_needed_with_its_default() -> None:
    offered = trainer_offers(launch(machine=load_machine("dgx-h100")))
    offers: dict[str, TrainerOffer] = {each.name: each for each in offered}
    for trainer, default in (("megatron-bridge", "/opt/Megatron-Bridge"), ("megatron-lm", "")):
        needs = {need.variable: need.meaning for need in offers[trainer].variables}
        assert next(iter(needs)) == "TRAINER_DIR"
        assert needs["TRAINER_DIR"].endswith(f"; by default {default}") is bool(default)
        assert "PYTHON" not in needs


def test_the_bundled_trainers_script_runs_as_it_is() -> None:
    here = launch(SMALL, transformer=TINY, machine=load_machine("local"), evaluator="local")
    there = launch(profile=ClusterProfile(name="mine"), evaluator="slurm")
    for subject, file in ((here, "benchmark.sh"), (there, "benchmark.sbatch")):
        script = launch_script(subject, artefact_names(subject))
        assert script is not None
        assert (script.file, script.needs) == (file, [])
        assert "random tokens" in script.remark


def test_where_no_file_launches_anything_there_is_no_script() -> None:
    assert launch_script(launch(), ["notes.txt"]) is None
