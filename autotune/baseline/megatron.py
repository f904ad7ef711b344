"""Arguments of programs on Megatron Core, read as a layout: a line of options of Megatron-LM,
Megatron-DeepSpeed or ms-swift (`megatron sft`), or overrides of NeMo and Megatron-Bridge
(`model.tensor_model_parallel_size=8`).

Options that are not given have the program's own defaults (Megatron-LM d98e8a64, ms-swift
3602360a). A recipe of NeMo or Megatron-Bridge has its own, which nobody can see here: they come
from the space.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from itertools import takewhile

from autotune.baseline.stages import (
    EMBEDDING,
    FIRST,
    LAST,
    LAYOUT,
    LOSS,
    STAGE_OPTIONS,
    UnreadStages,
    chunks_of_layout,
    in_words,
    stated_chunks,
)
from autotune.baseline.statement import (
    BATCH,
    FIELD,
    FORMS,
    KEYS,
    SWITCH_WORDS,
    LayoutStatement,
    read_value,
    statement,
    words_of,
)
from autotune.cost_model.columns import RECOMPUTED_LAYERS
from search_spaces.dimensions import TABLE, Scalar
from search_spaces.errors import InvalidInput, suggestion
from search_spaces.stages import chunk_layers
from search_spaces.transformer import RECOMPUTED_SETS, Transformer

OPTIONS: Mapping[str, tuple[str, Scalar | None]] = {
    "--global-batch-size": (BATCH, None),
    **{
        option: (dimension.name, value)
        for dimension in TABLE
        for option, value in dimension.megatron.items()
        if option
    },
}
"""Option, or option and value -> dimension and what it means for it; None: the option's value."""

OTHER_NAMES: Mapping[str, str] = {
    "--activations-checkpoint-granularity": "--recompute-granularity",
    "--activations-checkpoint-method": "--recompute-method",
    "--activations-checkpoint-num-layers": "--recompute-num-layers",
    "--fp8": "--fp8-format",
    "--fp4": "--fp4-format",
    "--use-custom-fsdp": "--use-megatron-fsdp",
    "--num-layers-in-first-pipeline-stage": FIRST,
    "--num-layers-in-last-pipeline-stage": LAST,
}
"""Names of NeMo, of Megatron Core's configuration and of earlier releases."""

LAYERS_OF_STAGE = "--num-layers-per-virtual-pipeline-stage"
MODEL: Mapping[str, str] = {
    "--num-layers": "num_layers",
    "--hidden-size": "hidden_size",
    "--num-attention-heads": "num_attention_heads",
    "--kv-channels": "head_dim",
    "--ffn-hidden-size": "ffn_hidden_size",
    "--seq-length": "seq_length",
    "--num-query-groups": "num_query_groups",
    "--num-key-value-heads": "num_query_groups",
    "--num-experts": "experts.num_experts",
    "--moe-router-topk": "experts.top_k",
    "--moe-ffn-hidden-size": "experts.ffn_hidden_size",
    "--moe-shared-expert-intermediate-size": "experts.shared_ffn_hidden_size",
    "--kv-lora-rank": "latent_attention.kv_rank",
    "--q-lora-rank": "latent_attention.q_rank",
    "--qk-head-dim": "latent_attention.qk_head_dim",
    "--qk-pos-emb-head-dim": "latent_attention.rope_head_dim",
    "--v-head-dim": "latent_attention.v_head_dim",
    "--mtp-num-layers": "mtp_layers",
}
"""Option -> the attribute of `Transformer` that it has to equal."""
WITHOUT = frozenset({"0", "1"})
"""Values of an option of MODEL for a model without what it describes: `--num-experts 1`."""

