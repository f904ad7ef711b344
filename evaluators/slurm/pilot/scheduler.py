"""Which waiting trial starts on which free nodes. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

MOST_PASSED_OVER = 4
"""Times its own width."""
PATIENCE_S = 600.0


@dataclass(frozen=True, kw_only=True)
class WaitingTrial:
    """A trial that waits for nodes.

    Attributes:
        passed_over: node starts of later trials while it was its turn and it did not fit.
        waited_s: since the first of them.
    """

    name: str
    width: int
    group: str = ""
    passed_over: int = 0
    waited_s: float = 0.0

    @property
    def first_of_all(self) -> bool:
        return self.passed_over >= MOST_PASSED_OVER * self.width or self.waited_s > PATIENCE_S


@dataclass(frozen=True, kw_only=True, order=True)
class GroupShare:
    """A group's use of the allocation: nodes now, and node-seconds of its ended trials.

    Shares compare by nodes, then by node-seconds.
    """

    nodes: int = 0
    node_seconds: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """The nodes of each trial to start, and by how many nodes others were passed over, by name."""

    starts: Mapping[str, tuple[str, ...]]
    passed_over: Mapping[str, int]


def schedule_trials(
    nodes: Sequence[str],
    *,
    free: Collection[str],
    waiting: Sequence[WaitingTrial],
    shares: Mapping[str, GroupShare],
) -> Schedule:
    """Start every trial that fits, fairly.

    The group with the fewest nodes goes first; ties go to the fewest node-seconds; within a group,
    trials go by arrival. A trial that does not fit is passed over, but not forever: eventually
    nothing else starts until its nodes are free.

    Args:
        nodes: all usable nodes, neighbours next to each other.
        free: nodes on which nothing runs.
        waiting: in order of arrival. A trial wider than all of `nodes` never starts.
        shares: of each group that has or had trials.
    """
    free_nodes = _FreeNodes(nodes=nodes, free=set(free) & set(nodes), shares=dict(shares))
    queue = [trial for trial in waiting if trial.width <= len(nodes)]
    for trial in [trial for trial in queue if trial.first_of_all]:
        if not free_nodes.fits(trial):
            return free_nodes.schedule()
        free_nodes.start(trial)
        queue.remove(trial)
    while free_nodes.free and (following := free_nodes.next_of(queue)):
        free_nodes.start(following)
        queue.remove(following)
    return free_nodes.schedule()


def choose(nodes: Sequence[str], free: Collection[str], width: int) -> tuple[str, ...]:
    """Return `width` free nodes: neighbours if possible, from the tightest gap that fits.

    If no gap is wide enough, the widest are used first, so that few are fragmented.
    """
    runs = groupby(nodes, key=lambda node: node in free)
    gaps = [list(run) for is_free, run in runs if is_free]
    chosen: list[str] = []
    while len(chosen) < width:
        missing = width - len(chosen)
        wide_enough = [gap for gap in gaps if len(gap) >= missing]
        gap = min(wide_enough, key=len) if wide_enough else max(gaps, key=len)
        gaps.remove(gap)
        chosen += gap[:missing]
    position = {node: index for index, node in enumerate(nodes)}
    return tuple(sorted(chosen, key=position.__getitem__))


@dataclass(kw_only=True)
class _FreeNodes:
    """The allocation while its free nodes are assigned to trials."""

    nodes: Sequence[str]
    free: set[str]
    shares: dict[str, GroupShare]
    starts: dict[str, tuple[str, ...]] = field(default_factory=dict)
    passed_over: dict[str, int] = field(default_factory=dict)

    def fits(self, trial: WaitingTrial) -> bool:
        return trial.width <= len(self.free)

    def next_of(self, queue: Sequence[WaitingTrial]) -> WaitingTrial | None:
        """Return the first trial that fits, smallest share first; earlier ones are passed over."""
        before: list[str] = []
        for trial in sorted(queue, key=self._share):
            if self.fits(trial):
                for name in before:
                    self.passed_over[name] = self.passed_over.get(name, 0) + trial.width
                return trial
            before.append(trial.name)
        return None

    def start(self, trial: WaitingTrial) -> None:
        chosen = choose(self.nodes, self.free, trial.width)
        self.starts[trial.name] = chosen
        self.free -= set(chosen)
        share = self._share(trial)
        self.shares[trial.group] = GroupShare(
            nodes=share.nodes + trial.width, node_seconds=share.node_seconds
        )

    def schedule(self) -> Schedule:
        over = {name: count for name, count in self.passed_over.items() if name not in self.starts}
        return Schedule(starts=self.starts, passed_over=over)

    def _share(self, trial: WaitingTrial) -> GroupShare:
        return self.shares.get(trial.group, GroupShare())


class GroupShares:
    """Node-seconds by group.

    A group that returns, or comes late, gets no credit for the time without work: it starts from
    the lowest share of the working groups.
    """

    def __init__(self) -> None:
        self._used: dict[str, float] = {}
        self._working: set[str] = set()

    def at_work(self, groups: Iterable[str]) -> None:
        """Record which groups have waiting or running trials."""
        now = set(groups)
        least = min((self._used[group] for group in now & self._working), default=0.0)
        for group in now - self._working:
            self._used[group] = max(self._used.get(group, 0.0), least)
        self._working = now

    def charge(self, group: str, node_seconds: float) -> None:
        self._used[group] = self._used.get(group, 0.0) + node_seconds

    def of(self, nodes: Mapping[str, int]) -> dict[str, GroupShare]:
        """Return each group's share; `nodes`: how many each has now."""
        groups = nodes.keys() | self._used.keys()
        return {
            group: GroupShare(nodes=nodes.get(group, 0), node_seconds=self._used.get(group, 0.0))
            for group in groups
        }
