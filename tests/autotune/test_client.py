"""The client library against the real service, and against networks that break."""

from __future__ import annotations

import asyncio
import inspect
import json
import re
import socket
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import httpx2
import pytest

from autotune import AsyncClient, Client
from autotune.client import (
    AsyncCampaign,
    AsyncRecommendation,
    CampaignHandle,
    CampaignQuestion,
    RecommendationHandle,
    calls,
)
from autotune.client.asynchronous import AsyncTransport
from autotune.client.connection import is_loopback, settings
from autotune.client.files import save_archive, write_whole
from autotune.client.following import Follower
from autotune.client.patience import Patience, retry_after_s
from autotune.client.synchronous import Transport
from autotune.errors import ApiError, ServiceUnreachable
from autotune.schemas import CampaignCreate, CampaignState, ModelShape
from search_spaces.errors import InvalidInput, InvalidInputs
from tests.flaky_proxy import flaky_proxy
from tests.serving import Served, serving

QUESTION: CampaignQuestion = {
    "model": "gpt-22b",
    "machine": "frontier",
    "nodes": 2,
    "pool_nodes": 4,
    "evaluator": "simulated",
    "budget": {"max_trials": 5},
    "protocol": {"confirmations": 1},
}


def asked(**changes: Any) -> CampaignQuestion:
    """The question with other values in some fields."""
    return cast("CampaignQuestion", {**QUESTION, **changes})


STRATEGY = {
    "tensor_parallel": 1,
    "pipeline_parallel": 8,
    "micro_batch_size": 1,
    "gradient_accumulation_steps": 320,
    "zero_stage": 1,
    "num_nodes": 2,
}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("service")) as served:
        yield served


@pytest.fixture
def client(service: Served) -> Iterator[Client]:
    with Client(service.url) as connected:
        yield connected


@pytest.fixture(scope="module")
def finished(service: Served) -> Iterator[CampaignHandle]:
    """A campaign that is done, shared by the tests that only read."""
    with Client(service.url) as connected:
        yield connected.create(**QUESTION).wait(timeout_s=60)


def test_the_client_brings_nothing_of_the_server() -> None:
    heavy = "{'sqlalchemy', 'fastapi', 'deephyper', 'torch', 'altair', 'server', 'uvicorn'}"
    program = f"from autotune import Client; import sys; print({heavy} & set(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "set()"


def test_an_unknown_name_of_the_package_is_an_attribute_error() -> None:
    import autotune

    with pytest.raises(AttributeError, match="Cilent"):
        autotune.__getattr__("Cilent")


def test_the_question_has_the_fields_of_the_wire_model() -> None:
    assert set(CampaignQuestion.__annotations__) <= set(CampaignCreate.model_fields)
    known = CampaignQuestion.__required_keys__ | CampaignQuestion.__optional_keys__
    assert known == set(CampaignCreate.model_fields)


@pytest.mark.parametrize(
    ("waiting", "awaited"),
    [
        (Client, AsyncClient),
        (CampaignHandle, AsyncCampaign),
        (RecommendationHandle, AsyncRecommendation),
    ],
)
def test_both_clients_have_the_same_methods(waiting: type, awaited: type) -> None:
    def surface(kind: type) -> dict[str, list[str]]:
        public = inspect.getmembers(kind, inspect.isfunction)
        return {
            name: list(inspect.signature(method).parameters)
            for name, method in public
            if not name.startswith("_")
        }

    assert surface(waiting) == surface(awaited)


def test_a_campaign_from_the_question_to_the_launch_script(
    finished: CampaignHandle, tmp_path: Path
) -> None:
    assert finished.state == CampaignState.DONE
    assert finished.campaign.simulated
    trials = finished.trials()
    assert [trial.number for trial in trials] == list(range(1, len(trials) + 1))
    assert len([trial for trial in trials if trial.purpose == "search"]) == 5
    best = finished.best()
    assert best.simulated
    assert best.metrics.tokens_per_s == max(
        [best.metrics.tokens_per_s]
        + [ranked.metrics.tokens_per_s for ranked in best.recommendation.runners_up]
    )
    assert "#SBATCH" in best.launch_script()
    written = finished.download(tmp_path / "run")
    assert {path.name for path in written} == set(finished.artefacts())
    script = tmp_path / "run" / "launch.sbatch"
    assert script.read_text() == best.launch_script()
    assert script.stat().st_mode & 0o100


