"""What is answered without a trial: one strategy with its intervals, a space counted, or ranked."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path

import pytest

from autotune.prediction.campaign import check_campaign
from autotune.schemas.requests import CampaignCreate, SlurmChoice
from autotune.schemas.spaces import SpaceSpec
from autotune.words.quantities import figure, seconds
from server.cli.failures import ExitCode
from server.programs import chosen_profile, chosen_program, reasons_not_to_run
from server.settings import Settings
from tests.server.cli.conftest import Autotune, Ran

STRATEGY = ("--tp", "4", "--pp", "4", "--mbs", "1", "--gas", "32", "--num-nodes", "4")
ONE = ("predict", "--model", "gpt-22b", "--machine", "frontier", *STRATEGY)
SPACE = ("--model", "gpt-175b", "--machine", "frontier", "--nodes", "16", "--space", "table-v")
SWEEP = ("sweep", *SPACE)
STUDY = (
    *("predict", "--model", "gpt-175b", "--machine", "frontier", "--tp", "4", "--pp", "16"),
    *("--gas", "640", "--num-nodes", "16", "--precision", "fp16"),
)
SHAPE = ("--model", "layers=24,hidden=2048,heads=16")


def refused(ran: Ran) -> str:
    """The one sentence of a question that was refused."""
    assert ran.code == ExitCode.BAD_INPUT
    assert ran.out == ""
    [sentence] = ran.err.strip().splitlines()
    return sentence


def line(ran: Ran, name: str) -> str:
    [row] = [each for each in ran.out.splitlines() if each.startswith(f"{name}  ")]
    return row.removeprefix(name).strip()


def test_figures_have_intervals_and_say_what_they_rest_on(alone: Autotune) -> None:
    answer = alone(*ONE, "--json").json()
    low, median, high = (answer[f"iteration_time_{each}s"] for each in ("low_", "", "high_"))
    assert low < median < high
    ran = alone(*ONE)
    assert line(ran, "iteration") == f"{seconds(median)} (80 %: {seconds(low)} to {seconds(high)})"
    fastest, slowest = (answer["tokens_per_s"] * median / each for each in (low, high))
    assert line(ran, "throughput").endswith(f"(80 %: {figure(slowest)} to {figure(fastest)})")
    assert "legal, fits (predicted); probability of fitting" in line(ran, "result")
    basis = "priors for its kind of machine (MI250X GCD), not calibrated"
    assert line(ran, "rests on") == basis
    assert answer["started_from"] == []
    assert "matrix_multiplication" in ran.out
    assert answer["time_parts_s"]["context_parallel"] == 0
    assert "context_parallel" not in ran.out


def test_a_switch_is_on_or_off(alone: Autotune) -> None:
    switches = ("--set", "flash_attention=off", "--sequence-parallel=on")
    strategy = alone(*ONE, "--json", *switches).json()["strategy"]
    assert (strategy["flash_attention"], strategy["sequence_parallel"]) == (False, True)


def test_what_one_strategy_does_not_take(alone: Autotune) -> None:
    sentence = refused(alone(*ONE, "--tp", "1,2,4"))
    assert "--tp: one layout has one value" in sentence
    assert "autotune sweep" in sentence
    assert "--gas: one layout has one value" in refused(alone(*ONE, "--gas", "auto"))


def test_a_sweep_is_narrowed_as_a_space_is(alone: Autotune) -> None:
    narrowed = (*SWEEP, "--tp", "8", "--json")
    both, on, off = (
        alone(*narrowed, "--sequence-parallel", each).json() for each in ("on,off", "on", "off")
    )
    assert both["legal"] == on["legal"] + off["legal"]
    assert len(off["best"]) == 10
    assert {row["strategy"]["tensor_parallel"] for row in off["best"]} == {8}
    assert {row["strategy"]["sequence_parallel"] for row in off["best"]} == {False}


def test_a_sweep_on_a_terminal(alone: Autotune, monkeypatch: pytest.MonkeyPatch) -> None:
    """What differs has a column, what does not is shown once, and no row is broken; commands are
    whole lines, to be copied."""
    monkeypatch.setenv("COLUMNS", "100")
    ran = alone(*SWEEP, "--top", "5")
    shown = " ".join(ran.out.split())
    assert "; fastest first; layouts with less than a 75 % chance to fit come last" in shown
    assert "faster than row 1. Their cost is repaid after" in shown
    assert "full recompute" in line(ran, "all with")
    assert "not calibrated" in line(ran, "rests on")
    rows = ran.out[ran.out.index("80 % interval") :].splitlines()[1:6]
    assert [row.split()[0] for row in rows] == ["1", "2", "3", "4", "5"]
    table, _, commands = ran.out.partition("commands for the first rows:\n")
    assert max(map(len, table.splitlines())) <= 100
    assert len(commands.splitlines()) == 3
    assert "fix it with --global-batch" in ran.out
    fixed = alone(*SWEEP, "--global-batch", "80", "--top", "5")
    assert line(fixed, "all with").startswith("80 samples · ")
    assert "fix it" not in fixed.out


def test_a_sweep_compares_with_the_users_layout(alone: Autotune) -> None:
    question = (*SWEEP, "--baseline", "tp=8,pp=4,mbs=1,zero=1")
    assert "*  your own layout" in alone.done(*question).out
    assert alone(*question, "--json").json()["baseline"]["strategy"]["tensor_parallel"] == 8
    assert "*  " not in alone.done(*SWEEP, "--baseline", "none").out
    assert "name yours with --adapter" in alone.done(*question).out
    assert "name yours" not in alone.done(*question, "--adapter", "megatron-deepspeed").out


def test_where_nothing_fits_or_is_legal(alone: Autotune) -> None:
    """A sweep has nothing to rank; with --rules it says how many each removes."""
    large = ("sweep", "--model", "gpt-1t", "--machine", "frontier")
    for question in (large, (*large, "--rules")):
        ran = alone(*question)
        assert ran.code == ExitCode.FAILED
        assert "the smallest sufficient number of nodes is" in ran.err
        assert ("excluded layouts and warnings" in ran.out) is (question is not large)
    assert "heads_by_tensor removed" in alone(*SWEEP, "--tp", "5").err


def test_another_memory_than_the_machines(alone: Autotune) -> None:
    fits, usable = alone(*STUDY, "--json").json(), alone(*STUDY, "--memory-gib", "32", "--json")
    assert fits["machine"]["memory_gib"] == 64
    assert usable.code == 1
    assert usable.json()["machine"] == fits["machine"] | {"memory_gib": 32}
    assert usable.json()["fits"] is False
    refused = alone(*STUDY, "--memory-gib", "0")
    assert refused.code == 2
    assert "--memory-gib: " in refused.err


def test_predict_an_illegal_strategy(alone: Autotune) -> None:
    arguments = ("predict", "--model", "gpt-22b", "--machine", "frontier", "--tp", "5")
    ran = alone(*arguments)
    assert ran.code == 1
    assert "48 attention heads are not divisible by tensor_parallel 5" in ran.out
    assert alone(*arguments, "--json").json()["legal"] is False


def test_a_shape_of_ones_own(alone: Autotune, tmp_path: Path) -> None:
    answer = alone("predict", *SHAPE, "--machine", "dgx-a100", "--json").json()
    assert answer["model"]["ffn_hidden_size"] == 8192
    longer = ("--model", "gpt-1.4b", "--seq-length", "4096", "--machine", "dgx-a100")
    assert alone("predict", *longer, "--json").json()["model"]["seq_length"] == 4096
    path = tmp_path / "config.json"
    config = {"model_type": "gpt2", "n_layer": 12, "n_embd": 768, "n_head": 12, "n_ctx": 1024}
    path.write_text(json.dumps({**config, "n_positions": 1024, "vocab_size": 50257}))
    ran = alone("sweep", "--model", str(path), "--machine", "polaris", "--json")
    assert ran.json()["model"]["hidden_size"] == 768


def test_a_sweep_counts_what_each_rule_removes(alone: Autotune) -> None:
    ran = alone(*SWEEP, "--rules")
    assert "3,264" in ran.out
    assert "world_size" in ran.out
    narrowed = alone(*SWEEP, "--tp", "8", "--num-nodes", "16", "--json")
    assert narrowed.json()["raw"] == 408


def test_a_sweep_writes_files_that_say_nothing_was_measured(
    alone: Autotune, tmp_path: Path
) -> None:
    command = ("sweep", "--model", "qwen3-8b", "--machine", "dgx-h100", "--global-batch", "64")
    folder = tmp_path / "run"
    ran = alone.done(*command, "--adapter", "megatron-lm", "--out", str(folder))
    assert {path.name for path in folder.iterdir()} == {
        *("benchmark.sbatch", "benchmark_rank.sh", "train.sbatch", "train_rank.sh")
    }
    for path in folder.iterdir():
        assert f"wrote {path}" in ran.err
        head = path.read_text().partition("set -euo pipefail")[0]
        assert "# Figures: predicted, not measured: " in head
        assert "# Trainer: megatron-lm " in head
        assert "export PYTHON=python3\n" in path.read_text()


def test_without_a_trial_no_interpreter_is_taken_from_here(alone: Autotune, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    alone.done(*("sweep", "--model", "tiny", "--adapter", "template", "--out", str(folder)))
    assert "export PYTHON=python3\n" in (folder / "benchmark.sh").read_text()
    assert sys.executable not in (folder / "benchmark.sh").read_text()


EVEN = """
machine = "frontier"
[trainer]
adapter = "adapters/even-stages.toml"
"""
EVEN_STAGES = """
command = ["{python}", "train.py"]
[set]
"--pp" = "{pipeline_parallel}"
"--tp" = "{tensor_parallel}"
"--mbs" = "{micro_batch_size}"
"--gas" = "{gradient_accumulation_steps}"
[[refuse]]
when = "num_layers % pipeline_parallel != 0"
because = "it has only pipelines of even stages"
[[read]]
log = 'step (?P<step>\\d+)'
arrival = true
"""


@pytest.fixture
def even(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """A profile whose program needs stages of equal length."""
    monkeypatch.setenv("AUTOTUNE_PROFILES_DIR", str(tmp_path))
    (tmp_path / "even.toml").write_text(EVEN)
    (tmp_path / "adapters").mkdir()
    (tmp_path / "adapters" / "even-stages.toml").write_text(EVEN_STAGES)
    return "even"


def test_a_space_and_a_campaign_omit_what_the_trainer_cannot_run(
    alone: Autotune, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The study's own space is of fp16, with ZeRO 0 and 1."""
    monkeypatch.setenv("AUTOTUNE_PROFILES_DIR", str(tmp_path))
    (tmp_path / "mine.toml").write_text('machine = "frontier"\n')
    study = ("--model", "gpt-175b", "--nodes", "16", "--space", "table-v")
    free = alone("sweep", *study, "--machine", "frontier", "--json").json()
    bound = alone("sweep", *study, "--profile", "mine", "--json").json()
    (left_out,) = (each for each in bound["refusals"] if each["rule"] == "program")
    assert "fp16 only with ZeRO 1 to 3" in left_out["reason"]
    assert bound["legal"] == free["legal"] / 2
    assert left_out["count"] >= bound["legal"]
    settings = Settings(data_dir=tmp_path / "data", profiles_dir=tmp_path)
    campaign = CampaignCreate(
        model="gpt-175b",
        machine="frontier",
        nodes=16,
        evaluator="slurm",
        slurm=SlurmChoice(profile="mine"),
        space=SpaceSpec(preset="table-v"),
    )
    space = check_campaign(campaign, program=chosen_program(campaign, settings))
    assert len(space.lattice()) == bound["legal"]
    profile = chosen_profile(campaign, settings)
    assert reasons_not_to_run(campaign, profile, space.lattice()) == []


