"""Recognise lines that report an error, and classify the error."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from functools import lru_cache

OUT_OF_MEMORY = re.compile(
    r"out of memory|OutOfMemory|can't allocate memory|Cannot allocate memory"
    r"|not enough memory|\bMemoryError\b|cudaErrorMemoryAllocation|bad_alloc|bad allocation"
    r"|_STATUS_ALLOC_FAILED",
    re.IGNORECASE,
)
# Of these, the host's memory and not a device's.
_HOSTS_MEMORY = re.compile(
    r"can't allocate memory|Cannot allocate memory|not enough memory: you tried|CPUAllocator"
    r"|\bMemoryError\b|bad_alloc|bad allocation|ray\.exceptions\.OutOfMemoryError",
    re.IGNORECASE,
)
# A size that no layout asks for: memory was overwritten, or a peer has gone.
_IMPOSSIBLE = "more than 1EB memory"
# Faults of a GPU, its link or its network adapter, as CUDA, HIP and NVIDIA's driver name them.
HARDWARE = re.compile(
    r"uncorrectable (?:ECC|NVLink) error\b|fallen off the bus|\b(?:GPU|device) is lost\b"
    r"|cudaErrorECCUncorrectable|cudaErrorNvlinkUncorrectable|hipErrorECCNotCorrectable",
    re.IGNORECASE,
)
# Xids that NVIDIA's catalogue puts down to the program: an illegal access, a killed process.
_PROGRAMS_XIDS = "13|31|32|43|44|45|68|69"
# The place in torch's own source, which does not help a user.
ENFORCED = re.compile(r"\[enforce fail at [^\]]*\](?: err == 0)?[ .]*")
# Messages of the other ranks when one has ended.
CONNECTION = re.compile(
    r"closed by peer|reset by peer|broken pipe"
    r"|connection (was )?(refused|closed|reset|aborted|timed out)"
    r"|connectFullMesh|socket|Timed out waiting|remote process exited|DistNetworkError"
    r"|DistStoreError|TCPStore|ncclRemoteError|unhandled system error|Application timeout|recvValue"
    r"|watchdog|collective operation|NCCL operations have failed|communicator was aborted"
    r"|gloo::IoException|instance of 'c10::DistBackendError'|\bEOFError\b"
    r"|ChildFailedError|SignalException|failed \(exitcode|exits with return code|KeyboardInterrupt",
    re.IGNORECASE,
)
# Also about a connection, but a cause of its own.
OWN_FAULT = re.compile(r"already in use", re.IGNORECASE)


class CauseKind(StrEnum):
    """Kind of failure."""

    HARDWARE = "hardware fault"
    OUT_OF_MEMORY = "out of memory"
    HOST_MEMORY = "out of host memory"
    ERROR = "error"
    TIME_LIMIT = "time limit"
    NODE_FAILURE = "node failure"
    PREEMPTED = "preempted"
    CANCELLED = "cancelled"
    CONSEQUENCE = "consequence"


def out_of_memory(error: str) -> bool:
    return OUT_OF_MEMORY.search(error) is not None


def about_a_connection(error: str) -> bool:
    """Return whether an error only says that another rank has ended."""
    return (
        not out_of_memory(error)
        and CONNECTION.search(error) is not None
        and OWN_FAULT.search(error) is None
    )


# Thousands of ranks may print the same.
@lru_cache(maxsize=256)
def kind_of(error: str) -> CauseKind:
    """Return the kind of an exception or of another program's error, by its text."""
    if HARDWARE.search(error):
        return CauseKind.HARDWARE
    if _IMPOSSIBLE in error:
        return CauseKind.CONSEQUENCE
    if out_of_memory(error):
        on_host = _HOSTS_MEMORY.search(error)
        return CauseKind.HOST_MEMORY if on_host else CauseKind.OUT_OF_MEMORY
    return CauseKind.CONSEQUENCE if about_a_connection(error) else CauseKind.ERROR


class Weight(IntEnum):
    """Of several errors, the one with the lowest weight is the cause."""

    HARDWARE = 0
    MEMORY = 1
    ERROR = 2
    HINT = 3
    CONSEQUENCE = 4
    SYMPTOM = 5


@dataclass(frozen=True, kw_only=True)
class ErrorLine:
    """One reported error: its text, or our own sentence for a line with a fixed meaning."""

    weight: Weight
    kind: CauseKind
    error: str


@dataclass(frozen=True, kw_only=True)
class RaisedLine:
    """The last line of a traceback.

    Attributes:
        message: empty if the next line has it; None if there is none.
    """

    name: str
    message: str | None


