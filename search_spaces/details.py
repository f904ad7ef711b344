"""What a trainer needs to build the same model, and neither memory nor time depends on."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic.dataclasses import dataclass

from search_spaces.fields import CHECKED, Plausible, Switch

Factor = Annotated[float, Plausible(minimum=0, maximum=10_000)]
Share = Annotated[float, Plausible(minimum=0, maximum=1)]
Groups = Annotated[int, Plausible(maximum=10_000)]


@dataclass(frozen=True, kw_only=True, config=CHECKED)
class Details:
    """Norms, rotary positions and the router, as a model's published `config.json` states them.
    Null: not known, so that a trainer's default decides."""

    norm_epsilon: Annotated[float, Plausible(minimum=0, maximum=1)] | None = None
    """Added to the variance in each norm."""
    qk_norm: Switch | None = None
    """Whether queries and keys are normed, for each head."""
    qkv_biases: Switch | None = None
    """Whether the projections to queries, keys and values add a bias."""
    attention_sinks: Switch = False
    """Whether each head learns a logit that it may attend to instead of a token (GPT-OSS)."""
    rotary_base: Annotated[float, Plausible(maximum=1e12)] | None = None
    """Base of rotary positions."""
    rotary_share: Share = 1.0
    """Share of a head's width that they turn."""
    rotary_scaling: Literal["none", "llama3", "yarn", "other"] | None = None
    """How their frequencies are scaled for contexts longer than those of pre-training."""
    rotary_factor: Factor = 1.0
    """By how much."""
    rotary_original_tokens: Annotated[int, Plausible(maximum=100_000_000)] | None = None
    """Longest context without scaling."""
    yarn_beta_fast: Factor = 32.0
    """Turns above which YaRN (arXiv 2309.00071) keeps a frequency."""
    yarn_beta_slow: Factor = 1.0
    """Turns below which it scales a frequency in full."""
    yarn_rounded: Switch = True
    """Whether the bounds between them are rounded to dimensions."""
    yarn_mscale: Factor = 1.0
    """Scale of attention's logits, as DeepSeek defines it."""
    yarn_mscale_all: Factor = 0.0
    """The same for all dimensions of a head."""
    router_score: Literal["softmax", "sigmoid"] | None = None
    """What turns a router's logits into scores."""
    router_normalized: Switch | None = None
    """Whether the scores of the chosen experts are scaled to add up to one."""
    router_groups: Groups = 1
    """Groups of experts."""
    router_group_top_k: Groups = 1
    """Groups that a token may choose its experts from."""
    router_bias: Switch = False
    """Whether a bias for each expert, adjusted during training, balances the load (arXiv
    2408.15664)."""
    routing_scale: Factor = 1.0
    """Factor of the scores of the chosen experts."""
    balance_loss: Annotated[float, Plausible(minimum=0, maximum=1)] | None = None
    """Coefficient of the loss that balances the load."""
    balance_loss_of: Literal["batch", "sequence"] = "batch"
    """What that loss is computed over."""
    shared_expert_gate: Switch = False
    """Whether a gate scales the shared experts' result (Qwen2-MoE)."""
