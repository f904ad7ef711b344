"""A campaign's recommendation, and the files that run it."""

from __future__ import annotations

from urllib.parse import quote

from autotune.client.transport import Transport
from autotune.html import facts
from autotune.resolution import strategy_of
from autotune.schemas.recommendations import Baseline, Ranked, Recommendation
from autotune.schemas.shapes import StrategyShape
from autotune.schemas.trials import TrialMetrics
from autotune.wording import figure
from search_spaces.errors import InvalidInput


class RecommendationHandle:
    """A campaign's recommendation, and the files that run it."""

    def __init__(self, transport: Transport, recommendation: Recommendation) -> None:
        self._transport = transport
        self.recommendation = recommendation

    def __repr__(self) -> str:
        layout = strategy_of(self.strategy).short()
        return f"<recommendation of campaign {self.recommendation.campaign_id}: {layout}>"

    def _repr_html_(self) -> str:
        found, metrics = self.recommendation, self.metrics
        mfu = "" if metrics.mfu is None else f", MFU {100 * metrics.mfu:.1f} %"
        origin = "simulated" if found.simulated else "measured"
        status = "provisional" if found.provisional else "confirmed by another run"
        return facts(
            f"Recommended by campaign {found.campaign_id}",
            [
                ("layout", strategy_of(self.strategy).short()),
                ("throughput", f"{figure(metrics.tokens_per_s)} tokens/s{mfu} ({origin})"),
                ("iteration", f"{figure(metrics.iteration_time_s)} s ({origin})"),
                *([("baseline", found.baseline.comparison)] if found.baseline else []),
                ("status", status),
            ],
        )

    @property
    def best(self) -> Ranked:
        return self.recommendation.best

    @property
    def strategy(self) -> StrategyShape:
        return self.best.strategy

    @property
    def metrics(self) -> TrialMetrics:
        return self.best.metrics

    @property
    def simulated(self) -> bool:
        """Return whether the figures are simulated instead of measured."""
        return self.recommendation.simulated

    @property
    def baseline(self) -> Baseline | None:
        """Return the layout that was measured first, and how the best compares with it."""
        return self.recommendation.baseline

    @property
    def speedup_over_baseline(self) -> float | None:
        return self.recommendation.speedup_over_baseline

    def at(self, rank: int) -> Ranked:
        """Return the strategy at `rank`, 1 for the best. Raises InvalidInput if there is none."""
        known = {each.rank: each for each in (self.best, *self.recommendation.runners_up)}
        if rank not in known:
            reason = "the recommendation does not go that far"
            raise InvalidInput("rank", rank, reason, valid=f"1 to {max(known)}")
        return known[rank]

    def artefacts(self) -> list[str]:
        """Return the names of its files."""
        return list(self.recommendation.artefacts)

    def artefact(self, name: str, *, rank: int = 1) -> str:
        """Return the text of one file, for the strategy at `rank` (1: the best)."""
        campaign = f"/campaigns/{self.recommendation.campaign_id}"
        path = f"{campaign}/artefacts/{quote(name, safe='')}"
        return self._transport.content(path, {"rank": rank}).decode()

    @property
    def launch_script_name(self) -> str:
        """Return the script of the trainer that was measured: the bundled one here (`train.sh`) or
        on a cluster (`train.sbatch`), else Megatron-DeepSpeed on a cluster."""
        launch = self.recommendation.launch
        return launch.file if launch else "launch.sbatch"

    def launch_script(self, *, rank: int = 1) -> str:
        """Return the script that starts training with the strategy at `rank`."""
        return self.artefact(self.launch_script_name, rank=rank)
