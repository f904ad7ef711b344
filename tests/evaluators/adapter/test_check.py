"""Whether the check notices mistakes in adapters, by real starts of a trainer that sleeps, and is
quiet about sound ones."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from evaluators.adapter.adapter import Adapter
from evaluators.adapter.check.judgement import (
    CheckFinding,
    clock_judgement,
    judge,
    matches,
    printed_sizes,
    size_judgement,
)
from evaluators.adapter.check.starts import check_starts
from evaluators.adapter.figures import ReportedIteration
from evaluators.adapter.reading import read_adapter
from evaluators.cluster.profile import ClusterProfile
from evaluators.program.adapter_program import AdapterProgram
from evaluators.program.program import AttemptEnd
from evaluators.trial import LOG, TrialOutcome, TrialRequest
from search_spaces.catalog import load_model
from tests.evaluators.adapter.checked_adapters import (
    ARGUMENTS,
    IGNORED,
    MEMORY,
    MILLISECONDS,
    MISTAKES,
    ONE_START,
    READINGS,
    TABLE,
    WAYS,
)
from tests.evaluators.adapter.samples import MACHINE, MODEL, my_script

TRAINER = Path(__file__).parent / "checked_trainer.py"
ONE_GPU = replace(MACHINE, gpus_per_node=1, peak_tflops=100.0)
LATE = f'{ARGUMENTS}"--late" = true\n'
AT_ONCE = 6
"""Starts at a time: two processors are then busy, as those of users are."""


def _program(adapter: Adapter) -> AdapterProgram:
    return AdapterProgram(ClusterProfile(name="local", adapter=adapter))


class StartedTrainers:
    """Starts of the trainer, which all adapters share that tell it the same."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def check(self, places: str, reading: str, *, again: bool = False) -> list[CheckFinding]:
        """Return what the check finds of an adapter whose starts are there."""
        adapter = self._adapter(places, reading)
        requests, outcomes = self._outcomes(adapter, places, again=False)
        if not again:
            return judge(adapter, requests, outcomes)
        _, second = self._outcomes(adapter, places, again=True)
        return judge(adapter, requests, second, earlier=outcomes)

    def _outcomes(
        self, adapter: Adapter, places: str, *, again: bool
    ) -> tuple[Mapping[str, TrialRequest], dict[str, TrialOutcome]]:
        folder = self._place(places, again=again)
        requests = check_starts(adapter, MODEL, ONE_GPU, folder).requests
        return requests, {
            name: _program(adapter).outcome(request, request.directory, _ended(request))
            for name, request in requests.items()
        }

    def run(self, places: str, *, again: bool = False) -> list[tuple[Adapter, TrialRequest]]:
        """Return the starts of an adapter, to be run."""
        adapter = self._adapter(places, TABLE if "config" not in places else READINGS["a file"])
        starts = check_starts(adapter, MODEL, ONE_GPU, self._place(places, again=again))
        return [(adapter, request) for request in starts.requests.values()]

    def _place(self, places: str, *, again: bool) -> Path:
        return self._folder / f"{hash(places):x}{'-again' * again}"

    def _adapter(self, places: str, reading: str) -> Adapter:
        folder = self._place(places, again=False)
        folder.mkdir(exist_ok=True)
        path = folder / "checked.toml"
        command = f'command = ["{{python}}", "-IS", "{TRAINER}"]'
        path.write_text(f"{command}\n[set]{places}{reading}")
        return read_adapter(path)


def _start(adapter: Adapter, request: TrialRequest) -> None:
    """Run one as the one rank of a trial does."""
    folder = request.directory
    folder.mkdir(parents=True)
    for name, text in _program(adapter).files(request, folder).items():
        (folder / name).write_text(text)
    environment = {"RANK": "0", "PATH": os.environ["PATH"]}
    words = [sys.executable, "-S", "rank_process.py", "start-1.json"]
    with (folder / LOG).open("wb") as log:
        ended = subprocess.run(words, cwd=folder, stdout=log, env=environment, check=False)
    (folder / "code").write_text(str(ended.returncode))


def _ended(request: TrialRequest) -> AttemptEnd:
    code = int((request.directory / "code").read_text())
    return AttemptEnd(
        status=None, reason="", exit_code=code, started_at=datetime.now(UTC), duration_s=1.0
    )


def _run(starts: list[tuple[Adapter, TrialRequest]]) -> None:
    with ThreadPoolExecutor(AT_ONCE) as threads:
        list(threads.map(lambda start: _start(*start), starts))


def _bad(findings: list[CheckFinding]) -> dict[str, str]:
    return {finding.what: finding.text for finding in findings if not finding.good}


@pytest.fixture(scope="module")
def trainers(tmp_path_factory: pytest.TempPathFactory) -> StartedTrainers:
    """Return the trainers, once all that tests look at have run."""
    started = StartedTrainers(tmp_path_factory.mktemp("check"))
    shared = (ARGUMENTS + ONE_START, ARGUMENTS + IGNORED, LATE)
    places = {
        *shared,
        *WAYS.values(),
        *(mistake.places or ARGUMENTS for mistake in MISTAKES.values()),
    }
    _run([start for each in sorted(places) for start in started.run(each)])
    return started


