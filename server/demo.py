"""The demonstration: a service, a simulated campaign, a campaign of real trials, and a second real
campaign that starts from the trials of the first."""

from __future__ import annotations

import json as jsonlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Any

import httpx2
from rich.console import Console
from rich.panel import Panel

from autotune.answers.campaign import started_from
from autotune.client.campaign import CampaignHandle, RecommendationHandle
from autotune.client.client import Client
from autotune.client.question import CampaignInput
from autotune.errors import ApiError
from autotune.schemas.campaigns import Event
from autotune.schemas.choices import CampaignState
from evaluators.processes import die_with
from search_spaces.fields import as_table
from search_spaces.machine import Machine
from search_spaces.transformer import Transformer
from server.cli.failures import Failed
from server.cli.output import err, note, out, text
from server.cli.port import free_port, usable_port
from server.cli.progress import ProgressBoard
from server.cli.tables.campaigns import recommendation_in_brief

HOST = "127.0.0.1"
PREFERRED_PORT = 8765
START_LIMIT_S = 60.0
END_LIMIT_S = 10.0

CPU_MEMORY_GIB = 0.036
"""Memory of each rank on a machine without GPUs. Layouts of the tiny model take 0.02 to 0.05 GiB
there, so some of them run out of memory for real."""

TINY: CampaignInput = {
    "name": "demo: real trials on this machine",
    "model": "tiny",
    "machine": "local",
    "evaluator": "local",
    # One GAS, so that every rate is measured: a busy machine's noise upsets the law of two.
    "space": {"preset": "tiny-local", "gradient_accumulation_steps": 4},
    "budget": {"max_trials": 15},
    "protocol": {"confirmations": 2, "time_limit_s": 60.0},
}
LONGER: CampaignInput = {
    **TINY,
    "name": "demo: twice the sequence, from what the first has shown",
    "model": Transformer(
        name="tiny with sequences of 128",
        num_layers=4,
        hidden_size=128,
        num_attention_heads=4,
        seq_length=128,
        vocab_size=512,
    ),
    "budget": {"max_trials": 4},
    "protocol": {"confirmations": 1, "time_limit_s": 60.0},
}
SIMULATED: CampaignInput = {
    "name": "demo: Llama 3 70B on 8 DGX H100",
    "model": "llama-3-70b",
    "machine": "dgx-h100",
    "nodes": 8,
    "evaluator": "simulated",
    # torchtitan's own preset for this model on 64 GPUs: FSDP over 8-way tensor parallelism.
    # torchtitan/models/llama3/train_configs/llama3_70b.toml at 038d5fd1
    "baseline": "tp=8,pp=1,mbs=8,zero=3,sequence_parallel=on,activation_checkpointing=full",
    "space": {"global_batch_size": 512},
    "time_scale": 0.003,
}
"""The request of a team that has used a published recipe so far: 4 million tokens a step, as at the
start of Llama 3's training."""


@dataclass(frozen=True, kw_only=True)
class Result:
    """An ended campaign, with its recommendation and launch script if it has them."""

    handle: CampaignHandle
    answer: RecommendationHandle | None
    script: Path | None

    @property
    def succeeded(self) -> bool:
        return self.handle.state == CampaignState.DONE and self.answer is not None

    def as_dict(self) -> dict[str, Any]:
        campaign = self.handle.campaign
        best = self.answer.best if self.answer else None
        ended = campaign.finished_at or campaign.created_at
        return {
            "id": campaign.id,
            "model": campaign.model.name,
            "machine": campaign.machine.name,
            "evaluator": campaign.request.evaluator,
            "simulated": campaign.simulated,
            "trials": campaign.trials_in_all,
            "failures": campaign.failures,
            "started_from": [start.model_dump() for start in campaign.started_from or ()],
            "start_worth": campaign.start_worth and campaign.start_worth.model_dump(),
            "seconds": round((ended - campaign.created_at).total_seconds(), 1),
            "best": best
            and {
                "strategy": as_table(best.strategy),
                "metrics": best.metrics.model_dump(mode="json"),
            },
            "speedup_over_baseline": self.answer.speedup_over_baseline if self.answer else None,
        }


