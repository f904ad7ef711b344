"""Experts whose tokens leave the fast links of a machine, in a sentence."""

from __future__ import annotations

from search_spaces.machine import Machine
from search_spaces.rules import findings
from search_spaces.strategy import Strategy
from search_spaces.transformer import Transformer
from search_spaces.warning_rules import EXPERTS_WITHIN_NODE


def experts_across_network(
    strategy: Strategy, transformer: Transformer, machine: Machine
) -> str | None:
    """Return what a strategy's expert parallelism sends over the network, to stand after its owner
    (`its …`); None where tokens stay within a node, or a rack whose GPUs share fast links."""
    warned = findings(strategy, transformer, machine)
    return next((each.reason for each in warned if each.rule == EXPERTS_WITHIN_NODE), None)
