"""Campaigns by command: submitted, watched, listed, shown, steered, and their result."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from contextlib import closing
from datetime import timedelta
from functools import partial
from pathlib import Path

import httpx2
import pytest

from autotune import Client
from autotune.schemas.choices import CampaignState
from search_spaces.errors import InvalidInput
from server.cli.commands.campaigns import length_of_time
from server.store import Store
from server.store.campaigns import campaign_row, change_state
from tests.evaluators.adapter.samples import my_script
from tests.patience import TRAINING_S, until
from tests.server.asking import created
from tests.server.cli.conftest import Autotune
from tests.serving import COMMAND, Served, environment

FILES = {"benchmark.sbatch", "benchmark_rank.sh", "train.sbatch", "train_rank.sh"}
PAGE = Path(__file__).parents[4] / "docs" / "knobs.md"
SUBMIT = (*("submit", "--model", "gpt-22b", "--machine", "frontier", "--nodes", "2"),)


def submitted() -> str:
    """The number of a campaign whose trials take minutes."""
    with Client() as client:
        return str(client.create(model="gpt-22b", machine="frontier", nodes=2, time_scale=1.0).id)


def numbers(autotune: Autotune) -> list[str]:
    return [str(item["id"]) for item in autotune("ls", "--json").json()]


def test_watching_ends_with_the_recommendation(autotune: Autotune, finished: str) -> None:
    document = autotune.done("watch", finished, "--json").json()
    assert document["campaign"]["state"] == "done"
    assert document["recommendation"]["simulated"] is True
    ran = autotune.done("watch", finished)
    assert "simulated" in ran.out
    assert "TP " in ran.out
    assert "5/5 · 1 confirmation" in ran.err
    assert f"next: `autotune best {finished} --out run/`" in ran.err


def test_ls(autotune: Autotune, finished: str) -> None:
    ran = autotune("ls", "--state", "done")
    assert "shared" in ran.out
    assert "5/5" in ran.out
    assert finished in numbers(autotune)
    assert len(autotune("ls", "--limit", "1", "--json").json()) == 1
    none = autotune("ls", "--state", "failed")
    assert (none.code, none.out) == (0, "")
    assert "autotune submit" in none.err


def test_show(autotune: Autotune, finished: str) -> None:
    trials = autotune("show", finished, "--sort=-tokens_per_s", "--json").json()["trials"]
    worked = autotune("show", finished, "--state", "ok", "--json").json()["trials"]
    assert {trial["state"] for trial in worked} == {"ok"}
    two = autotune("show", finished, "--sort=-tokens_per_s", "--limit", "2", "--json").json()
    assert two["trials"] == trials[:2]
    assert all(trial["expected"]["node_hours"] > 0 for trial in trials)
    ran = autotune.done("show", finished)
    assert "confirmation" in ran.out
    text = " ".join(ran.out.split())
    for part in (
        "a default layout",
        "why (simulated)",
        "MWh, hosts included (predicted); ",
        " GJ) without hosts",
        " of a step is ",
    ):
        assert part in text
    assert text.count(" likely to fit; about ") == text.count(" node-hours.") == len(trials)


def test_show_one_trial_with_its_log(autotune: Autotune, finished: str) -> None:
    output = autotune("show", finished, "--trial", "1", "--log", "3").out
    words = " ".join(output.split())
    assert "trial 1 of campaign" in words
    assert "chosen The baseline. Predicted " in words
    assert "peak memory" in words
    log = autotune("show", finished, "--trial", "1", "--log", "3", "--json").json()["log"].strip()
    assert log
    assert log in output


@pytest.mark.parametrize("command", ["ls", "show"])
def test_a_terminal_gets_the_address_of_a_page(
    autotune: Autotune, service: Served, finished: str, command: str
) -> None:
    words, page = ([command], "/")
    if command == "show":
        words, page = ([command, finished], f"/campaigns/{finished}")
    terminal, end = os.openpty()
    subprocess.run(
        [*COMMAND, *words, "--url", service.url],
        stdout=subprocess.DEVNULL,
        stderr=end,
        env=environment() | {"COLUMNS": "300"},
        check=True,
        timeout=TRAINING_S,
    )
    os.close(end)
    printed = os.read(terminal, 10_000).decode()
    os.close(terminal)
    address = printed.partition("page (works once): ")[2].split()[0]
    assert address.startswith(f"{service.url}/enter?key=")
    entered = httpx2.get(address, trust_env=False)
    assert entered.status_code == 200
    assert f'"{page}"' in entered.text
    assert httpx2.get(address, trust_env=False).status_code == 401
    assert "enter?key" not in autotune.done(*words).err


def test_show_says_what_a_campaign_started_from(autotune: Autotune, finished: str) -> None:
    one = ("--max-trials", "1", "--protocol", "confirmations=0", "--baseline", "none")
    question = ("submit", "--model", "gpt-1.4b", "--machine", "frontier", *one)
    campaign = autotune(*question, "--watch", "--json").json()["campaign"]
    assert finished in [str(start["campaign_id"]) for start in campaign["started_from"]]
    output = autotune("show", str(campaign["id"])).out
    assert "started from" in output
    assert "trials of campaign" in output
    helped = "they reduced the prediction error from " in output
    assert helped or "they did not help" in output  # by the other campaigns on this service
    fresh = autotune(*question, "--fresh", "--json").json()
    assert fresh["request"]["fresh"] is True


def test_best_writes_its_files(autotune: Autotune, finished: str, tmp_path: Path) -> None:
    ran = autotune.done("best", finished, "--out", str(tmp_path / "run"))
    assert "runners-up" in ran.out
    assert "300 billion tokens" in ran.out
    script = tmp_path / "run" / "train.sbatch"
    assert f"wrote {script}" in ran.err
    assert f"next: `cd {tmp_path}/run && sbatch train.sbatch`" in ran.err
    assert autotune("best", finished, "--script").out == script.read_text()
    assert subprocess.run(["bash", "-n", str(script)], check=False).returncode == 0


def test_best_writes_the_files_of_another_trainer(
    autotune: Autotune, finished: str, tmp_path: Path
) -> None:
    """Of the trainers that the recommendation lists; the others are refused with their reason."""
    offers = autotune("best", finished, "--json").json()["trainers"]
    assert {offer["supported"] for offer in offers} == {True, False}
    for offer in offers:
        folder = tmp_path / offer["name"]
        ran = autotune("best", finished, "--out", str(folder), "--for", offer["name"])
        if offer["supported"]:
            assert {path.name for path in folder.iterdir()} == FILES
            assert "set TRAINER_DIR: " in ran.err
            assert "set SAVE: " in ran.err
            assert "sbatch train.sbatch`" in ran.err
        else:
            assert (ran.code, folder.exists()) == (2, False)
            assert offer["reason"] in " ".join(ran.err.split())
    unwritten = autotune("best", finished, "--for", "torchtitan")
    assert unwritten.code == 2
    assert "--out as well" in unwritten.err


def test_best_of_another_rank_and_as_an_archive(
    autotune: Autotune, finished: str, tmp_path: Path
) -> None:
    target = tmp_path / "second.zip"
    ran = autotune("best", finished, "--rank", "2", "--out", str(target), "--json")
    assert ran.json()["written"] == [str(target)]
    assert target.read_bytes().startswith(b"PK")
    second = ran.json()["runners_up"][0]
    assert ran.json()["chosen"] == second
    assert "next:" not in ran.err
    shown = autotune("best", finished, "--rank", "2")
    assert f"next: `autotune best {finished} --rank 2 --out run/`" in shown.err
    assert shown.out.startswith("rank 2")
    assert f"{100 * second['relative_to_best']:.1f} %" in shown.out
    for options in ([], ["--script"], ["--json"]):
        beyond = autotune("best", finished, "--rank", "99", *options)
        assert (beyond.code, beyond.out) == (2, "")
        assert "--rank: the recommendation does not go that far (got 99; valid: 1 to" in beyond.err


def test_best_without_a_result(autotune: Autotune, service: Served) -> None:
    with closing(Store(f"sqlite:///{service.data_dir / 'autotune.db'}")) as store:
        paused_by_user = {"state": CampaignState.PAUSED, "reason": "paused by the user"}
        number = str(created(store, **paused_by_user).id)
    paused = autotune("watch", number)
    assert paused.code == 1
    assert f"campaign {number} is paused: paused by the user; see" in paused.err.splitlines()[-1]
    autotune("cancel", number)
    ran = autotune("best", number)
    assert (ran.code, ran.out) == (1, "")
    assert "(cancelled) has nothing to recommend" in ran.err
    watched = autotune("watch", number, "--json")
    assert watched.code == 1
    assert "(cancelled) has nothing to recommend" in watched.err
    assert watched.json()["recommendation"] is None


def test_steering(autotune: Autotune) -> None:
    number = submitted()
    assert autotune("pause", number, "--json").json()["state"] == "paused"
    assert autotune("resume", number, "--json").json()["state"] in {"queued", "running"}
    extended = autotune(
        *("extend", number, "--max-trials", "40", "--max-node-hours", "9"),
        *("--deadline", "2099-01-31T18:00", "--json"),
    )
    budget = extended.json()["request"]["budget"]
    assert (budget["max_trials"], budget["max_node_hours"]) == (40, 9)
    assert budget["deadline"].startswith("2099-01-31T")
    refused = autotune("rm", number)
    assert refused.code == 1
    assert "Traceback" not in refused.err
    assert "cancelled" in autotune("cancel", number).out
    _until_at_rest(autotune, number)
    assert autotune("rm", number, "--json").json() == {"deleted": [int(number)]}
    assert autotune("show", number).code == 2


def test_campaigns_that_ended_long_ago_are_deleted(
    autotune: Autotune, service: Served, finished: str
) -> None:
    with closing(Store(f"sqlite:///{service.data_dir / 'autotune.db'}")) as store:
        old = created(store, name="long ago")
        with store.transaction() as session:
            row = campaign_row(session, old.id)
            change_state(session, row, CampaignState.CANCELLED)
            row.finished_at = row.created_at - timedelta(days=100)
    older = ("rm", "--older-than", "90d")
    unconfirmed = autotune(*older)
    assert unconfirmed.code == 2
    assert f"campaign {old.id} long ago: cancelled" in unconfirmed.err
    assert "--yes" in unconfirmed.err
    assert autotune(*older, "--yes", "--json").json() == {"deleted": [old.id]}
    assert "no campaign is deleted" in autotune.done(*older).err
    assert autotune("rm", finished, *older[1:]).code == autotune("rm").code == 2
    autotune.done("show", finished)


def test_lengths_of_time() -> None:
    assert length_of_time("90d") == length_of_time("2160h") == timedelta(days=90)
    assert length_of_time("2w") == timedelta(days=14)
    for text in ("", "90", "-1d", "d", "1y", "1.5d", "999999w"):
        with pytest.raises(InvalidInput):
            length_of_time(text)


def test_dry_run_submits_nothing(autotune: Autotune) -> None:
    before = numbers(autotune)
    arguments = (*SUBMIT, "--tp", "8", "--max-node-hours", "20", "--dry-run")
    ran = autotune.done(*arguments)
    assert "budget buys" in ran.out
    assert "left out: With TP " in ran.out
    assert autotune(*arguments, "--json").json()["cost"]["node_hours"] <= 21
    assert numbers(autotune) == before


def test_an_adapters_file_is_sent_to_the_service(autotune: Autotune, tmp_path: Path) -> None:
    my_script(tmp_path)
    shape = ("--model", "layers=4,hidden=64,heads=4,vocab=512", "--seq-length", "32")
    question = ("submit", *shape, "--dry-run", "--json", "--adapter")
    answer = autotune.done(*question, str(tmp_path / "my-script.toml"))
    assert answer.json()["dimensions"]["flash_attention"] == [True]
    (tmp_path / "my.json").unlink()
    for file in ("my-script.toml", "none.toml"):
        refused = autotune(*question, str(tmp_path / file))
        assert refused.code == 2
        assert "--adapter" in refused.err
        assert "the file cannot be read" in refused.err


def test_knobs_are_checked_before_a_campaign(autotune: Autotune, tmp_path: Path) -> None:
    file = tmp_path / "own.toml"
    own = PAGE.read_text("utf-8").split("```toml\n")[1].split("```")[0]
    file.write_text(own)
    question = ("submit", "--model", "tiny", "--space", "tiny-local", "--dry-run")
    autotune.done(*question, "--knobs", "overlap,channels", "--knob-file", str(file))
    for words, error in (
        (("--knobs", "overlap,none"), "--knobs: neither the trainer nor the cluster has this knob"),
        (("--knob-file", str(tmp_path / "none.toml")), "--knob-file: the file cannot be read"),
        (("--machine", "frontier", "--knobs", "all"), "--knobs: the simulator has no knobs"),
    ):
        refused = autotune(*question, *words)
        assert refused.code == 2
        assert refused.err.startswith(f"error: {error}")
    file.write_text(own.replace('"reordered"', '"small"'))
    refused = autotune(*question, "--knob-file", str(file))
    assert refused.err.startswith("error: knob.channels.numerics: Input should be 'identical'")


def test_knobs_are_tried_later(autotune: Autotune, service: Served) -> None:
    with closing(Store(f"sqlite:///{service.data_dir / 'autotune.db'}")) as store:
        paused = {"state": CampaignState.PAUSED, "model": "tiny", "machine": "local", "nodes": 1}
        number = str(created(store, **paused, pool_nodes=1, evaluator="local", space={}).id)
    extended = autotune.done("extend", number, "--knobs", "overlap, reduce_bucket", "--json")
    assert extended.json()["request"]["knobs"] == ["overlap", "reduce_bucket"]
    refused = autotune("extend", number, "--knobs", "nothing")
    assert refused.code == 2
    assert "(got 'nothing'; valid: all, overlap, " in refused.err
    again = autotune("submit", "--like", number, "--dry-run", "--knobs", "nothing")
    assert "--knobs: " in again.err
    autotune.done("submit", "--like", number, "--dry-run")
    autotune.done("cancel", number)


def test_ones_own_layout_is_read_before_anything_is_submitted(autotune: Autotune) -> None:
    question = (*SUBMIT, "--dry-run", "--global-batch", "64", "--baseline")
    megatron = "--tensor-model-parallel-size 8 --micro-batch-size 1 --recompute-activations --bf16"
    plan = autotune(*question, f"{megatron} --tp-comm-overlap", "--json").json()
    assert plan["baseline"]["strategy"]["activation_checkpointing"] == "selective"
    assert plan["baseline"]["global_batch_size"] == 64
    assert "not read: --tp-comm-overlap" in plan["baseline_sentence"]
    shown = autotune(*question, "tp=8,pp=1,mbs=2")
    assert "MBS 2" in shown.out
    assert "your own layout" in shown.out
    refused = autotune(*question, "tp=8,mbz=2")
    assert refused.code == 2
    assert refused.err.startswith("error: --baseline: 'mbz' is no dimension of a layout")


def test_ctrl_c_while_watching_leaves_the_campaign(autotune: Autotune, service: Served) -> None:
    number = submitted()
    before = _trials_read(service)
    watching = subprocess.Popen(
        [*COMMAND, "watch", number, "--url", service.url, "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
        preexec_fn=_take_ctrl_c,
    )
    with watching:
        until(lambda: _trials_read(service) > before, "it watches")
        os.kill(watching.pid, signal.SIGINT)
        out, err = watching.communicate(timeout=TRAINING_S)
    assert watching.returncode == 130
    assert f"campaign {number} goes on without being watched" in err
    assert "Traceback" not in err
    assert out == ""
    assert autotune("show", number, "--json").json()["campaign"]["state"] != "cancelled"
    autotune("cancel", number)


def _take_ctrl_c() -> None:
    """As in a terminal: what a shell starts in the background is deaf to it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _trials_read(service: Served) -> float:
    """Number of requests for trials, the first that a watcher sends."""
    metrics = httpx2.get(f"{service.url}/metrics", headers=service.headers, trust_env=False).text
    counted = re.findall(r'^autotune_http_requests_total{.*_id}/trials".*} (.*)$', metrics, re.M)
    return sum(map(float, counted))


def _until_at_rest(autotune: Autotune, number: str) -> None:
    """Its trials have been ended, too."""
    shown = partial(autotune, "show", number, "--json")
    until(lambda: not shown().json()["campaign"]["pending"], "its trials end")