def run(
    *, once: bool, port: int | None, data_dir: Path | None, json: bool, simulated: bool = False
) -> None:
    """Run the demonstration, or only its simulated part.

    Raises:
        Failed: a campaign fails.
        InvalidInput: the port is in use.
    """
    folder = (data_dir or Path(tempfile.mkdtemp(prefix="autotune-demo-"))).expanduser().absolute()
    folder.mkdir(parents=True, exist_ok=True)
    number = free_port(HOST, preferred=PREFERRED_PORT) if port is None else usable_port(HOST, port)
    url = f"http://{HOST}:{number}"
    note(f"starting a service at {url}; data in {folder}")
    with _service(folder, number) as process:
        note(f"open in a browser: {_browser_address(url)}")
        results = _campaigns(url, folder, simulated=simulated)
        for result in results:
            _show(result, console=err() if json else out())
        if json:
            document = {"dashboard_url": url, "campaigns": [r.as_dict() for r in results]}
            text(jsonlib.dumps(document))
        judge(results)
        if once:
            return
        note(f"the service runs until Ctrl-C; for another browser: {_browser_address(url)}")
        sys.stdout.flush()
        with suppress(KeyboardInterrupt):  # the way to end it, and no failure
            process.wait()
            raise Failed(f"the service ended by itself; see {folder / 'service.log'}")


def _browser_address(url: str) -> str:
    with Client(url) as client:
        return client.browser_address()


@contextmanager
def _service(folder: Path, port: int) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "server.cli", "serve"]
    options = ["--host", HOST, "--port", str(port), "--data-dir", str(folder)]
    environment = {k: v for k, v in os.environ.items() if k != "AUTOTUNE_DATABASE_URL"}
    with _terminable(), (folder / "service.log").open("wb") as log:
        # A group of its own: Ctrl-C reaches this process, which then ends the service in order.
        process = subprocess.Popen(
            command + options,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=environment,
            process_group=0,
            preexec_fn=partial(die_with, os.getpid()),
        )
        try:
            _await_answer(process, f"http://{HOST}:{port}/readyz", Path(log.name))
            yield process
        finally:
            process.terminate()
            try:
                process.wait(END_LIMIT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@contextmanager
def _terminable() -> Iterator[None]:
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _await_answer(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    ends = time.monotonic() + START_LIMIT_S
    while time.monotonic() < ends and process.poll() is None:
        try:
            if httpx2.get(url, trust_env=False).is_success:
                return
        except httpx2.TransportError:
            pass
        time.sleep(0.1)
    lines = log.read_text(errors="replace").strip().splitlines()
    raise Failed(f"the service did not start: {lines[-1] if lines else 'its log is empty'} ({log})")


def _campaigns(url: str, folder: Path, *, simulated: bool) -> list[Result]:
    with Client(url) as client:
        if simulated:
            return _run(client, folder, [SIMULATED])
        here = limited(client.machine("local"))
        tiny: CampaignInput = {**TINY, "machine": here}
        longer: CampaignInput = {**LONGER, "machine": here}
        return [*_run(client, folder, [tiny, SIMULATED]), *_run(client, folder, [longer])]


def _run(client: Client, folder: Path, questions: Sequence[CampaignInput]) -> list[Result]:
    handles = [client.create(**question) for question in questions]
    with ProgressBoard([handle.campaign for handle in handles]) as board:
        for event in _events(handles):
            board.update(event)
    return [_result(handle, folder) for handle in handles]


def _events(handles: Sequence[CampaignHandle]) -> Iterator[Event]:
    arrived: SimpleQueue[Event | Exception | None] = SimpleQueue()

    def follow(handle: CampaignHandle) -> None:
        try:
            for event in handle.watch():
                arrived.put(event)
            arrived.put(None)
        except Exception as error:
            arrived.put(error)

    for handle in handles:
        # Daemons: Ctrl-C ends the demonstration without waiting for them.
        Thread(target=follow, args=(handle,), daemon=True).start()
    followed = len(handles)
    while followed:
        item = arrived.get()
        if isinstance(item, Exception):
            raise item
        if item is None:
            followed -= 1
        else:
            yield item


def limited(machine: Machine) -> Machine:
    if machine.peak_tflops is not None:
        return machine
    return replace(machine, memory_gib=CPU_MEMORY_GIB)


def _result(handle: CampaignHandle, folder: Path) -> Result:
    handle.refresh()
    try:
        answer = handle.best()
    except ApiError:
        return Result(handle=handle, answer=None, script=None)
    target = folder / "recommendations" / f"campaign-{handle.id}"
    handle.download(target)
    return Result(handle=handle, answer=answer, script=target / answer.launch_script_name)


def _show(result: Result, *, console: Console) -> None:
    campaign = result.handle.campaign
    title = f"{campaign.model.name} on {campaign.machine.name}"
    if result.answer is None:
        note(f"{title}: no recommendation: {campaign.reason}")
        return
    table = recommendation_in_brief(result.answer.recommendation)
    if campaign.started_from:
        table.add_row("started from", started_from(campaign))
    table.add_row("launch script", str(result.script))
    console.print(Panel(table, title=title, title_align="left", expand=False))


def judge(results: list[Result]) -> None:
    failed = [result.handle.campaign for result in results if not result.succeeded]
    if failed:
        raise Failed("; ".join(f"campaign {c.id} {c.state}: {c.reason}" for c in failed))
