"""`autotune calibrations` on a service: fitted, listed, shown, carried elsewhere, used, deleted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from server.cli.failures import ExitCode
from tests.server.cli.conftest import Autotune

STRATEGY = ("--tp", "4", "--pp", "2", "--mbs", "1", "--gas", "8", "--num-nodes", "2")
ONE = ("predict", "--model", "gpt-22b", "--machine", "frontier", *STRATEGY)


@pytest.fixture
def fitted(autotune: Autotune, finished: str) -> Iterator[str]:
    """The name of a calibration on the simulated campaign."""
    autotune.done("calibrations", "fit", "shared", "--campaign", finished, "--software", "ours")
    yield "shared"
    autotune("calibrations", "delete", "shared")


def test_fitting_shows_what_came_of_it(
    autotune: Autotune, finished: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    none = autotune("calibrations", "list")
    assert (none.code, none.out) == (0, "")
    assert "autotune calibrations fit" in none.err
    monkeypatch.setenv("COLUMNS", "100")
    ran = autotune.done("calibrations", "fit", "mine", "--campaign", finished, "--software", "ours")
    assert "simulated trials" in ran.out
    assert "autotune predict --calibration mine" in ran.err
    detail = autotune("calibrations", "show", "mine", "--json").json()
    narrowed = [each["spread"] / each["prior_spread"] for each in detail["constants"]]
    assert min(narrowed[:3]) < 0.9
    assert narrowed[-1] > 0.99
    listed, shown = (
        autotune("calibrations", "list").out,
        autotune("calibrations", "show", "mine").out,
    )
    rows = shown[shown.index("generally known") :].splitlines()[1:]
    assert [row.split()[0] for row in rows] == [each["name"] for each in detail["constants"]]
    assert any("µs" in row for row in rows)
    [row] = [line for line in listed.splitlines() if line.startswith("mine")]
    assert row.split()[1] == "frontier"
    assert {"gpt-22b", "simulated", "ours"} <= set(row.split())
    assert [each["name"] for each in autotune("calibrations", "list", "--json").json()] == ["mine"]
    for out in (listed, shown):
        assert max(map(len, out.splitlines())) <= 100
        assert "…" not in out
    assert autotune("calibrations", "delete", "mine", "--json").json() == {"deleted": "mine"}
    assert autotune("calibrations", "show", "mine").code == ExitCode.BAD_INPUT


def test_a_calibration_goes_from_one_place_to_another(
    autotune: Autotune, fitted: str, tmp_path: Path
) -> None:
    path = tmp_path / "shared.json"
    ran = autotune.done("calibrations", "export", fitted, "--output", str(path))
    assert f"wrote {path}" in ran.err
    printed = autotune("calibrations", "export", fitted).json()
    assert printed["format"] == "autotune-calibration-1"
    assert autotune("calibrations", "import", "copy", str(path)).code == 0
    assert autotune("calibrations", "export", "copy").json() == printed
    assert autotune("calibrations", "import", fitted, str(path)).code == ExitCode.FAILED
    by_name, by_file = (
        autotune(*ONE, "--calibration", each, "--json").json() for each in (fitted, str(path))
    )
    assert by_name["calibration"]["name"] == fitted
    assert by_name | {"calibration": None} == by_file | {"calibration": None}
    autotune("calibrations", "delete", "copy")


def test_a_name_that_is_taken(autotune: Autotune, fitted: str, finished: str) -> None:
    ran = autotune("calibrations", "fit", fitted, "--campaign", finished, "--software", "x")
    assert ran.code == ExitCode.FAILED
    assert fitted in ran.err


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("fit", "a/b", "--campaign", "1"), "NAME: no calibration can have this name"),
        (("fit", "none", "--campaign", "1"), "use no calibration"),
        (("fit", "a", "--campaign", "0"), "--campaign: "),
        (("fit", "a"), "--campaign"),
        (("show", "absent"), "absent"),
        (("delete", "absent"), "absent"),
        (("import", "a", "/absent.json"), "FILE: the file cannot be read"),
    ],
)
def test_bad_input(autotune: Autotune, words: tuple[str, ...], reason: str) -> None:
    ran = autotune("calibrations", *words)
    assert (ran.code, ran.out) == (ExitCode.BAD_INPUT, "")
    assert reason in ran.err
    assert "Traceback" not in ran.err
