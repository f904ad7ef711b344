"""Trains trials' models with any optimizer, on ranks that are forked from one warm process.

`python -m tests.evaluators.trainer.forked_ranks` reads a task in JSON from each line of its input,
and answers with a line of what came of it.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from evaluators import processes
from evaluators.trainer.libraries import environment, load
from evaluators.trial import TrialRequest, request_as_dict, request_from_dict
from tests.patience import PATIENCE_S

OPTIMIZERS: Mapping[str, Mapping[str, Any]] = {
    "AdamW": {},
    "SGD": {
        "optimizer": {"type": "SGD", "params": {"lr": 1.0}},
        "zero_allow_untested_optimizer": True,
    },
}
"""What differs from a trial's own settings of DeepSpeed. AdamW does not see a gradient of the wrong
scale, SGD does."""

Losses = dict[str, list[float]]
"""By optimizer, the loss of each step."""


@dataclass(frozen=True)
class Trained:
    """What one task did.

    Attributes:
        parameters: of the first rank's part of the model, before ZeRO.
    """

    losses: Losses
    parameters: int


class ForkedRanks(AbstractContextManager["ForkedRanks"]):
    """The warm process."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.tasks = folder, 0
        self.process = subprocess.Popen(
            [sys.executable, "-m", __name__],
            env=os.environ | environment("cpu", extensions=folder),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def train(
        self,
        request: TrialRequest,
        *,
        steps: int,
        optimizers: Sequence[str] = tuple(OPTIMIZERS),
        plant: float = 1.0,
        limit_s: float = PATIENCE_S,
    ) -> Trained:
        """Train a layout at its own GAS. Ranks that hang fail the test after `limit_s`, and with
        them the warm process ends.

        Args:
            plant: a factor of the experts' gradients, an error on purpose.
        """
        self.tasks += 1
        folder = self.folder / str(self.tasks)
        folder.mkdir()
        task = {
            "request": request_as_dict(request),
            "folder": str(folder),
            "steps": steps,
            "optimizers": list(optimizers),
            "plant": plant,
        }
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write(json.dumps(task) + "\n")
        self.process.stdin.flush()
        answered, _, _ = select.select([self.process.stdout], [], [], limit_s)
        if not answered:
            self.process.kill()
        answer = json.loads(self.process.stdout.readline() or "null")
        log = folder / "log"
        assert answer is not None, (
            f"no answer within {limit_s:g} s"
            if not answered
            else "a rank failed, or the process of all",
            log.read_text()[-5000:] if log.exists() else "",
        )
        return Trained(**answer)

    def __exit__(self, *_: object) -> Literal[False]:
        self.process.kill()
        self.process.communicate()
        return False


def _train(task: Mapping[str, Any], rank: int, world_size: int) -> None:
    """Be one rank of a task; the first one leaves the losses in its folder."""
    import deepspeed
    import torch
    import torch.distributed as dist
    from deepspeed.moe.utils import is_moe_param

    from evaluators.trainer.memory import memory_of
    from evaluators.trainer.training import build_training

    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(world_size)}
    folder, request = Path(task["folder"]), request_from_dict(task["request"])
    torch.set_num_threads(1)
    store = f"file://{folder / 'store'}"
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=world_size)
    deepspeed.init_distributed(auto_mpi_discovery=False, verbose=False)
    losses = {}
    for optimizer in task["optimizers"]:
        training: Any = build_training(
            request,
            device=torch.device("cpu"),
            memory=memory_of("cpu"),
            changes=OPTIMIZERS[optimizer],
        )
        for parameter in training.engine.module.parameters():
            if is_moe_param(parameter):
                parameter.register_hook(lambda gradient: gradient * task["plant"])
        training.accumulate(request.strategy.gradient_accumulation_steps)
        losses[optimizer] = [training.iterate() for _ in range(task["steps"])]
    dist.barrier()
    if rank == 0:
        counts = [each.numel() for each in training.engine.module.parameters()]
        answer = {"losses": losses, "parameters": sum(counts)}
        (folder / "answer.json").write_text(json.dumps(answer))


def _answer(task: Mapping[str, Any]) -> Any:
    """Return what a task did; None where a rank failed."""
    folder, request = Path(task["folder"]), request_from_dict(task["request"])
    world_size = request.strategy.world_size(request.machine.gpus_per_node)
    pids = []
    for rank in range(world_size):

        def work(rank: int = rank) -> int:
            with (folder / "log").open("ab") as log:
                os.dup2(log.fileno(), 1)
                os.dup2(log.fileno(), 2)
            try:
                _train(task, rank, world_size)
            except BaseException:
                import traceback

                traceback.print_exc()
                raise
            sys.stdout.flush()
            os._exit(0)

        pids.append(processes.fork(work))
    running = set(pids)
    while running:
        pid, status = os.wait()
        running.discard(pid)
        if status:
            for other in running:
                processes.kill(other)
            return None
    return json.loads((folder / "answer.json").read_text())


if __name__ == "__main__":
    load()
    for line in sys.stdin:
        print(json.dumps(_answer(json.loads(line))), flush=True)
