"""A layout as a user writes it: `tp=8,pp=4,mbs=1,zero=1`, or the arguments of Megatron-LM's or
Megatron-DeepSpeed's `pretrain_gpt.py`.

Missing options take these programs' defaults: no tensor or pipeline parallelism, no recomputation,
no sharded optimizer, experts split as all other weights. Options that do not affect the layout are
ignored.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches

from search_spaces.choices import describe_valid, values_of
from search_spaces.dimensions import BY_NAME, DIMENSIONS, TABLE, Scalar
from search_spaces.errors import InvalidInput, closest, suggestion
from search_spaces.transformer import RECOMPUTED_SETS, Transformer

FIELD = "baseline"
BATCH = "global_batch_size"
EXAMPLE = "tp=8,pp=4,mbs=1,zero=1"
FORMS = f'such as "{EXAMPLE}", a line of Megatron\'s arguments, or "none"'

SHORT: Mapping[str, str] = {
    **{key: dimension.name for dimension in TABLE for key in dimension.keys},
    "gbs": BATCH,
    "global_batch": BATCH,
}
KEYS: Mapping[str, str] = {**SHORT, **{name: name for name in (*DIMENSIONS, BATCH)}}
"""What may stand before `=`, and what it means."""

SWITCH_WORDS = {"on": True, "true": True, "yes": True, "off": False, "false": False, "no": False}


@dataclass(frozen=True, kw_only=True)
class LayoutStatement:
    """The dimensions of a layout that the user named.

    Attributes:
        global_batch_size: samples of one optimizer step, if named.
        settings: dimensions of the trainer's own, as written.
    """

    dimensions: Mapping[str, Scalar] = field(default_factory=dict)
    global_batch_size: int | None = None
    settings: Mapping[str, Scalar] = field(default_factory=dict)


def words_of(text: str) -> list[str]:
    """Split a line into words as a shell would. Raises InvalidInput."""
    try:
        return shlex.split(text.replace("\\\n", " "))
    except ValueError as error:
        reason = f"it cannot be split into words: {str(error).lower()}"
        raise InvalidInput(FIELD, text, reason, valid=FORMS) from None


def key_values(text: str, *, own: Collection[str] = ()) -> LayoutStatement:
    """Parse `tp=8,pp=4,mbs=1,zero=1`, separated by commas or spaces, in any order.

    Args:
        own: names of dimensions of the trainer's own.

    Raises:
        InvalidInput: field `baseline`: not a pair, an unknown key, a repeated key, or a value that
            its dimension cannot have.
    """
    pairs = words_of(text.replace(",", " "))
    if not pairs:
        raise InvalidInput(FIELD, text, "nothing is said of a layout", valid=FORMS)
    said: dict[str, Scalar] = {}
    settings: dict[str, Scalar] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals:
            raise InvalidInput(FIELD, text, f"{pair!r} is no key=value", valid=FORMS)
        name = key if key in own else _meaning(key, text)
        if name in said or name in settings:
            reason = f"{key} is given twice"
            raise InvalidInput(FIELD, text, reason, valid="each key once")
        if name in own:
            settings[name] = value
        else:
            said[name] = read_value(name, value, shown=f"{key}={value}", text=text)
    return replace(statement(said), settings=settings)


def statement(said: Mapping[str, Scalar]) -> LayoutStatement:
    """Return dimensions, which may include a global batch size, as a statement."""
    batch = said.get(BATCH)
    return LayoutStatement(
        dimensions={name: value for name, value in said.items() if name != BATCH},
        global_batch_size=None if batch is None else int(batch),
    )


def _meaning(key: str, text: str) -> str:
    name = KEYS.get(key.strip().lower().replace("-", "_"))
    if name is None:
        meant = suggestion(closest(key, KEYS, count=1))
        reason = f"{key!r} is no dimension of a layout{meant}"
        raise InvalidInput(FIELD, text, reason, valid=", ".join(SHORT))
    return name


def read_value(name: str, value: str, *, shown: str, text: str) -> Scalar:
    """Return the value of a dimension or of the global batch size.

    Args:
        shown: the value as the user wrote it, for the error.
        text: everything that the user wrote.

    Raises:
        InvalidInput: field `baseline`: the dimension has no such value.
    """
    # A batch is a number of samples, as a micro-batch is.
    dimension = BY_NAME["micro_batch_size" if name == BATCH else name]
    read: Scalar = value.lower()
    if dimension.is_switch:
        read = SWITCH_WORDS.get(value.lower(), value)
    elif dimension.is_counted:
        read = int(value) if value.isascii() and value.isdigit() else value
    try:
        values_of(dimension.name, read)
    except InvalidInput:
        reason = f"{shown}: this is no value of {name}"
        raise InvalidInput(FIELD, text, reason, valid=describe_valid(dimension.name)) from None
    return read


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
DEFAULTS: Mapping[str, Scalar] = {
    dimension.name: value
    for dimension in TABLE
    if (value := dimension.megatron.get("")) is not None
}
MODULES, ATTENTION_SCORES = "--recompute-modules", "core_attn"
FP8_RECIPES: Mapping[str, str] = {
    "": "fp8",
    "delayed": "fp8",
    "tensorwise": "fp8_current",
    "blockwise": "fp8_blockwise",
    "mxfp8": "mxfp8",
}
"""Value of `--fp8-recipe` -> precision, where `--fp8-format` is given; "": without the option."""

OF_DEEPSPEED = "--deepspeed"
"""With it and no `--zero-stage` the stage stands in a file that only the user has."""

KNOWN = (*(option.split()[0] for option in OPTIONS), LAYERS_OF_STAGE, *MODEL)
ABOUT_LAYOUT = re.compile(r"parallel|zero|micro-batch|global-batch|recompute|checkpoint-act")
ALIKE = 0.75
"""Of two options from which on the one that Megatron does not have is taken for a slip."""

BESIDE = frozenset(
    {
        "--recompute-method",
        MODULES,
        "--recompute-num-layers",
        "--no-pipeline-parallel",
        "--encoder-tensor-model-parallel-size",
        "--encoder-pipeline-model-parallel-size",
    }
)
"""Options that read like those of a layout and change nothing that a strategy says."""


def is_arguments(text: str) -> bool:
    """Return whether a text is a line of arguments, not `key=value`."""
    return any(word.startswith("--") for word in text.split())


def arguments(text: str, transformer: Transformer) -> LayoutStatement:
    """Parse a line of arguments, with or without a launcher.

    Raises:
        InvalidInput: field `baseline`: an impossible value, a misspelt option of the layout, or
            another model.
    """
    said: dict[str, Scalar] = {}
    per_stage: int | None = None
    given = list(_options(words_of(text)))
    for flag, value in given:
        shown = f"{flag} {value}".strip()
        if meant := OPTIONS.get(flag) or OPTIONS.get(f"{flag} {value}"):
            name, means = meant
            said[name] = read_value(name, value, shown=shown, text=text) if means is None else means
        elif flag == LAYERS_OF_STAGE:
            per_stage = int(read_value("virtual_stages", value, shown=shown, text=text))
        else:
            _check(flag, value, transformer, text=text)
    if not said:
        reason = "none of these arguments says how a model is laid out"
        raise InvalidInput(FIELD, text, reason, valid=FORMS)
    sharded = {} if any(flag == OF_DEEPSPEED for flag, _ in given) else {"zero_stage": 0}
    whole = {**DEFAULTS, **sharded, **said}
    whole |= _narrow_precision(dict(given), text=text)
    if whole["activation_checkpointing"] == "selective":
        whole["activation_checkpointing"] = _recomputed(dict(given).get(MODULES, ""), text=text)
    if transformer.experts:
        whole.setdefault("expert_tensor_parallel", whole["tensor_parallel"])
    if per_stage is not None:
        whole["virtual_stages"] = _virtual_stages(per_stage, whole, transformer, text=text)
    return statement(whole)


def _options(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield each option with its value, "" if it has none; only MODULES keeps several. Words before
    the first option are skipped."""
    flag: str | None = None
    value = ""
    for word in words:
        if word.startswith("--"):
            if flag is not None:
                yield flag, value
            name, _, value = word.partition("=")
            flag = name.replace("_", "-")
        elif flag == MODULES and value:
            value = f"{value} {word}"
        elif flag is not None and not value:
            value = word
    if flag is not None:
        yield flag, value


