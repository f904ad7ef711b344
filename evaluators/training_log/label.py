"""Who wrote a line: the prefixes of srun, torchrun, torch and the bundled trainer."""

from __future__ import annotations

import re
from dataclasses import dataclass

# `srun --label`: " 3: ". torch: "[rank3]: ". The bundled trainer: "[rank 3] ". torchrun's
# "[default7]:" counts within a node, so it tells no rank.
_LABEL = re.compile(
    r"(?:\s{0,8}(?P<task>[0-9]{1,7}): |\[default[0-9]{1,7}\]: ?"
    r"|\[[Rr]ank ?(?P<rank>[0-9]{1,7})\](?:: ?| |$))*"
)
_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\^_])")


@dataclass(frozen=True, kw_only=True)
class Labelled:
    """A line without its prefix.

    Attributes:
        label: the prefix itself: lines of one writer share it.
        text: the rest, its indentation kept.
    """

    label: str
    rank: int | None
    text: str


def labelled(line: str) -> Labelled:
    found = _LABEL.match(line)
    if found is None or not found.end():
        return Labelled(label="", rank=None, text=line)
    rank = found["rank"] or found["task"]
    return Labelled(
        label=found[0].strip(), rank=int(rank) if rank else None, text=line[found.end() :]
    )


def text_of(line: bytes) -> str:
    """A line as it would be shown, without colours."""
    text = line.decode("utf-8", "replace")
    return _ANSI.sub("", text) if "\x1b" in text else text
