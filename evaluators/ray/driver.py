"""The process that talks to one Ray cluster: `python -m evaluators.ray.driver SOCKET PARENT`.

Ray ends a process whose head has died, and a process can connect to only one cluster, so the
service has a separate process for each. It receives questions, {"address", "ask", …}, and answers
each, or sends a RayUnavailable or RayRefused.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import logging
import os
from collections.abc import Mapping, Sequence
from typing import Any

from evaluators import processes
from evaluators.ray.connection import RayClusterFacts, RayRefused, RayUnavailable

NAMESPACE = "autotune"
SENT = (
    "evaluators.processes",
    "evaluators.ray.keeper",
    "evaluators.ray.node",
)
"""Modules that are sent to the cluster by value, so that its nodes need no package of ours."""
NEEDED = ("torch", "deepspeed", "evaluators")


def connect(address: str) -> None:
    """Connect to this cluster.

    Raises:
        RayRefused: its version of Ray or Python differs.
        Exception: whatever Ray raises if nobody answers.
    """
    import ray

    for module in SENT:
        ray.cloudpickle.register_pickle_by_value(importlib.import_module(module))
    try:
        ray.init(
            address=address,
            namespace=NAMESPACE,
            log_to_driver=False,
            logging_level=logging.ERROR,
            configure_logging=False,
        )
    except RuntimeError as error:
        if "ersion mismatch" in str(error):
            raise RayRefused(" ".join(str(error).split())) from error
        raise


def sync(keeper: str, message: Mapping[str, Any], *, limit_s: float) -> dict[str, Any] | None:
    """Return the answer of the keeper of this name; None if there is none and none is needed.

    The keeper is created if something is to be submitted. A dead one counts as missing.
    """
    import ray
    from ray.exceptions import ActorDiedError

    from evaluators.ray.keeper import HEAD, TrialKeeper

    if message["submit"]:
        actor = (
            ray.remote(TrialKeeper)
            .options(
                name=keeper,
                namespace=NAMESPACE,
                lifetime="detached",
                get_if_exists=True,
                num_cpus=0,
                resources={HEAD: 0.001},
            )
            .remote()
        )
    else:
        try:
            actor = ray.get_actor(keeper, namespace=NAMESPACE)
        except ValueError:
            return None
    try:
        answer: dict[str, Any] = ray.get(actor.sync.remote(**message), timeout=limit_s)
        return answer
    except ActorDiedError:
        return None


def look(
    bundle: Mapping[str, float], packages: Sequence[str], *, limit_s: float
) -> RayClusterFacts:
    """Return the cluster's version and nodes, how many of them have such a bundle, and which of the
    packages such a node lacks. Without packages no process is started there."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    from evaluators.ray.keeper import fitting_nodes

    fitting = fitting_nodes(bundle)
    lacks: list[str] = []
    if fitting and packages:
        there = NodeAffinitySchedulingStrategy(fitting[0]["NodeID"], soft=False)
        find = ray.remote(lacking).options(num_cpus=0, scheduling_strategy=there)
        lacks = ray.get(find.remote(packages), timeout=limit_s)
    alive = [node for node in ray.nodes() if node["Alive"]]
    return RayClusterFacts(
        version=ray.__version__,
        nodes=tuple(node["Resources"] for node in alive),
        fitting=len(fitting),
        lacks=tuple(lacks),
    )


def lacking(packages: Sequence[str]) -> list[str]:
    return [name for name in packages if importlib.util.find_spec(name) is None]


def answer(question: Mapping[str, Any]) -> Any:
    """Return the answer to one question, or the exception to raise instead."""
    import ray

    limit_s = question["limit_s"]
    try:
        if not ray.is_initialized():
            connect(question["address"])
        if question["ask"] == "look":
            return look(question["bundle"], question["packages"], limit_s=limit_s)
        return sync(question["keeper"], question["message"], limit_s=limit_s)
    except RayRefused as error:
        return error
    except Exception as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        return RayUnavailable(reason[:500])


def main() -> None:
    """Answer questions until the connection is closed."""
    owner = processes.owner()
    with contextlib.suppress(EOFError, OSError):
        while True:
            owner.send(answer(owner.recv()))
    os._exit(0)  # Ray would take seconds to disconnect


if __name__ == "__main__":
    main()
