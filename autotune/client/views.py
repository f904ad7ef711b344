"""What a handle tells without asking the service."""

from __future__ import annotations

import time
from typing import Protocol

from autotune.campaign_outcome import outcome_of_campaign
from autotune.client.calls.call import Call
from autotune.html import facts
from autotune.objectives import OBJECTIVE_UNITS
from autotune.resolution import strategy_of
from autotune.schemas import (
    Baseline,
    Campaign,
    CampaignState,
    FigureForm,
    Ranked,
    Recommendation,
    StrategyShape,
    TrialMetrics,
)
from autotune.wording import figure
from search_spaces.errors import InvalidInput

AT_REST = frozenset(
    {CampaignState.PAUSED, CampaignState.DONE, CampaignState.CANCELLED, CampaignState.FAILED}
)
POLL_S = 0.5


class CampaignView:
    """A campaign as it stood when last asked."""

    def __init__(self, campaign: Campaign) -> None:
        self.campaign = campaign

    def __repr__(self) -> str:
        return f"<campaign {self.id} {self.campaign.name!r} {self.state}>"

    def _repr_html_(self) -> str:
        item = self.campaign
        outcome = outcome_of_campaign(item)
        return facts(
            f"Campaign {item.id}: {item.name}",
            [
                ("outcome", f"{outcome}: {item.reason}" if item.reason else outcome),
                ("model", item.model.name),
                ("machine", f"{item.machine.name}, at most {item.request.nodes} nodes"),
                ("trials", f"{item.trials}, {item.failures} failed"),
                *self._found(),
                ("node-hours", figure(item.node_hours)),
            ],
        )

    def _found(self) -> list[tuple[str, str]]:
        """Return what is recommended so far; of a scaling study, what it measures."""
        item, study = self.campaign, self.campaign.request.study
        if study is not None:
            nodes = ", ".join(map(str, study.nodes))
            return [(f"{' and '.join(study.kinds)} scaling", f"on {nodes} nodes")]
        unit = OBJECTIVE_UNITS[item.request.objective]
        best = "–" if item.best_objective is None else f"{figure(item.best_objective)} {unit}"
        layout = strategy_of(item.best_strategy).short() if item.best_strategy else "–"
        projected = "projected, " if item.best_projected_from_nodes else ""
        recommended = f"{best} ({projected}{_origin(item.simulated)})"
        return [("recommended", recommended), ("layout", layout)]

    @property
    def id(self) -> int:
        return self.campaign.id

    @property
    def state(self) -> CampaignState:
        return self.campaign.state

    @property
    def at_rest(self) -> bool:
        """Whether nobody works on it: paused, done, cancelled or failed, and no trial runs on."""
        return self.state in AT_REST and self.campaign.pending == 0

    def deadline(self, timeout_s: float | None) -> float | None:
        """Return the moment, on this machine's monotonic clock, at which waiting gives up."""
        return None if timeout_s is None else time.monotonic() + timeout_s

    def pause_s(self, deadline: float | None) -> float:
        """Return the seconds until the campaign is looked at again; raises TimeoutError at the
        deadline."""
        if deadline is None:
            return POLL_S
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            raise TimeoutError(f"campaign {self.id} is still {self.state}; it goes on by itself")
        return min(POLL_S, left_s)


class RecommendationView:
    """A recommendation and its best strategy."""

    def __init__(self, recommendation: Recommendation) -> None:
        self.recommendation = recommendation

    def __repr__(self) -> str:
        layout = strategy_of(self.strategy).short()
        return f"<recommendation of campaign {self.recommendation.campaign_id}: {layout}>"

    def _repr_html_(self) -> str:
        found, metrics = self.recommendation, self.metrics
        mfu = "" if metrics.mfu is None else f", MFU {100 * metrics.mfu:.1f} %"
        origin = _origin(found.simulated)
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
        """Whether the figures are predictions of a model rather than measurements."""
        return self.recommendation.simulated

    @property
    def baseline(self) -> Baseline | None:
        """The layout that was measured first, and how the best stands against it."""
        return self.recommendation.baseline

    @property
    def speedup_over_baseline(self) -> float | None:
        return self.recommendation.speedup_over_baseline

    def at(self, rank: int) -> Ranked:
        """Return the strategy at `rank`, 1 being the best; raises InvalidInput where none is."""
        known = {each.rank: each for each in (self.best, *self.recommendation.runners_up)}
        if rank not in known:
            reason = "the recommendation does not go that far"
            raise InvalidInput("rank", rank, reason, valid=f"1 to {max(known)}")
        return known[rank]

    def artefacts(self) -> list[str]:
        """Return the names of the files that come with it."""
        return list(self.recommendation.artefacts)

    @property
    def launch_script_name(self) -> str:
        """The script for what was measured and where: the bundled trainer here (`train.sh`) or on
        a cluster (`train.sbatch`), or else Megatron-DeepSpeed on a cluster."""
        launch = self.recommendation.launch
        return launch.file if launch else "launch.sbatch"


class FigureRequest(Protocol):
    """What asks for one figure in any of its forms."""

    def __call__(self, *, form: FigureForm) -> Call[bytes]: ...


class PlotView:
    """A figure as a picture: `svg` is its text."""

    def __init__(self, name: str, svg: str) -> None:
        self.name = name
        self.svg = svg

    def __repr__(self) -> str:
        return f"<{self.name}>"

    def _repr_svg_(self) -> str:
        return self.svg


def _origin(simulated: bool) -> str:
    return "simulated" if simulated else "measured"
