"""Parts of a layer that every model has: norms and the dense MLP."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional

from evaluators.trainer.plan import STANDARD_DEVIATION, Plan
from evaluators.trainer.tensor_parallel import ColumnLinear, RowLinear


class Normalization(nn.Module):
    """LayerNorm in a model with biases, RMSNorm in any other."""

    def __init__(self, plan: Plan, size: int | None = None) -> None:
        super().__init__()
        self.size = size or plan.transformer.hidden_size
        self.weight = plan.build.constant(self.size, 1.0)
        self.bias = plan.build.constant(self.size, 0.0) if plan.bias else None

    def forward(self, x: Tensor) -> Tensor:
        if self.bias is None:
            return functional.rms_norm(x, (self.size,), self.weight, 1e-5)
        return functional.layer_norm(x, (self.size,), self.weight, self.bias, 1e-5)


class FeedForward(nn.Module):
    """Two matrices and GELU, or three and SiLU when gated (gate and value rows interleaved)."""

    def __init__(self, plan: Plan, name: str, *, width: int) -> None:
        super().__init__()
        t = plan.transformer
        self.gated = t.gated_mlp
        self.enter = ColumnLinear(
            plan.build,
            f"{name}.enter",
            inputs=t.hidden_size,
            outputs=width * (2 if t.gated_mlp else 1),
            bias=plan.bias,
            std=STANDARD_DEVIATION,
        )
        self.leave = RowLinear(
            plan.build,
            f"{name}.leave",
            inputs=width,
            outputs=t.hidden_size,
            bias=plan.bias,
            std=plan.residual_std,
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.leave(activated(self.enter(x), gated=self.gated))  # type: ignore[no-any-return]


def activated(inner: Tensor, *, gated: bool) -> Tensor:
    """Return an MLP's inner layer after its activation: GELU, or SiLU of the gate times the value.

    Args:
        inner: of shape (…, width), or (…, 2 width) where gated.
    """
    if not gated:
        return functional.gelu(inner, approximate="tanh")
    gate, value = inner.view(*inner.shape[:-1], inner.shape[-1] // 2, 2).unbind(-1)
    return functional.silu(gate) * value
