"""One model on DeepSpeed, trained an iteration at a time, with or without a pipeline."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from types import MappingProxyType
from typing import Any

import deepspeed
import torch
import torch.distributed as dist
from deepspeed.moe.utils import is_moe_param
from deepspeed.pipe import LayerSpec, PipelineModule, TiedLayerSpec
from deepspeed.runtime.pipe.topology import PipelineParallelGrid, PipeModelDataParallelTopology
from deepspeed.utils import groups
from torch import Tensor, nn

from evaluators.frameworks.deepspeed import GRADIENT_CLIPPING, deepspeed_config
from evaluators.trainer.layers import (
    ALONE,
    Build,
    Embedding,
    Plan,
    RankGroup,
    expert_group_name,
    group_of,
)
from evaluators.trainer.memory import Memory
from evaluators.trainer.model import Block, WholeModel, loss_of, middle_layers
from evaluators.trainer.support import BALANCED, routing_of
from evaluators.trial import TrialRequest
from search_spaces.stages import stage_layers
from search_spaces.strategy import Strategy

# Few tokens are frequent, as in text: the loss then falls from the first step on.
SKEW = 3.0


@dataclass
class Samples:
    """Synthetic samples that depend only on (seed, global sample index): this rank's share of every
    global batch.

    Attributes:
        part: this rank's part of each sequence, of `parts`.
        consumed: number of samples of all replicas so far.
    """

    vocab_size: int
    seq_length: int
    seed: int
    replica: int
    replicas: int
    micro_batch_size: int
    part: int = 0
    parts: int = 1
    consumed: int = 0

    @property
    def ranks(self) -> int:
        return self.replicas * self.parts

    def step(self, accumulation: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield (tokens, labels) of each micro-batch, both (samples, seq_length / parts)."""
        first, length = self.consumed, self.seq_length // self.parts
        begin, end = self.part * length, (self.part + 1) * length
        self.consumed += accumulation * self.replicas * self.micro_batch_size
        for micro_batch in range(accumulation):
            slot = micro_batch * self.replicas + self.replica
            start = first + slot * self.micro_batch_size
            rows = [self._sample(start + i) for i in range(self.micro_batch_size)]
            batch = torch.stack(rows)
            yield batch[:, begin:end].contiguous(), batch[:, begin + 1 : end + 1].contiguous()

    def _sample(self, index: int) -> Tensor:
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + index)
        uniform = torch.rand(self.seq_length + 1, generator=generator)
        return (uniform**SKEW * self.vocab_size).long().clamp_(max=self.vocab_size - 1)


def clips_wrongly(strategy: Strategy) -> bool:
    """Return whether DeepSpeed would clip gradients by a wrong norm.

    Without ZeRO and in fp32 each rank computes the norm of its own experts, and DeepSpeed 0.19.8
    takes the mean of these.
    """
    in_fp32 = strategy.precision == "fp32"
    return strategy.expert_parallel > 1 and strategy.zero_stage == 0 and in_fp32


@dataclass(frozen=True)
class GradientClip:
    """Clips reduced gradients to a norm, before each step of an optimizer.

    Attributes:
        experts: the ranks that share the experts of each layer.
        model: the ranks that hold one copy of all other parameters.
        most: maximum norm.
    """

    parameters: Sequence[nn.Parameter]
    experts: RankGroup
    model: dist.ProcessGroup
    most: float

    def __call__(self, *_: Any) -> None:
        with_gradient = [each for each in self.parameters if each.grad is not None]
        squares = torch.zeros(2, device=with_gradient[0].device)
        for each in with_gradient:
            # Of the ranks that hold the same parameter, one counts it.
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