@pytest.mark.parametrize(
    "options",
    [
        ("--model", "13B", "--seq-length", "4096", "--machine", "summit", "--nodes", "16"),
        (SHAPE[0], f"{SHAPE[1]},gated=on,tied=off", "--machine", "frontier", "--nodes", "2"),
    ],
    ids=["V100, which has no bf16", "a shape"],
)
def test_the_commands_of_a_sweep_give_its_rows_again(
    alone: Autotune, options: tuple[str, ...]
) -> None:
    rows = alone("sweep", *options, "--json").json()["best"]
    printed = alone("sweep", *options).out.partition("commands for the first rows:\n")[2]
    commands = [shlex.split(line) for line in printed.splitlines()]
    assert [command[:3] for command in commands] == [
        [str(rank), "autotune", "predict"] for rank in (1, 2, 3)
    ]
    for row, command in zip(rows, commands, strict=False):
        answer = alone(*command[2:], "--json").json()
        assert answer["strategy"] == row["strategy"]
        assert answer["tokens_per_s"] == pytest.approx(row["tokens_per_s"])
        assert answer["fit_probability"] == pytest.approx(row["fit_probability"])


def test_a_strategy_by_its_nodes_and_its_batch(alone: Autotune) -> None:
    """As in a sweep: GAS follows from the batch."""
    layout = ("--tp", "4", "--pp", "4", "--mbs", "1")
    command = ("predict", "--model", "gpt-22b", "--machine", "frontier", *layout)
    both = ("--nodes", "4", "--global-batch", "64")
    assert alone(*command, *both, "--json").json() == alone(*ONE, "--json").json()
    assert alone(*ONE, *both, "--json").json() == alone(*ONE, "--json").json()
    assert "a multiple of 2" in refused(alone(*command, "--nodes", "4", "--global-batch", "7"))
    both_batches = refused(alone(*command, *both, "--gas", "8"))
    assert "--gas 8 makes 16 samples (got 64; valid: 16, or --gas 32)" in both_batches
    assert "--num-nodes is 4" in refused(alone(*ONE, "--nodes", "8"))


