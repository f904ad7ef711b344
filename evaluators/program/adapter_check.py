"""Whether an adapter tells what it should: three tiny starts, and what follows from them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice, pairwise
from pathlib import Path
from statistics import median

from autotune.schemas import TrialState
from evaluators.adapter.adapter import Adapter, AdapterReader
from evaluators.adapter.capabilities import capabilities_of_adapter
from evaluators.adapter.log import LINE, SEARCHED, AdapterLog
from evaluators.adapter.names import strategy_names
from evaluators.trial import TrialOutcome, TrialProtocol, TrialRequest
from search_spaces.dimension import fixed_default
from search_spaces.machine import Machine
from search_spaces.strategy import Strategy
from search_spaces.transformer import Transformer

FEW, MANY = 1, 4
LEAST_GROWTH = 1.5
"""Of an iteration with four times the micro-batches: below it they were hardly all trained."""
MOST_GROWTH = 8.0
CLOCKS_AGREE = 0.1
"""Share by which a printed time may differ from that between the arrivals of two lines."""
CLOCKS_AGREE_S = 0.02
LINES_LOOKED_AT = 5000


@dataclass(frozen=True, kw_only=True)
class CheckFinding:
    """One judgement: whether all is well, and what was seen."""

    what: str
    good: bool
    told: str


@dataclass(frozen=True, kw_only=True)
class PatternMatch:
    """What a pattern finds first, or how far it comes.

    Attributes:
        line: that it was found in; empty where it is in none.
        found: the groups.
        beginning: where nothing is found, the longest beginning of the pattern that is.
    """

    pattern: str
    line: str = ""
    found: Mapping[str, str] | None = None
    beginning: str = ""


def check_requests(
    adapter: Adapter, transformer: Transformer, machine: Machine, folder: Path
) -> dict[str, TrialRequest]:
    """Return by name the starts: one micro-batch of one sample, four, and one of four samples; the
    latter two where the adapter can say so."""
    values = {
        name: fixed_default(name, machine)[0] if value is None else value
        for name, value in capabilities_of_adapter(adapter).fixed
    }
    plain = Strategy(
        **{
            "tensor_parallel": 1,
            "pipeline_parallel": 1,
            "micro_batch_size": FEW,
            "gradient_accumulation_steps": FEW,
            "zero_stage": 0,
            "num_nodes": 1,
            "activation_checkpointing": "none",
            "precision": fixed_default("precision", machine)[0],
        }
        | values  # type: ignore[arg-type]
    )
    strategies = {"GAS 1": plain}
    if "gradient_accumulation_steps" in adapter.varied:
        strategies[f"GAS {MANY}"] = plain.with_accumulation(MANY)
    if "micro_batch_size" in adapter.varied:
        strategies[f"MBS {MANY}"] = replace(plain, micro_batch_size=MANY)
    return {
        name: TrialRequest(
            token=f"check-{number}",
            transformer=transformer,
            machine=machine,
            strategy=strategy,
            protocol=TrialProtocol(accumulations=(strategy.gradient_accumulation_steps,)),
            directory=folder / f"check-{number}",
        )
        for number, (name, strategy) in enumerate(strategies.items(), start=1)
    }


def judge(
    adapter: Adapter,
    requests: Mapping[str, TrialRequest],
    outcomes: Mapping[str, TrialOutcome],
) -> list[CheckFinding]:
    """Return what each start came to, and, where all went well, whether they fit together.

    Raises:
        OSError: a log cannot be read.
    """
    findings = [_start(name, outcomes[name]) for name in requests]
    if not all(finding.good for finding in findings):
        return findings
    times_s = {name: _median_s(outcome) for name, outcome in outcomes.items()}
    for name, outcome in outcomes.items():
        log = Path(outcome.log_path or "")
        findings += filter(None, [_clocks(name, adapter, requests[name], log)])
    plain_s = times_s["GAS 1"]
    for name, time_s in list(times_s.items())[1:]:
        least = LEAST_GROWTH if name.startswith("GAS") else 1.0
        findings.append(_growth(name, time_s / plain_s, least))
    memory = [peak for outcome in outcomes.values() for peak in outcome.peak_memory_gib]
    if memory:
        most = next(iter(requests.values())).machine.memory_gib
        told = f"the fullest rank takes {max(memory):.3g} GiB of {most:g} GiB"
        findings.append(CheckFinding(what="memory", good=0 < max(memory) <= most, told=told))
    return findings


def matches(adapter: Adapter, log: Path) -> list[PatternMatch]:
    """Return what each pattern of an adapter finds in a log; raises OSError."""
    lines = list(islice(_printed(log), LINES_LOOKED_AT))
    return [_match(reader, lines) for reader in adapter.read if reader.log]


def _start(name: str, outcome: TrialOutcome) -> CheckFinding:
    if outcome.status is not TrialState.OK:
        return CheckFinding(what=name, good=False, told=outcome.error or outcome.status.value)
    count = sum(len(m.iteration_times_s) for m in outcome.measurements)
    told = f"{count} iterations of {_median_s(outcome):.4g} s"
    return CheckFinding(what=name, good=True, told=told)


def _median_s(outcome: TrialOutcome) -> float:
    return median(time_s for m in outcome.measurements for time_s in m.iteration_times_s)


def _clocks(name: str, adapter: Adapter, request: TrialRequest, log: Path) -> CheckFinding | None:
    """Hold the times that were read against those between the arrivals of their lines; None where
    the trainer's lines come in no such order, as those of a file do."""
    names = strategy_names(request.transformer, request.machine, request.strategy)
    taken = AdapterLog(adapter.read, [names])
    taken.read(log)
    told = [i for i in taken.starts[0].figures.iterations if i.arrived_s is not None]
    pairs = [(a, b) for a, b in pairwise(told) if b.step == a.step + 1][1:]
    if not pairs:
        return None
    arrived_s = median((b.arrived_s or 0.0) - (a.arrived_s or 0.0) for a, b in pairs)
    printed_s = median(b.time_s or 0.0 for _, b in pairs)
    good = abs(arrived_s - printed_s) <= CLOCKS_AGREE * arrived_s + CLOCKS_AGREE_S
    told_of = f"{printed_s:.4g} s as they were read, {arrived_s:.4g} s between the lines"
    return CheckFinding(what=f"{name}: clock", good=good, told=told_of)