@dataclass(frozen=True, kw_only=True)
class _ErrorPattern:
    """Lines of one form, and the error that they report.

    Attributes:
        signs: every such line contains one of these, which is fast to check.
        error: its text, a template with the pattern's groups.
        kind: None if the text determines it.
    """

    signs: tuple[str, ...]
    pattern: re.Pattern[str]
    error: str
    kind: CauseKind | None
    weight: Weight

    def read(self, line: str) -> ErrorLine | None:
        match = self.pattern.match(line)
        if match is None:
            return None
        return weighed(match.expand(self.error), kind=self.kind, weight=self.weight)


_WEIGHTS = {
    CauseKind.HARDWARE: Weight.HARDWARE,
    CauseKind.HOST_MEMORY: Weight.MEMORY,
    CauseKind.OUT_OF_MEMORY: Weight.MEMORY,
    CauseKind.CANCELLED: Weight.CONSEQUENCE,  # Slurm also says so of tasks of a trial that failed
    CauseKind.CONSEQUENCE: Weight.CONSEQUENCE,
}


def weighed(
    error: str, *, kind: CauseKind | None = None, weight: Weight = Weight.ERROR
) -> ErrorLine:
    """Return an error with this text, of the kind that the text determines unless `kind` is given.

    Some kinds have their own weight.
    """
    kind = kind or kind_of(error)
    if _IMPOSSIBLE in error:
        weight = Weight.SYMPTOM
    elif kind is not CauseKind.HARDWARE or weight is not Weight.HINT:
        weight = _WEIGHTS.get(kind, weight)
    return ErrorLine(weight=weight, kind=kind, error=error)


def _rule(
    signs: str,
    pattern: str,
    kind: CauseKind | None = None,
    error: str = r"\1",
    *,
    hint: bool = False,
) -> _ErrorPattern:
    return _ErrorPattern(
        signs=tuple(signs.split(",")),
        pattern=re.compile(pattern),
        error=error,
        kind=kind,
        weight=Weight.HINT if hint else Weight.ERROR,
    )


_SLURM = r"(?:slurmstepd[^:]*|slurmd[^:]*|srun): (?:error|fatal): "
_SAYS = "rror: ,atal: "
_TASKS = _SLURM + r"(?:[^:]+: )?tasks? [0-9,\[\]-]+: "
_CRASH = r"Segmentation fault|Bus error|Illegal instruction|Floating point exception"
_ABSENT = r"command not found|No such file or directory|Permission denied|Cannot allocate memory"
_ABSENCES = _ABSENT.replace("|", ",")
_ERRNO = r"(?:\[Errno [0-9]+\] )?"
_AT_LINE = r"[^\s:]{1,300}: line [0-9]+: +"

