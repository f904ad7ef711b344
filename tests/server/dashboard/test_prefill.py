"""A campaign's request as the form's inputs have it."""

from __future__ import annotations

from urllib.parse import parse_qs, urlsplit

from autotune.schemas.predictions import LayoutChange
from autotune.schemas.requests import CampaignCreate
from search_spaces.fields import as_table
from server.dashboard.prefill import address, inputs
from tests.server.asking import STRATEGY


def test_values_other_than_defaults_are_written_as_a_user_would() -> None:
    request = CampaignCreate.model_validate(
        {
            "name": "its own",
            "model": {"num_layers": 4, "hidden_size": 128, "num_attention_heads": 4},
            "machine": "frontier",
            "nodes": 4,
            "evaluator": "slurm",
            "slurm": {"profile": "frontier"},
            "baseline": as_table(STRATEGY),
            "space": {
                "tensor_parallel": [1, 2],
                "micro_batch_size": {"minimum": 4, "maximum": 20, "step": 4},
                "sequence_parallel": True,
                "global_batch_size": 64,
            },
            "budget": {"train_tokens": 300e9, "deadline": "2030-01-01T00:00:00"},
        }
    )
    values = inputs(request)
    baseline = values.pop("baseline")
    assert "tensor_parallel=2" in baseline
    assert CampaignCreate.model_validate({**request.model_dump(), "baseline": baseline})
    assert values == {
        "model-given": "shape",
        "model.num_layers": "4",
        "model.hidden_size": "128",
        "model.num_attention_heads": "4",
        "machine": "frontier",
        "nodes": "4",
        "evaluator": "slurm",
        "slurm.profile": "frontier",
        "space.tensor_parallel": "1, 2",
        "space.micro_batch_size": "4..20 step 4",
        "space.sequence_parallel": "true",
        "space.global_batch_size.minimum": "64",
        "space.global_batch_size.maximum": "64",
        "budget.train_tokens": "300B",
    }


def test_a_copy_keeps_its_knobs() -> None:
    fields = {"model": "tiny", "machine": "local", "evaluator": "local"}
    assert set(inputs(CampaignCreate.model_validate(fields))) == set(fields)
    own = "[knob.threads]\nvalues = [1, 2]\n"
    request = CampaignCreate.model_validate(
        fields | {"knobs": ["overlap", "threads"], "knob_file": own}
    )
    values = inputs(request)
    assert (values["knobs"], values["knob_file"]) == ("overlap, threads", own)
    assert (
        CampaignCreate.model_validate({**request.model_dump(), "knobs": values["knobs"]}) == request
    )


def test_tables_of_a_shape_are_one_input_each() -> None:
    experts = {"num_experts": 8, "top_k": 2, "ffn_hidden_size": 256}
    shape = {"num_layers": 4, "hidden_size": 128, "num_attention_heads": 4, "experts": experts}
    request = CampaignCreate.model_validate(
        {"model": shape | {"mtp_layers": 1}, "machine": "frontier", "nodes": 4}
    )
    values = inputs(request)
    assert values["model.experts"] == "num_experts=8 top_k=2 ffn_hidden_size=256"
    assert values["model.mtp_layers"] == "1"


def test_an_address_holds_what_is_to_change() -> None:
    change = LayoutChange(
        changes={"num_nodes": 32},
        fields={"nodes": 32, "space.num_nodes": [32], "space.sequence_parallel": [False, True]},
        strategy=STRATEGY,
        global_batch_size=64,
        iteration_time_s=1.0,
        relative=1.5,
        relative_low=1.4,
        relative_high=1.6,
        memory_gib=40.0,
        fit_probability=0.9,
        sentence="With 32 nodes it would fit.",
    )
    assert parse_qs(urlsplit(address(7, change)).query) == {
        "like": ["7"],
        "nodes": ["32"],
        "space.num_nodes": ["32"],
        "space.sequence_parallel": ["false, true"],
    }
    assert address(7) == "/campaigns/new?like=7"
