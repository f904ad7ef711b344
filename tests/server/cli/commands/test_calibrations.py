"""`autotune calibrations` on a service: fitted, listed, shown, carried elsewhere, used, deleted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from server.cli.failures import ExitCode
from tests.server.cli.calibration_files import slower, written
from tests.server.cli.conftest import Autotune
from tests.serving import Served

STRATEGY = ("--tp", "4", "--pp", "2", "--mbs", "1", "--gas", "8", "--num-nodes", "2")
ONE = ("predict", "--model", "gpt-22b", "--machine", "frontier", *STRATEGY)


@pytest.fixture
def fitted(autotune: Autotune, finished: str) -> Iterator[str]:
    """The name of a calibration on the simulated campaign."""
    ran = autotune("calibrations", "fit", "shared", "--campaign", finished, "--software", "ours")
    assert ran.code == 0, ran.err
    yield "shared"
    autotune("calibrations", "delete", "shared")


def test_fitting_shows_what_came_of_it(autotune: Autotune, finished: str) -> None:
    ran = autotune("calibrations", "fit", "mine", "--campaign", finished, "--software", "ours")
    assert ran.code == 0, ran.err
    assert "generally known" in ran.out
    assert "simulated trials" in ran.out
    assert "autotune predict --calibration mine" in ran.err
    assert autotune("calibrations", "delete", "mine", "--json").json() == {"deleted": "mine"}
    assert autotune("calibrations", "show", "mine").code == ExitCode.BAD_INPUT


def test_listing(autotune: Autotune, fitted: str) -> None:
    ran = autotune("calibrations", "list")
    assert ran.code == 0
    [row] = [line for line in ran.out.splitlines() if line.startswith(fitted)]
    assert row.split()[1] == "frontier"
    assert "gpt-22b" in row
    assert "simulated" in row
    assert "ours" in row
    assert fitted in [each["name"] for each in autotune("calibrations", "list", "--json").json()]


def test_listing_where_there_is_nothing(autotune: Autotune) -> None:
    ran = autotune("calibrations", "list")
    assert (ran.code, ran.out) == (0, "")
    assert "autotune calibrations fit" in ran.err


def test_showing_puts_first_what_the_trials_tell_of(autotune: Autotune, fitted: str) -> None:
    detail = autotune("calibrations", "show", fitted, "--json").json()
    narrowed = [each["spread"] / each["prior_spread"] for each in detail["constants"]]
    assert min(narrowed[:3]) < 0.9
    assert narrowed[-1] > 0.99
    out = autotune("calibrations", "show", fitted).out
    rows = out[out.index("generally known") :].splitlines()[1:]
    assert [row.split()[0] for row in rows] == [each["name"] for each in detail["constants"]]
    assert any("µs" in row for row in rows)


def test_showing_fits_a_terminal(
    autotune: Autotune, fitted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    for command in (("list",), ("show", fitted)):
        out = autotune("calibrations", *command).out
        assert max(map(len, out.splitlines())) <= 100
        assert "…" not in out


def test_a_prediction_with_a_calibration_by_name(autotune: Autotune, fitted: str) -> None:
    before, after = (
        autotune(*ONE, *more, "--json").json() for more in ((), ("--calibration", fitted))
    )
    assert before["calibration"] is None
    assert after["calibration"]["name"] == fitted
    widths = [
        each["iteration_time_high_s"] / each["iteration_time_low_s"] for each in (before, after)
    ]
    assert widths[1] < widths[0]
    assert f"calibration {fitted}: " in autotune(*ONE, "--calibration", fitted).out


def test_a_calibration_goes_from_one_place_to_another(
    autotune: Autotune, fitted: str, tmp_path: Path
) -> None:
    path = tmp_path / "shared.json"
    ran = autotune("calibrations", "export", fitted, "--output", str(path))
    assert ran.code == 0
    assert f"wrote {path}" in ran.err
    printed = autotune("calibrations", "export", fitted).json()
    assert printed["format"] == "autotune-calibration-1"
    assert autotune("calibrations", "import", "copy", str(path)).code == 0
    assert autotune("calibrations", "export", "copy").json() == printed
    figures = [
        autotune(*ONE, "--calibration", each, "--json").json() | {"calibration": None}
        for each in (fitted, "copy", str(path))
    ]
    assert figures[0] == figures[1] == figures[2]
    autotune("calibrations", "delete", "copy")


def test_a_name_that_is_taken(
    autotune: Autotune, fitted: str, finished: str, tmp_path: Path
) -> None:
    ran = autotune("calibrations", "fit", fitted, "--campaign", finished, "--software", "x")
    assert ran.code == ExitCode.FAILED
    assert fitted in ran.err
    path = written(tmp_path / "x.json", slower(2.0))
    assert autotune("calibrations", "import", fitted, path).code == ExitCode.FAILED


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("fit", "a/b", "--campaign", "1"), "NAME: no calibration can have this name"),
        (("fit", "none", "--campaign", "1"), "use no calibration"),
        (("show", ""), "NAME: no calibration can have this name"),
        (("fit", "a", "--campaign", "0"), "--campaign: "),
        (("fit", "a", "--campaign", "10000"), "10000"),
        (("fit", "a"), "--campaign"),
        (("show", "absent"), "absent"),
        (("export", "absent"), "absent"),
        (("delete", "absent"), "absent"),
        (("import", "a", "/absent.json"), "FILE: the file cannot be read"),
    ],
)
def test_bad_input(autotune: Autotune, words: tuple[str, ...], reason: str) -> None:
    ran = autotune("calibrations", *words)
    assert (ran.code, ran.out) == (ExitCode.BAD_INPUT, "")
    assert reason in ran.err
    assert "Traceback" not in ran.err


def test_an_unknown_calibration_of_a_prediction(autotune: Autotune) -> None:
    ran = autotune(*ONE, "--calibration", "absent")
    assert (ran.code, ran.out) == (ExitCode.BAD_INPUT, "")
    assert "absent" in ran.err


def test_the_service_and_the_command_say_the_same(
    autotune: Autotune, service: Served, fitted: str
) -> None:
    from autotune.client.client import Client

    with Client(service.url) as client:
        detail = client.calibration(fitted)
    assert autotune("calibrations", "show", fitted, "--json").json() == detail.model_dump(
        mode="json"
    )
