# Generated from `asynchronous` by `make client`: change that and run it again.
"""The calibrations that a service keeps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from autotune.client import calls
from autotune.client.synchronous.connection import Connection
from autotune.schemas import CalibrationDetail, CalibrationDocument, CalibrationSummary


class Calibrations(Connection):
    """The cost model fitted to trials: kept, listed, carried elsewhere."""

    def calibrations(self) -> list[CalibrationSummary]:
        """Return all calibrations that the service keeps, newest first."""
        return self._transport.send(calls.calibrations.calibrations())

    def calibrate(
        self, name: str, campaigns: Iterable[int], *, software: str | None = None
    ) -> CalibrationDetail:
        """Fit the cost model to trials of campaigns of one machine; keep that under `name`."""
        return self._transport.send(
            calls.calibrations.calibrate(name, campaigns, software=software)
        )

    def calibration(self, name: str) -> CalibrationDetail:
        """Return what a calibration rests on, and its constants before and after."""
        return self._transport.send(calls.calibrations.calibration(name))

    def calibration_document(self, name: str) -> CalibrationDocument:
        """Return a whole calibration, as `import_calibration` takes it."""
        return self._transport.send(calls.calibrations.document(name))

    def import_calibration(
        self, name: str, document: CalibrationDocument | Mapping[str, Any]
    ) -> CalibrationDetail:
        """Keep an exported calibration under a name that is free."""
        return self._transport.send(calls.calibrations.import_document(name, document))

    def delete_calibration(self, name: str) -> None:
        self._transport.send(calls.calibrations.delete(name))