def test_the_program_of_a_profile_decides_what_is_legal(alone: Autotune, even: str) -> None:
    """48 layers on 5 stages; the machine is the profile's where none is named."""
    uneven = ("predict", "--model", "gpt-22b", "--pp", "5", "--gas", "10", "--num-nodes", "5")
    assert alone(*uneven, "--machine", "frontier", "--json").json()["legal"]
    ran = alone(*uneven, "--profile", even)
    assert ran.code == ExitCode.FAILED
    assert "even-stages cannot run this layout" in ran.out
    assert "only pipelines of even stages" in ran.out
    space = ("--model", "gpt-22b", "--nodes", "5", "--pp", "4,5", "--num-nodes", "5")
    bound = alone("sweep", *space, "--profile", even, "--json").json()
    assert bound["machine"]["name"] == "frontier"
    rows = bound["best"]
    assert {row["strategy"]["pipeline_parallel"] for row in rows} == {4}


ONE_NODE = ("--model", "llama-3-8b", "--machine", "dgx-h100", "--num-nodes", "1")


def test_a_trainer_is_predicted_without_a_profile(alone: Autotune) -> None:
    question = ("predict", *ONE_NODE, "--tp", "8", "--json")
    usual = alone(*question).json()
    tuned = alone(*question, "--adapter", "megatron-bridge").json()
    profile = ("--profile", "generic", "--adapter", "megatron-bridge")
    assert tuned["iteration_time_s"] < usual["iteration_time_s"]
    assert tuned["iteration_time_s"] == alone(*question, *profile).json()["iteration_time_s"]


