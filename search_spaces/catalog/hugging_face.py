"""A Hugging Face `config.json` as a transformer, read by its fields, whatever its family.

A field that is neither read nor known to be without effect on memory and time is refused by its
name. Little is left to the family: what its configuration does not state.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from search_spaces.catalog.details import details_of
from search_spaces.catalog.shapes import model_from_table
from search_spaces.errors import InvalidInput
from search_spaces.layers import LAYERS as MOST_LAYERS
from search_spaces.transformer import Transformer

# A configuration states the longest context that a model may be used with (131072 for Llama 3.1),
# which is not what one pre-trains with; above this the sequence length is the user's to state.
LONGEST_SEQUENCE = 8192

LAYERS = ("num_hidden_layers", "n_layer", "num_layers")
HIDDEN = ("hidden_size", "n_embd", "d_model")
HEADS = ("num_attention_heads", "n_head")
GROUPS = ("num_key_value_heads", "num_kv_heads")
HEAD_DIM = ("head_dim", "attention_head_dim")
FFN = ("intermediate_size", "n_inner", "ffn_hidden_size")
DENSE_FFN = ("intermediate_size_mlp", "dense_intermediate_size")
SEQUENCE = ("max_position_embeddings", "n_positions", "max_sequence_length", "model_max_length")
EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts")
TOP_K = ("num_experts_per_tok", "num_experts_per_token", "experts_per_token", "moe_k", "moe_topk")
EXPERT_FFN = ("moe_intermediate_size", "expert_hidden_dim")
SHARED_FFN = (
    "moe_shared_expert_intermediate_size",
    "shared_expert_intermediate_size",
    "shared_intermediate_size",
    "share_expert_dim",
)
SHARED = ("n_shared_experts", "num_shared_experts", "moe_num_shared_experts")
FIRST_DENSE = ("first_k_dense_replace", "moe_layer_start_index", "num_dense_layers")
EVERY_ROUTED = ("decoder_sparse_step", "interleave_moe_layer_step", "moe_layer_interval")
MTP = ("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_modules")
WINDOW = ("sliding_window", "attention_chunk_size", "sliding_window_size")
ACTIVATION = ("mlp_hidden_act", "hidden_act", "hidden_activation", "activation_function")
GATE = ("attn_output_gate", "attention_output_gate", "mla_use_output_gate")
MAMBA = {
    "num_heads": ("mamba_num_heads", "mamba_n_heads"),
    "head_dim": ("mamba_head_dim", "mamba_d_head"),
    "state_size": ("ssm_state_size", "mamba_d_state"),
    "num_groups": ("n_groups", "mamba_n_groups"),
    "conv_kernel": ("conv_kernel", "mamba_d_conv"),
}
LATENT = {
    "kv_rank": "kv_lora_rank",
    "qk_head_dim": "qk_nope_head_dim",
    "rope_head_dim": "qk_rope_head_dim",
    "v_head_dim": "v_head_dim",
}
LINEAR = {
    "key_heads": "linear_num_key_heads",
    "value_heads": "linear_num_value_heads",
    "key_head_dim": "linear_key_head_dim",
    "value_head_dim": "linear_value_head_dim",
    "conv_kernel": "linear_conv_kernel_dim",
}
"""Keys of a figure, the usual one first."""

BLOCKS = {"M": "mamba", "*": "attention", "-": "mlp", "E": "moe"}
"""Letter of Nemotron-H's pattern -> the block of that layer, as `layers_block_type` has it."""
MIXERS = {
    "full_attention": "full",
    "attention": "full",
    "global_attention": "full",
    "sliding_attention": "window",
    "chunked_attention": "window",
    "local_attention": "window",
    "linear_attention": "linear",
    "mamba": "mamba",
}
"""Word of `layer_types` -> what mixes the tokens of that layer."""