def _looked_at(trainers: StartedTrainers, places: str, reading: str) -> dict[str, str]:
    """Return what is found to be wrong, as the command does: of times, by a second look."""
    findings = trainers.check(places, reading)
    if any(finding.timing and not finding.good for finding in findings):
        again = trainers.run(places, again=True)
        if not again[0][1].directory.exists():
            _run(again)
        findings = trainers.check(places, reading, again=True)
    return _bad(findings)


def test_no_false_alarm_in_twenty_sound_adapters(trainers: StartedTrainers) -> None:
    alarms = {}
    for way, places in WAYS.items():
        for name, reading in READINGS.items():
            read = TABLE if name == "a file" and "config" not in places else reading
            if found := _looked_at(trainers, places, read):
                alarms[way, name] = found
    assert len(WAYS) * len(READINGS) == 20
    assert alarms == {}


def test_two_batches_in_one_start_are_tried(trainers: StartedTrainers) -> None:
    sound = trainers.check(ARGUMENTS + ONE_START, MILLISECONDS)
    assert [each.what for each in sound if "and" in each.what and not each.timing] == [
        "GAS 1 and 4"
    ]
    assert _looked_at(trainers, ARGUMENTS + ONE_START, MILLISECONDS) == {}
    assert set(_looked_at(trainers, ARGUMENTS + IGNORED, MILLISECONDS)) == {"GAS 1 and 4: growth"}


def test_a_micro_batch_that_costs_nothing_is_not_shown(trainers: StartedTrainers) -> None:
    ignored = MISTAKES["MBS at another place"].places
    looks = [each for again in (False, True) for each in _growths(trainers, ignored, again=again)]
    assert [(each.what, each.good, each.shown) for each in looks] == [
        ("GAS 4: growth", True, True),
        ("MBS 4: growth", False, False),
    ] * 2
    assert "a larger model shows it" in looks[-1].text


def _growths(trainers: StartedTrainers, places: str, *, again: bool) -> list[CheckFinding]:
    started = trainers.run(places, again=again)
    if not started[0][1].directory.exists():
        _run(started)
    found = trainers.check(places, MILLISECONDS, again=again)
    return [each for each in found if each.what.endswith("growth")]


def test_times_may_be_printed_at_the_end_where_they_are_true(trainers: StartedTrainers) -> None:
    """Lines that come together are no fault of their times: `ms * 1` is one."""
    true = trainers.check(LATE, MILLISECONDS)
    assert _looked_at(trainers, LATE, MILLISECONDS) == {}
    assert "times: late" in [each.what for each in true if each.warns]
    declared = trainers.check(LATE, MILLISECONDS + "at_end = true\n")
    assert not any(each.warns for each in declared)
    wrong = trainers.check(LATE, MILLISECONDS.replace("ms / 1000", "ms * 1"))
    assert {each.what for each in wrong if not each.good} >= {"GAS 1: clock", "GAS 4: clock"}


def test_other_dimensions_are_tried_as_far_as_the_machine_can(tmp_path: Path) -> None:
    path = tmp_path / "wide.toml"
    path.write_text("""command = ["train"]
[dimension.kernel]
values = ["plain", "fused"]
[set]
"--places" = ["{activation_checkpointing}", "{tensor_parallel}", "{zero_stage}", "{kernel}"]
"--pp" = ["{pipeline_parallel}", "{virtual_stages}", "{gradient_accumulation_steps}"]
"--sp" = "{sequence_parallel}"
[[refuse]]
when = "zero_stage == 0 or sequence_parallel != (tensor_parallel > 1)"
because = "it trains no such layout"
[[refuse]]
when = "gradient_accumulation_steps < pipeline_parallel or activation_checkpointing == 'selective'"
because = "it trains no such layout"
[[read]]
log = '(?P<step>.)(?P<iteration_time_s>.)'
""")
    adapter = read_adapter(path)
    found = check_starts(adapter, MODEL, MACHINE, tmp_path)
    tried = {name: request.strategy for name, request in found.requests.items()}
    assert list(tried) == [
        *("GAS 1", "GAS 4", "tensor_parallel 2", "pipeline_parallel 2", "zero_stage 2"),
        *("zero_stage 3", "activation_checkpointing full", "sequence_parallel on"),
        *("virtual_stages 2", "kernel fused"),
    ]
    assert tried["GAS 1"].zero_stage == 1
    assert tried["tensor_parallel 2"].sequence_parallel
    assert tried["pipeline_parallel 2"].gradient_accumulation_steps == 2
    assert not found.untried
    alone = check_starts(adapter, MODEL, ONE_GPU, tmp_path)
    assert alone.untried == (
        "tensor_parallel",
        "pipeline_parallel",
        "sequence_parallel",
        "virtual_stages",
    )
    few = check_starts(adapter, MODEL, MACHINE, tmp_path, batches_alone=True)
    assert list(few.requests) == ["GAS 1", "GAS 4"]


