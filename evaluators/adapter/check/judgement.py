"""Judge whether an adapter reads the right values, from a few small training runs.

Printed times are compared with the arrival of their lines, and the printed size with the model's.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice, pairwise
from math import inf
from pathlib import Path
from statistics import fmean, median

from autotune.measurement.metrics import AccumulationMeasurement, agree
from autotune.schemas.choices import TrialState
from evaluators.adapter.adapter import Adapter, AdapterReader
from evaluators.adapter.check.starts import (
    FEW,
    MANY,
    MORE_BATCHES,
    MORE_SAMPLES,
    OF_BATCHES,
    ONE_START,
    PLAIN,
)
from evaluators.adapter.figures import LINE, SEARCHED, ReportedIteration, StartFigures
from evaluators.adapter.log import AdapterLog
from evaluators.adapter.names import OF_STRATEGY
from evaluators.adapter.own_dimensions import FIGURES
from evaluators.adapter.readers import rows_of
from evaluators.program.adapter_program import PlannedStarts
from evaluators.trial import TrialOutcome, TrialRequest
from search_spaces.transformer import Transformer

LEAST_GROWTH = 1.5
"""Minimum growth of an iteration with four times the samples, in four micro-batches or in one. Up
to five sixths of an iteration may be independent of the batch (launches, the optimizer,
communication). Trainers that ignore a batch show 1, plus or minus noise."""
MOST_GROWTH = 6.0
"""Maximum growth: four times the work, and half as much again for cache misses or a busy
machine."""
LEAST_MEMORY_GROWTH = 1.05
"""Minimum growth of memory with four samples at once, for devices on which they take no extra time.
Two equal runs differ by less."""
MOST_LINES = 3
"""Maximum lines in which a reader finds the number of one iteration of one micro-batch."""


@dataclass(frozen=True, kw_only=True)
class CheckFinding:
    """One finding: whether a check passed, and what was observed.

    Attributes:
        timing: it depends on times, which a busy machine may have affected.
        warns: nothing is wrong, but it costs more than necessary, or was not checked.
        shown: false if the observations neither confirm nor refute it.
    """

    what: str
    good: bool
    text: str
    timing: bool = False
    warns: bool = False
    shown: bool = True


def judge(
    adapter: Adapter,
    requests: Mapping[str, TrialRequest],
    outcomes: Mapping[str, TrialOutcome],
    *,
    earlier: Mapping[str, TrialOutcome] | None = None,
) -> list[CheckFinding]:
    """Return the findings of each run and, if all batch runs succeeded, of their comparison. After
    a failed run, others may be missing.

    Args:
        earlier: the same runs in a previous attempt, repeated because their times did not fit.

    Raises:
        OSError: a log cannot be read.
    """
    findings = [_start(name, outcome) for name, outcome in outcomes.items()]
    if not all(outcomes[name].status is TrialState.OK for name in OF_BATCHES if name in outcomes):
        return findings
    starts = {
        name: _CheckedStart(
            adapter=adapter,
            request=requests[name],
            outcome=outcomes[name],
            earlier=(earlier or {}).get(name),
        )
        for name in OF_BATCHES
        if name in outcomes
    }
    plain = starts[PLAIN]
    findings += filter(None, (_overrun(name, start) for name, start in starts.items()))
    findings += filter(None, [_repeated(plain)])
    findings += _silent_readers(adapter, starts.values())
    findings += filter(None, (_clock(name, start) for name, start in starts.items()))
    alone = (name for name in starts if name not in (PLAIN, ONE_START))
    findings += (_growth(name, starts[name], plain) for name in alone)
    findings += filter(None, [_growth_in_one(starts)])
    findings += filter(None, [_exchanged(starts), _memory(list(starts.values()))])
    findings += filter(None, [_size(plain), _late_memory(plain), _late_times(plain)])
    return findings


@dataclass(frozen=True, kw_only=True)
class _CheckedStart:
    """A successful run, with everything read from its log and files.

    Attributes:
        earlier: its previous attempt; None if there was none or it failed.
    """

    adapter: Adapter
    request: TrialRequest
    outcome: TrialOutcome
    earlier: TrialOutcome | None = None

    @property
    def log(self) -> Path:
        return Path(self.outcome.log_path or "")

    @property
    def planned(self) -> PlannedStarts:
        return PlannedStarts(adapter=self.adapter, request=self.request)

    @cached_property
    def figures(self) -> StartFigures:
        return self._figures_in(self.log)

    def _figures_in(self, log: Path) -> StartFigures:
        taken = AdapterLog(self.adapter.read, self.planned.parts)
        taken.read(log)
        taken.read_files(log.parent)
        return taken.starts[0].figures

    @property
    def looks(self) -> list[StartFigures]:
        before = Path(self.earlier.log_path or "") if self.earlier else None
        return [self.figures, *([self._figures_in(before)] if before else [])]

    @property
    def measurements(self) -> tuple[AccumulationMeasurement, ...]:
        """The measurements; the shorter of two attempts, since a busy machine only adds time."""
        if self.earlier is None:
            return self.outcome.measurements
        pairs = zip(self.outcome.measurements, self.earlier.measurements, strict=True)
        return tuple(min(pair, key=lambda m: median(m.iteration_times_s)) for pair in pairs)

    @property
    def requested_iterations(self) -> int:
        return sum(part.iterations for part in self.figures.parts)

    @property
    def time_s(self) -> float:
        return median(self.measurements[-1].iteration_times_s)

    @property
    def memory_gib(self) -> float | None:
        return max(self.outcome.peak_memory_gib, default=None)

    @cached_property
    def lines(self) -> list[str]:
        return list(printed(self.log))


def _start(name: str, outcome: TrialOutcome) -> CheckFinding:
    if outcome.status is not TrialState.OK:
        return CheckFinding(what=name, good=False, text=outcome.error or outcome.status.value)
    text = ", then ".join(
        f"{len(m.iteration_times_s)} iterations of {median(m.iteration_times_s):.4g} s"
        for m in outcome.measurements
    )
    return CheckFinding(what=name, good=True, text=text)


def _overrun(name: str, start: _CheckedStart) -> CheckFinding | None:
    """Return a problem if a trainer continues after its last iteration; one extra line is allowed,
    which may be a closing message."""
    ranks = start.figures.ranks.values()
    steps = [step for rank in ranks for step in rank.iterations]
    # A trainer that reports every tenth iteration may have run up to ten times as many.
    if max(steps) - min(steps) <= start.requested_iterations * start.figures.apart:
        return None
    requested = start.requested_iterations
    text = f"the trainer reports iteration {max(steps)}, but only {requested} were requested"
    return CheckFinding(what=f"{name}: iterations", good=False, text=text)


def _repeated(plain: _CheckedStart) -> CheckFinding | None:
    """Return a problem if many lines report the same iteration of one micro-batch: the number that
    is read is then something else. A progress bar is redrawn at will, but still counts."""
    figures = plain.figures
    ranks = figures.ranks.values()
    if 2 * len(figures.iterations) * figures.apart >= plain.requested_iterations:
        return None
    reported = sum(len(rank.iterations) for rank in ranks)
    for reader in plain.adapter.read:
        if reader.log and ("step" in re.compile(reader.log).groupindex or reader.step):
            lines = sum(bool(re.search(reader.log, line)) for line in plain.lines)
            if lines > MOST_LINES * reported:
                words = f"{lines} lines that match {reader.log} report {reported} iterations"
                return CheckFinding(what="step", good=False, text=words)
    return None


def _silent_readers(adapter: Adapter, starts: Iterable[_CheckedStart]) -> list[CheckFinding]:
    found = [any(_finds(place, adapter, start) for start in starts) for place in _places(adapter)]
    provided = {
        name
        for place, has in zip(_places(adapter), found, strict=True)
        if has
        for name in _provided_by(adapter.read[place])
    }
    machine = next(iter(starts)).request.machine
    # Readers of device memory find nothing if there is no device.
    expected = {"peak_memory_gib"} if machine.peak_tflops is None else set()
    return [
        CheckFinding(
            what=f"reader {place + 1}",
            good=False,
            text=f"nothing matches {adapter.read[place].log or adapter.read[place].file}",
        )
        for place, has in zip(_places(adapter), found, strict=True)
        if not has and not _provided_by(adapter.read[place]) <= provided | expected
    ]


def _places(adapter: Adapter) -> range:
    return range(len(adapter.read))


def _finds(place: int, adapter: Adapter, start: _CheckedStart) -> bool:
    reader = adapter.read[place]
    if reader.log:
        return any(map(re.compile(reader.log).search, start.lines))
    order = [n for n in _places(adapter) if adapter.read[n].file].index(place)
    files = start.log.parent.glob(f"found-*-{order}-*")
    return any(True for file in files for _ in rows_of(reader, file))


def _provided_by(reader: AdapterReader) -> set[str]:
    groups = set(re.compile(reader.log).groupindex) if reader.log else set()
    figures = {name for name in FIGURES if name in groups or getattr(reader, name)}
    timed = {"iteration_time_s"} if reader.arrival else set()
    return (figures | timed | groups & set(OF_STRATEGY) | set(reader.echo)) - {"step"} or groups


def _clock(name: str, start: _CheckedStart) -> CheckFinding | None:
    judgements = [clock_judgement(figures.iterations) for figures in start.looks]
    found = [judgement for judgement in judgements if judgement is not None]
    if not found:
        return None
    best = next((each for each in found if each.good), found[0])
    return CheckFinding(what=f"{name}: clock", good=best.good, text=best.text, timing=True)


def _growth(name: str, start: _CheckedStart, plain: _CheckedStart) -> CheckFinding:
    ratio = _ratio(start.measurements[-1], plain.measurements[-1])
    text = f"an iteration takes {ratio:.2f} times as long as with one micro-batch of one sample"
    if name == MORE_SAMPLES and ratio <= MOST_GROWTH and _grows_in_memory(start, plain):
        return CheckFinding(what=f"{name}: growth", good=True, text=f"{text}, and more memory")
    return _growth_finding(name, ratio, text)


def _growth_in_one(starts: Mapping[str, _CheckedStart]) -> CheckFinding | None:
    if ONE_START not in starts:
        return None
    first, last = starts[ONE_START].measurements
    ratio = _ratio(last, first)
    text = f"an iteration takes {ratio:.2f} times as long at GAS {MANY} as at GAS {FEW} before it"
    return _growth_finding(ONE_START, ratio, text)


def _growth_finding(name: str, ratio: float, text: str) -> CheckFinding:
    shown = ratio >= LEAST_GROWTH
    if not shown:
        text += (
            f", less than {LEAST_GROWTH:g} times: the trainer may not use the larger "
            "batch. If it does, a larger model shows it: --model layers=24,hidden=2048,heads=16, "
            "or a longer --seq-length"
        )
    elif ratio > MOST_GROWTH:
        text += f"; {LEAST_GROWTH:g} to {MOST_GROWTH:g} times are plausible"
    good = LEAST_GROWTH <= ratio <= MOST_GROWTH
    return CheckFinding(what=f"{name}: growth", good=good, text=text, timing=True, shown=shown)


def _ratio(longer: AccumulationMeasurement, shorter: AccumulationMeasurement) -> float:
    """Return the ratio of iteration times. A busy machine only adds time, so for few iterations the
    lower quartile is more reliable than the median."""
    one, other = sorted(longer.iteration_times_s), sorted(shorter.iteration_times_s)
    return min(median(one) / median(other), one[len(one) // 4] / other[len(other) // 4])


def _grows_in_memory(start: _CheckedStart, plain: _CheckedStart) -> bool:
    return (start.memory_gib or 0.0) > LEAST_MEMORY_GROWTH * (plain.memory_gib or inf)


def _exchanged(starts: Mapping[str, _CheckedStart]) -> CheckFinding | None:
    accumulated, at_once = starts.get(MORE_BATCHES), starts.get(MORE_SAMPLES)
    if accumulated is None or at_once is None or not _grows_in_memory(accumulated, at_once):
        return None
    if accumulated.time_s > at_once.time_s:
        return None
    text = f"GAS {MANY} takes more memory than MBS {MANY}, and no more time: are they swapped?"
    return CheckFinding(what="batch", good=False, text=text, timing=True)


def _memory(starts: Collection[_CheckedStart]) -> CheckFinding | None:
    request = next(iter(starts)).request
    peaks_gib = [start.memory_gib for start in starts if start.memory_gib is not None]
    if not peaks_gib:
        return None
    ranks = request.strategy.world_size(request.machine.gpus_per_node)
    least_gib = request.transformer.parameters * 2 / ranks / 2**30
    text = f"the fullest GPU takes {max(peaks_gib):.3g} GiB of {request.machine.memory_gib:g} GiB"
    good = least_gib <= min(peaks_gib) and max(peaks_gib) <= request.machine.memory_gib
    if min(peaks_gib) < least_gib:
        text += f", and as little as {min(peaks_gib):.2g} GiB in another start; "
        text += f"its share of the weights is already {least_gib:.2g} GiB"
    return CheckFinding(what="memory", good=good, text=text)


def _size(start: _CheckedStart) -> CheckFinding | None:
    judgement = size_judgement(
        start.lines, start.figures.parameters, model=start.request.transformer
    )
    return (
        None
        if judgement is None
        else CheckFinding(what="model", good=judgement[0], text=judgement[1])
    )


def _late_memory(start: _CheckedStart) -> CheckFinding | None:
    if not start.adapter.ends_early:
        return None
    memory, steps = (_lines_that_tell(figure, start) for figure in ("peak_memory_gib", "step"))
    if not memory or memory[0] < max(steps, default=0):
        return None
    text = "it comes after the last iteration, and each start would wait for it: add at_end = true"
    return CheckFinding(what="memory: late", good=True, text=text, warns=True)


def _late_times(start: _CheckedStart) -> CheckFinding | None:
    judgement = clock_judgement(start.figures.iterations)
    if not start.adapter.ends_early or judgement is None or not judgement.together:
        return None
    text = "all lines come at once, when it ends: have it print each when it is due, or add at_end"
    return CheckFinding(what="times: late", good=True, text=text, warns=True)


def _lines_that_tell(figure: str, start: _CheckedStart) -> list[int]:
    readers = [each for each in start.adapter.read if each.log and each.reports(figure)]
    patterns = [re.compile(reader.log) for reader in readers]
    lines = enumerate(start.lines)
    return [place for place, line in lines if any(each.search(line) for each in patterns)]


CLOCKS_AGREE = 0.1
"""Maximum difference between the two, as a share of an iteration."""
BETWEEN_S = 0.02
"""Seconds that a trainer may spend between iterations, outside the printed time."""
BEFORE_S = 0.002
"""Seconds by which lines may arrive faster than the printed time."""
MOST_SPREAD = 0.3
"""Maximum share of an iteration attributed to a busy machine, so that a clock that is wrong by a
factor is still detected when arrivals are irregular."""
LEAST_SHARE = 0.05
"""Minimum share of the printed time in the interval between two lines, however short iterations
are."""


TOGETHER = 0.02
"""Lines that arrive within this share of all printed times were buffered until the end."""


@dataclass(frozen=True, kw_only=True)
class ClockJudgement:
    """Whether printed times are plausible.

    Attributes:
        text: the two clocks in words.
        together: all lines arrived at once, so their arrivals say nothing about single iterations.
    """

    good: bool
    text: str
    together: bool = False


def clock_judgement(iterations: Sequence[ReportedIteration]) -> ClockJudgement | None:
    """Return whether the two agree; None if the lines are not in order of arrival, like those of a
    file.

    Times of lines that arrive together are plausible if their sum does not exceed the duration of
    the run so far.

    On a busy machine lines arrive late. A late line changes one pair's difference, which the median
    ignores, and the next pair's in the opposite direction, which the mean ignores: the smaller of
    the two is compared. The tolerance is the spread of the differences (their median absolute
    deviation).
    """
    timed = [each for each in iterations if each.arrived_s is not None]
    pairs = [(a, b) for a, b in pairwise(timed) if b.step == a.step + 1][1:]
    if not pairs:
        return None
    last_s = timed[-1].arrived_s or 0.0
    printed_in_all_s = sum(each.time_s or 0.0 for each in timed)
    if last_s - (timed[0].arrived_s or 0.0) < TOGETHER * printed_in_all_s:
        words = f"{printed_in_all_s:.4g} s as they were read, in all {last_s:.4g} s after the start"
        good = printed_in_all_s <= last_s * (1 + CLOCKS_AGREE)
        return ClockJudgement(good=good, text=words, together=good)
    between_s = [(b.arrived_s or 0.0) - (a.arrived_s or 0.0) for a, b in pairs]
    printed_s = [b.time_s or 0.0 for _, b in pairs]
    arrived_s = median(between_s)
    rests_s = [between - printed for between, printed in zip(between_s, printed_s, strict=True)]
    rest_s = median(rests_s)
    spread_s = min(median(abs(rest - rest_s) for rest in rests_s), MOST_SPREAD * arrived_s)
    rest_s = min(rest_s, fmean(rests_s), key=abs)
    agrees_s = CLOCKS_AGREE * arrived_s + spread_s
    good = -agrees_s - BEFORE_S <= rest_s <= agrees_s + BETWEEN_S
    good = good and median(printed_s) >= LEAST_SHARE * arrived_s
    words = f"{median(printed_s):.4g} s as they were read, {arrived_s:.4g} s between the lines"
    return ClockJudgement(good=good, text=words)


SIZE_AGREES = 0.1
"""Maximum relative difference of a size: padding, biases and positions may or may not be counted. A
number read by an adapter must agree as closely as that of a trial."""
LEAST_PARAMETERS = 1000
"""Smaller numbers count something else."""

_NUMBER = r"(?P<number>\d[\d,_]*(?:\.\d+)?)"
_FACTOR = r"(?:\s?(?P<factor>[KMBGT]|thousand|million|billion)\b)?"
_AFTER = re.compile(
    rf"param(?:eter)?s?\b(?P<between>[^0-9:=]{{0,60}})[:=]\s*{_NUMBER}{_FACTOR}", re.IGNORECASE
)
_BEFORE = re.compile(
    rf"(?<![\w.]){_NUMBER}{_FACTOR}\s+(?:(?:total|trainable|model)\s+)?param(?:eter)?s\b",
    re.IGNORECASE,
)
_OF_A_PART = re.compile(r"persistent|offload|bucket|group|frozen|non-trainable", re.IGNORECASE)
_IN_PARENTHESES = re.compile(r"\([^)]*\)")
_FACTORS = {"": 1.0, "k": 1e3, "thousand": 1e3, "m": 1e6, "million": 1e6}
_FACTORS |= {"b": 1e9, "g": 1e9, "billion": 1e9, "t": 1e12}
_WORDS = {"in millions": 1e6, "in billions": 1e9}


@dataclass(frozen=True, kw_only=True)
class PrintedModelSize:
    """A printed number of parameters.

    Attributes:
        text: as printed, with adjacent words.
        rounded: half a unit of its last digit.
    """

    text: str
    parameters: float
    rounded: float

    def fits(self, parameters: int) -> bool:
        return abs(self.parameters - parameters) <= SIZE_AGREES * parameters + self.rounded


def size_judgement(
    lines: Iterable[str], parameters: float | None, *, model: Transformer
) -> tuple[bool, str] | None:
    """Return whether the trained model has the size of the requested one, with both sizes in words;
    None if no size was printed.

    Args:
        lines: lines that the trainer prints, searched if `parameters` is None.
        parameters: the size read by the trainer's adapter.
    """
    size = model.trained_parameters
    sizes = printed_sizes(lines) if parameters is None else []
    if parameters is not None:
        words, good = f"{parameters:,.0f} parameters", agree(parameters, size)
    elif sizes:
        near = min(sizes, key=lambda each: abs(each.parameters - size))
        words, good = near.text, near.fits(size)
    else:
        return None
    words = f'the trainer says "{words}", and {model.name} has {size:,}'
    return good, words if good else f"{words}; --model names the one that it trains"


def printed_sizes(lines: Iterable[str]) -> list[PrintedModelSize]:
    """Return the distinct sizes in lines, including those of parts of a model."""
    found = (
        _printed_size(line) for line in lines if "aram" in line and not _OF_A_PART.search(line)
    )
    return list(
        dict.fromkeys(size for size in found if size and size.parameters >= LEAST_PARAMETERS)
    )


def _printed_size(line: str) -> PrintedModelSize | None:
    plain = _IN_PARENTHESES.sub("", line)
    match = _AFTER.search(plain) or _BEFORE.search(plain)
    if match is None:
        return None
    number, factor = match["number"].rstrip(",_"), match["factor"] or ""
    scale = _FACTORS[factor.lower()]
    between = (match.groupdict().get("between") or "").lower()
    scale *= next((times for words, times in _WORDS.items() if words in between), 1.0)
    digits = len(number.partition(".")[2])
    return PrintedModelSize(
        text=match[0].strip(),
        parameters=float(number.replace(",", "").replace("_", "")) * scale,
        rounded=scale / 2 / 10**digits,
    )


LINES_LOOKED_AT = 5000


@dataclass(frozen=True, kw_only=True)
class PatternMatch:
    """The first match of a pattern, or its longest matching prefix.

    Attributes:
        line: the matching line; empty if there is none.
        found: the groups.
        beginning: the longest prefix of the pattern that matches, if the whole does not.
    """

    pattern: str
    line: str = ""
    found: Mapping[str, str] | None = None
    beginning: str = ""


def matches(adapter: Adapter, log: Path) -> list[PatternMatch]:
    lines = list(printed(log))
    return [_match(reader, lines) for reader in adapter.read if reader.log]


def printed(log: Path) -> Iterator[str]:
    with log.open(encoding="utf-8", errors="replace") as file:
        stamped = filter(None, (LINE.match(line.rstrip("\n")) for line in file))
        yield from (match[4][:SEARCHED] for match in islice(stamped, LINES_LOOKED_AT))


def _match(reader: AdapterReader, lines: Sequence[str]) -> PatternMatch:
    pattern = re.compile(reader.log)
    for line in lines:
        if match := pattern.search(line):
            return PatternMatch(pattern=reader.log, line=line, found=match.groupdict(""))
    return PatternMatch(pattern=reader.log, beginning=_longest_beginning(reader.log, lines))


def _longest_beginning(pattern: str, lines: Sequence[str]) -> str:
    """Return the longest beginning of a pattern that matches a line; it is cut where the rest is a
    valid pattern."""
    for end in range(len(pattern) - 1, 0, -1):
        try:
            beginning = re.compile(pattern[:end])
        except re.error:
            continue
        if any(match and match[0] for match in map(beginning.search, lines)):
            return pattern[:end]
    return ""