_SLURMS_OWN = (
    _rule(
        _SAYS,
        _SLURM + r".*(?:oom[-_ ]kill|OOM[- ]Kill|Out Of Memory|[Ee]xceeded .*memory limit)",
        CauseKind.HOST_MEMORY,
        "Slurm killed a task: the memory of its job ran out",
    ),
    _rule(
        _SAYS,
        _SLURM + r"\*\*\* .*(?i:DUE TO TIME LIMIT)",
        CauseKind.TIME_LIMIT,
        "Slurm ended it at its time limit",
    ),
    _rule(
        _SAYS,
        _SLURM + r"(?:\*\*\* .*(?i:DUE TO NODE FAIL)|Node failure on )",
        CauseKind.NODE_FAILURE,
        "Slurm reports that a node failed",
    ),
    _rule(
        _SAYS,
        _SLURM + r"\*\*\* .*(?i:DUE TO PREEMPTION)",
        CauseKind.PREEMPTED,
        "Slurm preempted it",
    ),
    _rule(
        _SAYS,
        _SLURM + r"\*\*\* .*(?:CANCELLED|TERMINATED)",
        CauseKind.CANCELLED,
        "Slurm cancelled it",
    ),
    _rule(_SAYS, _TASKS + rf"({_CRASH})", hint=True, error=r"a task ended: \1"),
    _rule(
        _SAYS,
        _TASKS + r"(Exited with exit code [0-9]+|Killed|Terminated|Aborted)",
        CauseKind.CONSEQUENCE,
        r"a task ended: \1",
    ),
    _rule(_SAYS, _SLURM + r"(?:[^:]+: )?execve\(\): (.+)"),
    _rule(_SAYS, _SLURM + r"(.+)", hint=True),
)
_SHELLS = (
    _rule(
        "Killed",
        rf"(?:{_AT_LINE}[0-9]+ )?Killed(?: |$)",
        CauseKind.CONSEQUENCE,
        "a process was killed",
    ),
    _rule("Segmentation fault,Bus error", rf"(?:{_AT_LINE}[0-9]+ )?({_CRASH})\b", hint=True),
    _rule(
        _ABSENCES,
        r"(?:[^\s:]{1,300}: line [0-9]+|-?(?:/\S*/)?(?:ba|da|k|z)?sh): (?:line [0-9]+: )?"
        rf"(.+: (?:{_ABSENT}))$",
    ),
    _rule(_ABSENCES, rf"(?:/\S*/)?((?:env|timeout|python[0-9.]*): .+: {_ERRNO}(?:{_ABSENT}))$"),
    _rule(_ABSENCES, rf"(?:/\S*/)?([\w.+-]{{1,100}}: .+: (?:{_ABSENT}))$", hint=True),
    _rule(
        "Lmod has detected the following error:", r"Lmod has detected the following error: *(.+)"
    ),
    _rule("Unable to locate a modulefile", r".{0,100}(Unable to locate a modulefile for .+)"),
)
_DRIVERS = (
    _rule(
        "Xid (PCI:",
        rf".{{0,300}}(Xid \(PCI:[^)]{{1,40}}\): (?!(?:{_PROGRAMS_XIDS})\b)[0-9]+.*)",
        CauseKind.HARDWARE,
    ),
    _rule(
        "ncorrectable ECC error,ncorrectable NVLink error,fallen off the bus, is lost",
        r".{0,300}?\b([Uu]ncorrectable (?:ECC|NVLink) error\b.*|\w+ has fallen off the bus"
        r"|(?:GPU|device) is lost\b.*)",
        CauseKind.HARDWARE,
    ),
    # Status 12: a peer answered no more. That also follows a rank that crashed, which says so.
    _rule(
        "NET/IB",
        r".{0,300}(NET/IB ?: .{0,200}"
        r"(?:Got completion .{0,200}(?:status|error)[= ](?:12\b|\w+\(12\))"
        r"|Got async .{0,40}(?:port error|fatal)).*)",
        CauseKind.HARDWARE,
        hint=True,
    ),
)
_PROGRAMS = (
    # NCCL's watchdog reports an error of its own device that nothing else did.
    _rule(
        "terminated with exception: ",
        r".{0,300}terminated with exception: (?:\[[^\]]{1,60}\] )?((?:CUDA|HIP) error: .+)",
    ),
    _rule("out of resource: ", r".{0,300}(out of resource: .+)", hint=True),
    # A rank also ends like this after its library noticed that another rank has ended.
    _rule("ended by SIGABRT", r"ended by SIGABRT", CauseKind.CONSEQUENCE, "ended by SIGABRT"),
    # Launchers end the other ranks like this once one has failed.
    _rule("ended by SIGTERM", r"ended by SIGTERM", CauseKind.CONSEQUENCE, "ended by SIGTERM"),
    # The bundled trainer reports a rank that could not report anything itself.
    _rule("ended by SIG", r"(ended by SIG.+)"),
    # A compiler's error, or that of an interpreter that a Makefile runs to find headers.
    _rule("rror: ", r"(?:\S*/)?([\w.+-]{1,100}:[0-9]+:(?:[0-9]+:)? (?:fatal )?error: .+)"),
    _rule("No module named ", r"(?:\S*/)?(python[0-9.]*: No module named .+)"),
    # An argument parser's.
    _rule(": error: ", r"(?:\S*/)?([\w.+-]{1,100}: error: .+)"),
    # Hydra's.
    _rule(
        "Could not override ',Ambiguous value for argument ',is not in struct,Missing mandatory ",
        r"(Could not override '.+|Ambiguous value for argument '.+"
        r"|Key '.+' is not in struct|Missing mandatory value: .+)",
    ),
    # torchrun or an MPI launcher reports a rank that could not report anything itself.
    _rule("traceback : Signal ", r"\s*traceback : (Signal .+)", hint=True),
    _rule("exited on signal ", r".{0,300}(exited on signal .+)", hint=True),
    _rule("error while loading", r"(.{0,300}error while loading shared libraries: .+)"),
    _rule("what():", r"\s*what\(\): +(.+)"),
    _rule("terminate called after", r"(terminate called after throwing .+)", hint=True),
    _rule("Fatal Python error:", r"(Fatal Python error: (?!Aborted).+)", hint=True),
    _rule("Memory access fault by GPU", r".{0,40}(Memory access fault by GPU)"),
    _rule("Assertion ", r"(?:\S+: )?(.{0,300}Assertion [`'].+['`] failed)"),
    _rule("Check failed: ", r".{0,300}(Check failed: .+)"),
    _rule(
        "ut of memory",
        r"(?=.{0,200}\b(?:CUDA|Cuda|cuda|HIP|hip|XPU|NPU)\b).*out of memory",
        CauseKind.OUT_OF_MEMORY,
        "out of memory on a device",
    ),
    _rule(
        "ut of memory",
        r".{0,100}\b[Oo]ut of memory: Kill",
        CauseKind.HOST_MEMORY,
        "the kernel killed a process: out of memory",
    ),
    _rule(
        "atchdog caught,failed (exitcode",
        r"(.{0,300}(?:[Ww]atchdog caught|failed \(exitcode).*)",
        hint=True,
    ),
    _rule("ERROR,CRITICAL", r".{0,120}?[|-] (?:ERROR|CRITICAL) +[|-] (\S.+)", hint=True),
    # Any other line that calls itself an error.
    _rule(
        "ERROR,FATAL,rror:,atal: ",
        r"(?:\[[^\]]{0,100}\]:? ?|[0-9][0-9:.,T-]{5,30} )*"
        r"(?:\[?(?:ERROR|FATAL)\b[\] :-]+|(?:[Ee]rror|[Ff]atal(?: error)?): )(\S.+)",
        hint=True,
    ),
)


