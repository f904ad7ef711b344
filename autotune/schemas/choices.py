"""The words that options of commands choose among, apart from the models: no --help builds one."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Literal, get_args

EvaluatorName = Literal["simulated", "local", "slurm", "ray"]

Objective = Literal[
    "tokens_per_s", "tokens_per_s_per_gpu", "tokens_per_node_hour", "tokens_per_joule"
]
"""Metric that a campaign maximises. The last two are the inverse of the node-hours and of the
energy per token."""

TrainerName = Literal[
    "megatron-bridge", "megatron-lm", "megatron-deepspeed", "torchtitan", "transformers"
]
"""Trainer for which launch files are written."""

SearchMethod = Literal["calibrated", "deephyper", "random", "grid"]
"""Search method. `calibrated`: DeepHyper, by expected improvement, with the calibrated cost model
as its surrogate. `deephyper`: DeepHyper with its own surrogate. `random`: legal layouts at random.
`grid`: from the least model parallelism upward. DeepHyper and grid skip layouts that need as much
memory as one that ran out of it."""

ChosenBy = Literal["random", "grid", "surrogate"]
"""What chose a trial of another search than `calibrated`: chance, the order of the grid, or
DeepHyper's surrogate."""

Surrogate = Literal["forest", "gaussian_process"]
"""Surrogate of the search `deephyper`: extremely randomised trees, its default, or a Gaussian
process."""

ScalingKind = Literal["strong", "weak"]
"""`strong`: the same global batch on all nodes; `weak`: a batch in proportion to the nodes."""

FigureKind = Literal[
    "trajectory",
    "parts",
    "memory_parts",
    "impact",
    "map",
    "parallel",
    "pareto",
    "scaling",
    "knobs",
    "calibration",
]
"""`trajectory`: the search as it went. `parts`, `memory_parts`: where time and memory of the best
layouts go. `impact`: how much each dimension decides. `map`: the best rate for each TP and PP.
`parallel`: each trial through the values of all dimensions. `pareto`: the rate against nodes or
energy. `scaling`: the efficiency of a layout on more nodes. `knobs`: the gains of knobs.
`calibration`: predicted against measured time of each trial."""

FigureName = Literal[
    "trajectory",
    "parts",
    "memory_parts",
    "importance",
    "map",
    "parallel_coordinates",
    "pareto_front",
    "scaling",
    "knobs",
    "calibration",
    "impact",
    "parallel",
    "pareto",
]
"""How a request names a figure: by the name that people know, or by its older kind."""

FIGURE_NAMES: Mapping[FigureKind, FigureName] = {
    "impact": "importance",
    "parallel": "parallel_coordinates",
    "pareto": "pareto_front",
}
"""The names of kinds that have another one."""


def figure_kind(name: FigureName) -> FigureKind:
    """Return the kind of the figure with this name, which may be the kind itself."""
    return next(kind for kind in get_args(FigureKind) if name in (kind, FIGURE_NAMES.get(kind)))


FigureScheme = Literal["light", "dark"]

ParetoCost = Literal["num_nodes", "joules_per_token"]

ProgressAxis = Literal["trial", "node_hours"]
"""What the progress of several campaigns is drawn over."""

UserScope = Literal["read", "submit", "admin"]
"""Scope of a user, each including those before it: `read` sees the group's campaigns; `submit`
creates campaigns and changes its own; `admin` changes all and manages users."""


class CampaignState(StrEnum):
    """`queued` waits for a runner; `running` and `confirming` are active; the others are at
    rest. `imported` are earlier runs, of which nothing was searched."""

    QUEUED = "queued"
    RUNNING = "running"
    CONFIRMING = "confirming"
    PAUSED = "paused"
    DONE = "done"
    CANCELLED = "cancelled"
    FAILED = "failed"
    IMPORTED = "imported"


class TrialState(StrEnum):
    """`pending` is stored but not finished; the others are final."""

    PENDING = "pending"
    OK = "ok"
    OOM = "oom"
    TIMEOUT = "timeout"
    CRASHED = "crashed"
    NODE_FAIL = "node_fail"
    PREEMPTED = "preempted"
    REFUSED = "refused"
    CANCELLED = "cancelled"
    LOST = "lost"
