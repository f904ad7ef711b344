"""The columns of a campaign's table of trials: what all trials have in common is said once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from autotune.dimension_words import value_words
from autotune.schemas import StrategyShape, Trial
from search_spaces.dimensions import BY_NAME, IN_LINE, TABLE

OTHERS = tuple(d.name for d in IN_LINE if not d.is_searched)
"""Dimensions that share a column."""


@dataclass(frozen=True)
class Column:
    """A column of the table of trials.

    Attributes:
        sort: the API's word for sorting by it; the first click sorts `first`.
        dimension: whether it is one, of which `sort` is the name.
    """

    label: str
    help: str
    sort: str = ""
    first: str = "rising"
    number: bool = True
    dimension: bool = False


HEAD = (
    Column("Trial", "number of the trial", "number", "falling"),
    Column("State", "how the trial stands, or how it ended", number=False),
)
DIMENSIONS = tuple(Column(d.head, d.label, d.name, dimension=True) for d in TABLE if d.is_searched)
OTHER = Column("Other", "activation checkpointing, precision and the rest", number=False)
MEASURED = (
    Column("Iteration", "median seconds of an iteration, and its spread", "iteration_time_s"),
    Column("Tokens/s", "tokens a second of all GPUs", "tokens_per_s", "falling"),
    Column("Of best", "what the campaign optimises, over that of its best"),
    Column(
        "TFLOP/s",
        "model FLOPs / hardware FLOPs (with recomputation)",
        "model_tflops_per_gpu",
        "falling",
    ),
    Column("MFU", "model FLOPs over the machine's 16-bit peak", "mfu", "falling"),
    Column("Peak memory", "of the fullest rank", "peak_memory_gib", "falling"),
    Column("Duration", "wall time that the nodes were held", "duration_s", "falling"),
)


@dataclass(frozen=True, kw_only=True)
class TrialColumns:
    """What the table of a campaign's trials has columns for.

    Attributes:
        dimensions: columns of those in which trials differ.
        others: dimensions that the shared column tells of; without any there is no such column.
        constant: what all trials have in common, in words; empty where there are too few to tell.
    """

    dimensions: tuple[Column, ...]
    others: tuple[str, ...]
    constant: str

    @classmethod
    def of(cls, trials: Sequence[Trial]) -> TrialColumns:
        """Return the columns for all of a campaign's trials."""
        own = tuple(dict.fromkeys(name for t in trials for name, _ in t.strategy.settings))
        if len(trials) < 2:
            others = (*OTHERS, *own)
            return cls(dimensions=DIMENSIONS, others=others, constant="")
        columns = tuple(column.sort for column in DIMENSIONS)
        names = (*columns, *OTHERS, *own)
        differing = {n for n in names if len({t.strategy.value(n) for t in trials}) > 1}
        if any(trial.stands_for_nodes for trial in trials):
            differing.add("num_nodes")  # its column says for how many others they stand
        first, told = trials[0].strategy, [n for n in (*OTHERS, *own) if n in differing]
        common = [value_words(n, first.value(n)) for n in columns if n not in differing]
        common += other_parts(first, [name for name in (*OTHERS, *own) if name not in differing])
        return cls(
            dimensions=tuple(column for column in DIMENSIONS if column.sort in differing),
            others=tuple(told),
            constant=" · ".join(common),
        )

    @property
    def shown(self) -> tuple[Column, ...]:
        """All columns, from the left."""
        return (*HEAD, *self.dimensions, *((OTHER,) if self.others else ()), *MEASURED)

    @property
    def measured(self) -> int:
        """How many columns in the middle stand empty where a trial has no figures."""
        return len(MEASURED) - 2

    def other(self, strategy: StrategyShape) -> str:
        """Return what the shared column says of a strategy."""
        return " · ".join(other_parts(strategy, self.others))


def other_parts(strategy: StrategyShape, dimensions: Sequence[str]) -> list[str]:
    """Return what is to be said of these out of OTHERS and of the trainer's own, each as briefly as
    possible."""
    words: Mapping[str, str] = {
        **{name: BY_NAME[name].brief(strategy.value(name)) for name in OTHERS},
        **{name: value_words(name, value) for name, value in strategy.settings},
    }
    return [words[name] for name in dimensions if words.get(name)]