MODULES, ATTENTION_SCORES = "--recompute-modules", "core_attn"
METHOD, FIRST_LAYERS = "--recompute-method", "--recompute-num-layers"
FP8, FP8_RECIPE, FP4 = "--fp8-format", "--fp8-recipe", "--fp4-format"
FP8_RECIPES: Mapping[str, str] = {
    "": "fp8",
    "delayed": "fp8",
    "tensorwise": "fp8_current",
    "blockwise": "fp8_blockwise",
    "mxfp8": "mxfp8",
}
"""Value of FP8_RECIPE -> precision, where FP8 is given; "": without the option."""
PRECISION_NAMES = ("--precision", "--mixed-precision")
PRECISIONS: Mapping[str, str] = {
    "32": "fp32",
    "32-true": "fp32",
    "16": "fp16",
    "16-mixed": "fp16",
    "bf16": "bf16",
    "bf16-mixed": "bf16",
    "fp16_mixed": "fp16",
    "bf16_mixed": "bf16",
    "bf16_with_fp8_delayed_scaling_mixed": "fp8",
    "bf16_with_fp8_current_scaling_mixed": "fp8_current",
    "bf16_with_fp8_subchannel_scaling_mixed": "fp8_blockwise",
    "bf16_with_mxfp8_mixed": "mxfp8",
    "bf16_with_nvfp4_mixed": "nvfp4",
}
"""Value of NeMo's `trainer.precision` or Megatron-Bridge's `mixed_precision` -> precision."""

DEEPSPEED = "--deepspeed"
"""With it and without `--zero-stage`, the stage is in a file that only the user has."""
MEGATRON_FSDP, SHARDING = "--use-megatron-fsdp", "--data-parallel-sharding-strategy"
TORCH_FSDP, KEEPS_WEIGHTS = "--use-torch-fsdp2", "--torch-fsdp2-no-reshard-after-forward"
DISTRIBUTED_OPTIMIZER = "--use-distributed-optimizer"
SHARDED: Mapping[str, int] = {
    "no_shard": 0,
    "optim": 1,
    "optim_grads": 2,
    "optim_grads_params": 3,
}
"""Value of SHARDING, which only Megatron FSDP reads -> ZeRO stage."""

READ_TOGETHER = frozenset(
    {
        *(LAYERS_OF_STAGE, *STAGE_OPTIONS, MODULES, METHOD, FIRST_LAYERS),
        *(FP8, FP8_RECIPE, FP4, *PRECISION_NAMES),
        *(DEEPSPEED, MEGATRON_FSDP, SHARDING, TORCH_FSDP, KEEPS_WEIGHTS, DISTRIBUTED_OPTIMIZER),
        "--no-pipeline-parallel",
    }
)
"""Options whose meaning depends on others."""
KNOWN = (*(option.split()[0] for option in OPTIONS), *READ_TOGETHER, *MODEL)
ABOUT_LAYOUT = re.compile(r"parallel|zero|micro-batch|global-batch|recompute|checkpoint-act")
ALIKE = 0.85
"""Similarity from which an unknown option is treated as a misspelling of a known one."""

INERT = re.compile(
    r"""--(no-)?(
    # the launcher
    nproc[-_]per[-_]node|node-rank|master-(addr|port)|rdzv-.*|standalone|max-restarts|hostfile
    |num-gpus|devices|ntasks.*|local-rank|distributed-(backend|timeout-minutes)|ddp-(timeout|backend)
    # data and tokenizer
    |((train|valid|test|data|per-split-data-args|data-args|data-cache)-)?data-(path|args-path|cache-path)
    |data-path|per-split-data-args-path|mock-data|split|dataset.*|dataloader-.*|num-workers
    |num-dataset-builder-threads|split-dataset-ratio|load-from-cache-file|streaming
    |create-attention-mask-in-dataloader|mmap-bin-files|reset-(position-ids|attention-mask)|eod-mask-loss
    |tokenizer-.*|vocab-.*|merge-file|make-vocab-size-divisible-by|tiktoken-.*|trust-remote-code
    # logs, checkpoints on disk
    |log-(?!params-norm|num-zeros-in-grad|max-attention-logit).*|logging-.*|timing-log-.*
    |tensorboard-.*|wandb-.*|swanlab-.*|report-to|one-logger.*|enable-one-logger|app-tag-.*|name
    |save|save-.*|load|load-.*|ckpt-.*|dist-ckpt-.*|use-dist-ckpt|async-save|finetune|output-dir
    |pretrained-checkpoint|exit-.*|auto-detect-ckpt-format|use-checkpoint-.*|use-mp-args-from-.*
    |override-opt.*|non-persistent-.*|use-persistent-ckpt-worker|max-shard-size|check-model|use-hf
    # schedule, optimizer's numbers, initial weights
    |seed|lr|lr-.*|min-lr|train-(iters|samples|tokens)|num-train-epochs|max-(steps|epochs)|eval-.*
    |(start-|end-)?weight-decay(-incr-style)?|clip-grad|adam-.*|sgd-momentum|decoupled-.*|warmup
    |(initial-|min-)?loss-scale(-window)?|hysteresis|init-method.*|use-cpu-initialization
    |perform-initialization
    # the model's own description
    |model|model-type|use-mcore-models|spec|swiglu|squared-relu|quick-geglu|openai-gelu|normalization
    |(layer)?norm-epsilon|apply-layernorm-1p|position-embedding(-type)?|use-rotary-position-embeddings
    |rotary-.*|rope-(?!fusion).*|use-rope-scaling|mscale.*|untie-embeddings-and-output-weights
    |disable-bias-linear|add-qkv-bias|qk-layernorm|group-query-attention|max-position-embeddings
    |mamba-.*|activation-func-clamp-value|glu-linear-offset|yarn-.*|softmax-type|moe-shared-expert-gate
    |multi-latent-attention|moe-layer-freq|window-.*|hybrid-.*pattern|mtp-loss-scaling-factor
    |moe-(aux|z)-loss-coeff|moe-router-(score-function|enable-expert-bias|bias-update-rate|dtype
    |load-balancing-type|num-groups|group-topk|pre-softmax|topk-scaling-factor)
    )""",
    re.VERBOSE,
)
"""Options without effect on time or memory of a layout, or that describe the model."""
DROPOUTS = frozenset({"--attention-dropout", "--hidden-dropout"})

