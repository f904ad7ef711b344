"""The results of a scaling study so far, from its trials alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from autotune.prediction.scaling import scaled_strategies
from autotune.resolution import strategy_of
from autotune.schemas.choices import ScalingKind
from autotune.schemas.shapes import StrategyShape
from autotune.schemas.spaces import StudySpec
from server.figures.scaling import TITLES, layout_line, measured_steps
from server.figures.source import FigureSource
from server.wording import count, mark, plural


@dataclass(frozen=True, kw_only=True)
class StudyTile:
    """One layout and kind of scaling.

    Attributes:
        layout: empty if the study has only one.
        kept: rate per GPU on the most timed nodes over that on the fewest; None with fewer than
            two.
        remark: the numbers of nodes compared.
        omitted: where the layout cannot run, and why.
    """

    title: str
    layout: str
    kept: float | None
    remark: str
    omitted: Mapping[int, str]


def study_tiles(source: FigureSource) -> list[StudyTile]:
    """Return how each layout of a campaign's study scales; empty for a search."""
    study = source.campaign.request.study
    if study is None:
        return []
    several = len(study.strategies) > 1
    tiles = []
    for shape in study.strategies:
        for kind in study.kinds:
            rates, omitted = _rates(source, study, shape, kind)
            kept, remark = _kept(source, rates)
            tiles.append(
                StudyTile(
                    title=TITLES[kind],
                    layout=layout_line(shape) if several else "",
                    kept=kept,
                    remark=remark,
                    omitted=omitted,
                )
            )
    return tiles


def _kept(source: FigureSource, rates: Mapping[int, float]) -> tuple[float | None, str]:
    if len(rates) < 2:
        return None, f"timed on {plural(len(rates), 'number')} of nodes, and it takes two"
    fewest, most = min(rates), max(rates)
    return (
        rates[most] / rates[fewest],
        f"of the rate per GPU from {count(fewest)} to {count(most)} nodes, "
        f"{mark(source.campaign.simulated)}",
    )


def _rates(
    source: FigureSource, study: StudySpec, shape: StrategyShape, kind: ScalingKind
) -> tuple[dict[int, float], dict[int, str]]:
    """Return samples per second and node by number of nodes with a timed step, and where the layout
    cannot run."""
    belief = source.belief
    steps, gpus = measured_steps(source.trials), belief.machine.gpus_per_node
    strategies, omitted = scaled_strategies(
        belief.machine,
        belief.transformer,
        strategy_of(shape),
        kind=kind,
        nodes=study.nodes,
        program=belief.program,
    )
    rates = {
        each.num_nodes: each.global_batch_size(gpus) / steps[each] / each.num_nodes
        for each in strategies
        if each in steps
    }
    return rates, omitted
