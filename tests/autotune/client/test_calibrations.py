"""Calibrations through the client, against the real service."""

from __future__ import annotations

from typing import Any

import pytest

from autotune import Client
from autotune.client.campaign import CampaignHandle
from autotune.errors import ApiError
from autotune.schemas.choices import TrialState
from tests.server.calibrations import STRATEGY
from tests.serving import Served

pytestmark = pytest.mark.xdist_group("client")  # one service for all

SUBJECT: dict[str, Any] = {"model": "gpt-22b", "machine": "frontier"}


def test_from_a_campaign_to_a_sweep(service: Served, finished: CampaignHandle) -> None:
    with Client(service.url) as client:
        mine = client.calibrate("mine", [finished.id], software="simulator")
        assert (mine.name, mine.machine, mine.software) == ("mine", "frontier", "simulator")
        assert mine.simulated
        ended = [trial.state for trial in finished.trials()]
        assert mine.observations == ended.count(TrialState.OK) + ended.count(TrialState.OOM)
        assert client.calibration("mine") == mine
        assert [each.name for each in client.calibrations()] == ["mine"]
        prediction = client.predict(**SUBJECT, strategy=STRATEGY, calibration="mine")
        assert prediction.calibration is not None
        assert prediction.calibration.name == "mine"
        simulated: Any = {**SUBJECT, "evaluator": "simulated"}
        assert prediction == client.predict(**simulated, strategy=STRATEGY)
        tight = client.predict(**SUBJECT, strategy=STRATEGY, min_headroom_gib=60)
        general = client.predict(**SUBJECT, strategy=STRATEGY, calibration="none")
        assert (general.fits, tight.fits) == (True, False)
        assert general.calibration is None
        assert general == client.predict(**SUBJECT, strategy=STRATEGY)  # nothing was measured
        swept = client.sweep(**simulated, nodes=2, space={"zero_stage": 1}, most=3)
        assert swept.calibration == prediction.calibration
        assert [row.rank for row in swept.rows] == [1, 2, 3]
        assert {row.strategy.zero_stage for row in swept.rows} == {1}
        client.delete_calibration("mine")
        assert client.calibrations() == []


def test_a_document_goes_from_one_name_to_another(
    service: Served, finished: CampaignHandle
) -> None:
    with Client(service.url) as client:
        first = client.calibrate("first", iter([finished.id]))
        document = client.calibration_document("first")
        assert document.simulated
        second = client.import_calibration("second", document)
        assert second.constants == first.constants
        third = client.import_calibration("third", document.model_dump(mode="json"))
        assert third.constants == first.constants
        with pytest.raises(ApiError, match="there is a calibration second already") as taken:
            client.import_calibration("second", document)
        assert taken.value.status == 409
        for name in ("first", "second", "third"):
            client.delete_calibration(name)
        with pytest.raises(ApiError, match="no calibration first") as gone:
            client.calibration("first")
        assert gone.value.status == 404
        with pytest.raises(ApiError) as refused:
            client.calibration("../campaigns")  # a name is never a path
        assert refused.value.status in {404, 422}
