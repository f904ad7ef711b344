"""The calibrations that a service keeps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from autotune.client import calls
from autotune.client.asynchronous.connection import AsyncConnection
from autotune.schemas import CalibrationDetail, CalibrationDocument, CalibrationSummary


class AsyncCalibrations(AsyncConnection):
    """The cost model fitted to trials: kept, listed, carried elsewhere."""

    async def calibrations(self) -> list[CalibrationSummary]:
        """Return all calibrations that the service keeps, newest first."""
        return await self._transport.send(calls.calibrations.calibrations())

    async def calibrate(
        self, name: str, campaigns: Iterable[int], *, software: str | None = None
    ) -> CalibrationDetail:
        """Fit the cost model to trials of campaigns of one machine; keep that under `name`."""
        return await self._transport.send(
            calls.calibrations.calibrate(name, campaigns, software=software)
        )

    async def calibration(self, name: str) -> CalibrationDetail:
        """Return what a calibration rests on, and its constants before and after."""
        return await self._transport.send(calls.calibrations.calibration(name))

    async def calibration_document(self, name: str) -> CalibrationDocument:
        """Return a whole calibration, as `import_calibration` takes it."""
        return await self._transport.send(calls.calibrations.document(name))

    async def import_calibration(
        self, name: str, document: CalibrationDocument | Mapping[str, Any]
    ) -> CalibrationDetail:
        """Keep an exported calibration under a name that is free."""
        return await self._transport.send(calls.calibrations.import_document(name, document))

    async def delete_calibration(self, name: str) -> None:
        await self._transport.send(calls.calibrations.delete(name))
