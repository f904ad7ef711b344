"""The line of a log that tells of an iteration, and a pattern that finds it."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice, pairwise

MOST_LINES = 20000
LONGEST_LINE = 2000

_ANSI = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")
_NUMBER = re.compile(
    r"(?<![\w.])[-+]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d*)?(?:[eE][-+]?\d+)?(?![\d.])|\b(?:nan|inf)\b"
)
_STEP = re.compile(r"\b(?:step|iter(?:ation)?|update|batch|it)\b\W*$", re.IGNORECASE)
_LOSS = re.compile(r"loss(?:[ _/.]train(?:ing)?)?\W*$", re.IGNORECASE)
_STEP_ITSELF = re.compile(r"(?<!/)\bstep\W*$", re.IGNORECASE)
_TIME = re.compile(
    r"(?:(?:time per iteration|iter(?:ation)?[ _]?time|step[ _]?tim(?:e|ing)|time[ _]per[ _]\w+"
    r"|elapsed|duration|took|\btime|\bdt|\bsec(?:onds)?)[^\d|,;]{0,20}|\bms\s?[:=]\s*)$",
    re.IGNORECASE,
)
_OTHER_TIME = re.compile(r"total|eta|remain|data|forward|backward|since|stamp|load", re.IGNORECASE)
_RATE = re.compile(
    r"(?:\b(?:tps|tok/s|throughput)\b|tokens?[ _]?(?:/|per)[ _]?s\w*)[^\d]{0,20}$", re.IGNORECASE
)
_RATE_AFTER = re.compile(r"\s*(?:tok(?:en)?s?|samples)(?:/| per )s", re.IGNORECASE)
_UNIT_BEFORE = re.compile(r"[(\[_ ](ms|us|s|sec|seconds)[)\]]?\W*$")
_UNIT_AFTER = re.compile(r"\s?(ms|us|µs|s|sec|seconds)\b")
_MEMORY = re.compile(
    r"(?:mem(?:ory)?|reserved|allocated|peak)(?:_\w+)?\b[^\d]{0,25}$", re.IGNORECASE
)
_MEMORY_UNIT = re.compile(r"(?<![A-Za-z])([KMGT]i?B|bytes)(?![A-Za-z])", re.IGNORECASE)
_PARAMETERS = re.compile(r"\bparam(?:eter)?s?\b[^\d]{0,25}$", re.IGNORECASE)
_PARAMETERS_AFTER = re.compile(
    r"\s+(?:(?:total|trainable|model)\s+)?param(?:eter)?s\b", re.IGNORECASE
)
_OF_A_PART = re.compile(
    r"rank|stage|shard|local|partition|per[ _]|group|bucket|frozen|million|billion|persistent",
    re.IGNORECASE,
)
LEAST = 1000
"""Fewer parameters are the number of something else."""
_BAR = re.compile(r"\|\s*(\d+)/\d+ \[")
BAR_PATTERN = r"\|\s*(?P<step>\d+)/\d+ \["

SECONDS = {"ms": "ms / 1000", "us": "us / 1000000", "µs": "us / 1000000"}
GIB = {
    "bytes": "memory / 1073741824",
    "k": "memory / 1048576",
    "m": "memory / 1024",
    "g": "memory",
    "t": "memory * 1024",
}
"""The expression of GiB, by a unit or the letter that it begins with: most trainers write MB and GB
and mean powers of 1024."""


@dataclass(frozen=True, kw_only=True)
class DraftedReader:
    """A `[[read]]` that was guessed, and the line that it was guessed from."""

    pattern: str
    line: str
    figures: tuple[tuple[str, str], ...] = ()
    arrival: bool = False
    at_end: bool = False


@dataclass(frozen=True, kw_only=True)
class _LineNumber:
    """A number of a line: where it is, and the texts on both sides of it."""

    start: int
    end: int
    before: str
    after: str
    text: str


@dataclass(frozen=True, kw_only=True)
class _Form:
    """Lines that differ in their numbers alone."""

    lines: tuple[str, ...]
    columns: tuple[_LineNumber, ...]
    numbers: tuple[tuple[str, ...], ...]

    def values(self, place: int) -> list[str]:
        return [numbers[place] for numbers in self.numbers]


def readers_of(log: str) -> list[DraftedReader]:
    """Return readers of a log: of iterations, and of memory where another line tells it.

    A line that tells of iterations is one of many that differ in numbers alone, of which one
    rises by as much each time. Where no time is told, the time is that between their arrivals.
    """
    lines = _lines(log)
    forms = _forms(lines)
    readers = [*_iterations(forms), *_bars(lines)][:1]
    if not readers or not any("loss" in name for name, _ in readers[0].figures):
        readers += _losses(forms)
    if not any(name == "peak_memory_gib" for reader in readers for name, _ in reader.figures):
        readers += [_placed(reader, readers, lines) for reader in _memory(lines)]
    return readers


def parameters_of(log: str) -> DraftedReader | None:
    """Return a reader of the line that tells the parameters of the whole model; None where no line
    does, or of a part alone."""
    for line in _lines(log):
        for place, column in enumerate(columns := _columns(line, list(_NUMBER.finditer(line)))):
            whole = column.text.replace(",", "")
            told = _PARAMETERS.search(column.before) or _PARAMETERS_AFTER.match(column.after)
            if told and whole.isdigit() and int(whole) >= LEAST and not _OF_A_PART.search(line):
                return DraftedReader(pattern=_pattern(columns, {place: "parameters"}), line=line)
    return None


def _lines(log: str) -> list[str]:
    return [
        _ANSI.sub("", line)[:LONGEST_LINE]
        for line in islice(re.split(r"[\r\n]+", log), MOST_LINES)
        if line.strip()
    ]


def _placed(
    memory: DraftedReader, others: Sequence[DraftedReader], lines: Sequence[str]
) -> DraftedReader:
    """Return the reader of memory as one of the trainer's end, where no iteration follows it."""
    told = next(place for place, line in enumerate(lines) if re.search(memory.pattern, line))
    later = lines[told + 1 :]
    follows = any(re.search(other.pattern, line) for other in others for line in later)
    return replace(memory, at_end=bool(others) and not follows)


