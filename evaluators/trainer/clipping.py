"""Clipping the gradients of a model whose experts are distributed, where DeepSpeed does not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from deepspeed.moe.utils import is_moe_param
from torch import Tensor, nn

from evaluators.trainer.rank_group import RankGroup
from search_spaces.strategy import Strategy


def clips_wrongly(strategy: Strategy) -> bool:
    """Return whether DeepSpeed would clip by a wrong norm.

    Without ZeRO and in fp32 each rank's norm is of its own experts only, and DeepSpeed 0.19.8 then
    takes the mean of the ranks' norms.
    """
    in_fp32 = strategy.precision == "fp32"
    return strategy.expert_parallel > 1 and strategy.zero_stage == 0 and in_fp32


@dataclass(frozen=True)
class GradientClip:
    """Clips reduced gradients to a norm, before each step of an optimizer.

    Attributes:
        experts: the ranks that share the experts of each layer.
        model: the ranks that hold one copy of all else.
        most: the largest norm.
    """

    parameters: Sequence[nn.Parameter]
    experts: RankGroup
    model: dist.ProcessGroup
    most: float

    def __call__(self, *_: Any) -> None:
        with_gradient = [each for each in self.parameters if each.grad is not None]
        squares = torch.zeros(2, device=with_gradient[0].device)
        for each in with_gradient:
            # Of several ranks that hold the same, one counts it.
            if each.model_parallel:  # type: ignore[attr-defined]
                squares[int(is_moe_param(each))] += _gradient(each).float().square().sum()
        squares[1:] = self.experts.sum(squares[1:].clone())
        dist.all_reduce(squares, group=self.model)
        factor = self.most / (squares.sum().sqrt() + 1e-6)
        if factor < 1:
            for each in with_gradient:
                _gradient(each).mul_(factor)


def _gradient(parameter: nn.Parameter) -> Tensor:
    assert parameter.grad is not None
    return parameter.grad
