"""Adapters of `checked_trainer.py`: sound ones, and ones with a mistake that is easily made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

ARGUMENTS = """
"--out" = "{out}"
"--samples" = "{micro_batch_size}"
"--accumulate" = "{gradient_accumulation_steps}"
"--updates" = "{iterations}"
"""
WAYS: Mapping[str, str] = {
    "arguments": ARGUMENTS,
    "a file": """
"--out" = "{out}"
"--config" = "{out}/conf.json"
"--updates=" = "{iterations}"
"conf.json:samples" = "{micro_batch_size}"
"conf.json:accumulate" = "{gradient_accumulation_steps}"
""",
    "a global batch": """
"--out" = "{out}"
"$SAMPLES" = "{micro_batch_size}"
"--config" = "{out}/conf.json"
"conf.json:batch" = "{global_batch_size}"
"--updates" = "{iterations}"
""",
    "no GAS": """
"--out" = "{out}"
"--samples=" = "{micro_batch_size}"
"--updates" = "{iterations}"
""",
}
"""How the trainer gets a strategy (`[set]`)."""
ONE_START = """
[one_start.set]
"--accumulate" = "{first_gradient_accumulation_steps}"
"--then" = "{first_iterations}:{gradient_accumulation_steps}"
"""
IGNORED = ONE_START.replace("--then", "--ramp")
"""A schedule of two batches, and one that the trainer takes no notice of."""

LINE = r"\[(?P<step>\d+)/\d+\] loss=(?P<loss>\S+) (?P<ms>[\d.]+)ms"
MILLISECONDS = f"[[read]]\nlog = '{LINE}'\niteration_time_s = 'ms / 1000'\n"
ECHO = r"""[[read]]
log = 'with (?P<micro_batch_size>\d+) samples x (?P<gradient_accumulation_steps>\d+)'
"""
MEMORY = r"""[[read]]
log = 'peak (?P<mb>\d+) MB'
peak_memory_gib = 'mb / 1024'
"""
RATE = r"""[[read]]
log = '\[(?P<step>\d+)/.* (?P<rate>[\d.]+) tokens/s'
iteration_time_s = 'global_batch_size * seq_length / rate'
"""
READINGS: Mapping[str, str] = {
    "milliseconds": MILLISECONDS,
    "a rate, and what was asked for": RATE + ECHO,
    "arrivals": "[[read]]\nlog = '\\[(?P<step>\\d+)/\\d+\\]'\narrival = true\n",
    "memory": MILLISECONDS + MEMORY + ECHO,
    "a file": """[[read]]
json_lines = 'metrics.jsonl'
step = 'update'
loss = 'train_loss'
iteration_time_s = 'took'
""",
}
TABLE = """[[read]]
csv = 'metrics.csv'
step = 'update'
loss = 'train_loss'
iteration_time_s = 'seconds'
"""


@dataclass(frozen=True, kw_only=True)
class Mistake:
    """An adapter with one.

    Attributes:
        places: `[set]` where the mistake is there; the sound one's starts do otherwise.
        unseen: the check cannot see it.
    """

    reading: str = MILLISECONDS
    places: str = ""
    unseen: bool = False


def _changed(text: str, old: str, new: str) -> str:
    assert old in text
    return text.replace(old, new)


MISTAKES: Mapping[str, Mistake] = {
    "milliseconds taken for seconds": Mistake(
        reading=_changed(MILLISECONDS, "ms / 1000", "ms * 1")
    ),
    "a unit too small": Mistake(reading=_changed(MILLISECONDS, "ms / 1000", "ms / 1000000")),
    "the loss taken for the time": Mistake(
        reading=_changed(_changed(MILLISECONDS, "<loss>", "<other>"), "<ms>", "<loss>").replace(
            "(?P<other>", "(?P<ms>"
        )
    ),
    "the time of a micro-batch": Mistake(
        reading=_changed(RATE, "global_batch_size", "micro_batch_size")
    ),
    "the time of a sample": Mistake(reading=_changed(RATE, "global_batch_size * ", "")),
    "the time since the beginning": Mistake(
        reading="[[read]]\nlog = '\\[(?P<step>\\d+)/.* (?P<s>[\\d.]+)s in all'\n"
        "iteration_time_s = 's'\n"
    ),
    "the number of all iterations taken for the iteration's": Mistake(
        reading=_changed(MILLISECONDS, r"(?P<step>\d+)/\d+", r"\d+/(?P<step>\d+)")
    ),
    "a pattern of the times that matches nothing": Mistake(
        reading=_changed(MILLISECONDS, "loss=", "loss: ")
    ),
    "a pattern of the memory that matches nothing": Mistake(
        reading=MILLISECONDS + _changed(MEMORY, "peak (", "peak: (")
    ),
    "a pattern of the batch that matches nothing": Mistake(
        reading=MILLISECONDS + _changed(ECHO, "samples x", "samples by")
    ),
    "a file that is not there": Mistake(
        reading=MILLISECONDS + "[[read]]\njson_lines = 'memory.jsonl'\npeak_memory_gib = 'gib'\n"
    ),
    "batches read the wrong way round": Mistake(
        reading=MILLISECONDS
        + ECHO.replace("micro_batch_size", "x")
        .replace("gradient_accumulation_steps", "micro_batch_size")
        .replace("<x>", "<gradient_accumulation_steps>")
    ),
    "MB taken for GiB": Mistake(reading=MILLISECONDS + _changed(MEMORY, "mb / 1024", "mb * 1")),
    "GiB taken for MB": Mistake(
        reading=MILLISECONDS
        + "[[read]]\nlog = ', (?P<g>[\\d.]+) GiB'\npeak_memory_gib = 'g / 1024'\n"
    ),
    "GiB taken for bytes, of which there are few": Mistake(
        reading=MILLISECONDS
        + "[[read]]\nlog = ', (?P<g>[\\d.]+) GiB'\npeak_memory_gib = 'g / 1.074'\n",
        unseen=True,
    ),
    "GAS that does not arrive": Mistake(
        places=_changed(WAYS["a file"], "accumulate", "acumulate"),
    ),
    "MBS at another place": Mistake(places=_changed(ARGUMENTS, "--samples", "--eval-samples")),
    "MBS and GAS exchanged": Mistake(
        reading=MILLISECONDS + MEMORY,
        places=ARGUMENTS.replace("--samples", "--x")
        .replace("--accumulate", "--samples")
        .replace("--x", "--accumulate"),
    ),
    "the global batch for the micro-batch": Mistake(
        places=_changed(ARGUMENTS, "{micro_batch_size}", "{global_batch_size}")
    ),
    "the global batch for the micro-batch, which is echoed": Mistake(
        reading=MILLISECONDS + ECHO,
        places=_changed(ARGUMENTS, "{micro_batch_size}", "{global_batch_size}"),
    ),
    "GAS left out, and another one meant": Mistake(
        reading=MILLISECONDS + ECHO,
        places=_changed(ARGUMENTS, '"{gradient_accumulation_steps}"', "8"),
    ),
    "twice the iterations": Mistake(places=_changed(ARGUMENTS, "{iterations}", "{iterations * 2}")),
    "half the iterations": Mistake(places=_changed(ARGUMENTS, "{iterations}", "{iterations // 2}")),
    "an argument of another name": Mistake(
        places=_changed(ARGUMENTS, "--accumulate", "--grad-acc")
    ),
    "another model": Mistake(places=ARGUMENTS + '"--width" = "{2 * hidden_size}"\n'),
}
