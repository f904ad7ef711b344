"""Campaigns through the client against the real service: watched, steered, and downloaded."""

from __future__ import annotations

import json
import zipfile
from contextlib import closing
from pathlib import Path

import pytest

from autotune import Client
from autotune.client.campaign import CampaignHandle, save_archive
from autotune.client.location import locate
from autotune.client.patience import Patience
from autotune.client.question import campaign_request
from autotune.client.transport import Follower, Transport
from autotune.errors import ApiError
from autotune.schemas.choices import CampaignState
from search_spaces.errors import InvalidInput
from tests.autotune.client.conftest import campaign_input
from tests.patience import PATIENCE_S
from tests.serving import Served

pytestmark = pytest.mark.xdist_group("client")  # one service for all


def test_a_campaign_from_the_question_to_the_launch_script(
    finished: CampaignHandle, tmp_path: Path
) -> None:
    assert repr(finished) == f"<campaign {finished.id} {finished.campaign.name!r} done>"
    assert finished.at_rest
    assert finished.campaign.simulated
    trials = finished.trials()
    assert [trial.number for trial in trials] == list(range(1, len(trials) + 1))
    assert len([trial for trial in trials if trial.purpose != "confirmation"]) == 5
    assert trials[0].purpose == "baseline"
    assert finished.trial(1) == trials[0]
    assert finished.log(1, lines=5).strip()
    sorted_ = finished.trials(state="ok", purpose="search", sort="iteration_time_s")
    times = [trial.metrics.iteration_time_s for trial in sorted_ if trial.metrics]
    assert len(times) == len(sorted_) > 0
    assert times == sorted(times)
    assert {trial.purpose for trial in sorted_} == {"search"}
    best = finished.best()
    assert best.simulated
    others = [each for each in best.recommendation.runners_up if each.confirmed]
    assert all(each.metrics.tokens_per_s <= best.metrics.tokens_per_s for each in others)
    assert "#SBATCH" in best.launch_script()
    written = finished.download(tmp_path / "run")
    assert {path.name for path in written} == set(finished.artefacts())
    script = tmp_path / "run" / "train.sbatch"
    assert script.read_text() == best.launch_script()
    assert script.stat().st_mode & 0o100
    [path] = finished.download(tmp_path / "new" / "run.zip")
    with zipfile.ZipFile(path) as opened:
        assert {Path(name).name for name in opened.namelist()} == set(finished.artefacts())


def test_watching_yields_every_event_once_and_ends(client: Client) -> None:
    finished = client.create(**campaign_input(budget={"max_trials": 2}))
    seen = list(finished.watch())
    trials = {trial.number for trial in finished.trials()}
    assert {event.trial.number for event in seen if event.trial and event.trial.metrics} <= trials
    ended = {event.trial.number for event in seen if event.trial and event.trial.state != "pending"}
    assert ended == trials
    numbers = [event.id for event in finished.watch()]
    assert numbers == [event.id for event in seen] == sorted(set(numbers))
    assert [event.id for event in finished.watch(after=numbers[-3])] == numbers[-2:]


def test_pause_resume_cancel_extend_delete(client: Client) -> None:
    handle = client.create(**campaign_input(time_scale=1.0))
    assert handle.pause().state == CampaignState.PAUSED
    assert handle.resume().state in {CampaignState.QUEUED, CampaignState.RUNNING}
    assert handle.extend(max_trials=9).campaign.request.budget.max_trials == 9
    with pytest.raises(ApiError) as refused:
        handle.delete()
    assert refused.value.status == 409
    assert handle.cancel().wait(timeout_s=PATIENCE_S).state == CampaignState.CANCELLED
    handle.delete()
    with pytest.raises(ApiError) as gone:
        handle.refresh()
    assert gone.value.status == 404