def test_trials_are_filtered_and_sorted(finished: CampaignHandle) -> None:
    times = [
        trial.metrics.iteration_time_s
        for trial in finished.trials(state="ok", sort="iteration_time_s")
        if trial.metrics
    ]
    assert times
    assert times == sorted(times)
    assert {trial.purpose for trial in finished.trials(purpose="confirmation")} == {"confirmation"}
    assert finished.trial(1).number == 1


def test_a_trials_log(finished: CampaignHandle) -> None:
    assert finished.log(1, lines=5).strip()


def test_an_archive_is_written_whole(finished: CampaignHandle, tmp_path: Path) -> None:
    [path] = finished.download(tmp_path / "new" / "run.zip")
    with zipfile.ZipFile(path) as opened:
        names = {Path(name).name for name in opened.namelist()}
    assert names == set(finished.artefacts())


def test_watching_yields_every_event_once_and_ends(finished: CampaignHandle) -> None:
    events = list(finished.watch())
    numbers = [event.id for event in events]
    assert numbers == sorted(set(numbers))
    assert {event.trial.number for event in events if event.trial} == {
        trial.number for trial in finished.trials()
    }
    assert [event.id for event in finished.watch(after=numbers[-3])] == numbers[-2:]


def test_watching_a_campaign_that_runs(client: Client) -> None:
    handle = client.create(**asked(seed=1))
    ended = {
        event.trial.number
        for event in handle.watch()
        if event.trial and event.trial.state != "pending"
    }
    assert handle.at_rest
    assert ended == {trial.number for trial in handle.trials()}


def test_pause_resume_cancel_extend_delete(client: Client) -> None:
    handle = client.create(**asked(time_scale=1.0))
    assert handle.pause().state == CampaignState.PAUSED
    assert handle.resume().state in {CampaignState.QUEUED, CampaignState.RUNNING}
    assert handle.extend(max_trials=9).campaign.request.budget.max_trials == 9
    with pytest.raises(ApiError) as refused:
        handle.delete()
    assert refused.value.status == 409
    assert handle.cancel().wait(timeout_s=60).state == CampaignState.CANCELLED
    handle.delete()
    with pytest.raises(ApiError) as gone:
        handle.refresh()
    assert gone.value.status == 404


def test_campaigns_are_listed_newest_first(client: Client, finished: CampaignHandle) -> None:
    ids = [handle.id for handle in client.campaigns()]
    assert ids == sorted(ids, reverse=True)
    assert finished.id in ids
    assert {h.state for h in client.campaigns(state="done")} == {CampaignState.DONE}


def test_waiting_gives_up_at_its_time_limit(client: Client) -> None:
    handle = client.create(**asked(time_scale=1.0))
    with pytest.raises(TimeoutError, match="goes on by itself"):
        handle.wait(timeout_s=0.1)
    handle.cancel()


def test_catalog_space_prediction_and_dry_run(client: Client) -> None:
    assert "gpt-175b" in client.models()
    assert client.model("13B").num_layers == 40
    assert client.machine("frontier").gpus_per_node == 8
    assert "frontier" in client.machines()
    assert "table-v" in client.spaces()
    assert "frontier" in {profile.name for profile in client.profiles()}
    assert client.profile("frontier").machine == "frontier"
    report = client.space(
        model="gpt-175b", machine="frontier", nodes=16, space={"preset": "table-v"}
    )
    assert report.raw == 3264
    prediction = client.predict(model="gpt-22b", machine="frontier", strategy=STRATEGY)
    assert prediction.legal
    assert prediction.fits
    assert client.dry_run(**QUESTION).space.legal > 0
    assert client.dry_run(**QUESTION).trials_affordable > 0