def _growth(name: str, ratio: float, least: float) -> CheckFinding:
    good = least <= ratio <= MOST_GROWTH
    told = f"an iteration takes {ratio:.2f} times as long as with one micro-batch of one sample"
    if not good:
        told += f"; {least:g} to {MOST_GROWTH:g} times are plausible"
    return CheckFinding(what=f"{name}: growth", good=good, told=told)


def _printed(log: Path) -> Iterator[str]:
    """Yield what ranks printed."""
    with log.open(encoding="utf-8", errors="replace") as file:
        for line in file:
            if stamped := LINE.match(line.rstrip("\n")):
                yield stamped[4][:SEARCHED]


def _match(reader: AdapterReader, lines: Sequence[str]) -> PatternMatch:
    pattern = re.compile(reader.log)
    for line in lines:
        if match := pattern.search(line):
            return PatternMatch(pattern=reader.log, line=line, found=match.groupdict(""))
    return PatternMatch(pattern=reader.log, beginning=_longest_beginning(reader.log, lines))


def _longest_beginning(pattern: str, lines: Sequence[str]) -> str:
    """Return as much of a pattern as some line has; cut where it is a pattern of its own."""
    for end in range(len(pattern) - 1, 0, -1):
        try:
            beginning = re.compile(pattern[:end])
        except re.error:
            continue
        if any(match and match[0] for match in map(beginning.search, lines)):
            return pattern[:end]
    return ""
