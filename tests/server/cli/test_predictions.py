"""`autotune predict`: one strategy with its intervals, calibrated or not, and sweeps of a space."""

from __future__ import annotations

from pathlib import Path

import pytest

from server.cli.failures import Exit
from server.cli.figures import figure, seconds
from tests.server.cli.calibration_files import slower, written
from tests.server.cli.conftest import Autotune, Ran

STRATEGY = ("--tp", "4", "--pp", "4", "--mbs", "1", "--gas", "32", "--num-nodes", "4")
ONE = ("predict", "--model", "gpt-22b", "--machine", "frontier", *STRATEGY)
SWEEP = ("predict", "--sweep", "--model", "gpt-175b", "--machine", "frontier", "--nodes", "16")
STUDY = (*SWEEP, "--space", "table-v")


def refused(ran: Ran) -> str:
    """The one sentence of a question that was refused."""
    assert ran.code == Exit.BAD_INPUT
    assert ran.out == ""
    [sentence] = ran.err.strip().splitlines()
    return sentence


def line(ran: Ran, name: str) -> str:
    [found] = [each for each in ran.out.splitlines() if each.startswith(f"{name}  ")]
    return found.removeprefix(name).strip()


def test_figures_have_intervals(alone: Autotune) -> None:
    answer = alone(*ONE, "--json").json()
    low, median, high = (answer[f"iteration_time_{each}s"] for each in ("low_", "", "high_"))
    assert low < median < high
    assert answer["memory_low_gib"] < answer["memory_gib"] < answer["memory_high_gib"]
    assert 0.5 < answer["fit_probability"] <= 1
    ran = alone(*ONE)
    assert line(ran, "iteration") == f"{seconds(median)} (80 %: {seconds(low)} to {seconds(high)})"
    fastest, slowest = (answer["tokens_per_s"] * median / each for each in (low, high))
    assert line(ran, "throughput").endswith(f"(80 %: {figure(slowest)} to {figure(fastest)})")
    assert "fits (predicted); probability of fitting" in line(ran, "verdict")


def test_a_prediction_says_that_it_is_not_calibrated(alone: Autotune) -> None:
    ran = alone(*ONE)
    said = "general knowledge of its kind of machine (MI250X GCD), not calibrated"
    assert line(ran, "rests on") == said
    assert alone(*ONE, "--json").json()["calibration"] is None
    assert alone(*ONE, "--calibration", "none").out == ran.out


def test_parts_are_shown_without_those_that_are_nothing(alone: Autotune) -> None:
    answer = alone(*ONE, "--json").json()
    assert sum(answer["time_parts_s"].values()) == pytest.approx(answer["iteration_time_s"])
    out = alone(*ONE).out
    assert "matrix_multiplication" in out
    assert answer["time_parts_s"]["context_parallel"] == 0
    assert "context_parallel" not in out


def test_a_calibration_of_a_file(alone: Autotune, tmp_path: Path) -> None:
    path = written(tmp_path / "slow.json", slower(2.0))
    before, after = (alone(*ONE, *more, "--json").json() for more in ((), ("--calibration", path)))
    assert 1.7 < after["iteration_time_s"] / before["iteration_time_s"] < 2.3
    assert _width(after) < _width(before)
    assert after["calibration"]["observations"] == 8
    said = line(alone(*ONE, "--calibration", path), "rests on")
    assert said == "calibration slow.json: 8 trials of gpt-22b on frontier (a slow stack)"


def _width(answer: dict[str, float]) -> float:
    return answer["iteration_time_high_s"] / answer["iteration_time_low_s"]


def test_a_simulated_calibration_says_so(alone: Autotune, tmp_path: Path) -> None:
    path = written(tmp_path / "slow.json", slower(2.0) | {"simulated": True})
    assert "8 simulated trials" in line(alone(*ONE, "--calibration", path), "rests on")


