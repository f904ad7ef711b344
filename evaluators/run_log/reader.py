"""Read a log, a launch script, rows of JSON or CSV, or a folder of TensorBoard as one run."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import islice
from math import isfinite
from pathlib import Path
from statistics import median

from autotune.diagnosis.run_log import TABLE, LoggedStep, RunLog, Sign
from evaluators.adapter.readers import FoundRow, csv_rows, events, json_rows, name_of
from evaluators.run_log.formats import LineFormat, formats
from evaluators.training_log.lines import LogLines, labelled, text_of
from search_spaces.errors import InvalidInput

BLOCK = 1 << 20
ATTENTIVE_LINES = 30_000
"""Lines read in full at the beginning of a log, and after a line of `STARTS`; of the others only
those with a sign."""
STARTS = ("arguments -----", "world size", "Starting", "torchrun", "MLLOG", "job config", "srun ")
LONGEST_TEXT = 4000
MOST_STEPS = 20_000
"""Of more reports every second one is dropped, again and again, and further ones are skipped."""
MOST_ROWS = 1_000_000
MOST_RUNS = 10_000
OF_LAYOUTS = frozenset({"tensor_parallel", "micro_batch_size"})
"""Columns of a table with a row for each run, of which it has at least one."""
OF_RUNS = ("status", "finished_at", "adapter", "gpu", "model")
FEWEST_STEPS = 3
"""A last run with fewer is no run: the one before it counts."""
ARGUMENT = re.compile(r"^ {2}(\w+) \.{2,} (.*)$")
MEMORY = re.compile(
    r"max reserved: (?P<mib>\d+(?:\.\d+)?)|mem-max-reserved-gigabytes: (?P<gb>\d+(?:\.\d+)?)"
    r"|max_memory_reserved: (?P<bytes>\d+)"
)
UNITS = {"mib": 1 / 1024, "gb": 1e9 / 2**30, "bytes": 1 / 2**30}
TIMER = re.compile(r"([\w-]+(?: generator)?)(?: \.{2,})?: *\(?([\d.]+)(?:, ([\d.]+)\))?")
GPU = re.compile(
    r"\b(GB300|GB200|GH200|B300|B200|H200|H100|H800|H20|A100|A800|V100|MI\d{3}X?)\b"
    r"(?:[-_ ](?:SXM\d?|PCIe|NVL)?[-_ ]?(40|80)\s?GB)?"
)
TIMED = ("....:", "time (ms)", "microstep", "rank=")
SIGNS = ("time per", "memory", "max reserved", *TIMED, "WARN", "Using", "GPU")
CLOCK = re.compile(r"(?:(\d+) days?, )?(\d+):(\d\d):(\d\d(?:[.,]\d+)?)")
DAY_S = 86_400.0
MOST_NAMES = 20
"""Texts that may name the model."""
MESH = {"tp": "tensor_parallel", "pp": "pipeline_parallel", "cp": "context_parallel"}
MESH |= {"dp": "data_parallel", "dp_shard": "dp_shard", "dp_replicate": "dp_replicate"}

Groups = Mapping[str, str | None]


@dataclass(kw_only=True)
class _Run:
    """What has been read of one run; `fresh` is what was stated since its last iteration."""

    steps: list[LoggedStep] = field(default_factory=list)
    stated: dict[str, str] = field(default_factory=dict)
    arguments: dict[str, str] = field(default_factory=dict)
    tflops: list[float] = field(default_factory=list)
    timers: dict[str, list[float]] = field(default_factory=dict)
    signs: dict[str, tuple[int, str]] = field(default_factory=dict)
    memory_gib: float = 0.0
    clock: tuple[int, float] | None = None

    def step(self, number: int, groups: Groups, after: frozenset[str]) -> LoggedStep | None:
        """Return a report with what its groups say; None without a time."""
        values = {name: _value(groups.get(name)) for name in ("ms", "s", "rate")}
        tokens, samples = _value(groups.get("tokens")), _value(groups.get("samples"))
        time_s = values["s"]
        if values["ms"] is not None:
            time_s = values["ms"] * (1000.0 if groups.get("kilo") else 1.0) / 1000.0
        elif values["rate"]:
            time_s = 1.0 / values["rate"]
        elif clock := groups.get("clock"):
            time_s = self._since(number, clock)
        if not (time_s or tokens or samples):
            return None
        return LoggedStep(
            number=number,
            time_s=time_s or float("nan"),
            tokens_per_s_per_gpu=tokens,
            samples_per_s=samples,
            after=after,
        )

    def state_row(self, row: FoundRow) -> dict[str, str | None]:
        """Return the cells of a row by what they have, and take the settings among them."""
        groups: dict[str, str | None] = {}
        for column, value in row.values.items():
            name = name_of(column)
            if isinstance(value, bool):
                continue
            if meaning := formats().columns.get(name):
                groups.setdefault(meaning, str(value))
            elif setting := formats().names.get(name.lower()):
                self.stated.setdefault(setting, str(value))
        return groups

    def _since(self, number: int, clock: str) -> float | None:
        found = CLOCK.search(clock)
        if found is None:
            return None
        days, hours, minutes, seconds = (
            float((part or "0").replace(",", ".")) for part in found.groups()
        )
        now_s = days * DAY_S + hours * 3600.0 + minutes * 60.0 + seconds
        before, self.clock = self.clock, (number, now_s)
        if before is None or number <= before[0]:
            return None
        return (now_s - before[1]) % DAY_S / (number - before[0])


class RunReader:
    """Collects what a diagnosis needs, line by line; of several runs the last one counts."""

    def __init__(self) -> None:
        known = formats()
        signs = {each.sign for each in known.lines}
        self._format: LineFormat | None = None
        every = [*sorted(signs), *STARTS, *SIGNS, *known.parts_of_signs]
        self._lines = LogLines(every, self._take, wants_all=True)
        self._attentive = ATTENTIVE_LINES
        self._writer: str | None = None
        self._run, self._before = _Run(), _Run()
        self._fresh: tuple[dict[str, str], dict[str, str]] = ({}, {})
        self._since: set[str] = set()
        self._runs = 0
        self._reports, self._stride = 0, 1

    def feed(self, block: bytes) -> None:
        self._lines.feed(block)

    def finish(self, source: str) -> RunLog:
        if rest := self._lines.finish():
            self._read(text_of(rest)[:LONGEST_TEXT])
        self._keep_fresh()
        run = self._run if len(self._run.steps) >= FEWEST_STEPS else self._better()
        fallback = self._format
        return RunLog(
            source=source,
            trainer=fallback.trainer if fallback else "",
            adapter=fallback.adapter if fallback else "",
            steps=tuple(run.steps),
            stated=run.stated,
            arguments=run.arguments,
            signs={name: Sign(count=count, line=line) for name, (count, line) in run.signs.items()},
            timers={name: median(shares) for name, shares in run.timers.items()},
            printed_tflops=median(run.tflops) if run.tflops else None,
            peak_memory_gib=run.memory_gib or None,
            runs=max(self._runs, 1),
        )

    def _better(self) -> _Run:
        return self._before if len(self._before.steps) > len(self._run.steps) else self._run

    def _take(self, line: bytes) -> bool:
        if self._stride > 1 and self._format and self._format.sign.encode() in line:
            self._reports += 1
            if self._reports % self._stride:
                return self._attentive > 0
        self._read(text_of(line)[:LONGEST_TEXT])
        return self._attentive > 0

    def _read(self, text: str) -> None:
        line = labelled(text)
        self._attentive -= 1
        if any(start in text for start in STARTS):
            self._attentive = max(self._attentive, ATTENTIVE_LINES // 10)
        if self._iterated(line.text, line.label):
            return
        has_evidence = any(part in line.text for part in formats().parts_of_signs)
        for name, pattern in formats().signs.items() if has_evidence else ():
            if pattern.search(line.text):
                count, first = self._run.signs.get(name, (0, line.text.strip()[:200]))
                self._run.signs[name] = count + 1, first
                self._since.add(name)
        self._measure(line.text)
        if self._attentive > 0:
            self._state(line.text)

    def _iterated(self, text: str, writer: str) -> bool:
        known = self._format
        for each in (known,) if known and not known.weak else formats().lines:
            found = each.sign in text and each.pattern.search(text)
            if not found:
                continue
            if each is not known:
                if known and each.weak:
                    continue
                self._format, self._writer = each, writer
                self._run.steps.clear()
            if writer == self._writer:
                groups = found.groupdict()
                number = int(groups.get("step") or len(self._run.steps) + 1)
                if step := self._run.step(number, groups, frozenset(self._since)):
                    self._add(step, text, weak=each.weak)
            return True
        return False

    def _add(self, step: LoggedStep, text: str, *, weak: bool) -> None:
        steps = self._run.steps
        if steps and (step.number == steps[-1].number or (weak and step.number < steps[-1].number)):
            return  # a progress bar that is drawn again, or another rank's
        if not steps or step.number < steps[-1].number:
            self._begin()
        self._keep_fresh()
        self._since.clear()
        self._run.steps.append(step)
        if len(self._run.steps) > MOST_STEPS:
            del self._run.steps[1::2]
            self._stride *= 2
        more = formats().more
        if found := more["tflops"].search(text):
            self._run.tflops.append(float(found["value"] or found["other"]))
        for name in ("global_batch_size", "step_tokens"):
            if found := more[name].search(text):
                self._run.stated.setdefault(name, found["value"])
        if found := more["memory_gib"].search(text):
            self._run.memory_gib = max(self._run.memory_gib, float(found["value"]))
        self._measure(text)

    def _begin(self) -> None:
        self._runs += 1
        if self._run.steps:
            self._before = self._better()
            own = self._run
            self._run = _Run(stated=dict(own.stated), arguments=dict(own.arguments))
            if len(self._fresh[1]) > 1 or "tensor_parallel" in self._fresh[0]:
                self._run.stated, self._run.arguments = {}, {}

    def _keep_fresh(self) -> None:
        for ours, fresh in zip((self._run.stated, self._run.arguments), self._fresh, strict=True):
            for name, value in fresh.items():
                ours.setdefault(name, value)
            fresh.clear()

    def _state(self, text: str) -> None:
        stated, arguments = self._fresh
        if found := ARGUMENT.match(text):
            arguments.setdefault(f"--{found[1].replace('_', '-')}", found[2].strip())
        for pattern in formats().facts:
            if (match := pattern.search(text)) is not None:
                _fact(match, stated)
        for match in formats().setting.finditer(text):
            name = match["flag"] or match["key"] or match["short"]
            value = match["argument"] or match["setting"] or match["number"] or "true"
            if value.lower() not in {"none", "null", "auto"}:
                known = formats().names[name.lower().replace("-", "_")]
                _state(stated, known, value)
        if "gpu" not in stated and (found := GPU.search(text)):
            stated["gpu"] = found[1] + (f"-{found[2]}GB" if found[2] else "")

    def _measure(self, text: str) -> None:
        for match in MEMORY.finditer(text):
            unit = match.lastgroup or "gb"
            gib = float(match[unit]) * UNITS[unit]
            self._run.memory_gib = max(self._run.memory_gib, gib)
        if not self._run.steps or not isfinite(time_s := self._run.steps[-1].time_s):
            return
        for timer in TIMER.finditer(text) if any(sign in text for sign in TIMED) else ():
            if kind := formats().timers.get(timer[1]):
                share = float(timer[3] or timer[2]) / 1000.0 / time_s
                self._run.timers.setdefault(kind, []).append(min(share, 1.0))


def _value(text: str | None) -> float | None:
    with suppress(ValueError):
        return float(text.replace(",", "")) if text else None
    return None


def _fact(match: re.Match[str], stated: dict[str, str]) -> None:
    groups = {name: value for name, value in match.groupdict().items() if value}
    if "mesh_names" in groups:
        names = re.findall(r"\w+", groups["mesh_names"])
        sizes = re.findall(r"\d+", groups["mesh_sizes"])
        groups = {MESH[n]: size for n, size in zip(names, sizes, strict=False) if n in MESH}
    if "key" in groups:
        known = formats().names.get(groups["key"].lower())
        groups = {known: groups["value"].strip()} if known else {}
    if "flavor" in groups:
        groups["model"] = f"{groups['model']} {groups.pop('flavor')}"
    for name, value in groups.items():
        _state(stated, name, value)


def _state(stated: dict[str, str], name: str, value: str) -> None:
    if name != "model":
        stated.setdefault(name, value)
        return
    names = stated.get(name, "").split("; ")
    if value not in names and len(names) < MOST_NAMES:
        stated[name] = "; ".join([*filter(None, names), value])


def read_run(path: Path, others: Sequence[Path] = (), *, name: str = "") -> RunLog:
    """Return what a log says, with the settings that other files of the run state.

    Args:
        path: a log; JSON lines or CSV with a row for each iteration; a folder of TensorBoard.
        others: its launch script, or its configuration.
        name: of the log in the answer and in errors; its path by default.

    Raises:
        InvalidInput: field `log`: it cannot be read, is binary, or has no iterations.
    """
    shown = name or str(path)
    has_rows = path.is_dir() or path.suffix in {".csv", ".jsonl"}
    run = _rows_of(path, shown) if has_rows else _log_of(path, shown)
    if not run.steps and not has_rows:
        run = _rows_of(path, shown)
    if not run.steps:
        trainers = ", ".join(dict.fromkeys(each.trainer for each in formats().lines))
        reason = "no line of it reports the time of an iteration"
        raise InvalidInput("log", shown, reason, valid=f"a log of {trainers}; rows; TensorBoard")
    for other in others:
        more = _log_of(other, str(other))
        run = replace(
            run,
            stated={**more.stated, **run.stated},
            arguments={**more.arguments, **run.arguments},
        )
    return run


def read_runs(path: Path, others: Sequence[Path] = ()) -> list[RunLog]:
    """Return the runs of a table with a row for each, or else the run of a log as `read_run` does;
    each states when it ended (`finished_at`), by default when its file was written."""
    try:
        written = datetime.fromtimestamp(path.stat().st_mtime, UTC).isoformat()
        rows = list(islice(csv_rows(path), MOST_RUNS)) if path.suffix == ".csv" else []
    except OSError as error:
        reason = f"it cannot be read: {error.strerror}"
        raise InvalidInput("log", str(path), reason, valid="a readable file") from error
    columns = set(rows[0].values) if rows else set()
    has_steps = any(formats().columns.get(name) == "step" for name in columns)
    if has_steps or not columns & OF_LAYOUTS:
        runs = [read_run(path, others, name=path.name)]
    else:
        runs = [_run_of_table(f"{path.name}, row {n}", row) for n, row in enumerate(rows, start=2)]
    return [replace(run, stated={"finished_at": written, **run.stated}) for run in runs]


def _run_of_table(source: str, row: FoundRow) -> RunLog:
    run = _run_of_rows(source, [row], trainer=TABLE)
    own = {name: str(row.values[name]) for name in OF_RUNS if row.values.get(name)}
    return replace(run, adapter=own.get("adapter", ""), stated={**run.stated, **own})


def _log_of(path: Path, shown: str) -> RunLog:
    reader = RunReader()
    try:
        with path.open("rb") as file:
            while block := file.read(BLOCK):
                if b"\0" in block:
                    reason = "the file is binary"
                    raise InvalidInput("log", shown, reason, valid="text, or a folder")
                reader.feed(block)
    except OSError as error:
        reason = f"the file cannot be read: {error.strerror}"
        raise InvalidInput("log", shown, reason, valid="a readable file") from error
    return reader.finish(shown)


def _rows_of(path: Path, shown: str) -> RunLog:
    found: Iterable[FoundRow]
    try:
        if path.is_dir():
            files = sorted(path.rglob("*tfevents*"))
            rows: dict[int, dict[str, object]] = {}
            for row in (each for file in files for each in events(file)):
                rows.setdefault(int(row.values.get("step") or 0), {}).update(row.values)
            found = [FoundRow(values=values) for _, values in sorted(rows.items())]  # type: ignore[arg-type]
        else:
            found = islice(csv_rows(path) if path.suffix == ".csv" else json_rows(path), MOST_ROWS)
        return _run_of_rows(shown, found, trainer="TensorBoard" if path.is_dir() else "rows")
    except OSError as error:
        reason = f"it cannot be read: {error.strerror}"
        raise InvalidInput("log", shown, reason, valid="a readable file or folder") from error


def _run_of_rows(source: str, rows: Iterable[FoundRow], *, trainer: str) -> RunLog:
    run = _Run()
    for row in rows:
        groups = run.state_row(row)
        number = int(_value(groups.get("step")) or len(run.steps) + 1)
        if run.steps and number <= run.steps[-1].number:
            continue  # another rank's row
        if (step := run.step(number, groups, frozenset())) and len(run.steps) < MOST_STEPS:
            run.steps.append(step)
            run.tflops += [each for each in [_value(groups.get("tflops"))] if each]
            run.memory_gib = max(run.memory_gib, _value(groups.get("memory_gib")) or 0.0)
    return RunLog(
        source=source,
        trainer=trainer,
        steps=tuple(run.steps),
        stated=run.stated,
        printed_tflops=median(run.tflops) if run.tflops else None,
        peak_memory_gib=run.memory_gib or None,
    )
