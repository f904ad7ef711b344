"""Earlier runs imported by command: read here, stored by the service."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from autotune import Client
from tests.evaluators.run_log.logs import megatron, written
from tests.evaluators.run_log.test_reader import TABLE
from tests.server.cli.conftest import Autotune

STEADY = [9.0, *[6.0, 6.02, 5.98] * 4]
SCRIPT = "export NNODES=8\n"


def states(autotune: Autotune) -> dict[int, str]:
    return {each["id"]: each["state"] for each in autotune("ls", "--json").json()}


def test_logs_and_tables_are_imported_and_others_refused(
    autotune: Autotune, tmp_path: Path
) -> None:
    good = written(tmp_path, megatron(STEADY), "good.log")
    drifts = written(tmp_path, megatron([6.0] * 10 + [6.6] * 9), "drifts.log")
    table = written(tmp_path, TABLE, "runs.csv")
    missing = tmp_path / "none.log"
    ran = autotune("import", *map(str, (good, drifts, table, missing)), "--name", "2025", "--json")
    assert ran.code == 1
    document = ran.json()
    assert {each["source"] for each in document["refused"]} == {"drifts.log", "none.log"}
    assert "refused: drifts.log: the medians of its first and second half differ" in ran.err
    log, rows = document["campaigns"]
    assert (log["state"], log["reason"], log["trials"]) == ("imported", "from good.log", 1)
    assert (rows["model"]["name"], rows["trials"]) == ("GPT 3.6B", 2)
    assert rows["request"]["adapter"] == "megatron-lm"
    number = str(log["id"])
    assert "imported" in autotune.done("ls", "--search", "2025").out
    shown = autotune.done("show", number)
    assert "imported: from good.log" in shown.out
    assert "measured" not in shown.out
    assert "from good.log" in autotune.done("show", number, "--trial", "1").out
    best = autotune("best", number)
    assert best.code != 0
    assert "nothing" in best.err
    assert autotune("extend", number, "--max-trials", "9").code == 1
    assert autotune("watch", number).code == 1
    autotune.done("rm", number)
    autotune.done("rm", str(rows["id"]))
    assert {int(number), rows["id"]}.isdisjoint(states(autotune))


def test_nothing_is_stored_where_all_is_refused(autotune: Autotune, tmp_path: Path) -> None:
    before = states(autotune)
    log = str(written(tmp_path, megatron(STEADY)))
    ran = autotune("import", log, "--model", "llama-3-70b")
    assert (ran.code, ran.out) == (1, "")
    assert "it states num_layers 32, and llama-3-70b has 80" in ran.err
    table = str(written(tmp_path, TABLE.replace(",megatron-lm", ","), "runs.csv"))
    ran = autotune("import", table)
    assert "has no adapter: state --adapter NAME or bundled" in ran.err
    ran = autotune("import", str(written(tmp_path, SCRIPT, "run.sh")))
    assert (ran.code, "a script has no times" in ran.err) == (2, True)
    assert states(autotune) == before


def test_a_launch_script_completes_the_log_in_its_folder(
    autotune: Autotune, tmp_path: Path
) -> None:
    text = megatron(STEADY, changed={"world_size": None, "data_parallel_size": None})
    log, script = written(tmp_path, text), written(tmp_path, SCRIPT, "run.sh")
    ran = autotune("import", str(log), str(script), "--json")
    [campaign] = ran.json()["campaigns"]
    assert campaign["request"]["nodes"] == 8
    autotune.done("rm", str(campaign["id"]))


def test_a_plan_starts_from_imported_runs(autotune: Autotune, tmp_path: Path) -> None:
    log = str(written(tmp_path, megatron(STEADY)))
    [campaign] = autotune("import", log, "--json").json()["campaigns"]
    again = autotune("import", log, "--json").json()["campaigns"]
    assert [each["id"] for each in again] == [campaign["id"]]
    about: dict[str, Any] = {"model": "llama-3-8b", "machine": "dgx-h100", "nodes": 8}
    with Client() as client:
        plan = client.plan(
            **about, evaluator="slurm", slurm={"profile": "generic"}, adapter="megatron-lm"
        )
        [start] = plan.started_from
        assert (start.campaign_id, start.trials) == (campaign["id"], 1)
        client.campaign(campaign["id"]).delete()