GELU = re.compile(r"gelu.*|relu")
GATED = ("gemma", "gemma2", "gemma3", "gemma3_text")
PLAIN = (
    *("gpt2", "gpt_neox", "gpt_bigcode", "gptj", "phi", "starcoder2", "falcon", "opt", "bloom"),
    "nemotron_h",
)
"""Families whose MLP is or is not gated where the activation does not tell."""
TIED = ("gpt2", "gemma", "gemma2", "gemma3", "gemma3_text", "cohere", "cohere2", "smollm3")
"""Families that share the embedding's weight unless their configuration says otherwise."""
FULL_EVERY = {
    **dict.fromkeys(("mistral", "mixtral", "phi3", "starcoder2"), 0),
    **dict.fromkeys(("gemma2", "gpt_oss"), 2),
    **dict.fromkeys(("cohere2", "exaone4", "llama4", "llama4_text", "olmo3"), 4),
    **dict.fromkeys(("gemma3", "gemma3_text"), 6),
}
"""Family -> its windowed layers are all but each n-th (0: all), if no key says which."""
LLAMA_4 = ("llama4", "llama4_text")
"""One shared expert as wide as a routed one, and a window where there are rotary positions."""

UNDESCRIBED = (
    *("compress_ratios", "sparse_attention_config", "block_configs", "attn_res_block_size"),
    *("global_head_dim", "hidden_size_per_layer_input", "swa_num_key_value_heads"),
    *("altup_num_inputs", "num_kv_shared_layers"),
)
"""Keys of layers that a `Transformer` cannot describe: compressed keys, blocks of keys, layers of
different widths, residuals over layers."""

OF_LAYERS = re.compile(
    r"attention|attn|moe|expert|mlp|layer|query|coder|block|conv|mamba|shared|kv|embed|gate"
)
"""What a switch's name contains if it may change layers."""

NEUTRAL = re.compile(
    r"""
    _.*|architectures|auto_map|model_type|transformers_version|(torch_)?dtype|.*_dtype
    |.*_token(_id|_index|_ids)?|.*token_id.*|tokenizer_class|vision_.*|audio_.*|image_.*|video_.*
    |.*placeholder.*|text_config|quantization_config|use_cache|is_decoder|ep_size|pretraining_tp
    |id2label|label2id|ignore_index|return_dict|pruned_heads|tie_word_embeddings
    # norms, initial weights, biases, positions
    |.*(eps|epsilon)|.*norm.*|initializer_.*|init_.*|.*bias.*|rope_.*|.*rope_.*|rotary_.*|.*theta
    |.*rotary.*|position_embedding_type|no_rope_.*|mla_use_nope|original_max_.*|initial_context_.*
    # factors, dropouts, losses
    |.*scal(e|ing|ar).*|.*multipliers?|.*softcap.*|.*dropout.*|.*_pdrop|.*_coef|.*alpha|.*_beta
    |swiglu_limit|time_step_.*|residual_in_fp32|rescale_prenorm_residual|seq_aux|.*loss.*|.*_temp.*
    # the router's choice
    |scor(ing|e)_func(tion)?|topk_method|n_group|topk_group|num_expert_group|use_grouped_topk
    |moe_renormalize|router_.*|.*_router_.*|moe_use_aux_free|moe_capacity|moe_gate|use_aux_.*
    # kernels, and what generates text
    |chunk_size.*|mamba_chunk_size|use_mamba_kernels|mamba_hidden_act|num_logits_to_keep|output_.*
    |.*_kernels?|.*flash.*|.*fp32.*|unsloth_.*|num_labels|cache_implementation|num_(beams|beam_groups|return_sequences)|top_k|top_p|typical_p
    |(max|min)_length|no_repeat_.*|encoder_no_.*|length_penalty|diversity_penalty|repetition_penalty
    |exponential_decay_.*|begin_suppress_.*|do_sample|temperature|prefix|problem_type
    # what other figures imply
    |qk_head_dim|expand|mamba_expand|mamba_d_ssm|mlp_expansion_factor|.*parallel_(block|residual)
    |mamba_use_mlp|use_(embedding_sharing|parallel_embedding|gated_activation)|max_window_layers|use_sliding_window|full_attn_mod|interpolate_factor|use_mtp|n_ctx|time_step_rank
    |mtp_use_dedicated_embeddings|interleave_moe_layer|indexer_rope_interleave|layer_switch
    |index_(share_for_mtp_iteration|skip_topk_offset|topk_freq|topk_pattern)|use_mrope
    |.*_moe_shared_expert_overlap|moe_shared_expert_overlap|moe_layer_end_index|use_qkv_bias
    """,
    re.VERBOSE,
)
"""Keys without effect on memory or time, or implied by others. Norms, biases, attention sinks and
routers' biases change the parameters by less than a percent."""