def test_knobs_are_names_or_all_and_a_file_is_read_here(tmp_path: Path) -> None:
    file = tmp_path / "own.toml"
    file.write_text("[knob.threads]\n")
    request = campaign_request({"model": "tiny", "knobs": "overlap, threads", "knob_file": file})
    assert request.knobs == ["overlap", "threads"]
    assert request.knob_file == file.read_text()
    assert campaign_request({"model": "tiny", "knobs": "all"}).knobs == "all"
    assert "knobs" not in campaign_request({"model": "tiny", "knobs": []}).model_fields_set
    with pytest.raises(InvalidInput, match="cannot be read"):
        campaign_request({"model": "tiny", "knob_file": tmp_path / "none.toml"})


def test_knobs_of_a_simulated_campaign_are_refused(finished: CampaignHandle) -> None:
    with pytest.raises(ApiError, match="the simulator has no knobs"):
        finished.extend(knobs=["overlap"])


def test_campaigns_are_listed_newest_first(client: Client, finished: CampaignHandle) -> None:
    ids = [handle.id for handle in client.campaigns()]
    assert ids == sorted(ids, reverse=True)
    assert finished.id in ids
    assert {h.state for h in client.campaigns(state="done")} == {CampaignState.DONE}


def test_waiting_gives_up_at_its_time_limit(client: Client) -> None:
    handle = client.create(**campaign_input(time_scale=1.0))
    with pytest.raises(TimeoutError, match="goes on by itself"):
        handle.wait(timeout_s=0.1)
    handle.cancel()


def test_following_a_campaign_that_is_gone(service: Served, finished: CampaignHandle) -> None:
    gone = finished.campaign.model_copy(update={"id": 10_000})
    with (
        closing(Transport(locate(service.url, token_file=None), Patience())) as transport,
        pytest.raises(ApiError) as refused,
    ):
        list(transport.follow(Follower(gone, after=0)))
    assert refused.value.status == 404


def test_figures_as_data_and_as_a_chart(finished: CampaignHandle) -> None:
    offered = {each.kind: each.missing for each in finished.figures().figures}
    assert offered["map"] == ""
    data = finished.figure("map", num_nodes=2)
    assert data["num_nodes"] == 2
    chart = finished.chart("map", scheme="dark", num_nodes=2)
    assert chart["usermeta"]["caption"] == data["caption"]
    with pytest.raises(ApiError, match="no layout of this campaign has it"):
        finished.figure("map", num_nodes=1000)


def test_a_plot_shows_itself_and_is_saved(finished: CampaignHandle, tmp_path: Path) -> None:
    plot = finished.plot("map", num_nodes=2)
    assert repr(plot) == f"<map of campaign {finished.id}>"
    assert plot._repr_svg_().startswith("<svg")
    assert "(simulated)" in plot.svg
    assert plot.save(tmp_path / "map.svg").read_text() == plot.svg
    assert json.loads(plot.save(tmp_path / "map.json").read_text())["num_nodes"] == 2
    assert "datasets" in json.loads(plot.save(tmp_path / "map.vega.json").read_text())
    with pytest.raises(InvalidInput, match=r"its end names no format \(valid: a name that ends"):
        plot.save(tmp_path / "map.gif")
    with pytest.raises(InvalidInput, match=r"did you mean impact\? \(valid: trajectory, parts"):
        finished.plot("impct")  # type: ignore[arg-type]
    with pytest.raises(ApiError, match="did you mean num_nodes"):
        finished.plot("map", nodes=2)  # type: ignore[call-arg]
    table = finished.plot("map").save(tmp_path / "map.csv").read_text()
    assert table.splitlines()[0] == ",".join(finished.figure("map")["table"]["columns"])


def test_an_archive_cannot_write_outside_of_its_folder(tmp_path: Path) -> None:
    archive = tmp_path / "evil.zip"
    with zipfile.ZipFile(archive, "w") as opened:
        opened.writestr("../../outside.txt", "x")
    [written] = save_archive(archive.read_bytes(), tmp_path / "inner" / "folder")
    assert written == tmp_path / "inner" / "folder" / "outside.txt"
