"""What is read of a log: iterations, settings, and lines that are evidence."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from autotune.diagnosis.run_log import StepTimes
from autotune.diagnosis.subject import subject_of_run
from evaluators.run_log import read_run, read_runs
from search_spaces.errors import InvalidInput
from tests.evaluators.adapter.samples import event
from tests.evaluators.run_log.logs import bundled, megatron, torchtitan, written

LINES = {
    "Megatron": "[2026-08-08 03:12] iteration  7/ 100 | elapsed time per iteration (ms): 2500.0 |",
    "Megatron-DeepSpeed": "iteration=   7/ 100 | elapsed_time_per_iteration_ms=2500.0 | loss=2",
    "nanotron": "iteration: 7 / 100 | consumed_tokens: 4B | time_per_iteration_ms: 2.5K | lr: 0.1",
    "NeMo": "Training epoch 0, iteration 7/99 | lr: 1e-4 | train_step_timing in s: 2.5",
    "Megatron-Bridge": "Step Time : 2.50s GPU utilization: 405.2MODEL_TFLOP/s/GPU",
    "MLPerf": ':::MLLOG {"key": "tracked_stats", "value": {"train_step_time": 2.5, "reduced_loss": '
    '7.0}, "metadata": {"lineno": 1, "step": 7.0}}',
    "MaxText": "completed step: 7, seconds: 2.500, TFLOP/s/device: 200.0, loss: 3.0",
    "litgpt": "Epoch 1 | iter 70 step 7 | loss train: 2.1, val: n/a | iter time: 2500.00 ms (step)",
    "the bundled trainer": "GAS 4, iteration 7 | 2500.0 ms | loss 7.1",
    "DLLogger": 'DLLL {"type": "LOG", "step": 7, "data": {"train_step_timing in s": 2.5}}',
    "Hugging Face": " 7%|7        | 7/100 [00:30<03:40,  2.50s/it]",
    "ms-swift": "{'loss': 1.2, 'train_speed(iter/s)': 0.4, 'global_step/max_steps': '7/100'}",
}


@pytest.mark.parametrize("trainer", LINES)
def test_the_time_of_an_iteration_is_read(trainer: str, tmp_path: Path) -> None:
    run = read_run(written(tmp_path, LINES[trainer] + "\n"))
    assert run.trainer == trainer
    assert run.steps[0].time_s == pytest.approx(2.5)
    assert run.steps[0].number == (1 if trainer == "Megatron-Bridge" else 7)


def test_a_clock_gives_the_time_of_each_step(tmp_path: Path) -> None:
    lines = (f"2025-12-12 11:59:{50 + 3 * n:02d}.5\tINFO\t[step={n}/9,epoch=0]" for n in range(3))
    late = "2025-12-12 12:00:02.5\tINFO\t[step=5/9,epoch=0]"
    run = read_run(written(tmp_path, "\n".join([*lines, late]) + "\n"))
    assert [step.time_s for step in run.steps] == pytest.approx([3.0, 3.0, 2.0])


def test_only_one_rank_counts_and_colours_do_not(tmp_path: Path) -> None:
    run = read_run(written(tmp_path, torchtitan([7000.0, 7100.0], ranks=3)))
    assert [step.tokens_per_s_per_gpu for step in run.steps] == [7000.0, 7100.0]
    assert run.stated["gpu"] == "H100-80GB"
    assert run.peak_memory_gib == 47.65


def test_of_two_runs_the_last_one_counts(tmp_path: Path) -> None:
    first = megatron([9.0] * 5, changed={"micro_batch_size": 4})
    second = megatron([2.0] * 4, changed={"micro_batch_size": 2})
    run = read_run(written(tmp_path, first + second))
    assert (run.runs, len(run.steps), run.steps[-1].time_s) == (2, 4, 2.0)
    assert run.stated["micro_batch_size"] == "2"
    assert run.arguments["--micro-batch-size"] == "2"


def test_a_restart_that_ends_at_once_does_not_count(tmp_path: Path) -> None:
    run = read_run(written(tmp_path, megatron([3.0] * 5) + megatron([9.0])))
    assert [step.time_s for step in run.steps] == [3.0] * 5


def test_a_cut_log_is_read_up_to_the_cut(tmp_path: Path) -> None:
    text = megatron([3.0] * 5)
    run = read_run(written(tmp_path, text[: text.rindex("elapsed")]))
    assert len(run.steps) == 4


def test_a_launch_script_adds_settings(tmp_path: Path) -> None:
    script = "export TENSOR_MODEL_PARALLEL=4\nexport MINIBS=72\nsrun --nodes 2 train.sh\n"
    others = [written(tmp_path, script, "config.sh")]
    stated = read_run(written(tmp_path, bundled([1.0] * 3)), others).stated
    assert (stated["tensor_parallel"], stated["samples_of_replica"]) == ("4", "72")


def test_rows_of_json_csv_and_tensorboard(tmp_path: Path) -> None:
    rows = [{"step": n, "step_time": 2.0, "tflops": 300, "micro_batch_size": 4} for n in (1, 2, 3)]
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    table = "step,step_time\n" + "".join(f"{n},2.0\n" for n in (1, 2, 3))
    folder = tmp_path / "board"
    folder.mkdir()
    (folder / "events.out.tfevents.1").write_bytes(
        b"".join(event(n, "iteration-time", 2.0, at_s=0.0) for n in (1, 2, 3))
    )
    for path in (written(tmp_path, lines, "a.jsonl"), written(tmp_path, table, "a.csv"), folder):
        run = read_run(path)
        assert [step.time_s for step in run.steps] == pytest.approx([2.0] * 3), path
    assert read_run(tmp_path / "a.jsonl").stated["micro_batch_size"] == "4"


@pytest.mark.parametrize(
    ("content", "reason"),
    [(b"\x7fELF\0\0", "the file is binary"), (b"hello\n", "no line of it reports")],
)
def test_what_is_no_log_is_refused(content: bytes, reason: str, tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    path.write_bytes(content)
    with pytest.raises(InvalidInput, match=reason):
        read_run(path)


def test_a_missing_log_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="No such file"):
        read_run(tmp_path / "none.log")


def test_a_long_log_is_thinned_and_its_times_stay(tmp_path: Path) -> None:
    text = bundled([*([1.0] * 40_000), *([2.0] * 40_000)])
    run = read_run(written(tmp_path, text))
    seconds = [step.time_s for step in run.steps]
    assert len(seconds) <= 20_001
    assert seconds.count(1.0) == pytest.approx(seconds.count(2.0), rel=0.01)


def test_the_warm_up_is_left_out() -> None:
    times = StepTimes.of([30.0, 4.0, 1.3, *([1.0] * 9)])
    assert (times.warm_up, times.median_s, times.spikes) == (3, 1.0, [])


TABLE = """\
model,gpu,num_gpus,num_layers,hidden_size,num_attention_heads,seq_length,vocab_size,\
tensor_parallel,pipeline_parallel,micro_batch_size,global_batch_size,zero_stage,\
activation_checkpointing,sequence_parallel,flash_attention,precision,status,iteration_time_s,\
peak_memory_gib,finished_at,adapter
GPT 3.6B,A100,64,30,3072,32,2048,50257,2,1,4,512,1,selective,1,1,bf16,ok,4.5,61.5,\
2026-03-01T10:00:00Z,megatron-lm
GPT 3.6B,A100,64,30,3072,32,2048,50257,1,1,32,2048,0,none,0.0,0.0,fp16,oom,,,,megatron-lm
"""


def test_a_table_has_a_run_in_each_row(tmp_path: Path) -> None:
    ran, failed = read_runs(written(tmp_path, TABLE, "runs.csv"))
    assert (ran.source, ran.adapter) == ("runs.csv, row 2", "megatron-lm")
    assert ran.steps[0].time_s == 4.5
    assert ran.peak_memory_gib == 61.5
    assert ran.stated["finished_at"] == "2026-03-01T10:00:00Z"
    strategy = subject_of_run(ran).strategy
    assert strategy is not None
    assert strategy.short() == (
        "TP 2 · PP 1 · MBS 4 · GAS 4 · ZeRO-1 · 8 nodes · SP · selective recompute · bf16"
    )
    assert (failed.steps, failed.stated["status"]) == ((), "oom")
    assert failed.stated["finished_at"].startswith("20"), "when the file was written"
    other = subject_of_run(failed).strategy
    assert other is not None
    assert (other.zero_stage, other.flash_attention) == (0, False)


def test_rows_of_iterations_are_no_table_of_runs(tmp_path: Path) -> None:
    text = "step,iteration_time_s,micro_batch_size\n" + "\n".join(f"{n},2.0,4" for n in range(1, 9))
    (run,) = read_runs(written(tmp_path, text, "log.csv"))
    assert len(run.steps) == 8
