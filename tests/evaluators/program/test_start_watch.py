"""What a node reads in the log of a start that it may end."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autotune.measurement.metrics import LONG_ITERATION_S
from evaluators.adapter.adapter import Adapter, AdapterReader, OneStart
from evaluators.program.adapter_program import PlannedStarts
from evaluators.program.start_watch import StartWatch
from evaluators.program.watched_run import start_watch_files, watched_function
from evaluators.stopping_rule import Verdict
from evaluators.trial import TrialProtocol, TrialRequest
from tests.evaluators.adapter.samples import MACHINE, MODEL, event, my_script, strategy
from tests.patience import PATIENCE_S

GO_ON, ENOUGH, GIVE_UP, OUT_OF_TIME = Verdict
PROTOCOL = TrialProtocol(
    accumulations=(1, 4), measured_iterations=3, most_iterations=8, give_up_above_s=(9.0, 20.0)
)
WARMUP = 2


@pytest.fixture
def adapter(tmp_path: Path) -> Adapter:
    *others, memory = my_script(tmp_path).read
    return replace(my_script(tmp_path), read=(*others, replace(memory, at_end=False)))


def watch(adapter: Adapter, *, start: int = 1, protocol: TrialProtocol = PROTOCOL) -> StartWatch:
    return StartWatch(json.loads(files_of(adapter, protocol=protocol)[f"watch-{start}.json"]))


def files_of(adapter: Adapter, *, protocol: TrialProtocol = PROTOCOL) -> Mapping[str, str]:
    request = TrialRequest(
        token="one",
        transformer=MODEL,
        machine=MACHINE,
        strategy=strategy(gradient_accumulation_steps=4),
        protocol=protocol,
        directory=Path("one"),
    )
    starts = PlannedStarts(adapter=replace(adapter, warmup_iterations=WARMUP), request=request)
    return start_watch_files(protocol, adapter, starts.parts)


def iteration(step: int, seconds: float, *, rank: int = 0, start: int = 1, loss: str = "2") -> str:
    text = f"[{step}/10] loss={loss} {1000 * seconds:.3f}ms"
    return f"[start {start} rank {rank} {step}.000000s] {text}"


MEMORY = "[start 1 rank 1 9.000000s] peak 310 MB"


def verdicts(watching: StartWatch, *lines: str, elapsed_s: float = 5.0) -> list[Verdict]:
    return [watching.take(line, elapsed_s=elapsed_s)[0] for line in lines]


def test_a_start_ends_once_iterations_agree_and_memory_is_known(
    adapter: Adapter,
) -> None:
    iterations = [iteration(n, 9.0 if n <= WARMUP else 1.0) for n in range(1, 6)]
    assert verdicts(watch(adapter), *iterations, MEMORY) == [GO_ON] * 5 + [ENOUGH]
    assert verdicts(watch(adapter), MEMORY, *iterations) == [GO_ON] * 5 + [ENOUGH]


def test_two_long_iterations_that_agree_are_enough(adapter: Adapter) -> None:
    protocol = replace(PROTOCOL, give_up_above_s=())
    for seconds, last in ((LONG_ITERATION_S + 1, ENOUGH), (LONG_ITERATION_S - 1, GO_ON)):
        iterations = [iteration(n, seconds) for n in range(1, WARMUP + 3)]
        found = verdicts(watch(adapter, protocol=protocol), MEMORY, *iterations)
        assert found == [GO_ON] * (WARMUP + 2) + [last]


def test_other_ranks_and_starts_do_not_count_as_agreement(
    adapter: Adapter,
) -> None:
    spread = [iteration(n, 1.0 + 0.2 * (n % 2)) for n in range(1, 8)]
    others = [iteration(n, 1.0, rank=1) for n in range(1, 10)]
    later = [iteration(n, 1.0, start=2) for n in range(1, 10)]
    lost = [iteration(n, 1.0, loss="nan") for n in range(3, 8)]
    assert set(verdicts(watch(adapter), MEMORY, *spread, *later)) == {GO_ON}
    assert set(verdicts(watch(adapter), MEMORY, spread[0], *others)) == {GO_ON}
    assert set(verdicts(watch(adapter), MEMORY, *lost)) == {GO_ON}


def test_a_trainer_that_reports_at_its_end_is_only_given_up(
    adapter: Adapter,
) -> None:
    *others, memory = adapter.read
    silent = replace(adapter, read=(*others, replace(memory, at_end=True)))
    assert adapter.ends_early
    assert not silent.ends_early
    agreed = [iteration(n, 1.0) for n in range(1, 9)]
    assert set(verdicts(watch(silent), MEMORY, *agreed)) == {GO_ON}
    slow = [iteration(n, 10.0) for n in range(1, 5)]
    assert verdicts(watch(silent), *slow) == [GO_ON] * 3 + [GIVE_UP]


def test_the_last_gas_of_one_start_ends_it_and_each_is_given_up(
    adapter: Adapter,
) -> None:
    one_start = OneStart(places={"--then": "{first_global_batch_size}"})
    shared = replace(adapter, one_start=one_start)
    first: list[Any] = [MEMORY, *(iteration(n, 1.0) for n in range(1, 6))]
    last = [iteration(n, 4.0) for n in range(6, 9)]
    assert verdicts(watch(shared), *first, *last) == [GO_ON] * 8 + [ENOUGH]
    uneven = [iteration(n, 4.0 + n % 2) for n in range(6, 13)]
    assert set(verdicts(watch(shared), *first, *uneven)) == {GO_ON}
    slow = [iteration(n, 30.0) for n in (6, 7)]
    assert verdicts(watch(shared), *first, *slow)[-2:] == [GO_ON, GIVE_UP]
    assert verdicts(watch(shared), *(iteration(n, 10.0) for n in range(1, 5)))[-1] is GIVE_UP
    # What is still to come at GAS 4 are 2 iterations of 4 s, and no other start.
    for limit_s, verdict in ((12.0, OUT_OF_TIME), (14.0, GO_ON)):
        protocol = replace(PROTOCOL, time_limit_s=limit_s)
        assert verdicts(watch(shared, protocol=protocol), *first)[-1] is verdict


def _written_to(kind: str) -> tuple[AdapterReader, list[bytes]]:
    """Return a reader, and what a trainer writes in one file of this kind: of each iteration, and
    first its head where there is one."""
    steps = [(n, 9.0 if n <= WARMUP else 1.0) for n in range(1, 6)]
    if kind == "tensorboard":
        written = [event(n, "took", s, at_s=float(n)) for n, s in steps]
        return AdapterReader(tensorboard="tb", iteration_time_s="took"), [b"", *written]
    if kind == "csv":
        written = [f"{n},{s}\n".encode() for n, s in steps]
        return AdapterReader(csv="figures", iteration_time_s="took"), [b"step,took\n", *written]
    written = [f'{{"step": {n}, "took": {s}}}\n'.encode() for n, s in steps]
    return AdapterReader(json_lines="figures", iteration_time_s="took"), [b"", *written]


@pytest.mark.parametrize("kind", ["json_lines", "csv", "tensorboard"])
def test_what_a_file_tells_while_it_is_written_ends_a_start_too(
    kind: str, adapter: Adapter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = (
        Path("start-1", "tb", "x.tfevents.1") if kind == "tensorboard" else Path("start-1/figures")
    )
    path.parent.mkdir(parents=True)
    reader, written = _written_to(kind)
    watching = watch(replace(adapter, read=(reader,)))
    found = []
    for text in written:
        for half in (text[:-2], text[-2:]):  # a row that is there in part does not count
            with path.open("ab") as file:
                file.write(half)
            found.append(watching.look(elapsed_s=5.0)[0])
    assert found == [GO_ON] * 11 + [ENOUGH]


def test_the_watch_runs_on_a_node_without_this_package(adapter: Adapter, tmp_path: Path) -> None:
    reader, written = _written_to("json_lines")
    start = tmp_path / "start-1"
    start.mkdir()
    (start / "figures").write_bytes(b"".join(written))
    (tmp_path / "trial.log").touch()
    for name, text in files_of(replace(adapter, read=(reader,))).items():
        (tmp_path / name).write_text(text)
    words = [sys.executable, "-IS", "-c", _ALONE, "watch-1.json", "0", "5.0"]
    ran = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (ENOUGH, "")
    note = json.loads((tmp_path / "ended-early-1.json").read_text())
    assert note == {"iterations": 5, "given_up": False}
    # Rank 0, which may be killed, need not copy it.
    assert (tmp_path / "found-1-0-0").read_bytes() == b"".join(written)


_ALONE = (
    "import runpy, sys; sys.path.insert(0, '.'); runpy.run_path('start_watch.py', None, '__main__')"
)


def test_a_start_is_out_of_time_if_the_next_could_not_finish(
    adapter: Adapter,
) -> None:
    # The next one starts for a second, and runs 2 + 2 iterations of 4 s.
    agreed: list[Any] = [MEMORY, *(iteration(n, 1.0) for n in range(1, 6))]
    for limit_s, verdict in ((21.0, OUT_OF_TIME), (23.0, ENOUGH)):
        protocol = replace(PROTOCOL, time_limit_s=limit_s)
        assert verdicts(watch(adapter, protocol=protocol), *agreed)[-1] is verdict


def test_a_start_that_is_about_to_end_is_left_alone(adapter: Adapter) -> None:
    (segment,) = json.loads(files_of(adapter)["watch-1.json"])["segments"]
    agreed = [iteration(step, 1.0 + 0.2 * (step % 2)) for step in range(1, segment["last"] + 1)]
    assert verdicts(watch(adapter), MEMORY, *agreed)[-1] is GO_ON


@pytest.mark.parametrize("start", [0.0, 0.5], ids=["at once", "later"])
def test_a_watch_ends_with_its_start(adapter: Adapter, start: float, tmp_path: Path) -> None:
    for name, text in files_of(adapter).items():
        (tmp_path / name).write_text(text)
    (tmp_path / "trial.log").touch()
    script = watched_function([sys.executable])
    words = ["bash", "-c", f"{script}\nwatched 1 bash -c 'sleep {start}; exit 7'"]
    ran = subprocess.run(words, cwd=tmp_path, timeout=PATIENCE_S, check=False, capture_output=True)
    assert (ran.returncode, ran.stderr) == (7, b"")
