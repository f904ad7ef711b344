"""The process that talks to one Ray cluster: `python -m evaluators.ray.driver SOCKET PARENT`.

Ray ends a process whose head has died, and a process can connect to only one cluster, so the
service has a separate process for each. It reads one JSON object a line, {"address", "ask", …}, and
answers each with {"answer": …} or {"fault": "unreachable" | "refused", "reason": …}.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import logging
import os
import socket
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from evaluators import processes

NAMESPACE = "autotune"
SENT = (
    "evaluators.log_limit",
    "evaluators.processes",
    "evaluators.ray.keeper",
    "evaluators.ray.node",
)
"""Modules that are sent to the cluster by value, so that its nodes need no package of ours."""
NEEDED = ("torch", "deepspeed", "evaluators")


class Refused(Exception):
    """Ray refuses for a permanent reason."""


def connect(address: str) -> None:
    """Connect to this cluster.

    Raises:
        Refused: its version of Ray or Python differs.
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
            raise Refused(" ".join(str(error).split())) from error
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
        return _plain(ray.get(actor.sync.remote(**_bytes(message)), timeout=limit_s))
    except ActorDiedError:
        return None


def look(bundle: Mapping[str, float], packages: Sequence[str], *, limit_s: float) -> dict[str, Any]:
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
    return {
        "version": ray.__version__,
        "nodes": [node["Resources"] for node in alive],
        "fitting": len(fitting),
        "lacks": lacks,
    }


def lacking(packages: Sequence[str]) -> list[str]:
    """Return the packages that a node's Python lacks."""
    return [name for name in packages if importlib.util.find_spec(name) is None]


def _bytes(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return the message with the content of files as bytes."""
    submit = [
        (name, work | {kind: _encoded(work[kind]) for kind in ("files", "shared")})
        for name, work in message["submit"]
    ]
    return {**message, "submit": submit}


def _encoded(files: Mapping[str, str]) -> dict[str, bytes]:
    return {name: content.encode("latin-1") for name, content in files.items()}


def _plain(answer: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    """Return the answer with bytes as text, one character per byte."""
    for report in answer.values():
        report["log"] = report["log"].decode("latin-1")
        files = report.get("files", {})
        report["files"] = {name: content.decode("latin-1") for name, content in files.items()}
    return dict(answer)


def answer(question: Mapping[str, Any]) -> dict[str, Any]:
    """Return the answer to one question, or the fault that prevented it."""
    import ray

    limit_s = question["limit_s"]
    try:
        if not ray.is_initialized():
            connect(question["address"])
        if question["ask"] == "look":
            return {"answer": look(question["bundle"], question["packages"], limit_s=limit_s)}
        return {"answer": sync(question["keeper"], question["message"], limit_s=limit_s)}
    except Refused as error:
        return {"fault": "refused", "reason": str(error)}
    except Exception as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        return {"fault": "unreachable", "reason": reason[:500]}


def main() -> None:
    """Answer questions until the socket is closed."""
    descriptor, parent = int(sys.argv[1]), int(sys.argv[2])
    processes.die_with(parent)
    owner = socket.socket(fileno=descriptor)
    with owner.makefile("rb") as questions:
        for line in questions:
            owner.sendall((json.dumps(answer(json.loads(line))) + "\n").encode())
    os._exit(0)  # Ray would take seconds to disconnect


if __name__ == "__main__":
    main()
