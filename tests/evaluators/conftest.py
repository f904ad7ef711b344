"""What tests of real trials share."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec

import pytest

from evaluators.local.backend import LocalBackend
from tests.requirement import require


@pytest.fixture(scope="session")
def backend() -> Iterator[LocalBackend]:
    """One for all: its warm process imports torch and DeepSpeed once. Trials run on the CPU."""
    require(find_spec("torch") and find_spec("deepspeed"), "torch and deepspeed")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CUDA_VISIBLE_DEVICES", "")
        made = LocalBackend()
        yield made
        made.close()
