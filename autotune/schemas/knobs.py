"""What the trials of knobs on a campaign's best layout show."""

from __future__ import annotations

from typing import Literal, TypeAlias

from pydantic import Field

from autotune.schemas.wire import Wire
from search_spaces.dimensions import Scalar
from search_spaces.strategy import Strategy, strategy_with

KnobDecision: TypeAlias = Literal["adopted", "rejected", "not decided"]
KnobSign: TypeAlias = Literal["time", "log", "memory"]
"""What shows that a knob was on."""


class KnobResult(Wire):
    """One value of one knob, compared with the layout without it.

    Gains are relative gains in rate, shrunken towards nothing; null without a successful start.
    """

    knob: str
    """Its name."""
    value: Scalar
    """The value that was tried."""
    decision: KnobDecision
    """What follows."""
    why: str
    """The reason, in a sentence."""
    starts: int = 0
    """Successful starts with it."""
    gain: float | None = None
    """Expected gain."""
    gain_low: float | None = None
    """Lower end of its 80 % interval."""
    gain_high: float | None = None
    """Upper end of its 80 % interval."""
    probability_faster: float | None = None
    """Probability of a gain."""
    gain_at_other_size: float | None = None
    """Expected gain at the other micro-batch size; null if not measured."""
    sign_differs: bool = False
    """Whether it is probably faster at one micro-batch size and slower at the other."""
    seen_in: KnobSign | None = None
    """What shows that the knob was on; null: it may not have been."""


class KnobFindings(Wire):
    """The knobs that were tried on the best layout, and what to use."""

    strategy: Strategy
    """The layout, without knobs."""
    settings: dict[str, Scalar] = Field(default_factory=dict)
    """Values to use, by knob; launch files have them."""
    gain: float | None = None
    """Expected relative gain in rate of `settings`; null without any."""
    gain_low: float | None = None
    """Lower end of its 80 % interval."""
    gain_high: float | None = None
    """Upper end of its 80 % interval."""
    starts: int
    """Starts that ended, including failed ones and those without knobs."""
    node_hours: float
    """Node-hours of all these starts."""
    other_micro_batch_size: int | None = None
    """Other micro-batch size at which knobs that reopen the layout were measured; null: none."""
    reopened: str = ""
    """A start at the other micro-batch size that was faster than the layout with `settings`, in a
    sentence: the layout should be searched again with its knob. Empty without one."""
    results: list[KnobResult]
    """Each value that was tried, the largest gain first."""

    @property
    def launched(self) -> Strategy:
        """The layout with the values to use."""
        return strategy_with(self.strategy.as_dict() | self.settings)
