"""The trial table: its columns, and equal failures folded into one row. What all trials have in
common is shown once, above it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from zlib import crc32

from autotune.schemas.choices import TrialState
from autotune.schemas.trials import Trial
from autotune.words.dimensions import value_words
from autotune.words.failures import cause_of
from search_spaces.dimensions import BY_NAME, IN_LINE, TABLE
from search_spaces.strategy import Strategy

OTHERS = tuple(d.name for d in IN_LINE if not d.is_searched)
"""Dimensions that share a column."""


NEWEST_FIRST = "-number"


@dataclass(frozen=True, kw_only=True)
class TableQuestion:
    """Which rows to show, and in which order.

    Attributes:
        numbers: of the only trials to show; empty for all.
        also: number of a trial to show first if it is not among the rows; ignored if it does not
            exist.
        unfolded: keys of the expanded folds.
    """

    state: TrialState | None = None
    purpose: str | None = None
    numbers: Collection[int] = ()
    sort: str = NEWEST_FIRST
    shown: int = 100
    also: int = 0
    unfolded: Collection[str] = ()


NEWEST_ROWS = TableQuestion()


@dataclass(frozen=True)
class Column:
    """A column of the trial table.

    Attributes:
        sort: the API's name to sort by; a first click sorts in direction `first`.
        dimension: whether it is a dimension, named `sort`.
    """

    label: str
    help: str
    sort: str = ""
    first: str = "rising"
    number: bool = True
    dimension: bool = False


HEAD = (
    Column("Trial", "number of the trial", "number", "falling"),
    Column("State", "progress of the trial, or how it ended", number=False),
)
DIMENSIONS = tuple(Column(d.head, d.label, d.name, dimension=True) for d in TABLE if d.is_searched)
OTHER = Column("Other", "recomputation, precision and other dimensions", number=False)
MEASURED = (
    Column("Iteration", "median seconds of an iteration, and its spread", "iteration_time_s"),
    Column("Tokens/s", "tokens a second of all GPUs", "tokens_per_s", "falling"),
    Column("Of best", "objective, relative to the campaign's best"),
    Column(
        "TFLOP/s",
        "model FLOPs / hardware FLOPs (with recomputation)",
        "model_tflops_per_gpu",
        "falling",
    ),
    Column("MFU", "model FLOPs relative to the machine's 16-bit peak", "mfu", "falling"),
    Column("Peak memory", "of the fullest GPU", "peak_memory_gib", "falling"),
    Column("Duration", "wall time for which the nodes were held", "duration_s", "falling"),
)


@dataclass(frozen=True, kw_only=True)
class TrialColumns:
    """Columns of the table of a campaign's trials.

    Attributes:
        dimensions: columns of dimensions in which trials differ.
        others: dimensions in the shared column; without any there is no such column.
        constant: what all trials have in common, in words; empty if there are too few trials.
    """

    dimensions: tuple[Column, ...]
    others: tuple[str, ...]
    constant: str

    @classmethod
    def of(cls, trials: Sequence[Trial]) -> TrialColumns:
        """Return the columns for all of a campaign's trials."""
        own = tuple(dict.fromkeys(name for t in trials for name, _ in t.strategy.settings))
        others = (*OTHERS, *own)
        if len(trials) < 2:
            return cls(dimensions=DIMENSIONS, others=others, constant="")
        columns = tuple(column.sort for column in DIMENSIONS)
        names = (*columns, *others)
        differing = {n for n in names if len({t.strategy.value(n) for t in trials}) > 1}
        if any(trial.stands_for_nodes for trial in trials):
            # their column has the number of nodes that they stand in for
            differing.add("num_nodes")
        first = trials[0].strategy
        common = [value_words(n, first.value(n)) for n in columns if n not in differing]
        common += other_parts(first, [n for n in others if n not in differing])
        return cls(
            dimensions=tuple(column for column in DIMENSIONS if column.sort in differing),
            others=tuple(n for n in others if n in differing),
            constant=" · ".join(common),
        )

    @property
    def shown(self) -> tuple[Column, ...]:
        return (*HEAD, *self.dimensions, *((OTHER,) if self.others else ()), *MEASURED)

    @property
    def measured(self) -> int:
        return len(MEASURED) - 2

    def other(self, strategy: Strategy) -> str:
        return " · ".join(other_parts(strategy, self.others))


def other_parts(strategy: Strategy, dimensions: Sequence[str]) -> list[str]:
    """Return short texts for these OTHERS and for trainer-defined dimensions."""
    words: Mapping[str, str] = {
        **{name: BY_NAME[name].brief(strategy.value(name)) for name in OTHERS},
        **{name: value_words(name, value) for name, value in strategy.settings},
    }
    return [words[name] for name in dimensions if words.get(name)]


FEWEST = 3
"""Minimum number of equal failures to fold."""

NO_FAILURE = frozenset({TrialState.OK, TrialState.PENDING, TrialState.CANCELLED})


@dataclass(frozen=True, kw_only=True)
class FailureFold:
    """Trials that failed alike, newest first. `key` identifies their cause in addresses."""

    key: str
    trials: tuple[Trial, ...]

    @property
    def newest(self) -> Trial:
        return self.trials[0]


def folds(trials: Sequence[Trial]) -> list[FailureFold]:
    """Return the causes with several trials, most frequent first.

    Messages that differ only in numbers are equal.
    """
    causes: dict[str, list[Trial]] = {}
    for trial in reversed(trials):
        if trial.state not in NO_FAILURE:
            key = f"{crc32(cause_of(trial.error or '').encode()):08x}"
            causes.setdefault(f"{trial.state}-{key}", []).append(trial)
    found = [
        FailureFold(key=key, trials=tuple(alike))
        for key, alike in causes.items()
        if len(alike) >= FEWEST
    ]
    return sorted(found, key=lambda fold: -len(fold.trials))