@pytest.mark.parametrize("command", ["predict", "sweep"])
def test_what_a_trainer_does_not_vary_is_refused(alone: Autotune, command: str) -> None:
    nodes = ("--nodes", "1") if command == "sweep" else ("--num-nodes", "1")
    question = (command, *ONE_NODE[:-2], *nodes)
    refused = alone(*question, "--adapter", "trl-sft", "--tp", "8")
    assert refused.code == 2
    assert refused.err.startswith("error: --tp: trl-sft does not vary it (got ")
    unknown = alone(*question, "--set", "nonsense=7")
    assert unknown.code == 2
    assert "nonsense: no such dimension" in unknown.err


def test_what_a_trainer_has_fixed_need_not_be_given(alone: Autotune) -> None:
    found = alone("predict", *ONE_NODE, "--adapter", "nanotron", "--zero", "0", "--json").json()
    assert found["strategy"]["activation_checkpointing"] == "none"


def test_a_profile_is_required_as_by_submit(alone: Autotune) -> None:
    assert "the slurm evaluator needs a cluster profile" in refused(
        alone(*SWEEP, "--evaluator", "slurm")
    )
    assert "no such profile" in refused(alone(*SWEEP, "--profile", "nowhere"))
    assert "the simulated evaluator has no cluster profile" in refused(
        alone(*SWEEP, "--profile", "frontier", "--evaluator", "simulated")
    )