Limit = Callable[[], None]
"""Sets the memory limit: once the communicators stand, before the model is built."""

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def build_training(
    request: TrialRequest,
    *,
    device: torch.device,
    memory: Memory,
    changes: Mapping[str, Any] = MappingProxyType({}),
) -> Training:
    """Build the model under the memory limit, which does not count the communicators.

    Args:
        changes: sections that replace those of DeepSpeed's configuration.
    """
    transformer, strategy = request.transformer, request.strategy
    replicas = strategy.data_parallel(request.machine.gpus_per_node)
    parts = strategy.context_parallel
    # To DeepSpeed the ranks that share a sequence are data-parallel: each has its own batch, and
    # the gradient is the mean of all.
    topology = PipeModelDataParallelTopology(
        num_pp=strategy.pipeline_parallel,
        num_mp=strategy.tensor_parallel,
        num_dp=replicas * parts,
    )
    grid = PipelineParallelGrid(topology=topology)
    context = _side_by_side(topology, parts)
    build = Build(
        tensor=group_of(topology.get_axis_comm_lists("model")),
        experts=_expert_group(grid, strategy.expert_parallel),
        device=device,
        dtype=DTYPES[strategy.precision],
        seed=request.seed,
    )
    balanced = routing_of(strategy) == BALANCED
    plan = Plan(transformer, strategy, build, context, balanced=balanced)
    samples = Samples(
        vocab_size=transformer.vocab_size,
        seq_length=transformer.seq_length,
        seed=request.seed,
        replica=topology.get_coord(dist.get_rank()).data // parts,
        replicas=replicas,
        micro_batch_size=strategy.micro_batch_size,
        part=context.rank,
        parts=parts,
    )
    config = deepspeed_config(transformer, strategy, data_parallel=replicas * parts)
    config |= changes
    kind = PipelineTraining if strategy.pipeline_parallel > 1 else WholeTraining
    limit = partial(memory.limit, request.machine.memory_gib)
    return kind(plan, samples, config, grid=grid, limit=limit)


def _side_by_side(topology: Any, size: int) -> RankGroup:
    lists = topology.get_axis_comm_lists("data")
    return group_of([ranks[i : i + size] for ranks in lists for i in range(0, len(ranks), size)])


def _expert_group(grid: Any, size: int) -> RankGroup:
    """Return the ranks that share the experts of a layer, in the groups that DeepSpeed keeps.

    They are neighbours among the data-parallel ranks of a stage and a tensor-parallel rank, so each
    expert is divided among the tensor-parallel ranks.
    """
    if size == 1:
        return ALONE
    groups._create_expert_data_and_model_parallel(size, mpu=grid)
    group = groups._get_expert_parallel_group(expert_group_name(size))
    return RankGroup(dist.get_rank(group), size, group)


class Training(ABC):
    """A model on DeepSpeed, trained an iteration at a time."""

    engine: Any

    def __init__(self, samples: Samples) -> None:
        self.samples = samples

    def accumulate(self, steps: int) -> None:
        samples = self.samples
        self.engine.set_train_batch_size(steps * samples.micro_batch_size * samples.ranks)

    @abstractmethod
    def iterate(self) -> float:
        """Take one optimizer step over a global batch; return the mean loss of all ranks."""


class WholeTraining(Training):
    """Training without a pipeline: DeepSpeed's plain engine knows every ZeRO stage."""

    def __init__(
        self, plan: Plan, samples: Samples, config: dict[str, Any], *, grid: Any, limit: Limit
    ) -> None:
        super().__init__(samples)
        self.device = plan.build.device
        self.group = grid.get_data_parallel_group()
        limit()
        # Under ZeRO 3 each layer is partitioned when it is created: no rank ever holds the model.
        partitioned = plan.strategy.zero_stage == 3
        with deepspeed.zero.Init(
            data_parallel_group=self.group,
            config_dict_or_path=config,
            mpu=grid,
            enabled=partitioned,
        ):
            model = WholeModel(plan)
        self.engine = _initialize(model, plan, config, grid=grid)

    def iterate(self) -> float:
        steps = self.engine.gradient_accumulation_steps()
        total = torch.zeros((), device=self.device)
        for tokens, labels in self.samples.step(steps):
            loss = self.engine(tokens.to(self.device), labels.to(self.device))
            self.engine.backward(loss)
            self.engine.step()
            total += loss.detach().float()
        dist.all_reduce(total, group=self.group)
        mean: float = total.item() / (steps * self.samples.ranks)
        return mean


