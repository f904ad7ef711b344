"""What may be typed for a dimension, and how it is refused."""

from __future__ import annotations

import pytest

from autotune.schemas import BatchBounds, Range
from search_spaces.errors import InvalidInput
from server.cli.dimensions import dimension, global_batch_size
from server.cli.failures import ExitCode
from tests.server.cli.conftest import Autotune


@pytest.mark.parametrize(
    ("text", "choice"),
    [
        ("auto", "auto"),
        ("4", 4),
        ("1,2,4", [1, 2, 4]),
        ("full,none", ["full", "none"]),
        ("on,off", [True, False]),
        ("bf16", "bf16"),
        ("4:20", Range(minimum=4, maximum=20)),
        ("4:20:4", Range(minimum=4, maximum=20, step=4)),
        (None, None),
    ],
)
def test_dimensions_as_typed(text: str | None, choice: object) -> None:
    assert dimension("tensor_parallel", text) == choice


@pytest.mark.parametrize("text", ["1,,2", "4:x", "1:2:3:4", "4:20:0", ":4", "8:2"])
def test_what_is_no_dimension(text: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        dimension("tensor_parallel", text)
    assert (refused.value.field, refused.value.value) == ("tensor_parallel", text)
    assert refused.value.valid


@pytest.mark.parametrize(
    ("text", "choice"),
    [
        ("640", 640),
        ("512:1024", BatchBounds(minimum=512, maximum=1024)),
        (":1024", BatchBounds(minimum=None, maximum=1024)),
        (None, None),
    ],
)
def test_global_batches_as_typed(text: str | None, choice: object) -> None:
    assert global_batch_size(text) == choice


@pytest.mark.parametrize("text", [":", "big", "1:2:3", "0:4", "8:2"])
def test_what_is_no_global_batch(text: str) -> None:
    with pytest.raises(InvalidInput, match="global_batch_size"):
        global_batch_size(text)


@pytest.mark.parametrize("command", ["submit", "sweep", "space"])
def test_a_range_from_zero_names_its_flag_and_what_would_do(alone: Autotune, command: str) -> None:
    ran = alone(command, "--model", "gpt-22b", "--machine", "frontier", "--zero", "0:2")
    assert ran.code == ExitCode.BAD_INPUT
    assert ran.err.startswith("error: --zero: the numbers of a range are greater than 0")
    assert "0,1,2" in ran.err
