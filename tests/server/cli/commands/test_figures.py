"""Figures by command: listed, printed, and written as files."""

from __future__ import annotations

import json
from pathlib import Path

from tests.server.cli.conftest import Autotune


def test_a_figure_is_listed_and_printed(autotune: Autotune, finished: str) -> None:
    ran = autotune.done("plot", finished)
    assert "how much each dimension changes the rate" in ran.out
    listed = autotune("plot", finished, "--json").json()
    assert {"kind": "calibration", "missing": ""}.items() <= listed["figures"][-1].items()
    ran = autotune("plot", finished, "--kind", "calibration")
    assert "Predicted and simulated (simulated)" in ran.out
    assert "came out" in ran.out
    data = autotune("plot", finished, "--kind", "calibration", "--json").json()
    assert data["caption"] in ran.out.replace("\n", " ")


def test_the_end_of_a_file_says_as_what(autotune: Autotune, finished: str, tmp_path: Path) -> None:
    for name in ("f.svg", "f.json", "f.csv", "f.vega.json"):
        ran = autotune.done("plot", finished, "--kind", "trajectory", "--out", str(tmp_path / name))
        assert f"wrote {tmp_path / name}" in ran.err.replace("\n", "")
    assert (tmp_path / "f.svg").read_text().startswith("<svg")
    assert json.loads((tmp_path / "f.json").read_text())["kind"] == "trajectory"
    assert (tmp_path / "f.csv").read_text().startswith("Trial,tokens/s,Layout")
    assert "$schema" in json.loads((tmp_path / "f.vega.json").read_text())


def test_what_cannot_be_is_refused_in_a_sentence(autotune: Autotune, finished: str) -> None:
    ran = autotune("plot", finished, "--kind", "map", "--out", "map.gif")
    assert ran.code == 2
    assert "--out: its end names no format" in ran.err
    assert not Path("map.gif").exists()
    ran = autotune("plot", finished, "--out", "map.svg")
    assert "--kind: choose the figure to write" in ran.err
    ran = autotune("plot", finished, "--kind", "map", "--mbs", "77")
    assert ran.code == 2
    assert "--mbs: no layout of this campaign has it" in ran.err
