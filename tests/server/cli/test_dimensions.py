"""What may be typed for a dimension, and how it is refused."""

from __future__ import annotations

import pytest

from server.cli.failures import ExitCode
from tests.server.cli.conftest import Autotune


@pytest.mark.parametrize("command", ["submit", "sweep", "space"])
def test_a_range_from_zero_names_its_flag_and_what_would_do(alone: Autotune, command: str) -> None:
    ran = alone(command, "--model", "gpt-22b", "--machine", "frontier", "--zero", "0:2")
    assert ran.code == ExitCode.BAD_INPUT
    assert ran.err.startswith("error: --zero: the numbers of a range are greater than 0")
    assert "0,1,2" in ran.err


@pytest.mark.parametrize(
    ("flag", "text", "reason"),
    [
        ("--tp", "yes", "not a value of this dimension (got 'yes'"),
        ("--flash-attention", "4", "this is a switch (got '4'; valid: on or off)"),
        ("--mbs", "1,,2", "this is no choice of values (got '1,,2'; valid: auto"),
        ("--global-batch", "big", "this is no number of samples (got 'big'; valid: one size"),
    ],
)
def test_what_cannot_be_read_is_refused_at_its_flag(
    alone: Autotune, flag: str, text: str, reason: str
) -> None:
    ran = alone("space", "--model", "gpt-22b", "--machine", "frontier", flag, text)
    assert ran.code == ExitCode.BAD_INPUT
    assert ran.err.startswith(f"error: {flag}: {reason}")


def test_a_range_is_written_in_either_way(alone: Autotune) -> None:
    texts = ("4..20 step 4", "4:20:4", "4,8,12,16,20")
    spaces = [
        alone(
            "space", "--model", "gpt-22b", "--machine", "frontier", "--mbs", text, "--json"
        ).json()
        for text in texts
    ]
    assert spaces[0] == spaces[1] == spaces[2]
