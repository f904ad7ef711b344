"""One rank of a trial: join the others, train, measure, report."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import deepspeed
import torch
import torch.distributed as dist
from torch._C._distributed_c10d import TCPStore

from evaluators.stopping_rule import Verdict
from evaluators.trainer.failure import FAILED, LEFT_ALONE, error_line
from evaluators.trainer.libraries import Device, versions
from evaluators.trainer.memory import memory_of
from evaluators.trainer.training import Training, build_training
from evaluators.training_log.error_line import about_a_connection
from evaluators.trial import TrialRequest

# Longer than any trial, whose own time limit gives a better reason.
COLLECTIVE_LIMIT = timedelta(days=1)


@dataclass(frozen=True, kw_only=True)
class RankSettings:
    """A process's rank in its trial, and how it reaches the others.

    Attributes:
        local_rank: its number on its node, and that of its GPU.
        address: (host, port) of rank 0's rendezvous; None if torch's environment variables
            (MASTER_ADDR, …) name it.
        listening: on rank 0, the file descriptor of a socket that already listens there.
        reports: file descriptor for its messages to the supervisor; None without a supervisor.
    """

    rank: int
    world_size: int
    local_rank: int
    device: Device
    address: tuple[str, int] | None = None
    listening: int | None = None
    reports: int | None = None


@dataclass
class Reporter:
    """Sends one JSON object per line to this rank's supervisor, as long as it exists."""

    settings: RankSettings
    lost: bool = field(default=False)

    def send(self, kind: str, **content: Any) -> None:
        """Send one message; do nothing without a supervisor."""
        if self.settings.reports is None or self.lost:
            return
        message = {"kind": kind, "rank": self.settings.rank, "at": time.monotonic()} | content
        try:
            os.write(self.settings.reports, (json.dumps(message) + "\n").encode())
        except OSError:
            self.lost = True  # the supervisor has ended, and this rank will, too


def run_rank(request: TrialRequest, settings: RankSettings) -> tuple[int, Mapping[str, Any] | None]:
    """Train and measure; return an exit code, and on rank 0 the measurements. Never raises."""
    reporter, started = Reporter(settings), time.monotonic()
    memory = memory_of(settings.device)
    try:
        _join(settings)
        device = torch.device(f"cuda:{settings.local_rank}" if settings.device == "cuda" else "cpu")
        training = build_training(request, device=device, memory=memory)
        measured = _measure(request, training, reporter=reporter, started=started)
        peaks = _gathered(memory.peak_gib())
    except BaseException as error:
        memory.lift()
        reason = error_line(error)
        reporter.send("failure", error=reason)
        lines = "".join(traceback.format_exception(error)).splitlines()
        # The supervisor knows now; the log may be on a full disk.
        with contextlib.suppress(OSError):
            sys.stderr.write("".join(f"[rank {settings.rank}] {line}\n" for line in lines))
            sys.stderr.flush()
        return LEFT_ALONE if about_a_connection(reason) else FAILED, None
    report = measured | {"peak_memory_gib": peaks, "versions": versions()}
    if settings.rank == 0:
        reporter.send("report", **report)
    return 0, report if settings.rank == 0 else None


def _join(settings: RankSettings) -> None:
    os.environ |= {
        "RANK": str(settings.rank),
        "WORLD_SIZE": str(settings.world_size),
        "LOCAL_RANK": str(settings.local_rank),
    }
    torch.set_num_threads(1)
    if settings.device == "cuda":
        torch.cuda.set_device(settings.local_rank)
    store = None  # torch finds the others by itself
    if settings.address is not None:
        store = TCPStore(
            *settings.address,
            settings.world_size,
            is_master=settings.rank == 0,
            wait_for_workers=False,
            master_listen_fd=settings.listening,
        )
    dist.init_process_group(
        "nccl" if settings.device == "cuda" else "gloo",
        store=store,
        rank=settings.rank,
        world_size=settings.world_size,
        timeout=COLLECTIVE_LIMIT,
    )
    deepspeed.init_distributed(auto_mpi_discovery=False, verbose=False)


def _measure(
    request: TrialRequest, training: Training, *, reporter: Reporter, started: float
) -> dict[str, Any]:
    """Return iteration times of the slowest rank at each GAS, and all losses; rank 0 logs them.

    All ranks begin each iteration together. Rank 0 decides which one is the last.
    """
    protocol = request.protocol
    measurements, losses = [], []
    for accumulation in protocol.values:
        training.accumulate(accumulation)
        times: list[float] = []
        decision = Verdict.GO_ON
        while decision is Verdict.GO_ON:
            _synchronize()
            dist.barrier()
            start = time.perf_counter()
            losses.append(training.iterate())
            _synchronize()
            times.append(max(_gathered(time.perf_counter() - start)))
            if reporter.settings.rank == 0:
                at = f"GAS {accumulation}, iteration {len(times)}"
                print(f"{at} | {1000 * times[-1]:.1f} ms | loss {losses[-1]:.7f}", flush=True)
                reporter.send("progress", text=at)
            elapsed_s = time.monotonic() - started
            decision = _of_rank_0(protocol.verdict(accumulation, times, elapsed_s=elapsed_s))
        if accumulation in protocol.accumulations:
            timed = times[protocol.warmup_at(accumulation) :]
            measurements.append(
                {"gradient_accumulation_steps": accumulation, "iteration_times_s": timed}
            )
        if why := protocol.ended_early(decision, accumulation):
            if reporter.settings.rank == 0:
                print(why, flush=True)
            break
    return {"measurements": measurements, "losses": losses}


def _synchronize() -> None:
    if _device().type == "cuda":
        torch.cuda.synchronize()


def _device() -> torch.device:
    return torch.device("cuda" if dist.get_backend() == "nccl" else "cpu")


def _gathered(value: float) -> list[float]:
    values = torch.zeros(dist.get_world_size(), dtype=torch.float64, device=_device())
    values[dist.get_rank()] = value
    dist.all_reduce(values)
    return [float(v) for v in values]


def _of_rank_0(decision: Verdict) -> Verdict:
    verdict = torch.tensor([decision], device=_device())
    dist.broadcast(verdict, 0)
    return Verdict(int(verdict))


def leave(code: int) -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
