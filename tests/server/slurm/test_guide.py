"""The user's guide, followed word for word on a real Slurm.

Comments in docs/cluster.md mark its blocks: `<!-- runs -->` is run, `<!-- file NAME -->` is written
to that file, and what stands under `<!-- prints -->` is what the block before it prints, whatever
its figures are; `…` stands for anything, and so does what follows the end of a line.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.fixtures import slurm
from tests.cluster.ports import free_ports
from tests.patience import PATIENCE_S
from tests.requirement import require
from tests.serving import environment

__all__ = ["slurm"]

pytestmark = [pytest.mark.soak, pytest.mark.xdist_group("slurm-service")]

ROOT = Path(__file__).parents[3]
GUIDE = ROOT / "docs" / "cluster.md"
BLOCK = re.compile(r"<!-- (runs|prints|file) ?(.*?) ?-->\n```\w*\n(.*?)\n```", re.DOTALL)
FIGURE = re.compile(r"\d[\d.,:]*")
END = "@@ the block has ended"
READY = "until autotune ls >/dev/null 2>&1; do sleep 1; done"


def script(blocks: list[tuple[str, str, str]]) -> str:
    """All that is run, in one shell, as a reader would."""
    lines = ["set -eu", "trap 'kill $(jobs -p)' EXIT"]
    for kind, name, text in blocks:
        if kind == "file":
            lines.append(f"cat >{name} <<'END_OF_FILE'\n{text}\nEND_OF_FILE")
        if kind == "runs":
            lines += [text, *([READY] if text.endswith("&") else []), f"echo '{END}'"]
    return "\n".join(lines)


def follow(text: str, home: Path) -> str:
    """What it printed.

    Raises:
        AssertionError: with that, where a command failed or all of them took too long.
    """
    (port,) = free_ports(1)
    own = {
        "HOME": str(home),
        "SCRATCH": str(home / "scratch"),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "AUTOTUNE_PORT": str(port),
        "AUTOTUNE_URL": f"http://127.0.0.1:{port}",
    }
    plain = {name: text for name, text in environment().items() if not name.startswith("XDG_")}
    shell = subprocess.Popen(
        ["bash", "-c", text],
        cwd=home,
        env=plain | own,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        printed, _ = shell.communicate(timeout=10 * PATIENCE_S)
    except subprocess.TimeoutExpired:
        os.killpg(shell.pid, signal.SIGKILL)
        pytest.fail(f"not within {PATIENCE_S:g} s: {shell.communicate()[0]}")
    assert shell.returncode == 0, printed
    return printed


def masked(text: str) -> str:
    """Without its figures and its spacing."""
    return " ".join(FIGURE.sub("#", text).split())


def printed_by(shown: str, printed: str) -> bool:
    """Whether a line of the guide is among the printed ones."""
    wanted = ".*".join(re.escape(masked(part)) for part in shown.split("…"))
    return any(re.match(wanted, masked(line)) for line in printed.splitlines())


def test_every_command_works_and_prints_what_is_shown(
    slurm: Cluster,  # noqa: ARG001 (its commands are those of this process now)
    tmp_path: Path,
) -> None:
    require(find_spec("torch") and find_spec("deepspeed"), "torch and deepspeed")
    blocks = BLOCK.findall(GUIDE.read_text())
    outputs = follow(script(blocks), tmp_path).split(END)
    ran = -1
    for kind, _, text in blocks:
        ran += kind == "runs"
        for line in text.splitlines() if kind == "prints" else ():
            assert printed_by(line, outputs[ran]), f"{line!r} is not in:\n{outputs[ran]}"
    assert (tmp_path / "run" / "benchmark.sbatch").exists()
    assert ran >= 7, "most of the walk-through is marked as run"