def _narrow_precision(given: Mapping[str, str], *, text: str) -> dict[str, Scalar]:
    """Return the precision of products below 16 bits, which stands beside `--bf16`; empty if there
    is none."""
    if "--fp4-format" in given:
        return {"precision": "nvfp4"}
    if "--fp8-format" not in given:
        return {}
    recipe = given.get("--fp8-recipe", "")
    if recipe not in FP8_RECIPES:
        reason = f"--fp8-recipe {recipe}: no precision has this recipe"
        raise InvalidInput(FIELD, text, reason, valid=", ".join(filter(None, FP8_RECIPES)))
    return {"precision": FP8_RECIPES[recipe]}


def _recomputed(modules: str, *, text: str) -> Scalar:
    """Return the value of activation_checkpointing for the modules of selective recomputation."""
    named = set(modules.split()) or {ATTENTION_SCORES}
    if named == {ATTENTION_SCORES}:
        return "selective"
    for each in RECOMPUTED_SETS:
        if set(each.split("+")) == named:
            return each
    valid = ", ".join((ATTENTION_SCORES, *(each.replace("+", " ") for each in RECOMPUTED_SETS)))
    reason = f"{MODULES} {modules}: activation_checkpointing has no such set"
    raise InvalidInput(FIELD, text, reason, valid=valid)


def _check(flag: str, value: str, transformer: Transformer, *, text: str) -> None:
    """Refuse options that imply another layout or another model than the campaign's."""
    if flag in MODEL:
        part, _, attribute = MODEL[flag].rpartition(".")
        described = getattr(transformer, part) if part else transformer
        ours = getattr(described, attribute, None)
        if value != str(ours) and not (ours is None and value in WITHOUT):
            has = "none" if ours is None else ours
            reason = f"{flag} {value}: {transformer.name} has {has}"
            raise InvalidInput(FIELD, text, reason, valid="the arguments of the campaign's model")
    elif flag not in KNOWN and flag not in BESIDE and ABOUT_LAYOUT.search(flag):
        near = get_close_matches(flag, KNOWN, n=1, cutoff=ALIKE)
        if near:
            reason = f"{flag} is no option of Megatron{suggestion(near)}"
            raise InvalidInput(FIELD, text, reason, valid=near[0])


def _virtual_stages(
    per_stage: int, said: Mapping[str, Scalar], transformer: Transformer, *, text: str
) -> int:
    """Return the chunks per pipeline stage for this number of layers per chunk."""
    layers, stages = transformer.num_layers, int(said["pipeline_parallel"])
    chunks, rest = divmod(layers, per_stage * stages)
    if rest or not chunks:
        reason = (
            f"{LAYERS_OF_STAGE} {per_stage}: {layers} layers are not divisible by "
            f"pipeline_parallel {stages} x {per_stage}"
        )
        raise InvalidInput(FIELD, text, reason, valid=f"a divisor of {layers // stages}")
    return chunks
