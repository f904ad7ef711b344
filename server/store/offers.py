"""Which campaigns a runner takes."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from sqlalchemy import ColumnElement, and_, false

from server.store.campaigns import WORKED_ON
from server.store.tables import CampaignRow


@dataclass(frozen=True, kw_only=True)
class CampaignKind:
    """What of a campaign decides which runners take it."""

    evaluator: str
    owner: str | None
    own_runner: bool

    def condition(self) -> ColumnElement[bool]:
        """Return what holds of the rows of such campaigns."""
        return and_(
            CampaignRow.evaluator == self.evaluator,
            CampaignRow.owner.is_not_distinct_from(self.owner),
            CampaignRow.own_runner == self.own_runner,
        )


@dataclass(frozen=True, kw_only=True)
class RunnerOffer:
    """Which campaigns a runner takes.

    Attributes:
        user: whose alone; None: everybody's that do not ask for their owner's own runner.
    """

    evaluators: Collection[str]
    user: str | None = None

    def takes(self, kind: CampaignKind) -> bool:
        """Return whether it takes such a campaign."""
        theirs = kind.owner == self.user if self.user else not kind.own_runner
        return kind.evaluator in self.evaluators and theirs

    def condition(self) -> ColumnElement[bool]:
        """Return what holds of the rows of the campaigns that it takes."""
        theirs = CampaignRow.owner == self.user if self.user else CampaignRow.own_runner == false()
        return and_(CampaignRow.evaluator.in_(self.evaluators), theirs)

    def resting(self) -> ColumnElement[bool]:
        """Return what holds of the rows of those among them that rest."""
        return and_(self.condition(), CampaignRow.state.not_in(WORKED_ON))
