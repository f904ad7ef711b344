"""Find the root cause among all errors of a run, of any rank and in any order."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from evaluators.training_log.error_line import (
    CHAINED,
    ENFORCED,
    IGNORED,
    TRACEBACK,
    CauseKind,
    ErrorLine,
    RaisedLine,
    Weight,
    begins_box,
    read_error,
    read_exception,
    weighed,
    within_box,
)
from evaluators.training_log.lines import LabelledLine, labelled

LONGEST_ERROR = 500
# Iteration lines after an error that show that the run survived it. One is not enough: an error and
# the iteration line before it may swap places in the log.
SURVIVED = 2
# Unrelated lines after which a traceback counts as broken off.
PATIENCE = 200
WRITERS = 4096
# NCCL's lines, "n07:812:1406 [3] …", and the kernel's, "Aug  1 12:00:00 n07 kernel: …".
_HOST = re.compile(
    r"(?:([\w.-]{1,255}):[0-9]+:[0-9]+ \[-?[0-9]+\] "
    r"|\w{3} +[0-9]+ [0-9:]+ ([\w.-]{1,255}) kernel: )"
)
_NAMED = re.compile(r"(?:\[(?:PG [^\]]{0,60} )?Rank |: task )([0-9]{1,7})[\]:]")


@dataclass(frozen=True, kw_only=True)
class Cause:
    """The root cause of a failure.

    Attributes:
        error: one line that is the same for all ranks and runs if possible: without addresses,
            process ids, times, job and rank numbers.
        kind: `CONSEQUENCE` if the log only has errors that follow from the end of another rank.
        rank: that reported it first, if known.
        host: its node, where NCCL or the kernel named it.
    """

    error: str
    kind: CauseKind
    rank: int | None = None
    host: str = ""


# Text that differs between ranks and runs for the same cause; applied in this order.
_INCIDENTAL = tuple(
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"(Tried to allocate [0-9.]+ [KMGT]?i?B)\b.*", r"\1"),
        (r" ?Exception raised from .*", ""),
        (r"\b[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-9]{2}(?:[.,][0-9]+)?", ""),
        (r"\[?\b[EWIF][0-9]{0,4} [0-9:.]+ [0-9]+ (?=[\w./]+:[0-9]+\])", ""),
        (r"\[(?:PG [^\]]*?)?[Rr]ank ?[0-9]+\]:? ?", ""),
        (r"^\[[EF][0-9 ][^\]]*\]:? *", ""),
        (r"\[[0-9A-Za-z_.:-]+\]:[0-9]{2,5}\b", "…"),
        (r"\b[0-9]{1,3}(?:\.[0-9]{1,3}){3}(?:[:<][0-9]+>?)?", "…"),
        (r"\(SeqNum=.*?\) ran for [0-9]+ milliseconds", ""),
        (r"\b0x[0-9a-fA-F]+\b", "0x…"),
        (r"\b((?:local_|global_)?[Rr]anks?|RANK|pid|PID|[Pp]rocess|node-|StepId=|JobId=)"
         r"([ =:(]*)\b[0-9][0-9.]*\b", r"\1\2…"),
        (r"\b(cuda|hip|GPU|gpu|device)([ :=]+)[0-9]+\b", r"\1\2…"),
        (r"\s+", " "),
    )
)  # fmt: skip


def plain(error: str) -> str:
    """Return an error in the form common to all ranks and runs, in at most 500 characters."""
    error = ENFORCED.sub("", error)
    for pattern, replacement in _INCIDENTAL:
        error = pattern.sub(replacement, error)
    return error.strip()[:LONGEST_ERROR]


@dataclass(kw_only=True)
class _Traceback:
    """An open traceback.

    Attributes:
        code: the last line of code shown.
        placed: whether a line of code is expected next.
        name: of an exception whose message is expected on a line of its own.
        weight: of the error, unless its text determines it.
    """

    ignored: bool = False
    code: str = ""
    placed: bool = False
    name: str = ""
    weight: Weight = Weight.ERROR


@dataclass(frozen=True, kw_only=True)
class _ReportedError:
    """An error, its position, and the number of iterations before it."""

    error: ErrorLine
    rank: int | None
    host: str
    order: int
    after: int

    @property
    def key(self) -> tuple[Weight, int]:
        return self.error.weight, self.after

    @property
    def importance(self) -> tuple[Weight, int]:
        return self.error.weight, self.order


class RootCause:
    """Process lines in the log's order, and keep the few that may be the cause."""

    def __init__(self) -> None:
        self._iterations = 0
        self._order = 0
        self._patience = 0
        self._first: dict[tuple[Weight, int], _ReportedError] = {}
        self._tracebacks: dict[str, _Traceback] = {}
        self._latest: dict[str, _ReportedError] = {}
        self._ignoring: set[str] = set()
        self._chained: set[str] = set()
        self._boxes: dict[str, str] = {}

    @property
    def attentive(self) -> bool:
        return bool(self._tracebacks or self._boxes)

    def iterated(self) -> None:
        """Record an iteration line; the run has survived much earlier errors."""
        self._iterations += 1
        self._first = {
            key: report
            for key, report in self._first.items()
            if key[1] + SURVIVED > self._iterations
        }

    def cause(self) -> Cause | None:
        """Return the error that explains the others; None without an error that ended the run."""
        if not self._first:
            return None
        first = min(self._first.values(), key=lambda report: report.importance)
        error = first.error
        return Cause(error=plain(error.error), kind=error.kind, rank=first.rank, host=first.host)

    def read(self, text: str) -> None:
        """Process the next line."""
        line = labelled(text)
        if TRACEBACK in line.text:
            self._open(line.label, _Traceback(ignored=line.label in self._ignoring))
            self._ignoring.discard(line.label)
        elif CHAINED in line.text:
            _note(line.label, self._chained)
        elif line.text.startswith(IGNORED):
            _note(line.label, self._ignoring)
        elif self._boxed(line) or self._continues(line):
            return
        elif raised := read_exception(line.text, in_traceback=False):
            self._raise(line, raised, traceback=_Traceback())
        elif error := read_error(line.text):
            self._add(line, error)
            if error.kind is CauseKind.ERROR and error.error.endswith(":"):
                name = error.error.rstrip(": ")
                self._open(line.label, _Traceback(name=name, weight=error.weight))

    def _open(self, label: str, traceback: _Traceback) -> None:
        if len(self._tracebacks) >= WRITERS:
            self._tracebacks.clear()
        self._tracebacks[label] = traceback
        self._patience = PATIENCE

    def _continues(self, line: LabelledLine) -> bool:
        if not self._tracebacks:
            return False
        self._patience -= 1
        if self._patience < 0:
            self._tracebacks.clear()
            return False
        traceback = self._tracebacks.get(line.label)
        if traceback is None or not line.text.strip():
            return False
        if traceback.name:
            raised: RaisedLine | None = RaisedLine(name=traceback.name, message=line.text.strip())
        elif line.text[0] in " \t":
            self._show(line.text, traceback)
            return True
        else:
            raised = read_exception(line.text, in_traceback=True)
        if raised is not None:
            self._raise(line, raised, traceback=traceback)
        return raised is not None

    def _show(self, shown: str, traceback: _Traceback) -> None:
        if shown.startswith('  File "'):
            self._patience = PATIENCE
            traceback.placed = True
        elif traceback.placed and shown.startswith("    ") and shown[4:5].strip("^~ "):
            traceback.code = shown.strip()
            traceback.placed = False

    def _boxed(self, line: LabelledLine) -> bool:
        """Process a line of a box with an error; return whether it is one.

        The lines before the box's edge, or before a rule across it, are joined.
        """
        if begins_box(line.text):
            if len(self._boxes) >= WRITERS:
                self._boxes.clear()
            self._boxes[line.label] = ""
            return True
        if line.label not in self._boxes:
            return False
        text, before = within_box(line.text), self._boxes.pop(line.label)
        if text is not None and len(before) < LONGEST_ERROR:
            self._boxes[line.label] = f"{before} {text}".strip()
        elif before:
            self._add(line, weighed(before))
        return True

    def _raise(self, line: LabelledLine, raised: RaisedLine, *, traceback: _Traceback) -> None:
        self._tracebacks.pop(line.label, None)
        if traceback.ignored:
            return
        message = raised.message or ("" if raised.message == "" else traceback.code)
        text = f"{raised.name}: {message}" if message else raised.name
        error = weighed(text, weight=traceback.weight)
        if traceback.name or line.label in self._chained:
            self._replace(line, error)
        else:
            self._add(line, error)
        if raised.message == "":
            self._open(line.label, _Traceback(name=raised.name))

    def _add(self, line: LabelledLine, error: ErrorLine) -> None:
        self._order += 1
        # NCCL's watchdog and srun name a rank in the text.
        named = _NAMED.search(line.text) if line.rank is None else None
        rank = int(named[1]) if named else line.rank
        host = _HOST.match(line.text)
        report = _ReportedError(
            error=error,
            rank=rank,
            host=(host[1] or host[2]) if host else "",
            order=self._order,
            after=self._iterations,
        )
        if len(self._latest) >= WRITERS:
            self._latest.clear()
        self._latest[line.label] = report
        self._keep(report)

    def _replace(self, line: LabelledLine, error: ErrorLine) -> None:
        self._chained.discard(line.label)
        previous = self._latest.get(line.label)
        if previous is None:
            self._add(line, error)
        elif error.weight <= previous.error.weight:
            if self._first.get(previous.key) is previous:
                del self._first[previous.key]
            self._latest[line.label] = report = replace(previous, error=error)
            self._keep(report)

    def _keep(self, report: _ReportedError) -> None:
        first = self._first.get(report.key)
        survived = report.after + SURVIVED <= self._iterations
        if not survived and (first is None or report.order < first.order):
            self._first[report.key] = report


def _note(label: str, labels: set[str]) -> None:
    if len(labels) >= WRITERS:
        labels.clear()
    labels.add(label)