def test_a_calibration_of_another_machine(alone: Autotune, tmp_path: Path) -> None:
    path = written(tmp_path / "other.json", slower(2.0, machine="dgx-a100"))
    for question in (ONE, (*SWEEP, "--top", "1")):
        sentence = refused(alone(*question, "--calibration", path))
        assert sentence.startswith("error: calibration: ")
        assert "dgx-a100" in sentence
        assert "frontier" in sentence


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", ["calibration.file: the file is not JSON"]),
        ("[]", ["calibration.file: the file holds no calibration"]),
        (slower(1.0) | {"observations": []}, ["calibration.observations: "]),
        (slower(1.0) | {"sofware": "x"}, ["calibration.sofware: there is no such field"]),
        (slower(-1.0), ["calibration.observations.0.iteration_time_s: ", "greater than 0"]),
    ],
)
def test_a_file_that_is_no_calibration(
    alone: Autotune, tmp_path: Path, content: object, said: list[str]
) -> None:
    ran = alone(*ONE, "--calibration", written(tmp_path / "x.json", content))
    assert (ran.code, ran.out) == (Exit.BAD_INPUT, "")
    assert "Traceback" not in ran.err
    for part in said:
        assert part in ran.err


def test_a_file_that_is_not_there(alone: Autotune, tmp_path: Path) -> None:
    sentence = refused(alone(*ONE, "--calibration", str(tmp_path / "absent.json")))
    assert "the file cannot be read: No such file" in sentence


def test_a_calibration_by_name_asks_the_service(alone: Autotune) -> None:
    ran = alone(*ONE, "--calibration", "mine")
    assert ran.code == Exit.UNREACHABLE
    assert "no autotune service answers" in ran.err


@pytest.mark.parametrize(
    ("words", "on"),
    [
        ((), False),
        (("--sequence-parallel",), True),
        (("--sequence-parallel", "--json"), True),
        (("--sequence-parallel", "off"), False),
        (("--sequence-parallel=on",), True),
    ],
)
def test_sequence_parallel_alone_means_on(
    alone: Autotune, words: tuple[str, ...], on: bool
) -> None:
    answer = alone(*ONE, "--json", *words).json()
    assert answer["strategy"]["sequence_parallel"] is on


@pytest.mark.parametrize(
    ("words", "on"), [("--no-flash", False), ("--flash", True), ("--flash-attention=off", False)]
)
def test_flash_attention_in_short(alone: Autotune, words: str, on: bool) -> None:
    assert alone(*ONE, words, "--json").json()["strategy"]["flash_attention"] is on


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--tp", "1,2,4"), ["tensor_parallel: one strategy has one value", "--sweep"]),
        (("--mbs", "1:8"), ["micro_batch_size: one strategy has one value"]),
        (("--gas", "auto"), ["gradient_accumulation_steps: one strategy has one value"]),
        (("--pp", "many"), ["pipeline_parallel: ", "got 'many'"]),
        (("--checkpointing", "some"), ["activation_checkpointing: ", "selective"]),
        (("--flash", "--flash-attention", "on"), ["flash_attention: ", "says it already"]),
        (("--nodes", "4"), ["--nodes: this is an option of a sweep", "--num-nodes"]),
        (("--top", "4"), ["--top: this is an option of a sweep"]),
        (("--space", "table-v"), ["--space: this is an option of a sweep"]),
        (("--global-batch", "512"), ["--global-batch: this is an option of a sweep"]),
    ],
)
def test_what_one_strategy_does_not_take(
    alone: Autotune, words: tuple[str, ...], said: list[str]
) -> None:
    sentence = refused(alone(*ONE, *words))
    for part in said:
        assert part in sentence


def test_what_a_sweep_does_not_take(alone: Autotune) -> None:
    sentence = refused(alone(*SWEEP, "--no-flash"))
    assert "flash_attention: this is an option of one strategy, and --sweep ranks many" in sentence
    assert "--flash-attention" in sentence
    assert "space.preset: no such" in refused(alone(*SWEEP, "--space", "tabel-v"))
    assert alone(*SWEEP, "--top", "0").code == Exit.BAD_INPUT


