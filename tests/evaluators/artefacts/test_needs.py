"""What a user is told that a launch script still needs, held against the script itself."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from evaluators.artefacts import artefact_names, launch_script
from evaluators.artefacts.megatron_deepspeed import megatron_needs
from evaluators.cluster.profile import ClusterProfile, Megatron
from search_spaces.catalog import load_machine
from tests.evaluators.artefacts.test_artefacts import SMALL, TINY, launch
from tests.evaluators.artefacts.test_megatron_deepspeed import (
    NOTHING_SET,
    Cluster,
    cluster,
    profile_of,
    script,
)
from tests.evaluators.frameworks.strategies import STRATEGIES

__all__ = ["cluster"]


def missing(said: str) -> list[str]:
    """The variables that a script has refused to start without."""
    _, _, listed = said.partition("This launch cannot start. Missing:\n")
    return [line.split(":")[0].strip() for line in listed.splitlines()]


@pytest.mark.parametrize(
    ("megatron", "needs"),
    [
        ({}, []),
        ({"data_path": ""}, []),  # random tokens are made
        ({"tokenizer_type": "HFTokenizer"}, ["TOKENIZER_MODEL"]),
        ({"tokenizer_type": "GPT2BPETokenizer", "vocab_file": "/v"}, ["MERGE_FILE"]),
        ({"tokenizer_type": "HFTokenizer", "data_path": ""}, ["DATA_PATH", "TOKENIZER_MODEL"]),
    ],
)
def test_a_script_asks_for_what_is_told_that_it_needs(
    megatron: dict[str, Any], needs: list[str], cluster: Cluster
) -> None:
    whole = profile_of(cluster)
    assert whole.megatron is not None
    profile = replace(whole, megatron=replace(whole.megatron, **megatron))
    assert list(megatron_needs(profile)) == needs
    said = cluster.run(script(profile=profile), **NOTHING_SET).stderr
    assert missing(said) == needs


def test_without_a_profile_everything_is_still_to_be_given(cluster: Cluster) -> None:
    subject = launch_script(launch(), artefact_names(launch()))
    assert subject is not None
    assert subject.file == "launch.sbatch"
    told = {need.variable for need in subject.needs}
    said = cluster.run(script(), **NOTHING_SET).stderr
    assert "PYTHON" in told
    assert told - {"PYTHON"} == set(missing(said)) - {"PYTHON"}  # some machines have a `python`


def test_the_bundled_trainers_script_runs_as_it_is() -> None:
    here = launch(SMALL, transformer=TINY, machine=load_machine("local"), evaluator="local")
    there = launch(profile=ClusterProfile(name="mine", program="trainer"))
    for subject, file in ((here, "train.sh"), (there, "train.sbatch")):
        told = launch_script(subject, artefact_names(subject))
        assert told is not None
        assert (told.file, told.needs) == (file, [])
        assert "random tokens" in told.remark


def test_where_no_file_launches_anything_there_is_no_script() -> None:
    assert launch_script(launch(), ["nemo.yaml"]) is None


def test_a_script_that_no_known_commit_can_train_says_so() -> None:
    """Of a simulated campaign, for which nobody has named a checkout."""
    cut = launch(STRATEGIES["ZeRO-2 with tensor parallelism"])
    for subject, starts in ((cut, False), (launch(), True)):
        told = launch_script(subject, artefact_names(subject))
        assert told is not None
        assert ("index out of range in self" not in told.remark) == starts
        assert ("Files for megatron-lm" not in told.remark) == starts


def test_the_remark_says_what_is_trained_on() -> None:
    def remark(**values: Any) -> str:
        profile = ClusterProfile(
            name="mine", program="megatron-deepspeed", megatron=Megatron(path="/m", **values)
        )
        told = launch_script(launch(profile=profile), ["launch.sbatch"])
        assert told is not None
        return told.remark

    assert "random tokens" in remark()
    assert "dataset of the cluster profile" in remark(data_path="/data")
