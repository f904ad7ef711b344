"""What a trainer does that no dimension of a strategy states, by name: the fields of
`StateWidths`, and words for some of their numbers.

Adapters have them in `[states]`, predictions in `traits`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import fields, replace

from search_spaces.errors import InvalidInput, InvalidInputs, closest, suggestion
from search_spaces.program import StateWidths

Trait = bool | float | str

STATE_BYTES = (0, 1, 2, 4)
"""Bytes that a trainer may keep of one number per parameter; 0 for none."""

_BYTES = (", ".join(map(str, STATE_BYTES)), STATE_BYTES.__contains__)
_SHARE = ("0 to 1", lambda value: 0 <= value <= 1)
_TOKENS = ("a number of tokens", lambda value: value >= 0 and value % 1 == 0)
_LAYERS = ("a number of layers", _TOKENS[1])

NUMBERS: Mapping[str, tuple[str, Callable[[float], bool]]] = {
    **{each.name: _BYTES for each in fields(StateWidths)},
    "gated_activation_bytes": ("6, 8, 10", {6, 8, 10}.__contains__),
    "bf16_gradient_bytes": ("0, 2, 4, 6", {0, 2, 4, 6}.__contains__),
    "uneven_routing": ("0, 1, 2", {0, 1, 2}.__contains__),
    "loss_tokens": _TOKENS,
    "mlp_tokens": _TOKENS,
    "recomputed_layers": _LAYERS,
    "offloaded_inputs": _SHARE,
    "offloaded_states": _SHARE,
    "cuda_graphs": _SHARE,
    "waits_for_counts": _SHARE,
    **dict.fromkeys(
        (
            *("selective_by_operation", "vendor_attention", "expert_loop", "fused_experts"),
            *("keeps_gathered", "longer_stages_first"),
        ),
        ("0, 1", {0, 1}.__contains__),
    ),
}
"""Field of StateWidths -> valid numbers."""

_ON, _OFF = ("on", "true", "yes"), ("off", "false", "no")
_SWITCH = {**dict.fromkeys(_ON, 1.0), **dict.fromkeys(_OFF, 0.0)}

DISPATCHERS = {"alltoall": 1.0, "deepep": 0.0, "hybridep": 0.0}
"""Dispatcher of tokens -> whether its host waits for their counts."""

ROUTING = {"balanced": 0.0, "natural": 2.0}
"""Routing -> imbalance of the experts' load, relative to that where nothing is known."""

ROUTER_ALONE = frozenset({"moe_router", "moe_preprocess"})
CAPTURED = ROUTER_ALONE | {"attn", "mlp", "moe", "mamba"}
"""Modules of which Megatron Core makes CUDA graphs (`cuda_graph_scope`): those before the dispatch
of tokens, and all."""

WORDS: Mapping[str, tuple[str, Mapping[str, float]]] = {
    "dispatcher": ("waits_for_counts", DISPATCHERS),
    "routing": ("uneven_routing", ROUTING),
    "balanced_routing": (
        "uneven_routing",
        {**dict.fromkeys(_ON, ROUTING["balanced"]), **dict.fromkeys(_OFF, ROUTING["natural"])},
    ),
    "cuda_graphs": ("cuda_graphs", {**_SWITCH, "none": 0.0, "full_iteration": 1.0}),
}
"""Trait with words -> its field of StateWidths, and the number of each word."""

NAMES = tuple(dict.fromkeys([*WORDS, *NUMBERS]))


def captured(modules: str) -> float:
    """Return the share of a step's kernels that CUDA graphs of these modules launch: half of them,
    or a quarter if only the router and what precedes the dispatch are captured, since attention has
    about as many kernels as those two.

    Args:
        modules: names with commas or +, as Megatron Core's `cuda_graph_scope` has them.
    """
    return 0.25 if _modules(modules) <= ROUTER_ALONE else 0.5


def _modules(text: str) -> set[str]:
    return set(text.replace("+", ",").split(","))


def read_trait(name: str, value: Trait) -> tuple[str, float]:
    """Return the field of StateWidths that a trait sets, and its number.

    Raises:
        InvalidInput: field `name`, for an unknown trait or value.
    """
    if name not in NAMES:
        reason = f"no such trait{suggestion(closest(name, NAMES))}"
        raise InvalidInput(name, value, reason, valid=", ".join(NAMES))
    field, words = WORDS.get(name, (name, {}))
    text = str(value).strip().lower()
    if text in words:
        return field, words[text]
    if name == "cuda_graphs" and _modules(text) <= CAPTURED:
        return field, captured(text)
    numbers = name in NUMBERS
    if numbers and not isinstance(value, bool):
        try:
            number = float(value)
        except (TypeError, ValueError):
            number = float("nan")
        if NUMBERS[name][1](number):
            return field, number
    valid = [*words, *([NUMBERS[name][0]] if numbers else [])]
    valid += sorted(CAPTURED) if name == "cuda_graphs" else []
    raise InvalidInput(name, value, "not a value of this trait", valid=", ".join(valid))


def traits_among(settings: Mapping[str, object]) -> dict[str, Trait]:
    """Return the trainer-defined dimensions with one value that are traits."""
    found: dict[str, Trait] = {}
    for name, value in settings.items():
        if isinstance(value, bool | int | float | str):
            with suppress(InvalidInput):
                read_trait(name, value)
                found[name] = value
    return found


def with_traits(states: StateWidths, traits: Mapping[str, Trait]) -> StateWidths:
    """Return the states with these traits.

    Raises:
        InvalidInputs: fields `traits.NAME`.
    """
    known: dict[str, float] = {}
    faults: list[InvalidInput] = []
    for name, value in traits.items():
        try:
            field, number = read_trait(name, value)
        except InvalidInput as fault:
            shown = f"traits.{fault.field}"
            faults.append(InvalidInput(shown, fault.value, fault.reason, valid=fault.valid))
        else:
            known[field] = number
    if faults:
        raise InvalidInputs(faults)
    return replace(states, **known)
