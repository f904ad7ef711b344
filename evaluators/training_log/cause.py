"""The root cause among all errors of a run, whichever rank wrote them and in which order."""

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
    read_error,
    read_exception,
    weighed,
)
from evaluators.training_log.lines import LabelledLine, labelled

LONGEST_ERROR = 500
# A rank's error and the line of the iteration before may change places in the log, one line is
# no proof that the error was survived.
SURVIVED = 2
# Lines without a sign of it after which a traceback is taken to have broken off.
PATIENCE = 200
WRITERS = 4096
_NAMED = re.compile(r"(?:\[(?:PG [^\]]{0,60} )?Rank |: task )([0-9]{1,7})[\]:]")


@dataclass(frozen=True, kw_only=True)
class Cause:
    """The root cause of a failure.

    Attributes:
        error: one line that reads the same from rank to rank and from run to run, as far as
            that is possible: no addresses, process ids, times, job or rank numbers in it.
        kind: `CONSEQUENCE` where the log has nothing but what ranks say when another has gone.
        rank: that said it first, where the line tells.
    """

    error: str
    kind: CauseKind
    rank: int | None = None

    @property
    def out_of_memory(self) -> bool:
        """Whether memory ran out, a device's or the host's."""
        return self.kind is CauseKind.OUT_OF_MEMORY


# What differs between ranks and runs though the cause is the same; in this order.
_INCIDENTAL = tuple(
    (re.compile(pattern), told)
    for pattern, told in (
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
    """Return an error as it reads on every rank and in every run, in at most 500 characters."""
    error = ENFORCED.sub("", error)
    for pattern, told in _INCIDENTAL:
        error = pattern.sub(told, error)
    return error.strip()[:LONGEST_ERROR]


@dataclass(kw_only=True)
class _Traceback:
    """A traceback that has begun.

    Attributes:
        code: the line of code that was shown last.
        placed: the next line of code is still to come.
        name: of the exception whose message is still to come, on a line of its own.
    """

    ignored: bool = False
    code: str = ""
    placed: bool = False
    name: str = ""


@dataclass(frozen=True, kw_only=True)
class _ReportedError:
    """An error, when it came, and after how many iterations."""

    line: ErrorLine
    rank: int | None
    order: int
    after: int

    @property
    def key(self) -> tuple[Weight, int]:
        """The first error of each key is kept."""
        return self.line.weight, self.after

    @property
    def importance(self) -> tuple[Weight, int]:
        return self.line.weight, self.order


class RootCause:
    """Takes lines in the log's order, and keeps the few that may be the cause."""

    def __init__(self) -> None:
        self._iterations = 0
        self._order = 0
        self._patience = 0
        self._first: dict[tuple[Weight, int], _ReportedError] = {}
        self._tracebacks: dict[str, _Traceback] = {}
        self._latest: dict[str, _ReportedError] = {}
        self._ignoring: set[str] = set()
        self._chained: set[str] = set()

    @property
    def attentive(self) -> bool:
        """Whether a traceback is open, so that every line matters."""
        return bool(self._tracebacks)

    def iterated(self) -> None:
        """An iteration line came: errors of long before did not end the run."""
        self._iterations += 1
        self._first = {
            key: error for key, error in self._first.items() if key[1] + SURVIVED > self._iterations
        }

    def cause(self) -> Cause | None:
        """Return what explains the other errors; None if there is none, or all were survived."""
        if not self._first:
            return None
        first = min(self._first.values(), key=lambda error: error.importance)
        return Cause(error=plain(first.line.error), kind=first.line.kind, rank=first.rank)

    def read(self, line: str) -> None:
        """Take the next line, whatever it is."""
        said = labelled(line)
        if self._marks(said) or self._continues(said):
            return
        if raised := read_exception(said.text, in_traceback=False):
            self._raise(said, raised, traceback=_Traceback())
        elif error := read_error(said.text):
            self._add(said, error)

    def _marks(self, said: LabelledLine) -> bool:
        """Whether it is one of the lines that frame tracebacks."""
        if TRACEBACK in said.text:
            self._open(said.label, _Traceback(ignored=said.label in self._ignoring))
            self._ignoring.discard(said.label)
        elif CHAINED in said.text:
            _note(said.label, self._chained)
        elif said.text.startswith(IGNORED):
            _note(said.label, self._ignoring)
        else:
            return False
        return True

    def _open(self, label: str, traceback: _Traceback) -> None:
        if len(self._tracebacks) >= WRITERS:
            self._tracebacks.clear()
        self._tracebacks[label] = traceback
        self._patience = PATIENCE

    def _continues(self, said: LabelledLine) -> bool:
        """Whether it belongs to its writer's open traceback."""
        if not self._tracebacks:
            return False
        self._patience -= 1
        if self._patience < 0:
            self._tracebacks.clear()
            return False
        traceback = self._tracebacks.get(said.label)
        if traceback is None or not said.text.strip():
            return False
        return self._goes_on(said, traceback)

    def _goes_on(self, said: LabelledLine, traceback: _Traceback) -> bool:
        if traceback.name:
            raised: RaisedLine | None = RaisedLine(name=traceback.name, message=said.text.strip())
        elif said.text[0] in " \t":
            self._show(said.text, traceback)
            return True
        else:
            raised = read_exception(said.text, in_traceback=True)
        if raised is not None:
            self._raise(said, raised, traceback=traceback)
        return raised is not None

    def _show(self, shown: str, traceback: _Traceback) -> None:
        """Python shows a place with two spaces before it, and below it its code with four."""
        if shown.startswith('  File "'):
            self._patience = PATIENCE
            traceback.placed = True
        elif traceback.placed and shown.startswith("    ") and shown[4:5].strip("^~ "):
            traceback.code = shown.strip()
            traceback.placed = False

    def _raise(self, said: LabelledLine, raised: RaisedLine, *, traceback: _Traceback) -> None:
        self._tracebacks.pop(said.label, None)
        if traceback.ignored:
            return
        told = raised.message or ("" if raised.message == "" else traceback.code)
        line = weighed(f"{raised.name}: {told}" if told else raised.name)
        if traceback.name or said.label in self._chained:
            self._replace(said, line)
        else:
            self._add(said, line)
        if raised.message == "":
            self._open(said.label, _Traceback(name=raised.name))

    def _add(self, said: LabelledLine, line: ErrorLine) -> None:
        self._order += 1
        # NCCL's watchdog and srun name a rank in the text.
        named = _NAMED.search(said.text) if said.rank is None else None
        rank = int(named[1]) if named else said.rank
        error = _ReportedError(line=line, rank=rank, order=self._order, after=self._iterations)
        if len(self._latest) >= WRITERS:
            self._latest.clear()
        self._latest[said.label] = error
        self._keep(error)

    def _replace(self, said: LabelledLine, line: ErrorLine) -> None:
        """What a writer said last is told again in other words, unless the first say more."""
        self._chained.discard(said.label)
        previous = self._latest.get(said.label)
        if previous is None:
            self._add(said, line)
        elif line.weight <= previous.line.weight:
            if self._first.get(previous.key) is previous:
                del self._first[previous.key]
            self._latest[said.label] = error = replace(previous, line=line)
            self._keep(error)

    def _keep(self, error: _ReportedError) -> None:
        first = self._first.get(error.key)
        survived = error.after + SURVIVED <= self._iterations
        if not survived and (first is None or error.order < first.order):
            self._first[error.key] = error


def _note(label: str, labels: set[str]) -> None:
    if len(labels) >= WRITERS:
        labels.clear()
    labels.add(label)