OVERRIDE = re.compile(r"\+{0,2}([a-z]\w*(?:\.\w+)*)=(.*)", re.DOTALL)
"""A key of a configuration and its value; variables of the environment are in capitals."""
OFF = frozenset({"0", "null", "none", *(word for word, on in SWITCH_WORDS.items() if not on)})


@dataclass(frozen=True)
class LineReader:
    """A program that reads such a line.

    Attributes:
        defaults: values of dimensions that the line does not name.
        sharding: default of SHARDING.
        splits_experts: whether `expert_tensor_parallel` is `tensor_parallel` by default.
    """

    defaults: Mapping[str, Scalar]
    sharding: str
    splits_experts: bool = False


_WITHOUT_OPTIONS: Mapping[str, Scalar] = {
    dimension.name: value
    for dimension in TABLE
    if (value := dimension.megatron.get("")) is not None
}
MEGATRON = LineReader(
    defaults={**_WITHOUT_OPTIONS, "zero_stage": 0, "precision": "fp32"},
    sharding="no_shard",
    splits_experts=True,
)
SWIFT = LineReader(
    defaults={
        **_WITHOUT_OPTIONS,
        "micro_batch_size": 1,
        "zero_stage": 1,
        "activation_checkpointing": "selective",
        "expert_tensor_parallel": 1,
    },
    sharding="optim_grads_params",
)
RECIPE = LineReader(defaults={}, sharding="optim_grads_params")
FP32 = "neither --bf16 nor --fp16 is given, so Megatron trains in fp32"
STARTS_SWIFT = re.compile(r"\bmegatron\s+(sft|pt|rlhf)\b")


@dataclass(frozen=True)
class Option:
    """An option as it stands in a line.

    Attributes:
        flag: its name in the form of Megatron-LM: `--tensor-model-parallel-size`.
        key: its name as written, where it is an override: `model.tensor_model_parallel_size`.
    """

    flag: str
    value: str
    key: str = ""

    @property
    def shown(self) -> str:
        return f"{self.key}={self.value}" if self.key else f"{self.flag} {self.value}".strip()

    @property
    def is_on(self) -> bool:
        return self.value.lower() not in OFF


def is_arguments(text: str) -> bool:
    """Return whether a text is a line of arguments or overrides, not `tp=8,pp=4`."""
    return any(
        not option.key
        or "." in option.key
        or (option.flag in KNOWN and option.key.lower() not in KEYS)
        for option in _options(text)
    )