def test_a_sweep_ranks_all_of_a_space(alone: Autotune) -> None:
    ran = alone(*STUDY, "--top", "7", "--json")
    assert ran.code == 0
    answer = ran.json()
    counted = alone("space", *SWEEP[2:], "--space", "table-v", "--json").json()
    assert answer["legal"] == counted["legal"]
    assert 0 < answer["fitting"] < answer["legal"]
    assert [row["rank"] for row in answer["rows"]] == list(range(1, 8))
    rates = [row["tokens_per_s"] for row in answer["rows"]]
    assert rates == sorted(rates, reverse=True)
    for row in answer["rows"]:
        assert row["tokens_per_s_low"] < row["tokens_per_s"] < row["tokens_per_s_high"]
        assert row["fit_probability"] > 0.5


def test_a_sweep_says_of_a_strategy_what_its_prediction_says(alone: Autotune) -> None:
    [best] = alone(*STUDY, "--top", "1", "--json").json()["rows"]
    strategy = best["strategy"]
    answer = alone(
        *("predict", "--model", "gpt-175b", "--machine", "frontier", "--json"),
        *("--tp", str(strategy["tensor_parallel"]), "--pp", str(strategy["pipeline_parallel"])),
        *("--mbs", str(strategy["micro_batch_size"]), "--zero", str(strategy["zero_stage"])),
        *("--gas", str(strategy["gradient_accumulation_steps"])),
        *("--num-nodes", str(strategy["num_nodes"]), "--precision", strategy["precision"]),
    ).json()
    for name in ("tokens_per_s", "iteration_time_s", "memory_gib", "fit_probability"):
        assert answer[name] == pytest.approx(best[name], rel=1e-6)


def test_a_sweep_is_narrowed_as_a_space_is(alone: Autotune) -> None:
    narrowed = (*STUDY, "--tp", "8", "--json")
    both, on, off = (
        alone(*narrowed, "--sequence-parallel", each).json() for each in ("on,off", "on", "off")
    )
    assert both["legal"] == on["legal"] + off["legal"]
    assert len(off["rows"]) == 20
    assert {row["strategy"]["tensor_parallel"] for row in off["rows"]} == {8}
    assert {row["strategy"]["sequence_parallel"] for row in off["rows"]} == {False}


def test_a_sweep_on_a_terminal(alone: Autotune, monkeypatch: pytest.MonkeyPatch) -> None:
    """What differs has a column, what does not is said once, and no row is broken."""
    monkeypatch.setenv("COLUMNS", "100")
    ran = alone(*STUDY, "--top", "5")
    assert "probably fit; ranked by predicted tokens/s in" in line(ran, "strategies")
    assert "full ckpt" in line(ran, "all with")
    assert "not calibrated" in line(ran, "rests on")
    rows = ran.out[ran.out.index("80 % interval") :].splitlines()[1:6]
    assert [row.split()[0] for row in rows] == ["1", "2", "3", "4", "5"]
    assert max(map(len, ran.out.splitlines())) <= 100
    assert "fix it with --global-batch" in ran.out
    fixed = alone(*STUDY, "--global-batch", "80", "--top", "5")
    assert line(fixed, "all with").startswith("80 samples · ")
    assert "fix it" not in fixed.out


def test_a_sweep_with_a_calibration(alone: Autotune, tmp_path: Path) -> None:
    path = written(tmp_path / "slow.json", slower(2.0))
    arguments = (*STUDY, "--top", "1")
    [[before], [after]] = (
        alone(*arguments, *more, "--json").json()["rows"] for more in ((), ("--calibration", path))
    )
    assert after["tokens_per_s"] < 0.75 * before["tokens_per_s"]
    said = line(alone(*arguments, "--calibration", path), "rests on")
    assert said.startswith("calibration slow.json: 8 trials of gpt-22b")


def test_a_sweep_where_nothing_fits(alone: Autotune) -> None:
    ran = alone("predict", "--sweep", "--model", "gpt-1t", "--machine", "frontier")
    assert "the least number of nodes that would do is" in refused(ran)


def test_a_sweep_where_nothing_is_legal(alone: Autotune) -> None:
    assert "heads_by_tensor removed" in refused(alone(*SWEEP, "--tp", "5"))
