"""Where ranks meet, found by a real bash."""

from __future__ import annotations

import os
import socket
import subprocess
from pathlib import Path

import pytest

from evaluators.program.task import FIRST_PORT, LOCKS, PORTS, RENDEZVOUS
from tests.cluster import Cluster
from tests.patience import PATIENCE_S

ADDRESS = "127.0.0.1"


def meet(
    folder: Path, *, locks: Path | None = None, **variables: str
) -> tuple[subprocess.Popen[str], str, int]:
    """A process that holds the port until its input ends; and what it found."""
    script = folder / "meet.sh"
    rendezvous = RENDEZVOUS.replace(LOCKS, str(locks)) if locks else RENDEZVOUS
    script.write_text(f'{rendezvous}\necho "$MASTER_ADDR $MASTER_PORT"\ncat\n')
    process = subprocess.Popen(
        ["bash", str(script)],
        cwd=folder,
        env=os.environ | variables,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout
    address, port = process.stdout.readline().split()
    return process, address, int(port)


def test_runs_side_by_side_get_ports_of_their_own(tmp_path: Path) -> None:
    found = [meet(tmp_path, MASTER_ADDR=ADDRESS) for _ in range(3)]
    ports = [port for _, _, port in found]
    assert len(set(ports)) == 3
    assert all(FIRST_PORT <= port < FIRST_PORT + PORTS for port in ports)
    for process, _, _ in found:
        process.communicate(timeout=PATIENCE_S)


def test_a_port_is_free_again_after_its_run(tmp_path: Path) -> None:
    first, _, port = meet(tmp_path, MASTER_ADDR=ADDRESS)
    first.communicate(timeout=PATIENCE_S)
    second, _, again = meet(tmp_path, MASTER_ADDR=ADDRESS)
    second.communicate(timeout=PATIENCE_S)
    assert again == port


def test_a_port_at_which_something_listens_is_passed_over(tmp_path: Path) -> None:
    first, _, port = meet(tmp_path, MASTER_ADDR=ADDRESS)
    first.communicate(timeout=PATIENCE_S)
    with socket.create_server((ADDRESS, port)):
        second, _, other = meet(tmp_path, MASTER_ADDR=ADDRESS)
        second.communicate(timeout=PATIENCE_S)
    assert other != port


@pytest.mark.parametrize("trap", ["open to others", "a link"])
def test_a_folder_of_locks_that_others_can_write_is_not_used(tmp_path: Path, trap: str) -> None:
    locks = tmp_path / "locks"
    locks.mkdir()
    locks.chmod(0o777)
    for port in range(FIRST_PORT, FIRST_PORT + PORTS):
        os.mkfifo(locks / str(port))  # opening it would wait for ever
    named = locks
    if trap == "a link":
        locks.chmod(0o700)
        named = tmp_path / "link"
        named.symlink_to(locks)
    process, _, _ = meet(tmp_path, locks=named, MASTER_ADDR=ADDRESS)
    process.communicate(timeout=PATIENCE_S)


@pytest.mark.xdist_group("slurm")
def test_a_node_whose_name_is_none_of_the_networks_is_met_at_its_address(
    tmp_path: Path, slurm: Cluster
) -> None:
    assert slurm.nodes[1] == "n02"
    process, address, _ = meet(tmp_path, SLURM_JOB_NODELIST="n[02-04]", MASTER_ADDR="")
    process.communicate(timeout=PATIENCE_S)
    assert address == ADDRESS