def arguments(text: str, transformer: Transformer) -> LayoutStatement:
    """Parse a line of arguments, with or without a launcher.

    Raises:
        InvalidInput: field `baseline`: an impossible value, a misspelt option of the layout, stages
            that no strategy has, or another model.
    """
    given = {option.flag: option for option in _options(text)}
    values, unread = _each(given.values(), transformer, text=text)
    program = _program(text, given.values())
    together = _sharding(given, values, program, text=text) | _precision(given, text=text)
    if not (values or together or MODULES in given):
        reason = "none of these arguments says how a model is laid out"
        raise InvalidInput(FIELD, text, reason, valid=FORMS)
    whole = {**program.defaults, **values, **together}
    if DEEPSPEED in given and "zero_stage" not in values:
        whole.pop("zero_stage", None)
    if program.splits_experts and transformer.experts:
        whole.setdefault("expert_tensor_parallel", whole["tensor_parallel"])
    if whole.get("tensor_parallel") == 1 and whole.get("sequence_parallel"):
        whole["sequence_parallel"] = False  # as these programs do, with a warning
    if LAYERS_OF_STAGE in given:
        whole["virtual_stages"] = _virtual_stages(given, whole, transformer, text=text)
    virtual, moved = _stages(given, whole, transformer, text=text)
    whole |= virtual
    whole |= _recomputation(given, whole, text=text)
    by_default = whole.get("precision") == "fp32" and "precision" not in values | together
    read = statement(
        whole,
        unread=(*unread, *_unread_chunks(given, whole), *_unread_scores(given)),
        notes=(*((FP32,) if by_default else ()), *moved),
    )
    first = _first_layers(given, whole, transformer, text=text)
    return replace(read, settings={RECOMPUTED_LAYERS: first}) if first else read


def _each(
    given: Iterable[Option], transformer: Transformer, *, text: str
) -> tuple[dict[str, Scalar], list[str]]:
    values: dict[str, Scalar] = {}
    unread: list[str] = []
    for option in given:
        if meant := _meaning(option):
            name, means = meant
            if means is None:
                values[name] = read_value(name, option.value, shown=option.shown, text=text)
            elif option.is_on:
                values[name] = means
        elif option.flag in MODEL:
            _check_model(option, transformer, text=text)
        elif option.flag not in READ_TOGETHER and not _is_inert(option):
            _refuse_slip(option, text=text)
            unread.append(option.shown)
    return values, unread


def _program(text: str, given: Iterable[Option]) -> LineReader:
    if STARTS_SWIFT.search(text):
        return SWIFT
    return RECIPE if any(option.key for option in given) else MEGATRON


def _options(text: str) -> Iterator[Option]:
    """Yield each option with its value, "" if it has none; only MODULES keeps several. Other words
    are skipped, and so are overrides with `null`."""
    words = words_of(re.sub(r",(?=\s*[a-z][\w.]*=)", " ", text))
    for number, word in enumerate(words, start=1):
        override = OVERRIDE.fullmatch(word)
        if override and override[2].lower() != "null":
            yield Option(_flag(override[1].rpartition(".")[2]), override[2], override[1])
        elif word.startswith("--"):
            name, equals, value = word[2:].partition("=")
            flag = _flag(name)
            values = [value] if equals else list(takewhile(_is_value, words[number:]))
            positive = flag.replace("--no-", "--")
            if positive in OPTIONS and flag not in OPTIONS:
                yield Option(positive, "false")
            else:
                yield Option(flag, " ".join(values if flag == MODULES else values[:1]))


def _is_value(word: str) -> bool:
    return not word.startswith("--") and OVERRIDE.fullmatch(word) is None


def _flag(name: str) -> str:
    flag = "--" + name.lower().replace("_", "-")
    return OTHER_NAMES.get(flag, flag)


def _meaning(option: Option) -> tuple[str, Scalar | None] | None:
    if option.key.lower() in KEYS:
        return KEYS[option.key.lower()], None
    return OPTIONS.get(option.flag) or OPTIONS.get(f"{option.flag} {option.value}")


def _is_inert(option: Option) -> bool:
    if option.flag in DROPOUTS:
        return option.value.strip("0") in {"", "."}
    return INERT.fullmatch(option.flag) is not None