class PipelineTraining(Training):
    """Training in a pipeline under 1F1B: DeepSpeed's pipeline engine knows ZeRO 0 and 1."""

    def __init__(
        self, plan: Plan, samples: Samples, config: dict[str, Any], *, grid: Any, limit: Limit
    ) -> None:
        super().__init__(samples)
        model = _LimitedPipeline(plan, topology=grid.topology(), limit=limit)
        self.engine = _initialize(model, plan, config, grid=grid)

    def iterate(self) -> float:
        steps = self.engine.gradient_accumulation_steps()
        return float(self.engine.train_batch(data_iter=self.samples.step(steps)))


class _LimitedPipeline(PipelineModule):  # type: ignore[misc]
    """DeepSpeed's pipeline, with the memory limit set once its communicators stand."""

    def __init__(self, plan: Plan, *, topology: Any, limit: Limit) -> None:
        self._start_limit, self._plan = limit, plan
        if plan.transformer.tied_embeddings:
            first = TiedLayerSpec("embedding", Embedding, plan, tied_weight_attr="weight")
            last = TiedLayerSpec("embedding", Embedding, plan, tied_weight_attr="weight")
        else:
            first, last = LayerSpec(Embedding, plan), LayerSpec(Embedding, plan, "logits")
        middle = [LayerSpec(kind, *inputs) for kind, inputs in middle_layers(plan)]
        super().__init__(
            layers=[first, *middle, last],
            topology=topology,
            loss_fn=loss_of(plan),
        )
        for module in self.tied_modules.values():
            for parameter in module.parameters():
                # Only the copy of the first stage counts in the gradient norm.
                parameter.model_parallel &= not parameter.ds_pipe_replicated

    def _partition_layers(self, method: str) -> None:  # noqa: ARG002 (which there is one of)
        """Divide the blocks; the first stage has the layers before them, the last those after.

        DeepSpeed's own methods differ between releases: before 0.12.5 a stage could be empty.
        """
        layers = self._plan.transformer.num_layers
        before = [spec.typename for spec in self._layer_specs].index(Block)
        ends = accumulate(stage_layers(layers, self.num_stages))
        self.parts = [0, *(before + end for end in ends)]
        self.parts[-1] = len(self._layer_specs)
        stage = self._topo.get_coord(self.global_rank).pipe
        self._set_bounds(start=self.parts[stage], stop=self.parts[stage + 1])

    def _build(self) -> None:
        self._start_limit()
        super()._build()


def _initialize(model: nn.Module, plan: Plan, config: dict[str, Any], *, grid: Any) -> Any:
    clips_itself = clips_wrongly(plan.strategy)
    if clips_itself:
        config = {**config, "gradient_clipping": 0.0}
    pipelined = isinstance(model, PipelineModule)
    engine, *_ = deepspeed.initialize(
        model=model,
        model_parameters=[p for p in model.parameters() if p.requires_grad],
        config=config,
        mpu=None if pipelined else grid,  # a pipeline has one of its own
        dist_init_required=False,
    )
    # For 16-bit formats without ZeRO, DeepSpeed allocates the optimizer's moments by a step with
    # empty gradients, which Adam's bias correction would count: the first steps would be too small.
    engine.basic_optimizer.state.clear()
    if clips_itself:
        clip = GradientClip(
            list(model.parameters()),
            experts=plan.build.experts,
            model=grid.get_model_parallel_group(),
            most=GRADIENT_CLIPPING,
        )
        engine.basic_optimizer.register_step_pre_hook(clip)
    return engine