def _by_sign(rules: Iterable[_ErrorPattern]) -> tuple[tuple[str, _ErrorPattern], ...]:
    return tuple((sign, rule) for rule in rules for sign in rule.signs)


_SLURMS_BY_SIGN = _by_sign(_SLURMS_OWN)
_OTHERS_BY_SIGN = _by_sign(_SHELLS + _DRIVERS + _PROGRAMS)
_EXCEPTION = re.compile(
    r"((?:[A-Za-z_]\w*\.)*(?:Exception|SystemExit|KeyboardInterrupt"
    r"|[A-Z]\w*(?:Error|Exception)))(?::(?: +(.*))?)?$"
)
# Any name, once a traceback has begun.
_RAISED = re.compile(r"((?:[A-Za-z_]\w*\.)+[A-Z]\w*)(?::(?: +(.*))?)?$")
# Argument parsers may print an error in a box (rich, typer, tyro) with a title.
BOXES = ("╭─", "┌─", "+-")
_TITLE = re.compile(r"[╭┌+][─-]+ ([^─╮┐+]{1,60}?) [─-]*[╮┐+]?\s*$")
_OF_ERRORS = re.compile(r"\berrors?\b|unrecognized|unknown|invalid|missing|required", re.IGNORECASE)
_WITHIN = re.compile(r"[│|] ?(.*?) *[│|]?\s*$")
TRACEBACK = "Traceback (most recent call last)"
CHAINED = "above exception"
IGNORED = "Exception ignored"


@lru_cache(maxsize=256)
def read_error(line: str) -> ErrorLine | None:
    """Return the error that a line reports; None for any other line."""
    by_sign = _SLURMS_BY_SIGN if line.startswith(("slurm", "srun")) else _OTHERS_BY_SIGN
    for sign, rule in by_sign:
        if sign in line and (error := rule.read(line)):
            return error
    return None


def read_exception(line: str, *, in_traceback: bool) -> RaisedLine | None:
    """Return the exception at the beginning of a line; None for any other line."""
    match = _EXCEPTION.match(line) or (_RAISED.match(line) if in_traceback else None)
    if match is None:
        return None
    colon = match.end(1) < len(line)
    return RaisedLine(name=match[1], message=(match[2] or "").strip() if colon else None)


def begins_box(line: str) -> bool:
    title = _TITLE.match(line) if line.startswith(BOXES) else None
    return title is not None and _OF_ERRORS.search(title[1]) is not None


def within_box(line: str) -> str | None:
    within = _WITHIN.match(line)
    return None if within is None or "──" in within[1] else within[1]


# An exception without a message only follows a traceback.
_ALL_SIGNS = {
    *(sign for sign, _ in _SLURMS_BY_SIGN + _OTHERS_BY_SIGN),
    *("Error:", "Exception:", TRACEBACK, CHAINED, IGNORED),
    *BOXES,
}
# A sign that contains another one is not needed.
SIGNS = tuple(
    sorted(
        sign
        for sign in _ALL_SIGNS
        if not any(other in sign for other in _ALL_SIGNS if other != sign)
    )
)
"""Outside a traceback, a line without any of these reports no error."""
