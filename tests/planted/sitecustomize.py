"""Delays each iteration of the bundled trainer: what planted knobs change.

`DELAY_S` is the delay in seconds, `DELAY_AT_SIZE` a micro-batch size and the delay there. Python
runs this file at its start where this folder stands on `PYTHONPATH`.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from types import FrameType


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


if "evaluators.trainer" in sys.orig_argv and (delay_s := _delay_s()):
    sys.setprofile(_delay)
