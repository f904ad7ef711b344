from __future__ import annotations

from dataclasses import replace

import pytest

from autotune.baseline import baseline_name, baseline_of
from autotune.prediction.plan import plan
from autotune.schemas.requests import CampaignCreate
from autotune.schemas.resolution import campaign_space, subject_of
from search_spaces.catalog import load_machine, load_model
from search_spaces.catalog.recipes import published, recipe_of
from search_spaces.details import Details
from search_spaces.space import SearchSpace

MACHINES = ("dgx-h100", "dgx-b200", "dgx-b300", "gb200-nvl72", "gb300-nvl72")
H100 = load_machine("dgx-h100")
SEVENTY = load_model("llama-3-70b")


def request_with(**changes: object) -> CampaignCreate:
    request = {"model": "llama-3-70b", "machine": "dgx-h100", "nodes": 8}
    return CampaignCreate.model_validate(
        {**request, "space": {"global_batch_size": 512}, **changes}
    )


def space_of(request: CampaignCreate) -> SearchSpace:
    return campaign_space(request, *subject_of(request.model, request.machine))


def test_a_recipe_belongs_to_a_shape_a_gpu_and_a_precision() -> None:
    own = replace(SEVENTY, name="mine", seq_length=4096, details=Details())
    recipe = recipe_of(own, H100, "bf16")
    assert recipe is not None
    assert (recipe.vendor, recipe.dimensions["virtual_stages"]) == ("NVIDIA", 5)
    assert recipe_of(SEVENTY, H100, "fp8") != recipe
    assert recipe_of(SEVENTY, H100, "fp16") is None
    assert recipe_of(SEVENTY, load_machine("dgx-h200"), "bf16") is None
    assert recipe_of(SEVENTY, replace(H100, gpu="GB200"), "bf16") is None  # of B200
    assert recipe_of(replace(SEVENTY, num_layers=79), H100, "bf16") is None


@pytest.mark.parametrize("recipe", [*published()], ids=" ".join)
def test_every_recipe_is_legal(recipe: tuple[str, str, str]) -> None:
    """On as many GPUs as it needs, in the precision that it is published for."""
    model, gpu, precision = recipe
    machine = next(m for m in map(load_machine, MACHINES) if m.gpu.startswith(gpu))
    found = recipe_of(load_model(model), machine, precision)
    assert found is not None
    space = SearchSpace.build(
        load_model(model),
        machine,
        nodes=1024 // machine.gpus_per_node,
        choices={
            **{name: [value] for name, value in found.dimensions.items()},
            "precision": precision,
            "num_nodes": 1024 // machine.gpus_per_node,
        },
    )
    assert len(space.lattice())


def test_an_automatic_space_has_the_recipe_which_is_the_baseline() -> None:
    request = request_with()
    space = space_of(request)
    baseline = baseline_of(request, space)
    assert baseline is not None
    assert baseline_name(request, SEVENTY, H100, baseline) == "NVIDIA's recipe"
    assert baseline.short().startswith("TP 4 · PP 4")
    assert (baseline.context_parallel, baseline.virtual_stages) == (2, 5)
    assert baseline in list(space.lattice())


def test_a_named_layout_leaves_the_recipe_out() -> None:
    request = request_with(space={"global_batch_size": 512, "tensor_parallel": [8]})
    space = space_of(request)
    baseline = baseline_of(request, space)
    assert baseline is not None
    assert baseline_name(request, SEVENTY, H100, baseline) == "a default layout"
    assert space.dimensions["virtual_stages"] == (1,)


def test_the_first_prediction_is_near_the_best_of_all() -> None:
    """The best of any context parallelism and number of virtual stages is within 2 %."""
    request = request_with()
    wide = request_with(
        space={
            "global_batch_size": 512,
            "context_parallel": [1, 2, 4],
            "virtual_stages": {"minimum": 1, "maximum": 20},
        }
    )
    first, best = (
        plan(each, space_of(each), most=1).best[0].tokens_per_s for each in (request, wide)
    )
    assert first > 0.98 * best