def _forms(lines: Sequence[str]) -> list[_Form]:
    alike: dict[str, list[tuple[str, list[re.Match[str]]]]] = defaultdict(list)
    for line in lines:
        numbers = list(_NUMBER.finditer(line))
        if numbers:
            words = re.sub(r"\s+", " ", _NUMBER.sub("#", line))
            alike[words].append((line, numbers))
    return [
        _Form(
            lines=tuple(line for line, _ in each),
            columns=tuple(_columns(*each[-1])),
            numbers=tuple(tuple(match[0] for match in matches) for _, matches in each),
        )
        for each in alike.values()
    ]


def _columns(line: str, numbers: Sequence[re.Match[str]]) -> list[_LineNumber]:
    ends = [0, *(match.end() for match in numbers)]
    starts = [*(match.start() for match in numbers), len(line)]
    return [
        _LineNumber(
            start=match.start(),
            end=match.end(),
            before=line[ends[place] : match.start()],
            after=line[match.end() : starts[place + 1]],
            text=match[0],
        )
        for place, match in enumerate(numbers)
    ]


def _iterations(forms: Sequence[_Form]) -> list[DraftedReader]:
    """Return a reader for each form that tells of iterations, the likeliest first."""
    scored = []
    for form in forms:
        step = _step(form)
        if step is None:
            continue
        loss = _place(form, _LOSS)
        time = _time(form)
        score = 100 * (time is not None) + 50 * (loss is not None) + min(len(form.lines), 40)
        scored.append((score, _reader(form, step=step, loss=loss, time=time)))
    best = sorted(scored, key=lambda each: -each[0])
    return [reader for _, reader in best]


