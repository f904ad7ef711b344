"""Parse iteration lines, whole or broken; only certain values count.

All ranks write to one log, so another rank's output may break a line anywhere. A value counts only
if it fills its field from mark to mark (`| name: value |`) and is followed by another field or the
end of the line, so a number that was cut in half does not.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from math import isfinite

from evaluators.training_log.log import Iteration

# Every Megatron: " iteration        2/       5 | …"; Argonne's: "iteration=       2/  5 | …".
HEAD = re.compile(r"iteration(?: {1,16}| {0,16}= {0,16})([0-9]{1,12})/ {0,12}([0-9]{1,12}) {0,9}\|")
# The bundled trainer: "GAS 4, iteration 2 | 123.4 ms | loss 7.1000000".
OWN = re.compile(
    r"\bGAS ([0-9]{1,9}), iteration ([0-9]{1,9}) \| ([0-9]{1,12}\.[0-9]) ms \|"
    r"(?: loss (nan|-?inf|-?[0-9]{1,12}\.[0-9]{7})(?=\s*$))?"
)
# Each whole line, and each piece with a value of interest, contains one of these.
SIGNS = (
    "iteration  ",
    "iteration=",
    "per iteration",
    "nan iterations",
    "nan_iterations",
    ", iteration ",
)
_DECIMAL = r"[0-9]{1,12}\.[0-9]{1,9}"
_WHOLE = r"[0-9]{1,15}"
_FLOAT = r"-?[0-9]{1,15}(?:\.[0-9]{1,20})?(?:[eE][+-]?[0-9]{1,3})?|(?i:-?nan|-?inf)"
_FIELDS: Mapping[str, str] = {
    r"elapsed time per iteration (?:\(ms\)|ms)": _DECIMAL,
    r"elapsed time per iteration (?:\(s\)|s)": _DECIMAL,
    r"global batch size": _WHOLE,
    r"consumed samples": _WHOLE,
    r"lm loss": _FLOAT,
    r"loss scale": _FLOAT,
    r"grad norm": _FLOAT,
    r"number of skipped iterations": _WHOLE,
    r"number of nan iterations": _WHOLE,
}
# Megatron-LM wrote "loss scale 1.0" without a colon in its first year.
_PATTERNS = {
    name: re.compile(rf"\s*{name}(?:\s*[:=]\s*|\s+)({value})\s*") for name, value in _FIELDS.items()
}
# The beginning of the next field, known or not.
_FOLLOWING = re.compile(r"\s+\[?[A-Za-z][\w ()/.\]+-]{0,60}?(?:[:=]|\s[0-9])")
_END = "end of line"
_MOST_FIELDS = 100
# The beginning of a line that another rank's output broke, recognised by the padding of its two
# counts, the mark after them, or the text before them; "at iteration       2 to", "epoch: 2/5" and
# "| 5/10 [00:01" do not match.
_BROKEN_HEAD = re.compile(
    r"iteration(?! {1,16}[0-9]{1,12} [a-z])(?: {2}| {0,16}=)|[0-9]/ {2}|/ {2,12}[0-9]"
    r"|[0-9]/ {0,12}[0-9]{1,12} {0,9}\||(?:^|[A-Za-z=]) {0,16}[0-9]{1,12}/ {0,12}[0-9]"
)
_MS, _S, _BATCH, _SAMPLES, _LOSS, _SCALE, _NORM, _SKIPPED, _NAN = _FIELDS


@dataclass(frozen=True, kw_only=True)
class LinePiece:
    """The certain values of a piece of an iteration line.

    Attributes:
        values: as written, by the field's pattern.
        closed: whether it ends like an unbroken line.
        complete: whether it has the last field of interest.
    """

    values: Mapping[str, str]
    closed: bool
    complete: bool

    def goes_on_in(self, later: LinePiece) -> bool:
        """Return whether `later` may belong to the same line: one end, and each field once."""
        return not self.closed and not later.values.keys() & self.values.keys()

    def joined(self, later: LinePiece) -> LinePiece:
        """Return the piece joined with a later one of the same line."""
        return LinePiece(
            values={**self.values, **later.values},
            closed=later.closed,
            complete=self.complete or later.complete,
        )

    def iteration(self, base: Iteration) -> Iteration | None:
        """Return `base` with the certain values; None if the time is not certain."""
        elapsed_s = self._number(_S)
        if _MS in self.values:
            # The nearest float, which a division by 1000 may miss.
            elapsed_s = float(f"{self.values[_MS]}e-3")
        if elapsed_s is None:
            return None
        loss, norm = self._number(_LOSS), self._number(_NORM)
        no_number = any(value is not None and not isfinite(value) for value in (loss, norm))
        return replace(
            base,
            elapsed_s=elapsed_s,
            global_batch_size=self._whole(_BATCH),
            consumed_samples=self._whole(_SAMPLES),
            loss=_finite(loss),
            loss_scale=_finite(self._number(_SCALE)),
            grad_norm=_finite(norm),
            skipped=self._whole(_SKIPPED),
            nan=no_number or bool(self._whole(_NAN)),
        )

    def _number(self, name: str) -> float | None:
        return float(self.values[name]) if name in self.values else None

    def _whole(self, name: str) -> int | None:
        return int(self.values[name]) if name in self.values else None


@dataclass(frozen=True, kw_only=True)
class IterationStart:
    """The beginning of an iteration line, with the unbroken text after it.

    Attributes:
        text: all of it, to recognise a line that was written twice.
    """

    number: int
    of: int | None
    accumulation: int | None
    piece: LinePiece
    text: str


def starts(text: str) -> Iterator[IterationStart]:
    """Yield the iteration lines in one line of a log; several if newlines are missing."""
    heads = list(HEAD.finditer(text))
    ends = [head.start() for head in heads[1:]] + [len(text)]
    for head, end in zip(heads, ends, strict=False):
        yield IterationStart(
            number=int(head[1]),
            of=int(head[2]),
            accumulation=None,
            piece=piece_of(text[head.end() : end]),
            text=text[head.start() : end],
        )
    for own in OWN.finditer(text):
        values = {_MS: own[3]} | ({_LOSS: own[4]} if own[4] else {})
        yield IterationStart(
            number=int(own[2]),
            of=None,
            accumulation=int(own[1]),
            piece=LinePiece(values=values, closed=True, complete=True),
            text=own[0],
        )


def begins_another(text: str) -> bool:
    """Return whether `text` may contain the broken beginning of an iteration line."""
    return _BROKEN_HEAD.search(text) is not None


def piece_of(text: str) -> LinePiece:
    """Return the certain values in `text`, which may begin and end anywhere in an iteration line.

    If a field occurs twice, the first certain value counts.
    """
    values: dict[str, str] = {}
    fields = text.replace("_", " ").split("|", _MOST_FIELDS)
    if not fields[-1].strip():
        fields[-1] = _END
    for this, following in pairwise(fields):
        if following is not _END and not _FOLLOWING.match(following):
            continue
        for name, pattern in _PATTERNS.items():
            if value := pattern.fullmatch(this):
                values.setdefault(name, value[1])
    return LinePiece(values=values, closed=text.rstrip().endswith("|"), complete=_NAN in values)


def _finite(number: float | None) -> float | None:
    return number if number is not None and isfinite(number) else None
