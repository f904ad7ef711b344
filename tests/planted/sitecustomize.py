"""Delays each iteration of the bundled trainer: what planted knobs change.

`DELAY_S` is the delay in seconds, `DELAY_AT_SIZE` a micro-batch size and the delay there. Python
runs this file at its start where this folder stands on `PYTHONPATH`.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import FrameType, ModuleType


def _delay_s() -> float:
    size, _, delay_s = os.environ.get("DELAY_AT_SIZE", "").partition(":")
    if size:
        request = json.loads(Path("request.json").read_text(encoding="utf-8"))
        if request["strategy"]["micro_batch_size"] == int(size):
            return float(delay_s)
    return float(os.environ.get("DELAY_S", "0"))


def _delay(frame: FrameType, event: str, _argument: object) -> None:
    if event == "call" and frame.f_code.co_name == "iterate":
        time.sleep(delay_s)


class _AfterTorch(MetaPathFinder):
    """Finds nothing: the profile function, which slows imports, is set once torch is imported."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,  # noqa: ARG002
        target: ModuleType | None = None,  # noqa: ARG002
    ) -> ModuleSpec | None:
        if fullname == "evaluators.trainer.training":
            sys.setprofile(_delay)
        return None


if "evaluators.trainer" in sys.orig_argv and (delay_s := _delay_s()):
    sys.meta_path.insert(0, _AfterTorch())