def model_from_hugging_face(
    config: Mapping[str, Any], *, name: str, changes: Mapping[str, Any] | None = None
) -> Transformer:
    """Return the shape that a `config.json` describes, of a multimodal one its language model.

    The sequence length is the configuration's longest context, at most 8192.

    Args:
        changes: fields of the shape that differ.

    Raises:
        InvalidInput, InvalidInputs: fields `model.…`: layers that cannot be described, a figure
            that is missing or wrong, a key that is not understood.
    """
    return _Configuration(config).read(name, changes or {})


class _Configuration:
    """A configuration, and which of its keys were read."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        text = config.get("text_config")
        self._own = text if isinstance(text, Mapping) else config
        self._config = {**config, **self._own}
        self._read: set[str] = set()
        self.family = str(self._config.get("model_type"))
        blocks = self._config.get("layers_block_type")
        stated = self._optional(*LAYERS)
        for key in UNDESCRIBED:
            if self._config.get(key):
                reason = "layers of this kind are not described"
                raise InvalidInput(f"model.{key}", self._config[key], reason)
        if stated is not None and stated > MOST_LAYERS:
            reason = "more layers than any model has"
            raise InvalidInput(
                "model.num_hidden_layers", stated, reason, valid=f"up to {MOST_LAYERS}"
            )
        self.layers = stated or (len(blocks) if isinstance(blocks, list) else self._figure(*LAYERS))

    def read(self, name: str, changes: Mapping[str, Any]) -> Transformer:
        hidden, heads = self._figure(*HIDDEN), self._figure(*HEADS)
        latent = self._latent()
        experts, ffn = self._experts()
        single = self._single_blocks()
        mixers = Counter(["full" if each == "attention" else each for each in single])
        mixers = mixers or Counter(self._mixers())
        windowed = mixers["window"]
        groups = self._optional(*GROUPS)
        head_dim = self._optional(*HEAD_DIM)
        tied = self._get("tie_word_embeddings")
        table = {
            "name": name,
            "num_layers": self.layers,
            "hidden_size": hidden,
            "num_attention_heads": heads,
            "num_query_groups": None if latent else groups,
            "head_dim": None if latent else head_dim,
            "ffn_hidden_size": ffn or (None if experts else 4 * hidden),
            "gated_mlp": self._is_gated(),
            "seq_length": min(self._figure(*SEQUENCE), LONGEST_SEQUENCE),
            "vocab_size": self._figure("vocab_size"),
            "tied_embeddings": self.family in TIED if tied is None else tied,
            "experts": experts,
            "latent_attention": latent,
            "sparse_attention": self._sparse(),
            "mtp_layers": self._mtp(),
            "mamba": self._mamba(mixers, single_blocks=bool(single)) if mixers["mamba"] else None,
            "linear_attention": self._linear(mixers["linear"]) if mixers["linear"] else None,
            "attention_gate": self._has_gate(),
            "attention_window": self._figure(*WINDOW) if windowed else None,
            "window_layers": windowed or None,
            "details": details_of(self._config, family=self.family) or None,
        }
        self._refuse_unread()
        return model_from_table({**table, **changes})

    # what a key says

    def _get(self, *keys: str) -> Any:
        """Return the first value that is there. Other keys with the same value are read, too."""
        there = [key for key in keys if self._config.get(key) is not None]
        if not there:
            return None
        value = self._config[there[0]]
        self._read.update(key for key in there if self._config[key] == value)
        return value

    def _figure(self, *keys: str) -> int:
        value = self._get(*keys)
        if type(value) is not int or value < 1:
            key = next((key for key in keys if self._config.get(key) is not None), keys[0])
            reason = "this field is missing" if value is None else "not a positive whole number"
            raise InvalidInput(f"model.{key}", value, reason, valid="a positive whole number")
        return value

    def _optional(self, *keys: str) -> int | None:
        return None if self._get(*keys) is None else self._figure(*keys)

    def _count(self, *keys: str) -> int:
        return 0 if self._get(*keys) in (None, 0) else self._figure(*keys)

    def _list(self, key: str) -> list[Any] | None:
        """Return a list with an entry for each layer, or None."""
        value = self._get(key)
        if value is None:
            return None
        if not isinstance(value, list) or len(value) != self.layers:
            reason = f"not an entry for each of {self.layers} layers"
            raise InvalidInput(f"model.{key}", value, reason)
        return value

    def _refuse_unread(self) -> None:
        for key, value in self._own.items():
            if key in self._read or NEUTRAL.fullmatch(key) or not _says_something(key, value):
                continue
            reason = (
                "it is not known what this key changes; delete it from the file if it changes "
                "neither memory nor time"
            )
            raise InvalidInput(f"model.{key}", value, reason, valid="or give a TOML file")

    # what the family says

    def _is_gated(self) -> bool:
        activation = self._get(*ACTIVATION)
        if activation in ("relu2", "xielu"):
            return False
        if activation is None or not GELU.fullmatch(str(activation)):
            known = activation is None or re.match(r"si?lu|swish|swiglu", str(activation))
            if not known:
                key = next(key for key in ACTIVATION if self._config.get(key) is not None)
                raise InvalidInput(f"model.{key}", activation, "this activation is not known")
            return self.family not in PLAIN
        if self.family in (*GATED, *PLAIN):
            return self.family in GATED
        key = next(key for key in ACTIVATION if self._config.get(key) is not None)
        reason = f"nothing says whether the MLP of {self.family} is gated"
        raise InvalidInput(f"model.{key}", activation, reason, valid="a TOML file with gated_mlp")

    def _has_gate(self) -> bool:
        return self._get(*GATE) is True or self.family == "qwen3_next"

    def _mtp(self) -> int | None:
        if self._config.get("use_mtp") is False:
            return None
        return self._count(*MTP) * (self._optional("mtp_transformer_layers") or 1) or None

    # experts

    def _experts(self) -> tuple[dict[str, Any] | None, int | None]:
        """Return the experts, and the width of the dense MLP."""
        number = self._count(*EXPERTS)
        if not number:
            shared = self._optional(*SHARED_FFN) if self.family == "granitemoehybrid" else None
            return None, shared or self._optional(*FFN)
        own, stated = self._optional(*EXPERT_FFN), self._optional(*FFN)
        width = own or self._figure(*FFN)
        dense = self._optional(*DENSE_FFN) or (stated if own else None)
        routed = self._routed()
        first = routed.index(True) if True in routed else self.layers
        without = routed.count(False)
        return {
            "num_experts": number,
            "top_k": self._figure(*TOP_K),
            "ffn_hidden_size": width,
            "shared_ffn_hidden_size": self._shared(width),
            "dense_layers": without,
            "interleaved": first != without,
            "latent_size": self._optional("moe_latent_size", "routed_expert_hidden_size"),
            "biases": self.family == "gpt_oss",
        }, dense

    def _shared(self, width: int) -> int:
        count = self._count(*SHARED)
        if self.family in LLAMA_4:
            return width
        stated = self._count(*SHARED_FFN)
        if stated and count > 1:
            reason = f"nothing says whether {stated} is the width of one of these or of all"
            key = next(key for key in SHARED if self._config.get(key))
            raise InvalidInput(f"model.{key}", count, reason, valid="0 or 1")
        return stated or count * width

    def _routed(self) -> list[bool]:
        """Return whether each layer has experts."""
        numbers = range(self.layers)
        first = self._count(*FIRST_DENSE)
        routed = [number >= first for number in numbers]
        for key in EVERY_ROUTED:
            step = self._count(key) or 1
            routed = [has and (i + 1) % step == 0 for i, has in enumerate(routed)]
        last = self._get("moe_layer_end_index")
        if isinstance(last, int) and last >= 0:
            routed = [has and i <= last for i, has in enumerate(routed)]
        if isinstance(freq := self._get("moe_layer_freq"), int):
            routed = [has and i % max(freq, 1) == 0 for i, has in enumerate(routed)]
        elif freq is not None:
            each = self._list("moe_layer_freq") or []
            routed = [has and bool(on) for has, on in zip(routed, each, strict=True)]
        if (types := self._list("mlp_layer_types")) is not None:
            routed = [has and each == "sparse" for has, each in zip(routed, types, strict=True)]
        for key, among in (("mlp_only_layers", False), ("moe_layers", True)):
            if isinstance(listed := self._get(key), list) and (listed or not among):
                routed = [has and ((i in listed) is among) for i, has in enumerate(routed)]
        return routed

    # attention

    def _latent(self) -> dict[str, int | None] | None:
        if self._get("kv_lora_rank") is None and not self._config.get("qk_nope_head_dim"):
            return None
        self._get(*GROUPS), self._get(*HEAD_DIM)
        figures: dict[str, int | None] = {name: self._figure(key) for name, key in LATENT.items()}
        return figures | {"q_rank": self._optional("q_lora_rank")}

    def _sparse(self) -> dict[str, int] | None:
        top_k = self._optional("index_topk")
        if top_k is None:
            return None
        types = self._list("indexer_types")
        return {
            "top_k": top_k,
            "index_heads": self._figure("index_n_heads"),
            "index_head_dim": self._figure("index_head_dim"),
            "index_layers": self.layers if types is None else types.count("full"),
        }

    def _mixers(self) -> Iterator[str]:
        """Yield what mixes the tokens of each layer: full, window, linear, mamba."""
        if (types := self._list("layer_types")) is not None:
            yield from self._mixers_of("layer_types", types)
        elif isinstance(linear := self._get("linear_attn_config"), Mapping):
            full = linear.get("full_attn_layers")
            if not isinstance(full, list):
                reason = "nothing says which layer is which"
                raise InvalidInput("model.linear_attn_config", linear, reason)
            yield from ("full" if i + 1 in full else "linear" for i in range(self.layers))
        elif every := self._optional("full_attention_interval"):
            yield from ("linear" if (i + 1) % every else "full" for i in range(self.layers))
        elif self.family == "falcon_h1":
            yield from ("full", "mamba") * self.layers
        elif (kinds := self._list("attn_type_list")) is not None:
            yield from self._mixers_of(
                "attn_type_list", ["attention" if i == 1 else i for i in kinds]
            )
        else:
            yield from self._windows()
        self._get("full_attention_interval", "sliding_window_pattern")

    def _mixers_of(self, key: str, types: Sequence[Any]) -> list[str]:
        if not all(isinstance(each, str) and each in MIXERS for each in types):
            reason = "layers of this kind are not described"
            raise InvalidInput(f"model.{key}", types, reason, valid=", ".join(MIXERS))
        mixers = [MIXERS[each] for each in types]
        if "window" not in mixers:
            self._get(*WINDOW)
        return mixers

    def _windows(self) -> Iterator[str]:
        window = self._optional(*WINDOW)
        on = self._config.get("use_sliding_window") is not False
        on = on and (window or 0) < self._figure(*SEQUENCE)
        pattern = self._get("sliding_window_pattern")
        rotary = (
            self.family in LLAMA_4 and self._get("no_rope_layers") and self._list("no_rope_layers")
        )
        for i in range(self.layers):
            if window is None or not on:
                yield "full"
            elif rotary:
                yield "window" if rotary[i] else "full"
            elif isinstance(pattern, str) and pattern:
                yield "window" if pattern[i % len(pattern)] == "L" else "full"
            elif "max_window_layers" in self._config:
                yield "window" if i >= self._count("max_window_layers") else "full"
            else:
                every = pattern if isinstance(pattern, int) else self._full_every(window)
                yield "full" if every and (i + 1) % every == 0 else "window"

    def _full_every(self, window: int) -> int:
        if self.family not in FULL_EVERY:
            reason = f"nothing says which layers of {self.family} have this window"
            raise InvalidInput("model.sliding_window", window, reason, valid="with layer_types")
        return FULL_EVERY[self.family]

    # Mamba and linear attention

    def _single_blocks(self) -> list[str]:
        """Return the block of each layer of Nemotron-H; empty for others."""
        keys = ("hybrid_override_pattern", "layers_block_type")
        key = next((key for key in keys if key in self._config), "")
        if not key and self.family != "nemotron_h":
            return []
        pattern = self._get(key or keys[0])
        letters, words = " ".join(BLOCKS), ", ".join(BLOCKS.values())
        valid = f"a letter of {letters} for each layer, or a list of {words}"
        field = f"model.{key or keys[0]}"
        if not isinstance(pattern, str | list):
            raise InvalidInput(field, pattern, "nothing says which layer is which", valid=valid)
        blocks = [BLOCKS.get(each, each) if isinstance(each, str) else "" for each in pattern]
        if not set(blocks) <= set(BLOCKS.values()) or len(blocks) != self.layers:
            reason = "not the blocks of num_hidden_layers layers"
            raise InvalidInput(field, pattern, reason, valid=valid)
        if {"mlp", "moe"} <= set(blocks):
            reason = "a model with both dense and expert layers is not described"
            raise InvalidInput(field, pattern, reason)
        self._get("mtp_layers_block_type"), self._get(*WINDOW)
        return blocks

    def _mamba(self, mixers: Counter[str], *, single_blocks: bool) -> dict[str, Any]:
        figures: dict[str, Any] = {name: self._figure(*keys) for name, keys in MAMBA.items()}
        counts = {"layers": mixers["mamba"], "attention_layers": mixers["full"]}
        return {**figures, **counts, "single_blocks": single_blocks}

    def _linear(self, layers: int) -> dict[str, Any]:
        kimi = self._get("linear_attn_config")
        if not isinstance(kimi, Mapping):
            return {"layers": layers, **{name: self._figure(key) for name, key in LINEAR.items()}}
        own = _Configuration({**kimi, "num_hidden_layers": self.layers})
        heads, width = own._figure("num_heads"), own._figure("head_dim")
        own._get("full_attn_layers"), own._get("kda_layers"), own._get("num_hidden_layers")
        figures = {
            "layers": layers,
            "key_heads": heads,
            "value_heads": heads,
            "key_head_dim": width,
            "value_head_dim": width,
            "conv_kernel": own._figure("short_conv_kernel_size"),
            "gate_rank": None if own._get("use_full_rank_gate") else width,
        }
        own._refuse_unread()
        return figures


def _says_something(key: str, value: Any) -> bool:
    """Return whether a value may change a model's shape: text, factors and most switches do not."""
    if value is True:
        return OF_LAYERS.search(key) is not None
    return bool(value) and not isinstance(value, str | float)
