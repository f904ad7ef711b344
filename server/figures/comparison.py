"""The progress of several campaigns in one chart: the best so far of each."""

from __future__ import annotations

from autotune.measurement.objectives import OBJECTIVE_UNITS
from autotune.schemas.choices import ProgressAxis
from autotune.schemas.comparisons import CampaignComparison, ComparedCampaign
from autotune.schemas.figures import FigureTable
from autotune.words.quantities import figure
from server.figures.figure import Figure
from server.figures.vega import (
    FIGURE,
    LETTER_PX,
    PALETTES,
    Scheme,
    Spec,
    axis,
    finish,
    layer,
    nominal,
    ordinal,
    quantitative,
    scale,
    series_channels,
)

X_TITLES: dict[ProgressAxis, str] = {
    "trial": "trial",
    "node_hours": "node-hours spent on trials",
}


def campaign_label(campaign: ComparedCampaign) -> str:
    named = f"{campaign.campaign_id} {campaign.name}".strip()
    return f"{named} (simulated)" if campaign.simulated else named


class ProgressFigure(Figure):
    """The best so far of each campaign as steps, over trials or over node-hours.

    If the campaigns have different objectives, the vertical axis has no title; the caption says
    why.
    """

    comparison: CampaignComparison
    by: ProgressAxis

    @classmethod
    def of(
        cls, comparison: CampaignComparison, *, by: ProgressAxis = "node_hours"
    ) -> ProgressFigure:
        ids = [str(campaign.campaign_id) for campaign in comparison.campaigns]
        return cls(
            title=f"Campaigns {', '.join(ids[:-1])} and {ids[-1]}",
            caption=comparison.sentence,
            table=progress_table(comparison),
            comparison=comparison,
            by=by,
        )

    def chart(self, *, scheme: Scheme = "light") -> Spec:
        return _progress_chart(self.comparison, by=self.by, scheme=scheme)


def progress_table(comparison: CampaignComparison) -> FigureTable:
    """Return one row per improvement of each campaign, and one for its end."""
    rows = [
        [
            campaign_label(campaign),
            str(step.trial),
            figure(step.node_hours),
            f"{figure(step.objective)} {OBJECTIVE_UNITS[campaign.objective]}",
        ]
        for campaign in comparison.campaigns
        for step in campaign.progress
    ]
    return FigureTable(columns=["Campaign", "Trial", "Node-hours", "Best so far"], rows=rows)


def _progress_chart(comparison: CampaignComparison, *, by: ProgressAxis, scheme: Scheme) -> Spec:
    palette = PALETTES[scheme]
    rows = [
        {
            "campaign": campaign_label(campaign),
            "x": step.trial if by == "trial" else step.node_hours,
            "objective": step.objective,
            "trial": step.trial,
        }
        for campaign in comparison.campaigns
        for step in campaign.progress
    ]
    labels = [campaign_label(campaign) for campaign in comparison.campaigns]
    units = {OBJECTIVE_UNITS[campaign.objective] for campaign in comparison.campaigns}
    whole = f"{LETTER_PX} * length(datum.label) < width - 24"
    brief = f"{whole} ? datum.label : 'campaign ' + split(datum.label, ' ')[0]"
    colour, dashes = series_channels("campaign", labels, scheme, labelExpr=brief)
    place = {
        "x": quantitative(
            "x",
            title=X_TITLES[by],
            axis=axis(bool(rows), tickCount=8, **({"tickMinStep": 1} if by == "trial" else {})),
            scale=scale(bool(rows), nice=False, padding=8),
        ),
        "y": quantitative(
            "objective",
            title=units.pop() if len(units) == 1 else None,
            axis=axis(bool(rows), format="~s", tickCount=6),
            scale=scale(bool(rows)),
        ),
        "color": colour,
    }
    tooltip = [
        nominal("campaign", title="campaign"),
        ordinal("trial", title="trial"),
        quantitative("objective", title="best so far", format=FIGURE),
    ]
    line = place | {"strokeDash": dashes}
    layers = [
        layer("line", "progress", line, interpolate="step-after", strokeWidth=2),
        layer("point", "progress", place | {"tooltip": tooltip}, filled=True, size=40, opacity=1),
    ]
    return finish(layers, palette, {"progress": rows}, height=300)
