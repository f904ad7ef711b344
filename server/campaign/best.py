"""The best layout of a campaign, and the best so far after each trial."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from autotune.recommendation.projected import all_contenders
from autotune.recommendation.ranking import improvements
from autotune.schemas.campaigns import Campaign, FewNodes
from autotune.schemas.trials import Trial
from autotune.search import CampaignBelief
from search_spaces.strategy import Strategy


@dataclass(frozen=True, kw_only=True)
class BestLayout:
    """The recommended layout: its first trial, and its metrics.

    Attributes:
        objective: the value of the campaign's objective.
        mfu: None if the machine's peak is unknown.
        from_nodes: number of nodes that its metrics are projected from; None if it ran on its own.
        from_layers: number of layers that they are projected from; None if it ran with all.
    """

    trial: int
    strategy: Strategy
    objective: float
    mfu: float | None
    from_nodes: int | None = None
    from_layers: int | None = None


@dataclass(frozen=True, kw_only=True)
class BestSoFar:
    """The best of a campaign's ended trials.

    Attributes:
        layout: None until a trial succeeds.
        improvements: number and objective of each full trial that is better than all before it; the
            last one is the fastest single trial.
    """

    layout: BestLayout | None = None
    improvements: tuple[tuple[int, float], ...] = ()

    @classmethod
    def of(
        cls, campaign: Campaign, trials: Sequence[Trial], *, belief: CampaignBelief | None = None
    ) -> BestSoFar:
        """Return the best of these trials, which are in the order of their numbers.

        Args:
            belief: the campaign's; required if trials stand in for more nodes or layers.
        """
        full = [trial for trial in trials if trial.stands_for_nodes is None]
        steps = tuple((trial.number, value) for trial, value in improvements(campaign, full))
        ranked = all_contenders(campaign, trials, belief=belief)
        if not ranked:
            return cls(improvements=steps)
        first = ranked[0]
        layout = BestLayout(
            trial=first.trials[0].number,
            strategy=first.strategy,
            objective=first.rate,
            mfu=first.metrics.mfu,
            from_nodes=first.projected_from_nodes,
            from_layers=first.projected_from_layers,
        )
        return cls(layout=layout, improvements=steps)

    def course(self, ended: int) -> list[float]:
        """Return the best objective after each trial, from the first success on."""
        starts = [number for number, _ in self.improvements]
        ends = [*starts[1:], max(ended, *starts) + 1] if starts else []
        steps = zip(self.improvements, ends, strict=True)
        return [value for (start, value), end in steps for _ in range(start, end)]


def ended_trials(campaign: Campaign) -> int:
    return campaign.trials_in_all - campaign.pending


def has_stand_ins(screening: FewNodes | None) -> bool:
    return screening is not None and (screening.nodes or screening.layers) is not None
