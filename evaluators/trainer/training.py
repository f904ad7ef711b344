"""One model on DeepSpeed, trained an iteration at a time, with or without a pipeline."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import accumulate
from types import MappingProxyType
from typing import Any, Protocol

import deepspeed
import torch
import torch.distributed as dist
from deepspeed.pipe import LayerSpec, PipelineModule, TiedLayerSpec
from deepspeed.runtime.pipe.topology import PipelineParallelGrid, PipeModelDataParallelTopology
from deepspeed.utils import groups
from torch import nn

from evaluators.frameworks.deepspeed import GRADIENT_CLIPPING, deepspeed_config
from evaluators.trainer.clipping import GradientClip, clips_wrongly
from evaluators.trainer.data import Samples
from evaluators.trainer.memory import Memory
from evaluators.trainer.model import Block, Embedding, WholeModel, loss_of, middle_layers
from evaluators.trainer.plan import Plan
from evaluators.trainer.rank_group import ALONE, RankGroup, group_of
from evaluators.trainer.support import BALANCED, routing_of
from evaluators.trainer.tensor_parallel import Build, expert_group_name
from evaluators.trial import TrialRequest
from search_spaces.program import stage_layers

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


class Training(Protocol):
    """A model on DeepSpeed, trained an iteration at a time."""

    def accumulate(self, steps: int) -> None:
        """Use `steps` micro-batches in each iteration from now on."""

    def iterate(self) -> float:
        """Take one optimizer step over a global batch; return the mean loss of all ranks."""


def build_training(
    request: TrialRequest,
    *,
    device: torch.device,
    memory: Memory,
    changes: Mapping[str, Any] = MappingProxyType({}),
) -> Training:
    """Build the model under the memory limit; the communicators come first and are not counted.

    Args:
        changes: sections of DeepSpeed's configuration in place of a trial's own.
    """
    transformer, strategy = request.transformer, request.strategy
    replicas = strategy.data_parallel(request.machine.gpus_per_node)
    parts = strategy.context_parallel
    # The ranks that share a sequence are data-parallel ones to DeepSpeed: each has a batch of its
    # own, and the gradient is the mean of all.
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
    config = deepspeed_config(
        transformer, strategy, data_parallel=replicas * parts, program="trainer"
    )
    config |= changes
    kind = PipelineTraining if strategy.pipeline_parallel > 1 else WholeTraining
    limit_gib = request.machine.memory_gib
    return kind(plan, samples, config, grid=grid, memory=memory, limit_gib=limit_gib)


def _side_by_side(topology: Any, size: int) -> RankGroup:
    """Return the ranks that share each sequence: neighbours among the data-parallel ones."""
    lists = topology.get_axis_comm_lists("data")
    return group_of([ranks[i : i + size] for ranks in lists for i in range(0, len(ranks), size)])


def _expert_group(grid: Any, size: int) -> RankGroup:
    """Return the ranks that share the experts of a layer, in the groups that DeepSpeed keeps.

    They are neighbours among the data-parallel ranks of a stage and of a part of each layer, so
    each expert is cut over the tensor-parallel ranks.
    """
    if size == 1:
        return ALONE
    groups._create_expert_data_and_model_parallel(size, mpu=grid)
    group = groups._get_expert_parallel_group(expert_group_name(size))
    return RankGroup(dist.get_rank(group), size, group)


class WholeTraining:
    """Training without a pipeline: DeepSpeed's plain engine knows every ZeRO stage."""

    def __init__(
        self,
        plan: Plan,
        samples: Samples,
        config: dict[str, Any],
        *,
        grid: Any,
        memory: Memory,
        limit_gib: float,
    ) -> None:
        self.samples = samples
        self.device = plan.build.device
        self.group = grid.get_data_parallel_group()
        memory.limit(limit_gib)
        # Under ZeRO 3 each layer is cut up as soon as it is made: no rank ever holds the model.
        partitioned = plan.strategy.zero_stage == 3
        with deepspeed.zero.Init(
            data_parallel_group=self.group,
            config_dict_or_path=config,
            mpu=grid,
            enabled=partitioned,
        ):
            model = WholeModel(plan)
        self.engine: Any = _initialize(model, plan, config, grid=grid)

    def accumulate(self, steps: int) -> None:
        samples = self.samples
        self.engine.set_train_batch_size(steps * samples.micro_batch_size * samples.ranks)

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


class PipelineTraining:
    """Training in a pipeline under 1F1B: DeepSpeed's pipeline engine knows ZeRO 0 and 1."""

    def __init__(
        self,
        plan: Plan,
        samples: Samples,
        config: dict[str, Any],
        *,
        grid: Any,
        memory: Memory,
        limit_gib: float,
    ) -> None:
        self.samples = samples
        self.steps = plan.strategy.gradient_accumulation_steps
        topology = grid.topology()
        model = _LimitedPipeline(plan, topology=topology, memory=memory, limit_gib=limit_gib)
        self.engine: Any = _initialize(model, plan, config, grid=grid)

    def accumulate(self, steps: int) -> None:
        samples = self.samples
        self.steps = steps
        self.engine.set_train_batch_size(steps * samples.micro_batch_size * samples.ranks)

    def iterate(self) -> float:
        return float(self.engine.train_batch(data_iter=self.samples.step(self.steps)))


class _LimitedPipeline(PipelineModule):  # type: ignore[misc]
    """DeepSpeed's pipeline, with the memory limit set once its communicators stand."""

    def __init__(self, plan: Plan, *, topology: Any, memory: Memory, limit_gib: float) -> None:
        self._start_limit: Callable[[], None] = lambda: memory.limit(limit_gib)
        self._plan = plan
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
                # Held by the first stage too, whose copy alone the gradient norm counts.
                parameter.model_parallel &= not parameter.ds_pipe_replicated

    def _partition_layers(self, method: str) -> None:  # noqa: ARG002 (which there is one of)
        """Cut between blocks; what comes before them is the first stage's, after them the last's.

        DeepSpeed's own ways differ with its release: before 0.12.5 a stage could be left empty.
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