def _step(form: _Form) -> int | None:
    """Return the column that rises by as much each time. Of a step and an iteration the step is the
    optimizer's."""
    rising = [place for place, _ in enumerate(form.columns) if _rises(form.values(place))]
    named = [place for place in rising if _STEP.search(form.columns[place].before)]
    counted = [p for p in rising if re.match(r"\s*(?:/|of\b)\s*$", form.columns[p].after)]
    steps = [place for place in named if _STEP_ITSELF.search(form.columns[place].before)]
    return next(iter([*steps, *named, *counted]), None)


def _rises(values: Sequence[str]) -> bool:
    if len(values) < 2 or not all(value.isdigit() for value in values):
        return False
    apart = {int(after) - int(before) for before, after in pairwise(values) if after != before}
    return bool(apart) and min(apart) > 0 and len(apart) <= 2


def _adds_up(values: Sequence[str]) -> bool:
    """Whether times are those since the beginning: each is later, and the last one far so."""
    try:
        times = [float(value.replace(",", "")) for value in values]
    except ValueError:
        return False
    later = all(before < after for before, after in pairwise(times))
    return len(times) > 2 and later and times[-1] >= times[0] * (len(times) - 1)


def _place(form: _Form, label: re.Pattern[str]) -> int | None:
    return next((p for p, c in enumerate(form.columns) if label.search(c.before)), None)


def _time(form: _Form) -> int | None:
    """Return the column of a time of an iteration or, failing that, of a rate."""
    columns = list(enumerate(form.columns))
    times = [
        p
        for p, c in columns
        if _TIME.search(c.before)
        and not _OTHER_TIME.search(c.before)
        and not _adds_up(form.values(p))
    ]
    bare = [p for p, c in columns if re.match(r"\s?(?:ms|us|µs)\b", c.after)]
    rates = [p for p, c in columns if _RATE.search(c.before) or _RATE_AFTER.match(c.after)]
    return next(iter([*times, *bare, *rates]), None)


def _reader(form: _Form, *, step: int, loss: int | None, time: int | None) -> DraftedReader:
    groups = {step: "step"}
    figures: list[tuple[str, str]] = []
    if time is not None:
        groups[time], told = _told_time(form.columns[time], form.lines[-1])
        figures.append(("iteration_time_s", told))
    if loss is not None:
        groups[loss] = "loss"
        figures.append(("loss", "loss"))
    memory = _best_memory(form.columns)
    if memory is not None:
        groups[memory] = "memory"
        figures.append(("peak_memory_gib", _gib(form.columns[memory], form.lines[-1])))
    return DraftedReader(
        pattern=_pattern(form.columns, groups),
        line=form.lines[-1],
        figures=tuple(figures),
        arrival=time is None,
    )


def _told_time(column: _LineNumber, line: str) -> tuple[str, str]:
    """Return the name of the group, and the expression of the seconds in it."""
    if _RATE.search(column.before) or _RATE_AFTER.match(column.after):
        samples = "sample" in column.after.lower() or "sample" in column.before.lower()
        # Where a GPU's use of its peak stands beside it, it is a GPU's rate.
        each = " / world_size" if "tps" in column.before and "mfu" in line else ""
        return "rate", f"global_batch_size{'' if samples else ' * seq_length'} / rate{each}"
    after = _UNIT_AFTER.match(column.after)
    before = _UNIT_BEFORE.search(column.before)
    unit = after[1] if after else before[1] if before else "s"
    name = unit.replace("µ", "u") if unit in SECONDS else "seconds"
    return name, SECONDS.get(unit, "seconds")


def _best_memory(columns: Sequence[_LineNumber]) -> int | None:
    """Return the column of the memory: what is reserved before what is allocated, and the most
    before the present."""
    found = [p for p, column in enumerate(columns) if _MEMORY.search(column.before)]

    def preference(place: int) -> tuple[bool, bool]:
        label = columns[place].before.lower()
        return "reserved" not in label, not re.search(r"max|peak", label)

    return min(found, key=preference, default=None)