def test_files_are_read_here_and_not_by_the_service(client: Client, tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    config.write_text(
        json.dumps(
            {
                "model_type": "llama",
                "architectures": ["LlamaForCausalLM"],
                "hidden_size": 2048,
                "num_hidden_layers": 16,
                "num_attention_heads": 16,
                "num_key_value_heads": 8,
                "intermediate_size": 5632,
                "vocab_size": 32000,
                "max_position_embeddings": 2048,
                "tie_word_embeddings": False,
            }
        )
    )
    report = client.space(model=config, machine="perlmutter")
    assert report.model.num_query_groups == 8
    with pytest.raises((InvalidInput, InvalidInputs), match="cannot be read"):
        client.space(model="tiny", machine=tmp_path / "absent.toml")


def test_bad_input_is_told_before_anything_is_sent() -> None:
    with Client("http://127.0.0.1:9") as nobody, pytest.raises(InvalidInputs) as refused:
        nobody.create(**asked(nodes=0, budget={"max_trials": 0}))
    assert [p.field for p in refused.value.problems] == ["nodes", "budget.max_trials"]


def test_the_service_names_each_refused_field(client: Client) -> None:
    with pytest.raises(ApiError) as refused:
        client.create(**asked(model="gpt-22c"))
    assert refused.value.status == 422
    assert refused.value.problem["errors"][0]["field"] == "model"
    assert "gpt-22b" in str(refused.value)


def test_nobody_answers() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    patience = Patience(attempts=2, first_wait_s=0.01)
    with (
        Client(f"http://127.0.0.1:{port}", patience=patience) as nobody,
        pytest.raises(ServiceUnreachable, match=rf"{port} \(Connection refused\).*autotune serve"),
    ):
        nobody.models()


def test_another_web_server_is_not_taken_for_the_service(service: Served) -> None:
    answer = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 5\r\n\r\nhello"
    with flaky_proxy(service.url) as (url, proxy), Client(url) as connected:
        proxy.refusals = [answer]
        with pytest.raises(ApiError, match="no autotune service"):
            connected.models()


def test_a_refusal_without_a_problem_document_still_has_a_sentence(service: Served) -> None:
    answer = b"HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno"
    with flaky_proxy(service.url) as (url, proxy), Client(url) as connected:
        proxy.refusals = [answer]
        with pytest.raises(ApiError, match="was answered with 403 Forbidden"):
            connected.models()


def test_a_create_whose_answer_was_lost_makes_one_campaign(service: Served) -> None:
    with Client(service.url) as direct:
        before = len(list(direct.campaigns()))
    with flaky_proxy(service.url) as (url, proxy):
        proxy.cuts = [0, 0]
        with Client(url, patience=Patience(first_wait_s=0.01)) as retrying:
            handle = retrying.create(**QUESTION)
        posts = [head for head in proxy.requests if head.startswith("POST")]
    with Client(service.url) as direct:
        assert len(list(direct.campaigns())) == before + 1
        direct.campaign(handle.id).cancel()
    keys = [
        line for head in posts for line in head.splitlines() if "idempotency-key" in line.lower()
    ]
    assert len(posts) == 3
    assert len(set(keys)) == 1


def test_a_request_that_may_not_be_repeated_is_not(service: Served) -> None:
    with flaky_proxy(service.url) as (url, proxy), Client(url) as connected:
        proxy.cuts = [0]
        with pytest.raises(ServiceUnreachable):
            connected.space(model="tiny", machine="frontier")
    assert len(proxy.requests) == 1


def test_retry_after_is_honoured(service: Served) -> None:
    busy = b"HTTP/1.1 503 Busy\r\nRetry-After: 0\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    with flaky_proxy(service.url) as (url, proxy):
        proxy.refusals = [busy, busy]
        with Client(url, patience=Patience(first_wait_s=30)) as connected:
            assert connected.models()
    assert len(proxy.requests) == 3


@pytest.mark.parametrize(
    ("header", "expected_s"),
    [
        ("7", 7.0),
        ("Fri, 01 Jan 2027 00:00:10 GMT", 10.0),
        ("Fri, 01 Jan 2026 00:00:00 GMT", 0.0),
        ("soon", None),
        ("", None),
    ],
)
def test_retry_after_in_seconds_or_as_a_date(header: str, expected_s: float | None) -> None:
    now = datetime(2027, 1, 1, tzinfo=UTC)
    assert retry_after_s({"retry-after": header}, now=now) == expected_s


def test_patience_has_an_end() -> None:
    patience = Patience(attempts=2, longest_wait_s=10)
    call = calls.models()
    busy = httpx2.Response(503, headers={"Retry-After": "5"})
    assert patience.after_answer(busy, call, attempt=1) == 5.0
    assert patience.after_answer(busy, call, attempt=2) is None
    too_long = httpx2.Response(503, headers={"Retry-After": "11"})
    assert patience.after_answer(too_long, call, attempt=1) is None
    assert patience.after_answer(httpx2.Response(404), call, attempt=1) is None
    assert 0 < patience.pause_s(1) < patience.pause_s(3)


def test_a_stream_cut_at_any_place_loses_and_repeats_nothing(
    service: Served, finished: CampaignHandle
) -> None:
    expected = [event.id for event in finished.watch()]
    with flaky_proxy(service.url) as (url, proxy):
        proxy.cuts = [6_000, 300, 4_000, 0, 5_000, 7_000]
        with Client(url, patience=Patience(first_wait_s=0.01)) as reader:
            assert [event.id for event in reader.campaign(finished.id).watch()] == expected
        assert not proxy.cuts


def test_watching_ends_when_the_service_stays_away(tmp_path: Path) -> None:
    with serving(tmp_path, "--no-runner") as served:
        patience = Patience(attempts=1, first_wait_s=0.01, stream_attempts=2)
        with Client(served.url, patience=patience) as connected:
            events = connected.create(**QUESTION).watch()
            next(events)
            served.process.terminate()
            with pytest.raises(ServiceUnreachable):
                list(events)


def test_following_a_campaign_that_is_gone(service: Served, finished: CampaignHandle) -> None:
    gone = finished.campaign.model_copy(update={"id": 10_000})
    with (
        closing(Transport(service.url, Patience())) as transport,
        pytest.raises(ApiError) as refused,
    ):
        list(transport.follow(Follower(gone, after=0)))
    assert refused.value.status == 404

    async def program() -> None:
        transport = AsyncTransport(service.url, Patience())
        try:
            async for event in transport.follow(Follower(gone, after=0)):
                raise AssertionError(event)
        finally:
            await transport.close()

    with pytest.raises(ApiError, match="no campaign 10000"):
        asyncio.run(program())


def test_the_async_client(service: Served, tmp_path: Path) -> None:
    async def program() -> None:
        async with AsyncClient(service.url) as client:
            first = await client.create(**QUESTION)
            second = await client.create(**asked(seed=2))
            numbers = [event.id async for event in first.watch()]
            assert numbers == sorted(set(numbers))
            await second.wait(timeout_s=60)
            assert (await first.best()).launch_script_name == "launch.sbatch"
            assert "#SBATCH" in await (await first.best()).launch_script()
            assert len(await first.trials()) == len(await second.trials())
            assert (await first.trial(1)).number == 1
            written = await first.download(tmp_path / "files")
            assert {path.name for path in written} == set(await first.artefacts())
            assert [c.id async for c in client.campaigns()][:2] == [second.id, first.id]
            assert (await client.campaign(first.id)).at_rest
            await first.delete()
            with pytest.raises(ApiError):
                await first.log(1)

    asyncio.run(program())


def test_the_async_client_asks_and_controls(service: Served) -> None:
    async def program() -> None:
        async with AsyncClient(service.url) as client:
            assert client.base_url == service.url
            assert (await client.model("tiny")).name == "tiny"
            assert (await client.machine("frontier")).name == "frontier"
            assert "tiny" in await client.models()
            assert "frontier" in await client.machines()
            assert "table-v" in await client.spaces()
            assert "frontier" in {profile.name for profile in await client.profiles()}
            assert (await client.profile("frontier")).machine == "frontier"
            assert (await client.space(model="tiny", machine="perlmutter")).legal > 0
            found = await client.predict(model="gpt-22b", machine="frontier", strategy=STRATEGY)
            assert found.fits
            assert (await client.dry_run(**QUESTION)).space.legal > 0
            handle = await client.create(**asked(time_scale=1.0))
            assert (await handle.extend(max_trials=8)).campaign.request.budget.max_trials == 8
            assert (await handle.pause()).state == CampaignState.PAUSED
            await (await (await handle.resume()).cancel()).wait(timeout_s=60)
            with pytest.raises(TimeoutError):
                await (await client.create(**asked(time_scale=1.0))).wait(timeout_s=0)

    asyncio.run(program())


def test_the_async_client_on_a_bad_network(service: Served, finished: CampaignHandle) -> None:
    async def program() -> None:
        expected = [event.id for event in finished.watch()]
        with flaky_proxy(service.url) as (url, proxy):
            proxy.cuts = [0, 100_000, 3_000, 0]
            async with AsyncClient(url, patience=Patience(first_wait_s=0.01)) as client:
                handle = await client.campaign(finished.id)
                assert [event.id async for event in handle.watch()] == expected

    asyncio.run(program())


def test_the_async_client_finds_nobody() -> None:
    async def program() -> None:
        patience = Patience(attempts=2, first_wait_s=0.01)
        async with AsyncClient("http://127.0.0.1:9", patience=patience) as nobody:
            await nobody.models()

    with pytest.raises(ServiceUnreachable):
        asyncio.run(program())


def test_the_address_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOTUNE_URL", "http://cluster.example:9000/")
    assert settings(None)["base_url"] == "http://cluster.example:9000"
    assert settings("http://127.0.0.1:1")["base_url"] == "http://127.0.0.1:1"


def test_a_proxy_of_the_environment_is_for_other_machines() -> None:
    assert is_loopback("http://localhost:8765")
    assert is_loopback("http://[::1]:8765")
    assert not is_loopback("http://10.0.0.1:8765")
    assert not settings("http://127.0.0.1:1")["trust_env"]
    assert settings("http://login.example:1")["trust_env"]


def test_a_file_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    with pytest.raises(OSError, match="taken"):
        write_whole(tmp_path / "taken", b"text")
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]


def test_an_archive_cannot_write_outside_of_its_folder(tmp_path: Path) -> None:
    archive = tmp_path / "evil.zip"
    with zipfile.ZipFile(archive, "w") as opened:
        opened.writestr("../../outside.txt", "x")
    [written] = save_archive(archive.read_bytes(), tmp_path / "inner" / "folder")
    assert written == tmp_path / "inner" / "folder" / "outside.txt"


def test_the_documentation_runs(
    service: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AUTOTUNE_URL", service.url)
    monkeypatch.chdir(tmp_path)
    text = (Path(__file__).parents[2] / "docs" / "client.md").read_text()
    for block in re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL):
        exec(compile(block, "docs/client.md", "exec"), {})
    assert (tmp_path / "run" / "launch.sbatch").exists()


def test_a_handle_shows_itself(finished: CampaignHandle) -> None:
    assert repr(finished) == f"<campaign {finished.id} {finished.campaign.name!r} done>"


def test_a_custom_shape_is_taken(client: Client) -> None:
    shape = ModelShape(num_layers=4, hidden_size=256, num_attention_heads=4)
    assert client.space(model=shape, machine="perlmutter").model.num_layers == 4