@pytest.mark.parametrize(("share", "good"), [("", True), (" * 1.08", False)])
def test_the_size_that_an_adapter_reads_counts_alone(
    share: str, good: bool, trainers: StartedTrainers
) -> None:
    parameters = f"n * {MODEL.parameters} / n{share}"
    size = f"[[read]]\nlog = 'training (?P<n>[\\d,]+) p'\nparameters = '{parameters}'\n"
    found = trainers.check(ARGUMENTS, MILLISECONDS + size)
    [finding] = [each for each in found if each.what == "model"]
    assert finding.good is good
    assert f"tiny has {MODEL.parameters:,}" in finding.text


def test_a_trainer_counts_multi_token_prediction_too() -> None:
    model = load_model("deepseek-v3")
    judged = size_judgement([], model.parameters + model.mtp_parameters, model=model)
    assert judged is not None
    assert judged[0]


def test_memory_read_at_the_end_is_warned_of_unless_declared(
    trainers: StartedTrainers,
) -> None:
    late = trainers.check(ARGUMENTS, READINGS["memory"])
    declared = trainers.check(ARGUMENTS, MILLISECONDS + MEMORY + "at_end = true\n")
    assert [each.what for each in late if each.warns] == ["memory: late"]
    assert not any(each.warns for each in declared)


def test_mistakes_that_are_easily_made_are_noticed(trainers: StartedTrainers) -> None:
    unseen = {
        name
        for name, mistake in MISTAKES.items()
        if not _looked_at(trainers, mistake.places or ARGUMENTS, mistake.reading)
    }
    assert unseen >= {name for name, mistake in MISTAKES.items() if mistake.unseen}
    assert len(unseen) <= 0.15 * len(MISTAKES), unseen


def _iterations(
    *, time_s: float, printed: float, busy: float, seed: int = 0
) -> list[ReportedIteration]:
    """Return iterations whose lines come late by up to `busy` seconds, most by much less."""
    chance = random.Random(seed)
    now_s, iterations = 0.0, []
    for step in range(1, 12):
        took_s = time_s * chance.uniform(0.9, 1.3)
        now_s += took_s + 0.001
        late_s = busy * chance.random() ** 4
        iterations.append(
            ReportedIteration(step=step, arrived_s=now_s + late_s, time_s=took_s * printed)
        )
    return iterations


@pytest.mark.parametrize("time_s", [0.005, 0.05, 0.5])
def test_a_busy_machine_does_not_make_a_clock_wrong(time_s: float) -> None:
    judged = [
        clock_judgement(_iterations(time_s=time_s, printed=1.0, busy=0.05, seed=seed))
        for seed in range(200)
    ]
    assert sum(not each.good for each in filter(None, judged)) <= 4


@pytest.mark.parametrize("printed", [1000, 0.001, 4, 0.25])
def test_a_clock_of_another_unit_is_wrong_on_a_busy_machine_too(printed: float) -> None:
    judged = [
        clock_judgement(_iterations(time_s=0.1, printed=printed, busy=0.05, seed=seed))
        for seed in range(200)
    ]
    assert not any(each.good for each in filter(None, judged))


@pytest.mark.parametrize(
    ("line", "parameters"),
    [
        (
            " > number of parameters on (tensor, pipeline) model parallel rank (0, 0): 345678",
            345678,
        ),
        ("Total number of parameters in billions: 0.12", 1.2e8),
        ("Model llama3 debugmodel size: 6,139,904 total parameters", 6139904),
        ("  Number of trainable parameters = 124,439,808", 124439808),
        ("Total number of parameters: 1.22G (2325.12MiB)", 1.22e9),
        ("10.5 M    Total params", 10.5e6),
        ("Parameter Offload: Total persistent parameters: 12345 in 23 params", None),
        ("2 parameters: lr=0.1", None),
    ],
)
def test_how_trainers_tell_their_size(line: str, parameters: float | None) -> None:
    assert [size.parameters for size in printed_sizes([line])] == (
        [parameters] if parameters else []
    )


def test_how_far_a_pattern_comes(tmp_path: Path) -> None:
    adapter = my_script(tmp_path, change=("loss=(?P<loss>", "los: (?P<loss>"))
    log = tmp_path / "trial.log"
    log.write_text("[start 1 rank 0 0.500000s] [1/6] loss=10.0 12.5ms\n")
    missed = matches(adapter, log)[0]
    assert missed.found is None
    assert missed.beginning == r"\[(?P<step>\d+)/\d+\] los"
    log.write_text("[start 1 rank 0 0.500000s] peak 301 MB\n")
    assert matches(adapter, log)[2].found == {"mb": "301"}