def _gib(column: _LineNumber, line: str) -> str:
    """Return the expression of a memory in GiB: by the unit after it, or else the last before."""
    after = re.match(r"\s?([KMGT]i?B|bytes)\b", column.after)
    units = _MEMORY_UNIT.findall(line[: column.start])
    unit = (after[1] if after else units[-1] if units else "GiB").lower()
    return GIB["bytes" if unit == "bytes" else unit[0]]


_AFTER = re.compile(
    r"(?:\s?(?:ms|us|s|[KMGT]i?B)\b|\s(?:tok(?:en)?s?|samples)(?:/| per )s)", re.IGNORECASE
)
_OF_ALL = re.compile(r"\s*/\s*")
_VALUES = {"step": r"\d+", "loss": r"[-+.\w]+"}


def _pattern(columns: Sequence[_LineNumber], groups: Mapping[int, str]) -> str:
    """Return a pattern with these groups: each number with the words before it, and anything
    between them."""
    pieces = []
    taken: dict[int, int] = {}  # letters right before a column that belong to the one before it
    for place in sorted(groups):
        column, name = columns[place], groups[place]
        after = (_OF_ALL if name == "step" else _AFTER).match(column.after)
        plain = r"[-+.\w]+" if "e" in column.text.lower() else r"[\d.,]*\d"
        value = _VALUES.get(name, plain)
        told = f"(?P<{name}>{value})" + (_words(after[0]) if after else "")
        if name == "step" and after and after[0] == column.after:
            told += r"\d+"
        taken[place + 1] = len(after[0]) if after else 0
        pieces.append(_words(_label(column.before[taken.get(place, 0) :])) + told)
    return ".*?".join(pieces)


def _label(before: str) -> str:
    """Return the words right before a number: those after the last separator."""
    label = re.split(r"[|;,{}\]]\s*|\s-\s|\s{2,}(?=\S)", before)[-1][-40:]
    words = re.sub(r"^[^\w\"'(\[]+", "", label)
    return words if words.strip() else label


def _words(text: str) -> str:
    """Return a pattern of a text in which spaces may be any, and quotes none."""
    inner = r"\s*".join(map(re.escape, text.split()))
    inner = re.sub("['\"]", "['\"]?", inner)
    if not inner:
        return r"\s*" if text else ""
    before = r"\s*" if text[0].isspace() else ""
    return before + inner + (r"\s*" if text[-1].isspace() else "")


def _bars(lines: Sequence[str]) -> list[DraftedReader]:
    """Return a reader of a progress bar's counts, which come as iterations end."""
    counts = [(line, match[1]) for line in lines if (match := _BAR.search(line))]
    if len({count for _, count in counts}) < 2:
        return []
    return [DraftedReader(pattern=BAR_PATTERN, line=counts[-1][0], arrival=True)]


def _losses(forms: Sequence[_Form]) -> list[DraftedReader]:
    """Return a reader of losses, which belong to the iteration that was told last."""
    many = [form for form in forms if len(form.lines) > 1 and _place(form, _LOSS) is not None]
    if not many:
        return []
    form = max(many, key=lambda each: len(each.lines))
    place = _place(form, _LOSS)
    assert place is not None
    pattern = _pattern(form.columns, {place: "loss"})
    return [DraftedReader(pattern=pattern, line=form.lines[-1], figures=(("loss", "loss"),))]


def _memory(lines: Sequence[str]) -> list[DraftedReader]:
    """Return a reader of the line that tells of memory best."""
    best: tuple[bool, DraftedReader] | None = None
    for line in lines:
        columns = _columns(line, list(_NUMBER.finditer(line)))
        place = _best_memory(columns)
        if place is None or not _MEMORY_UNIT.search(line):
            continue
        label = columns[place].before.lower()
        reader = DraftedReader(
            pattern=_pattern(columns, {place: "memory"}),
            line=line,
            figures=(("peak_memory_gib", _gib(columns[place], line)),),
        )
        least = not re.search(r"max|peak", label)
        if best is None or least < best[0]:
            best = (least, reader)
    return [best[1]] if best else []