def _refuse_slip(option: Option, *, text: str) -> None:
    """Refuse an option whose name is close to that of a layout option: it is probably misspelt.

    `--eval-micro-batch-size` contains such a name, and is another option.
    """
    if not ABOUT_LAYOUT.search(option.flag):
        return
    near = get_close_matches(option.flag, KNOWN, n=1, cutoff=ALIKE)
    if near and near[0].removeprefix("--") not in option.flag:
        reason = f"not read: {option.shown}{suggestion(near)}"
        raise InvalidInput(FIELD, text, reason, valid=near[0])


def _check_model(option: Option, transformer: Transformer, *, text: str) -> None:
    part, _, attribute = MODEL[option.flag].rpartition(".")
    described = getattr(transformer, part) if part else transformer
    ours = getattr(described, attribute, None)
    if option.value != str(ours) and not (ours is None and option.value in WITHOUT):
        has = "none" if ours is None else ours
        reason = f"{option.shown}: {transformer.name} has {has}"
        raise InvalidInput(FIELD, text, reason, valid="the arguments of the campaign's model")


def _sharding(
    given: Mapping[str, Option], values: Mapping[str, Scalar], program: LineReader, *, text: str
) -> dict[str, Scalar]:
    if "zero_stage" in values:
        return {}
    if _is_on(given, TORCH_FSDP):
        return {"zero_stage": 2 if _is_on(given, KEEPS_WEIGHTS) else 3}
    if _is_on(given, MEGATRON_FSDP):
        strategy = given[SHARDING].value if SHARDING in given else program.sharding
        if strategy not in SHARDED:
            reason = f"{given[SHARDING].shown}: there is no such strategy"
            raise InvalidInput(FIELD, text, reason, valid=", ".join(SHARDED))
        return {"zero_stage": SHARDED[strategy]}
    if DISTRIBUTED_OPTIMIZER in given:
        return {"zero_stage": int(given[DISTRIBUTED_OPTIMIZER].is_on)}
    return {}


def _is_on(given: Mapping[str, Option], flag: str) -> bool:
    return flag in given and given[flag].is_on


def _precision(given: Mapping[str, Option], *, text: str) -> dict[str, Scalar]:
    """Return a precision set by options other than `--bf16` and `--fp16`; empty without one."""
    if _is_on(given, FP4):
        return {"precision": "nvfp4"}
    if _is_on(given, FP8):
        recipe = given.get(FP8_RECIPE, Option(FP8_RECIPE, ""))
        return {"precision": _one_of(FP8_RECIPES, recipe, text=text)}
    for name in PRECISION_NAMES:
        if name in given:
            return {"precision": _one_of(PRECISIONS, given[name], text=text)}
    return {}


def _one_of(meanings: Mapping[str, str], option: Option, *, text: str) -> str:
    if option.value not in meanings:
        reason = f"not read: {option.shown} (no known precision)"
        raise InvalidInput(FIELD, text, reason, valid=", ".join(filter(None, meanings)))
    return meanings[option.value]


def _recomputation(
    given: Mapping[str, Option],
    whole: Mapping[str, Scalar],
    *,
    text: str,
) -> dict[str, Scalar]:
    granularity = whole.get("activation_checkpointing")
    modules = given.get(MODULES)
    if granularity == "selective" or (granularity is None and modules):
        return {"activation_checkpointing": _recomputed(modules, text=text)}
    return {}


def _recomputed(modules: Option | None, *, text: str) -> Scalar:
    named = _modules(modules)
    if modules is None or named <= {ATTENTION_SCORES}:
        return "selective"
    for each in RECOMPUTED_SETS:
        if set(each.split("+")) == named - {ATTENTION_SCORES}:
            return each
    valid = ", ".join((ATTENTION_SCORES, *(each.replace("+", " ") for each in RECOMPUTED_SETS)))
    reason = f"not read: {modules.shown} (activation_checkpointing has no such set)"
    raise InvalidInput(FIELD, text, reason, valid=valid)


def _modules(option: Option | None) -> set[str]:
    return set(re.findall(r"\w+", option.value)) if option else set()


def _unread_scores(given: Mapping[str, Option]) -> list[str]:
    """Return the scores where other modules are recomputed, too, which no value says."""
    modules = _modules(given.get(MODULES))
    return [f"{MODULES} {ATTENTION_SCORES}"] if modules > {ATTENTION_SCORES} else []