def test_a_strategy_that_does_not_fit_gets_options_that_do(alone: Autotune) -> None:
    one = ("predict", "--model", "gpt-22b", "--machine", "frontier", "--tp", "2", "--mbs", "16")
    wanted = (*one, "--gas", "8", "--num-nodes", "2")
    ran = alone(*wanted)
    assert ran.code == ExitCode.FAILED
    assert line(ran, "does it fit").startswith("It needs 100 GiB of 64")
    changes = alone(*wanted, "--json").json()["memory_changes"]
    for change in changes:
        [row] = [each for each in ran.out.splitlines() if each.startswith(change["sentence"])]
        options = row[row.index("--") :].split()
        changed = dict(zip(options[::2], options[1::2], strict=True))
        assert alone(*wanted, *(word for pair in changed.items() for word in pair)).code == 0


def test_a_sweep_says_what_a_campaign_would_cost_and_find(alone: Autotune) -> None:
    ran, answer = alone(*SWEEP), alone(*SWEEP, "--json").json()
    assert len(answer["best"]) == 10
    text = line(ran, "a campaign")
    assert f"{answer['cost']['trials']} trials" in text
    assert f"{100 * answer['gain']['rate_gain']:.0f} % faster than row 1" in text


def test_scaling_is_shown_over_nodes(alone: Autotune) -> None:
    wanted = (*ONE, "--over-nodes", "4,8,16")
    answer = alone(*wanted, "--json").json()
    assert [series["kind"] for series in answer["scaling"]] == ["strong", "weak"]
    ran = alone(*wanted)
    for series in answer["scaling"]:
        assert series["sentence"] in ran.out
        for point in series["points"]:
            assert f"{100 * point['efficiency']:.1f} %" in ran.out
    sentence = refused(alone(*wanted[:-1], "4,x"))
    assert sentence.startswith("error: --over-nodes")


EXPERTS = ("predict", "--model", "qwen3-30b-a3b", "--machine", "dgx-h100", "--num-nodes", "2")


def test_traits_of_the_trainer_change_a_prediction(alone: Autotune) -> None:
    wanted = (*EXPERTS, "--ep", "16", "--gas", "64", "--checkpointing", "none", "--json")
    times = [
        alone(*wanted, *(word for trait in traits for word in ("--trait", trait))).json()[
            "iteration_time_s"
        ]
        for traits in (
            ("routing=natural",),
            (),
            ("dispatcher=hybridep",),
            ("dispatcher=hybridep", "cuda_graphs=full_iteration", "balanced_routing=on"),
        )
    ]
    assert times == sorted(times, reverse=True)
    assert refused(alone(*wanted[:-1], "--trait", "routing=even")).startswith("error: --trait")
