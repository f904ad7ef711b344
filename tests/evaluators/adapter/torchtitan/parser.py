"""torchtitan's own parser, for an interpreter that has it: `python parser.py OUT < LISTS`.

Each line on its input is a JSON list of arguments; each line of OUT what came of it, as JSON: the
sections of the configuration, or `{"refused": …}`.
"""

import json
import sys
from dataclasses import asdict
from typing import Any

from torchtitan.config import ConfigManager  # type: ignore[import-not-found]


def sections(config: Any) -> dict[str, Any]:
    names = ("training", "parallelism", "metrics")
    parsed: dict[str, Any] = {name: asdict(getattr(config, name)) for name in names}
    checkpointing = config.activation_checkpoint
    mode = getattr(checkpointing, "mode", None) or type(checkpointing).__qualname__.split(".")[0]
    converters = getattr(getattr(config, "model", None), "converters", [])
    return {**parsed, "activation_checkpointing": mode, "converters": converters}


with open(sys.argv[1], "w") as out:
    for line in sys.stdin:
        try:
            parsed = sections(ConfigManager().parse_args(json.loads(line)))
        except (Exception, SystemExit) as error:
            parsed = {"refused": f"{type(error).__name__}: {error}"}
        print(json.dumps(parsed, default=str), file=out)