def _first_layers(
    given: Mapping[str, Option],
    whole: Mapping[str, Scalar],
    transformer: Transformer,
    *,
    text: str,
) -> int:
    """Return how many layers of each virtual stage are recomputed, the others not; 0 for all."""
    is_block = METHOD in given and given[METHOD].value == "block"
    if whole.get("activation_checkpointing") != "full" or not is_block:
        return 0
    layers = given.get(FIRST_LAYERS, Option(FIRST_LAYERS, ""))
    if not layers.value.isdecimal() or not int(layers.value):
        reason = f"not read: {given[METHOD].shown} {layers.shown} (no number of layers)"
        raise InvalidInput(FIELD, text, reason, valid="a number of layers of each stage from 1")
    chunks = int(whole.get("pipeline_parallel", 1)) * int(whole.get("virtual_stages", 1))
    longest = max(chunk_layers(transformer.num_layers, chunks, mtp_layers=transformer.mtp_layers))
    return int(layers.value) if int(layers.value) < longest else 0


def _unread_chunks(given: Mapping[str, Option], whole: Mapping[str, Scalar]) -> list[str]:
    layers = given.get(FIRST_LAYERS)
    is_uniform = METHOD not in given or given[METHOD].value == "uniform"
    if whole.get("activation_checkpointing") != "full" or layers is None or not is_uniform:
        return []
    return [layers.shown] if layers.value != "1" else []


def _virtual_stages(
    given: Mapping[str, Option],
    whole: Mapping[str, Scalar],
    transformer: Transformer,
    *,
    text: str,
) -> int:
    option = given[LAYERS_OF_STAGE]
    per_stage = int(read_value("virtual_stages", option.value, shown=option.shown, text=text))
    layers = transformer.num_layers + _is_on(given, EMBEDDING) + _is_on(given, LOSS)
    stages = int(whole.get("pipeline_parallel", 1))
    chunks, rest = divmod(layers, per_stage * stages)
    if rest or not chunks:
        reason = (
            f"{option.shown}: {layers} layers are not divisible by "
            f"pipeline_parallel {stages} x {per_stage}"
        )
        raise InvalidInput(FIELD, text, reason, valid=f"a divisor of {layers // stages}")
    return chunks


def _stages(
    given: Mapping[str, Option],
    whole: Mapping[str, Scalar],
    transformer: Transformer,
    *,
    text: str,
) -> tuple[dict[str, Scalar], tuple[str, ...]]:
    """Return the virtual stages of a layout, and a note where a strategy's stages are others whose
    fullest is as long; refuse layers of stages that no strategy has."""
    stated = {name: given[name].value for name in STAGE_OPTIONS if _is_on(given, name)}
    if not stated:
        return {}, ()
    stages, virtual = (int(whole.get(n, 1)) for n in ("pipeline_parallel", "virtual_stages"))
    layers, reason = transformer.num_layers, "no strategy has such stages"
    found: tuple[int, ...] | None = None
    try:
        if LAYOUT in stated:
            virtual = max(len(chunks_of_layout(stated[LAYOUT])) // stages, 1)
        found = stated_chunks(stated, num_layers=layers, stages=stages, virtual_stages=virtual)
    except UnreadStages as problem:
        reason = str(problem)
    ours = chunk_layers(layers, stages * virtual, mtp_layers=transformer.mtp_layers)
    if found == ours:
        return {"virtual_stages": virtual}, ()
    if found and _alike(found, stages) == _alike(ours, stages):
        note = f"stages of {in_words(found)} layers are compared as {in_words(ours)}"
        return {"virtual_stages": virtual}, (note,)
    shown = " ".join(given[name].shown for name in stated)
    valid = f"stages of {in_words(ours)} layers"
    raise InvalidInput(FIELD, text, f"not read: {shown} ({reason})", valid=valid)


def _alike(chunks: Sequence[int], stages: int) -> tuple[int, int, int]:
    """Return what stages have to agree in: chunks, layers, and layers of the fullest stage."""
    fullest = max(sum(chunks[stage::stages]) for stage in range(stages))
    return len(chunks), sum(chunks), fullest
