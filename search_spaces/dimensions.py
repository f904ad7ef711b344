"""The dimensions of a strategy: the one table that defines them.

`Strategy` has a field for each, and a test holds the two equal. Requests, forms, options, tables,
baselines, adapters and the cost model read the table. A dimension that is added here, with its
field and its rules, is therefore known everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal, TypeAlias, get_args

from search_spaces import automatic
from search_spaces.automatic import AutomaticFor
from search_spaces.machine import FP8, NARROW
from search_spaces.transformer import MODULES, RECOMPUTED_SETS, ActivationCheckpointing

Scalar: TypeAlias = int | float | bool | str
"""A value of a dimension; a fractional number only of a trainer's own dimension."""

LARGEST_WHOLE = 1_000_000

Part = Literal["layout", "batch", "switch", "nodes", "numbers"]
"""What a dimension decides: how a model is cut, how samples are, which kernels and schedules run,
how many nodes there are, or which numbers the training computes with."""

MemoryEffect = Literal["less", "more", "either", "derived"]
"""What a larger value does to a GPU's memory. `either`: it depends on the other dimensions.
`derived`: by the replicas, the micro-batches in flight or the columns that follow from it."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Dimension:
    """Definition of one dimension.

    Attributes:
        name: field of `Strategy`, requests and forms, and column of exports.
        short: heading of a column or an axis, and prefix of a number: `TP 8`.
        label: label of a form's field.
        sentence: description in the API's schema and in `--help`.
        option: name on the command line; empty if only `--set` sets it.
        keys: short names in a baseline: `tp=8`.
        hint: how values are written, next to a form's field.
        words: name in sentences; `short` if empty.
        meaning: plain words for the value 1 and for larger ones; {} is the value.
        noun: noun after a value in a sentence, plural if it is counted: `16 nodes`.
        part: what it decides.
        values: all possible values; empty for whole numbers from 1 to LARGEST_WHOLE.
        special: values that a trainer has only if it declares them.
        neutral: value that turns the dimension off; None if it cannot be off.
        default: value if none is given; None if a strategy must give one.
        usual: value that a form starts from.
        automatic: values of `"auto"`; None for the accumulation, which follows from all others.
        spares_memory: whether other values cost time and spare memory.
        divides_replicas: whether its GPUs share one replica of the model: the number of replicas is
            all GPUs over the product of these.
        divides_weights: whether each of these GPUs has a part of the weights.
        of_experts: whether only a model with experts has it. It is not shown if it has its default,
            as it always does in other models.
        memory: what a larger value does to a GPU's memory.
        distance: distance of a doubling (or of a switch's two values) for the calibration; None if
            the columns derived from it count instead.
        columns: columns of the cost model, each with the values for which it is 1; empty if the
            value itself is a column.
        megatron: options of Megatron-LM and Megatron-DeepSpeed, each with the value that it sets;
            None for the option's own value. "" is a line without any of them.
    """

    name: str
    short: str
    label: str
    sentence: str
    option: str = ""
    keys: tuple[str, ...] = ()
    hint: str = ""
    words: str = ""
    meaning: tuple[str, str] = ("", "")
    noun: str = ""
    part: Part
    values: tuple[Scalar, ...] = ()
    special: tuple[Scalar, ...] = ()
    neutral: Scalar | None
    default: Scalar | None = None
    usual: Scalar = 1
    automatic: Callable[[AutomaticFor], set[int] | tuple[Scalar, ...]] | None = None
    spares_memory: bool = False
    divides_replicas: bool = False
    divides_weights: bool = False
    of_experts: bool = False
    memory: MemoryEffect
    distance: float | None = None
    columns: Mapping[str, tuple[Scalar, ...]] = field(default_factory=lambda: MappingProxyType({}))
    megatron: Mapping[str, Scalar | None] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def head(self) -> str:
        return self.short[:1].upper() + self.short[1:]

    @property
    def is_switch(self) -> bool:
        return self.values == (False, True)

    @property
    def is_named(self) -> bool:
        return bool(self.values) and isinstance(self.values[0], str)

    @property
    def is_counted(self) -> bool:
        return not self.is_switch and not self.is_named

    @property
    def is_searched(self) -> bool:
        return self.default is None

    def short_value(self, value: Scalar) -> str:
        """Return a value in short: `TP 8`, `ZeRO-1`, `16 nodes`, `no SP`,
        `full recompute`."""
        if self.is_switch:
            return self.short if value else f"no {self.short}"
        if self.name == "num_nodes":
            return f"{value} node{'' if value == 1 else 's'}"
        if self.is_named:
            kind = "no" if value == "none" else str(value)
            return f"{kind} {self.short}" if self.noun else kind
        return f"{self.short}{'-' if self.values else ' '}{value}"

    def brief(self, value: Scalar) -> str:
        return "" if value == self.default and not self.is_named else self.short_value(value)

    def is_absent(self, value: Scalar) -> bool:
        return self.of_experts and value == self.default


def setting_text(value: Scalar) -> str:
    return ("on" if value else "off") if isinstance(value, bool) else str(value)


TABLE: tuple[Dimension, ...] = (
    Dimension(
        name="tensor_parallel",
        short="TP",
        label="Tensor parallel",
        sentence="GPUs over which each layer is split (TP).",
        option="--tp",
        keys=("tp",),
        hint="such as 1, 2, 4, 8",
        meaning=("no layer is split", "each layer is split over {} GPUs"),
        part="layout",
        neutral=1,
        automatic=automatic.tensor_parallel,
        divides_replicas=True,
        divides_weights=True,
        memory="less",
        distance=1.0,
        megatron={"": 1, "--tensor-model-parallel-size": None},
    ),
    Dimension(
        name="pipeline_parallel",
        short="PP",
        label="Pipeline parallel",
        sentence="Pipeline stages into which the layers are split (PP).",
        option="--pp",
        keys=("pp",),
        meaning=("there is no pipeline", "the layers form {} pipeline stages"),
        part="layout",
        neutral=1,
        automatic=automatic.pipeline_parallel,
        divides_replicas=True,
        divides_weights=True,
        memory="less",
        distance=1.0,
        megatron={"": 1, "--pipeline-model-parallel-size": None},
    ),
    Dimension(
        name="micro_batch_size",
        short="MBS",
        label="Micro-batch size",
        sentence="Samples per micro-batch (MBS).",
        option="--mbs",
        keys=("mbs",),
        hint="such as 4..20 step 4",
        part="batch",
        neutral=1,
        automatic=automatic.micro_batch_size,
        spares_memory=True,
        memory="more",
        distance=1.0,
        megatron={"--micro-batch-size": None},
    ),
    Dimension(
        name="gradient_accumulation_steps",
        short="GAS",
        label="Gradient accumulation steps",
        sentence="Micro-batches per replica and optimizer step (GAS).",
        option="--gas",
        keys=("gas",),
        part="batch",
        neutral=1,
        usual=8,
        memory="derived",
        distance=0.5,
    ),
    Dimension(
        name="zero_stage",
        short="ZeRO",
        label="ZeRO stage",
        sentence=(
            "States that ZeRO shards over the replicas: 0 none, 1 optimizer states, 2 also "
            "gradients, 3 also parameters."
        ),
        option="--zero",
        keys=("zero",),
        part="layout",
        values=(0, 1, 2, 3),
        neutral=0,
        automatic=lambda _: (0, 1, 2, 3),
        spares_memory=True,
        memory="less",
        megatron={"--zero-stage": None},
    ),
    Dimension(
        name="num_nodes",
        short="nodes",
        label="Nodes",
        sentence="Nodes to train on.",
        option="--num-nodes",
        keys=("nodes",),
        words="the number of nodes",
        noun="nodes",
        part="nodes",
        neutral=None,
        automatic=automatic.num_nodes,
        memory="derived",
        megatron={"--nnodes": None, "--num-nodes": None},
    ),
    Dimension(
        name="activation_checkpointing",
        short="recompute",
        label="Recomputation",
        sentence=(
            "Activations recomputed in the backward pass: none, the attention scores "
            "(selective), each whole layer (full), or parts of it such as layernorm+moe_act."
        ),
        option="--checkpointing",
        keys=("checkpointing", "ckpt"),
        hint="none, full",
        words="recomputation",
        noun="recomputation",
        part="switch",
        values=get_args(ActivationCheckpointing),
        special=RECOMPUTED_SETS,
        neutral="none",
        default="full",
        automatic=automatic.activation_checkpointing,
        spares_memory=True,
        memory="less",
        distance=2.0,
        columns={
            "full_checkpointing": ("full",),
            "selective_checkpointing": ("selective",),
            **{
                f"recompute_{module}": tuple(
                    each for each in RECOMPUTED_SETS if module in each.split("+")
                )
                for module in MODULES
            },
        },
        megatron={
            "": "none",
            "--recompute-granularity": None,
            "--recompute-activations": "selective",
            "--checkpoint-activations": "full",
            "--deepspeed-activation-checkpointing": "full",
        },
    ),
    Dimension(
        name="sequence_parallel",
        short="SP",
        label="Sequence parallel",
        sentence=(
            "Split norms and dropout along the sequence over the GPUs of a tensor-parallel "
            "group: on or off."
        ),
        option="--sequence-parallel",
        keys=("sp",),
        hint="on, off",
        words="sequence parallelism",
        part="switch",
        values=(False, True),
        neutral=False,
        default=False,
        automatic=lambda _: (False, True),
        spares_memory=True,
        memory="less",
        distance=2.0,
        megatron={"": False, "--sequence-parallel": True},
    ),
    Dimension(
        name="flash_attention",
        short="flash",
        label="Flash attention",
        sentence="Compute attention in one kernel that does not store the scores: on or off.",
        keys=("flash",),
        hint="on, off",
        words="FlashAttention",
        part="switch",
        values=(False, True),
        neutral=True,
        default=True,
        automatic=lambda _: (False, True),
        memory="less",
        distance=2.0,
        megatron={
            "--use-flash-attn": True,
            "--use-flash-attn-v1": True,
            "--use-flash-attn-v2": True,
            "--attention-backend auto": True,
            "--attention-backend flash": True,
            "--attention-backend fused": True,
            "--attention-backend local": False,
            "--attention-backend unfused": False,
        },
    ),
    Dimension(
        name="virtual_stages",
        short="VP",
        label="Virtual stages",
        sentence=("Chunks of layers per stage; more than one interleaves the pipeline (VP)."),
        keys=("vp",),
        part="layout",
        neutral=1,
        default=1,
        automatic=automatic.virtual_stages,
        memory="either",
        distance=1.0,
        megatron={
            "": 1,
            "--num-virtual-stages-per-pipeline-rank": None,
            "--virtual-pipeline-model-parallel-size": None,
        },
    ),
    Dimension(
        name="precision",
        short="precision",
        label="Precision",
        sentence=(
            "Number format of the matrix products: bf16, fp16, fp32, fp8 (delayed scaling), "
            "fp8_current, fp8_blockwise, mxfp8 or nvfp4."
        ),
        option="--precision",
        hint="fp32, bf16, fp16",
        part="numbers",
        values=("fp32", "bf16", "fp16", *NARROW),
        special=NARROW,
        neutral=None,
        default="bf16",
        automatic=automatic.precision,
        memory="either",
        distance=2.0,
        columns={
            "fp32": ("fp32",),
            "fp16": ("fp16",),
            "fp8": FP8,
            "mxfp8": ("mxfp8",),
            "nvfp4": ("nvfp4",),
        },
        megatron={"--bf16": "bf16", "--fp16": "fp16"},
    ),
    Dimension(
        name="context_parallel",
        short="CP",
        label="Context parallel",
        sentence="GPUs over which each sequence is split, in all layers (CP).",
        option="--cp",
        keys=("cp",),
        hint="such as 1, 2, 4",
        words="context parallelism",
        meaning=("", "each sequence is cut over {} GPUs"),
        part="layout",
        neutral=1,
        default=1,
        automatic=automatic.context_parallel,
        spares_memory=True,
        divides_replicas=True,
        memory="less",
        distance=1.0,
        megatron={"": 1, "--context-parallel-size": None},
    ),
    Dimension(
        name="expert_parallel",
        short="EP",
        label="Expert parallel",
        sentence="GPUs over which the experts of each layer are distributed (EP).",
        option="--ep",
        keys=("ep",),
        hint="such as 1, 8, 64",
        words="expert parallelism",
        meaning=("", "the experts are distributed over {} GPUs"),
        part="layout",
        neutral=1,
        default=1,
        automatic=automatic.expert_parallel,
        spares_memory=True,
        of_experts=True,
        memory="less",
        distance=1.0,
        megatron={"": 1, "--expert-model-parallel-size": None},
    ),
    Dimension(
        name="expert_tensor_parallel",
        short="ETP",
        label="Split of each expert",
        sentence="GPUs over which each expert is split (ETP).",
        keys=("etp",),
        hint="1, or as TP",
        words="expert tensor parallelism",
        meaning=("", "each expert is split over {} GPUs"),
        part="layout",
        neutral=None,  # a trainer without it splits experts over the GPUs of TP
        default=1,
        automatic=automatic.expert_tensor_parallel,
        spares_memory=True,
        of_experts=True,
        memory="either",
        distance=1.0,
        megatron={"--expert-tensor-parallel-size": None},
    ),
)

BY_NAME: Mapping[str, Dimension] = {dimension.name: dimension for dimension in TABLE}
DIMENSIONS = tuple(BY_NAME)
"""Names of the dimensions in the table; a trainer's own are not among them."""

ACCUMULATION = "gradient_accumulation_steps"
LAYOUT = tuple(name for name in DIMENSIONS if name != ACCUMULATION)
"""What one trial measures at one or two values of the accumulation."""

DIVIDING = tuple(d.name for d in TABLE if d.divides_replicas)
"""`num_nodes x gpus_per_node = data_parallel x` the product of these."""


def _place_in_line(dimension: Dimension) -> tuple[int, bool]:
    if dimension.default is None:
        return 0, False
    return 2 if dimension.brief(dimension.default) else 1, dimension.part != "layout"


IN_LINE = tuple(sorted(TABLE, key=_place_in_line))
"""In the order of a strategy's line: what is always searched, what may go without saying, the
rest."""

MEMORY_FOR_TIME = tuple(
    sorted(
        (d.name for d in reversed(TABLE) if d.spares_memory and not d.is_searched),
        key=lambda name: name == "expert_parallel",
    )
)
"""Dimensions that are fixed unless there is room to search them, in the order in which a space that
gets too large gives up searching them: expert parallelism last, without which few models with
experts fit."""


def in_order(dimension: str, values: Iterable[Scalar]) -> list[Scalar]:
    """Return values in ascending order, words in the order of their dimension."""
    definition, found = BY_NAME.get(dimension), list(values)
    if definition is not None and definition.is_named:
        return sorted(found, key=definition.values.index)
    return sorted(found, key=str if any(isinstance(each, str) for each in found) else float)


NEUTRAL: Mapping[str, Scalar] = {d.name: d.neutral for d in TABLE if d.neutral is not None}

OF_EXPERTS = tuple(d.name for d in TABLE if d.of_experts)
"""Dimensions that only a model with experts has."""
