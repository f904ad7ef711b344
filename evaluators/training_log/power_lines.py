"""Samples of power in a log, kept in bounded memory."""

from __future__ import annotations

import re
from array import array
from dataclasses import dataclass, field

from evaluators.training_log.run import Power, PowerSample

SIGN = "[autotune power] "
_LINE = re.compile(
    r"\[autotune power\] (\S{1,255}) "
    r"(?:([0-9]{1,12}(?:\.[0-9]{1,9})?) ([0-9]{1,9}(?:\.[0-9]{1,6})?)|none(?: (.{1,300}))?)\s*$"
)
MOST_SAMPLES = 200_000
MOST_NODES = 20_000


@dataclass
class _Samples:
    """Of one node: three columns."""

    at_s: array[float] = field(default_factory=lambda: array("d"))
    watts: array[float] = field(default_factory=lambda: array("d"))
    after: array[int] = field(default_factory=lambda: array("q"))

    def add(self, at_s: float, watts: float, after: int) -> None:
        self.at_s.append(at_s)
        self.watts.append(watts)
        self.after.append(after)

    def thin(self) -> None:
        """Leave out every second one, but no first or last of those that share an iteration."""
        last = len(self.after) - 1
        kept = [
            n
            for n, after in enumerate(self.after)
            if n % 2 == 0 or n == last or {self.after[n - 1], self.after[n + 1]} != {after}
        ]
        self.at_s = array("d", (self.at_s[n] for n in kept))
        self.watts = array("d", (self.watts[n] for n in kept))
        self.after = array("q", (self.after[n] for n in kept))

    def samples(self) -> tuple[PowerSample, ...]:
        rows = zip(self.at_s, self.watts, self.after, strict=True)
        return tuple(PowerSample(at_s=at, watts=watts, after=after) for at, watts, after in rows)


class PowerLines:
    """Takes the sampler's lines in the log's order.

    Past MOST_SAMPLES it thins what it has; samples that do not fit even then are left out.
    """

    def __init__(self) -> None:
        self._nodes: dict[str, _Samples] = {}
        self._absent: dict[str, str] = {}
        self._count = 0
        self._full = False

    def read(self, text: str, *, after: int) -> bool:
        """Take a sample that came after this many iteration lines; False for any other line."""
        found = _LINE.search(text)
        if found is None:
            return False
        node, at_s, watts, reason = found.groups()
        if not self._knows(node):
            return True
        if at_s is None:
            self._absent[node] = reason or "it does not say why"
        elif self._has_room():
            self._nodes.setdefault(node, _Samples()).add(float(at_s), float(watts), after)
            self._count += 1
        return True

    def _knows(self, node: str) -> bool:
        known = node in self._nodes or node in self._absent
        return known or len(self._nodes) + len(self._absent) < MOST_NODES

    def _has_room(self) -> bool:
        if self._count >= MOST_SAMPLES and not self._full:
            for samples in self._nodes.values():
                samples.thin()
            self._count = sum(len(samples.after) for samples in self._nodes.values())
            # Where it helps little, it is not worth a try for each further sample.
            self._full = self._count > 0.9 * MOST_SAMPLES
        return self._count < MOST_SAMPLES and not self._full

    def power(self) -> Power:
        return Power(
            samples={node: taken.samples() for node, taken in self._nodes.items()},
            absent=dict(self._absent),
        )
