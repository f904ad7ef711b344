"""What `autotune doctor` says about Slurm: what trials through it would find, or lack."""

from __future__ import annotations

import os
import shutil
import socket
import time
from collections.abc import Mapping

from evaluators.slurm.commands import (
    AccountingDisabled,
    Slurm,
    SlurmError,
    SlurmUnavailable,
    run_within,
)
from server.cli.check import Check
from server.settings import Settings
from server.store.engine import is_shared

CLIENT = ("sbatch", "squeue", "sacct", "scancel", "srun", "sinfo", "scontrol")
LIMIT_S = 10.0
SHOWN_PARTITIONS = 6
OFF = "Slurm forgets a job some minutes after its end: let the service run while trials do"


def slurm(settings: Settings) -> list[Check]:
    """One line where there is no Slurm; where it does not answer, why."""
    commands = client()
    if not any(shutil.which(name) for name in CLIENT):
        return [commands]
    asked = Slurm(limit_s=LIMIT_S)
    began = time.monotonic()
    try:
        known = asked.partitions()
    except SlurmError as error:
        return [commands, silent(error), munge(), *allocation()]
    took_s = time.monotonic() - began
    found = f"{said(asked, 'sinfo', '--version')}, answers in {took_s:.2f} s"
    return [
        commands,
        Check(name="Slurm controller", status="ok", found=found),
        partitions(known),
        accounting(asked),
        trial_folder(asked, settings),
        *allocation(),
    ]


def client() -> Check:
    present = [name for name in CLIENT if shutil.which(name)]
    if len(present) == len(CLIENT):
        return Check(name="Slurm", status="ok", found=", ".join(present))
    if not present:
        found = "none on this machine's PATH; launch scripts can still be written"
        return Check(name="Slurm", status="ok", found=found)
    lacking = ", ".join(name for name in CLIENT if name not in present)
    advice = "load the site's Slurm module, or complete the client's installation (slurm-client)"
    return Check(name="Slurm", status="warn", found=f"without {lacking}", advice=advice)


def silent(error: SlurmError) -> Check:
    advice = "trials wait until it does; is this a login node, and SLURM_CONF the site's own?"
    if not isinstance(error, SlurmUnavailable):
        advice = "ask the site whether this user may use Slurm"
    found = f"does not answer: {error}"
    return Check(name="Slurm controller", status="warn", found=found, advice=advice)


def munge() -> Check:
    """Asked only where Slurm does not answer: it would not without it."""
    if shutil.which("munge") is None:
        return Check(name="munge", status="ok", found="no client; this site may not use it")
    words = ("munge", "--no-input", "--output=/dev/null")
    code, _, errors = run_within(words, limit_s=LIMIT_S, environment=os.environ)
    if code == 0:
        return Check(name="munge", status="ok", found="works; it is not what is wrong")
    found = " ".join(errors.split()).removeprefix("munge: Error: ") or "does not answer"
    advice = "Slurm believes nobody without it: ask the site to start munged on this node"
    return Check(name="munge", status="warn", found=found, advice=advice)


def partitions(known: Mapping[str, Mapping[str, str]]) -> Check:
    texts = [_partition(name, fields) for name, fields in known.items()]
    if not texts:
        advice = "name one in the cluster profile once the site has told you which you may use"
        return Check(name="partitions", status="warn", found="none visible", advice=advice)
    more = len(texts) - SHOWN_PARTITIONS
    shown = texts[:SHOWN_PARTITIONS] + ([f"and {more} more (sinfo)"] if more > 0 else [])
    return Check(name="partitions", status="ok", found="; ".join(shown))


def _partition(name: str, fields: Mapping[str, str]) -> str:
    limit = fields.get("MaxTime", "UNLIMITED")
    notes = [
        f"{fields.get('TotalNodes', '?')} nodes",
        "no time limit" if limit == "UNLIMITED" else f"at most {limit}",
        *(["the default"] if fields.get("Default") == "YES" else []),
        *([fields["State"].lower()] if fields.get("State", "UP") != "UP" else []),
    ]
    return f"{name} ({', '.join(notes)})"


def accounting(asked: Slurm) -> Check:
    """Without it an ended job is known for MinJobAge, and then by its own files alone."""
    try:
        asked.sacct(["autotune"], since=time.time())
    except AccountingDisabled:
        return Check(name="accounting", status="warn", found="off", advice=OFF)
    except SlurmError as error:
        advice = "results do not depend on it, but why a job was ended may not be known"
        return Check(name="accounting", status="warn", found=str(error), advice=advice)
    return Check(name="accounting", status="ok", found="on; sacct knows ended jobs")


def trial_folder(asked: Slurm, settings: Settings) -> Check:
    """A trial's job reads and writes its folder on the nodes."""
    name, folder = "folder for nodes", settings.data_dir
    if is_shared(folder):
        return Check(name=name, status="ok", found=f"{folder} is on a shared file system")
    hosts = said(asked, "sinfo", "--noheader", "--format=%n").split()
    if set(hosts) == {socket.gethostname().partition(".")[0]}:
        return Check(name=name, status="ok", found="every node is on this machine")
    advice = "put it where nodes see it as well (AUTOTUNE_DATA_DIR, --data-dir)"
    return Check(name=name, status="warn", found=f"{folder}: on this machine", advice=advice)


def allocation() -> list[Check]:
    """Whether this process is inside a job."""
    job = os.environ.get("SLURM_JOB_ID")
    if not job:
        return []
    nodes = os.environ.get("SLURM_JOB_NUM_NODES", "?")
    found = f"inside job {job}, nodes: {nodes}; `--mode pilot` runs trials as its steps"
    return [Check(name="allocation", status="ok", found=found)]


def said(asked: Slurm, *words: str) -> str:
    """What a command printed; nothing where it failed or is missing."""
    if shutil.which(words[0]) is None:
        return ""
    _, output, _ = run_within(words, limit_s=LIMIT_S, environment=asked.environment())
    return output.strip()
