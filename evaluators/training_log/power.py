"""Collect the power samples that a log has of each node."""

from __future__ import annotations

import re
from array import array
from dataclasses import dataclass, field

from evaluators.training_log.log import Power, PowerSample

POWER_SIGN = "[autotune power] "
_POWER = re.compile(
    r"\[autotune power\] (\S{1,255}) "
    r"(?:([0-9]{1,12}(?:\.[0-9]{1,9})?) ([0-9]{1,9}(?:\.[0-9]{1,6})?)|none(?: (.{1,300}))?)\s*$"
)
MOST_SAMPLES = 200_000
MOST_NODES = 20_000


@dataclass
class _PowerSamples:
    """The samples of one node in two columns."""

    watts: array[float] = field(default_factory=lambda: array("d"))
    after: array[int] = field(default_factory=lambda: array("q"))

    def add(self, watts: float, after: int) -> None:
        self.watts.append(watts)
        self.after.append(after)

    def thin(self) -> None:
        """Drop every second one, except the first and last of each iteration."""
        last = len(self.after) - 1
        places = [
            n
            for n, after in enumerate(self.after)
            if n % 2 == 0 or n == last or {self.after[n - 1], self.after[n + 1]} != {after}
        ]
        self.watts = array("d", (self.watts[n] for n in places))
        self.after = array("q", (self.after[n] for n in places))

    def samples(self) -> tuple[PowerSample, ...]:
        rows = zip(self.watts, self.after, strict=True)
        return tuple(PowerSample(watts=watts, after=after) for watts, after in rows)


class PowerLines:
    """Collect the sampler's lines in the log's order.

    Args:
        most_samples: above this number, samples are thinned; if that does not help, later ones
            are dropped.
    """

    def __init__(self, *, most_samples: int = MOST_SAMPLES) -> None:
        self._most = most_samples
        self._nodes: dict[str, _PowerSamples] = {}
        self._absent: dict[str, str] = {}
        self._count = 0
        self._full = False

    def read(self, text: str, *, after: int) -> bool:
        """Record a sample after this many iteration lines; return False for any other line."""
        sample = _POWER.search(text)
        if sample is None:
            return False
        node, at_s, watts, reason = sample.groups()
        known = node in self._nodes or node in self._absent
        if not known and len(self._nodes) + len(self._absent) >= MOST_NODES:
            return True
        if at_s is None:
            self._absent[node] = reason or "it does not say why"
        elif self._has_room():
            self._nodes.setdefault(node, _PowerSamples()).add(float(watts), after)
            self._count += 1
        return True

    def _has_room(self) -> bool:
        if self._count >= self._most and not self._full:
            for samples in self._nodes.values():
                samples.thin()
            self._count = sum(len(samples.after) for samples in self._nodes.values())
            # If thinning helps little, it is not repeated for each further sample.
            self._full = self._count > 0.9 * self._most
        return self._count < self._most and not self._full

    def power(self) -> Power:
        """Return all samples so far."""
        return Power(
            samples={node: taken.samples() for node, taken in self._nodes.items()},
            absent=dict(self._absent),
        )
