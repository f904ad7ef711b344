"""Any backend as a DeepHyper evaluator, to run a DeepHyper search without a service.

evaluator = BackendEvaluator(SimulatedBackend(), space=space, directory=Path("trials"))
CBO(space.problem(seed=1), random_state=1).search(evaluator, max_evals=30)
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypedDict, Unpack

from deephyper.evaluator import Evaluator, HPOJob, Job, JobStatus

from autotune.measurement.metrics import impossible_time, metrics, probe_accumulations
from autotune.measurement.objectives import unknown_objective
from autotune.schemas.choices import Objective, TrialState
from evaluators.trial import Backend, TrialOutcome, TrialProtocol, TrialRequest
from search_spaces.rules import findings
from search_spaces.space import SearchSpace
from search_spaces.strategy import Strategy, strategy_with

ATTEMPTS = 3
"""Maximum starts of a trial that disappears without a result."""


class BackendEvaluator(Evaluator):  # type: ignore[misc]
    """Run DeepHyper's jobs as trials of a backend, `num_workers` at a time.

    The objective is the plain rate (a name of `autotune.schemas.Objective`), always positive;
    DeepHyper scales it. A failed trial returns `"F_<status>"`; a strategy that violates a rule
    returns `"F_refused"` without running. Metadata are the trial's status, error, metrics and
    paths.

    A trial is named after what it measures, so in one `directory` a strategy runs once, however
    often it is proposed, and a restarted search finds its results.

    Args:
        directory: receives one folder per trial.
        warmup_iterations, measured_iterations, time_limit_s: see `evaluators.trial.TrialProtocol`.
        seed: of weights and data, and of a simulated trial's machine.
        poll_interval_s: interval between polls of all running trials.

    Raises:
        InvalidInput: field `objective`: it is about energy, and the machine's power is unknown.
    """

    def __init__(
        self,
        backend: Backend,
        *,
        space: SearchSpace,
        directory: Path,
        objective: Objective = "tokens_per_s",
        num_workers: int = 1,
        warmup_iterations: int = 1,
        measured_iterations: int = 3,
        time_limit_s: float = 1200.0,
        seed: int = 0,
        poll_interval_s: float = 0.05,
    ) -> None:
        problem = unknown_objective(objective, space.machine)
        if problem is not None:
            raise problem
        super().__init__(backend.submit, num_workers=num_workers)
        self._job_class = HPOJob
        self._backend = backend
        self._space = space
        self._directory = directory.absolute()  # jobs start in another folder
        self._objective = objective
        self._protocol = TrialProtocol(
            accumulations=(),
            warmup_iterations=warmup_iterations,
            measured_iterations=measured_iterations,
            time_limit_s=time_limit_s,
        )
        self._seed = seed
        self._poll_interval_s = poll_interval_s
        self._open: dict[str, TrialRequest] = {}
        self._outcomes: dict[str, TrialOutcome] = {}
        self._attempts: dict[str, int] = {}
        self._polled_at = float("-inf")

    async def execute(self, job: HPOJob) -> HPOJob:
        """Run one trial: DeepHyper's dictionary of values in, its objective out."""
        async with self.sem:
            job.status = JobStatus.RUNNING
            space = self._space
            # DeepHyper omits dimensions with one value, and returns NumPy scalars.
            values = {
                name: job.args.get(name, space.dimensions[name][0]) for name in space.dimensions
            }
            strategy = strategy_with(
                {k: v.item() if hasattr(v, "item") else v for k, v in values.items()}
            )
            broken_rules = findings(
                strategy, space.transformer, space.machine, space.batch, program=space.program
            )
            refusals = [rule.reason for rule in broken_rules if rule.severity == "refuse"]
            if refusals:
                output = {"objective": "F_refused", "metadata": {"error": refusals[0]}}
            else:
                request = self._request(strategy)
                output = self._output(request, await self._run(request))
            return self._update_job_when_done(job, output)

    def _request(self, strategy: Strategy) -> TrialRequest:
        space = self._space
        protocol = replace(
            self._protocol,
            accumulations=probe_accumulations(strategy),
            pipeline_wait=(strategy.pipeline_parallel - 1) / strategy.virtual_stages,
        )
        measured = (self._backend.name, self._seed, space.transformer, space.machine, strategy)
        digest = hashlib.sha256(repr((*measured, protocol)).encode()).hexdigest()
        token = f"trial-{digest[:16]}"
        return TrialRequest(
            token=token,
            transformer=space.transformer,
            machine=space.machine,
            strategy=strategy,
            protocol=protocol,
            directory=self._directory / token,
            seed=self._seed,
        )

    async def _run(self, request: TrialRequest) -> TrialOutcome:
        token = request.token
        self._open.setdefault(token, request)
        self._attempts.setdefault(token, 1)
        self._backend.submit(request)
        try:
            while token not in self._outcomes:
                self._poll()
                if self.timeout is not None and self.time_left <= 0:
                    self._backend.cancel(token)
                await asyncio.sleep(self._poll_interval_s)
        except asyncio.CancelledError:
            self._backend.cancel(token)
            raise
        return self._outcomes[token]

    def _poll(self) -> None:
        """Poll all running trials in one status call, at most once per interval.

        A trial that disappeared is started again, at most ATTEMPTS times.
        """
        if time.monotonic() - self._polled_at < self._poll_interval_s:
            return
        trials = self._backend.poll(list(self._open.values()))
        self._polled_at = time.monotonic()
        for token, request in list(self._open.items()):
            outcome = trials.get(token)
            if outcome is None and self._attempts[token] < ATTEMPTS:
                self._attempts[token] += 1
                self._backend.submit(request)
            elif outcome is None:
                outcome = TrialOutcome(
                    status=TrialState.LOST,
                    started_at=datetime.now(UTC),
                    duration_s=0.0,
                    simulated=self._backend.simulated,
                    error=f"vanished {ATTEMPTS} times without a result",
                )
            if isinstance(outcome, TrialOutcome):
                self._outcomes[token] = outcome
                del self._open[token]

    def _output(self, request: TrialRequest, outcome: TrialOutcome) -> dict[str, Any]:
        measured = request.transformer, request.machine, request.strategy, outcome.measurements
        if impossible := impossible_time(*measured):
            outcome = replace(outcome, status=TrialState.CRASHED, error=impossible)
        metadata: dict[str, Any] = {
            "token": request.token,
            "status": outcome.status.value,
            "simulated": outcome.simulated,
            "error": outcome.error,
            "duration_s": outcome.duration_s,
            "node_hours": outcome.duration_s * request.strategy.num_nodes / 3600,
            "log_path": outcome.log_path,
        }
        if outcome.status is not TrialState.OK:
            return {"objective": f"F_{outcome.status.value}", "metadata": metadata}
        figures = metrics(
            *measured,
            peak_memory_gib=max(outcome.peak_memory_gib, default=None),
            loss=outcome.loss,
            trainer_parameters=outcome.trainer_parameters,
            routing=outcome.routing,
            gpu_joules_per_token=outcome.gpu_joules_per_token,
        )
        rate = getattr(figures, self._objective)
        return {"objective": float(rate), "metadata": metadata | figures.model_dump()}


class SearchOptions(TypedDict, total=False):
    """Keywords of `BackendEvaluator` that its subclasses pass on."""

    objective: Objective
    num_workers: int
    warmup_iterations: int
    measured_iterations: int
    time_limit_s: float
    seed: int


class ClusterEvaluator(BackendEvaluator):
    """Run DeepHyper's jobs on a cluster, by default four at a time.

    A search can be restarted in the same `directory`: trials that still run are found by name,
    and results are not measured again.
    """

    def __init__(
        self,
        backend: Backend,
        *,
        space: SearchSpace,
        directory: Path,
        **options: Unpack[SearchOptions],
    ) -> None:
        options.setdefault("num_workers", 4)
        super().__init__(backend, space=space, directory=directory, **options)

    def close(self) -> list[Job]:
        """Detach from the cluster; a held allocation is released if nothing runs in it.

        A search calls it at its end, and takes the jobs that it returns as its last ones.
        """
        cancelled: list[Job] = super().close()
        self._backend.close()
        return cancelled
