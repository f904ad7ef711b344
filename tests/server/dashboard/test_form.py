"""The form in a real browser: checked, refused field by field, and submitted."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

from playwright.sync_api import expect

from autotune.schemas.requests import SlurmChoice
from autotune.schemas.spaces import Range
from search_spaces.catalog import load_model
from search_spaces.layers import Experts
from server.store.campaigns import get_campaign
from tests.server.dashboard.conftest import Faults, Open, Service
from tests.server.dashboard.perception import UNNAMED

# The form asks what a plan would find at each pause, and a slow typist pauses at half a shape.
HALF_TYPED = "422"

CONFIGS = Path(__file__).parents[2] / "search_spaces" / "recorded" / "hugging-face-configs.json"


def test_form_shows_refusals_at_their_fields_and_keeps_the_input(
    service: Service, visit: Open, faults: list[Faults]
) -> None:
    page = visit(f"{service.url}/campaigns/new")
    faults[0].expect("422")
    assert page.evaluate(UNNAMED) == []
    page.get_by_label("Nodes", exact=True).first.fill("zero")
    page.get_by_label("Maximum trials").fill("0")
    page.get_by_role("button", name="Check").click()
    nodes = page.locator("#nodes")
    expect(nodes).to_have_attribute("aria-invalid", "true")
    expect(page.locator("#error-nodes")).to_contain_text("integer")
    expect(page.locator("#error-budget-max_trials")).to_contain_text("greater than 0")
    expect(nodes).to_have_value("zero")
    nodes.fill("1")
    page.get_by_label("Maximum trials").fill("5")
    page.get_by_label("Model", exact=True).fill("gpt-22x")
    page.get_by_role("button", name="Check").click()
    expect(page.locator("#error-model")).to_contain_text("gpt-22b")
    expect(page.locator("#error-nodes")).to_have_count(0)


def test_form_checks_and_submits(service: Service, visit: Open, faults: list[Faults]) -> None:
    page = visit(f"{service.url}/campaigns/new")
    faults[0].expect(HALF_TYPED)
    page.get_by_role("button", name="175B on Frontier, simulated").click()
    page.get_by_role("button", name="Check").click()
    report = page.locator("#report")
    for words in (
        "3,264",
        "2,788",
        "Layouts to try",
        "world_size",
        "Node-hours, expected",
        "Measured first: TP 4 · PP ",
        "a default layout, batch ",
    ):
        expect(report).to_contain_text(words)
    expect(page.locator("#report-left-out-list")).to_contain_text(
        re.compile(r"higher rate|times the rate")
    )
    page.get_by_text("Measurement, knobs, seed and name").click()
    page.get_by_label("Name", exact=True).fill("from the form")
    page.get_by_role("button", name="Start the campaign").click()
    page.wait_for_url(re.compile(r"/campaigns/\d+$"))
    page.wait_for_selector("body[data-ready]")
    expect(page.get_by_role("heading", level=1)).to_have_text("from the form")


def test_form_takes_an_own_shape_and_dimensions(
    service: Service, visit: Open, faults: list[Faults]
) -> None:
    page = visit(f"{service.url}/campaigns/new", width=390)
    faults[0].expect(HALF_TYPED)
    page.get_by_label("Custom shape").check()
    for label, value in (("Layers", "8"), ("Hidden size", "1024"), ("Attention heads", "16")):
        page.get_by_label(label, exact=True).fill(value)
    page.get_by_text("Experts, latent attention and other layers").click()
    page.get_by_label("Experts", exact=True).fill("num_experts=8 top_k=2 ffn_hidden_size=512")
    page.get_by_label("Machine").select_option("frontier")
    page.get_by_label("Evaluator").select_option("simulated")
    page.get_by_text("Dimensions", exact=True).click()
    page.get_by_label("Tensor parallel", exact=True).fill("1, 2")
    page.get_by_label("Pipeline parallel").fill("1..2")
    page.get_by_label("Micro-batch size").fill("4")
    page.get_by_label("Flash attention").fill("on")
    page.get_by_label("Training tokens").fill("1.4 T")
    page.get_by_role("button", name="Start the campaign").click()
    page.wait_for_url(re.compile(r"/campaigns/\d+$"))
    number = int(page.url.rpartition("/")[2])
    with service.campaigns.store.session() as session:
        request = get_campaign(session, number).request
    assert not isinstance(request.model, str)
    assert request.model.num_layers == 8
    assert request.model.experts == Experts(num_experts=8, top_k=2, ffn_hidden_size=512)
    assert request.space.tensor_parallel == [1, 2]
    assert request.space.pipeline_parallel == Range(minimum=1, maximum=2)
    assert request.space.flash_attention is True
    assert request.budget.train_tokens == 1.4e12
    assert request.space.micro_batch_size == 4


def test_form_takes_knobs_and_own_ones(service: Service, visit: Open, faults: list[Faults]) -> None:
    page = visit(f"{service.url}/campaigns/new")
    faults[0].expect(HALF_TYPED)
    page.get_by_text("Measurement, knobs, seed and name").click()
    page.get_by_label("Own knobs").fill("[knob")
    page.get_by_label("Knobs", exact=True).fill("overlap, none")
    page.get_by_role("button", name="Check").click()
    expect(page.locator("#error-knob_file")).to_contain_text("not TOML")
    page.get_by_label("Own knobs").fill("")
    page.get_by_role("button", name="Check").click()
    expect(page.locator("#error-knobs")).to_contain_text("valid: all, overlap, ")
    page.get_by_label("Knobs", exact=True).fill("overlap, reduce_bucket")
    page.get_by_role("button", name="Check").click()
    expect(page.locator("#report")).to_contain_text("Layouts to try")


def test_form_takes_a_mixture_from_its_configuration(
    service: Service, visit: Open, faults: list[Faults], tmp_path: Path
) -> None:
    page = visit(f"{service.url}/campaigns/new")
    faults[0].expect(HALF_TYPED)
    page.get_by_label("Custom shape").check()
    experts = page.get_by_label("Expert parallel", exact=True)
    file = page.get_by_label("Hugging Face config.json")
    error = page.locator("#error-config")
    configs = json.loads(CONFIGS.read_text())
    # A browser tells of another file by its name alone.
    for name, text, words in (
        ("broken", "{", "broken.json is not JSON"),
        ("bert", '{"model_type": "bert"}', "model.num_hidden_layers: this field is missing"),
    ):
        (tmp_path / f"{name}.json").write_text(text)
        file.set_input_files(tmp_path / f"{name}.json")
        expect(error).to_contain_text(words)
    for name in ("deepseek-v3", "qwen3-30b-a3b"):  # what only the first one has is taken away again
        (tmp_path / f"{name}.json").write_text(json.dumps(configs[name]))
        file.set_input_files(tmp_path / f"{name}.json")
        latent = page.get_by_label("Latent attention", exact=True)
        expect(latent).to_have_value(re.compile("kv_rank=512") if name == "deepseek-v3" else "")
    expect(error).to_have_count(0)
    expect(page.get_by_label("Experts", exact=True)).to_have_value(
        "num_experts=128 top_k=8 ffn_hidden_size=768"
    )
    page.get_by_label("Experts", exact=True).fill("num_experts=128 top_k=129 ffn_hidden_size=768")
    page.get_by_label("Machine").select_option("dgx-h100")
    page.get_by_label("Evaluator").select_option("simulated")
    page.get_by_label("Nodes", exact=True).first.fill("2")
    page.get_by_text("Dimensions", exact=True).click()
    expect(experts).to_be_visible()
    page.get_by_role("button", name="Check").click()
    expect(page.locator("#error-model-experts")).to_contain_text("top_k: there are 128 experts")
    page.get_by_label("Experts", exact=True).fill("num_experts=128 top_k=8 ffn_hidden_size=768")
    experts.fill("8")
    page.get_by_role("button", name="Check").click()
    expect(page.locator("#report")).to_contain_text("48 layers, hidden 2048")


def test_form_asks_for_a_profile_only_where_trials_go_to_slurm(
    service: Service, visit: Open, faults: list[Faults]
) -> None:
    page = visit(f"{service.url}/campaigns/new")
    faults[0].expect("422")
    profile, machine = page.get_by_label("Cluster profile"), page.get_by_label("Machine")
    expect(profile).to_be_hidden()
    expect(page.get_by_label("Jobs")).to_be_hidden()
    page.get_by_label("Evaluator").select_option("slurm")
    expect(profile).to_have_value("")
    expect(machine).to_have_value("")
    assert page.evaluate(UNNAMED) == []
    page.get_by_label("Model", exact=True).fill("gpt-22b")
    page.get_by_role("button", name="Check").click()
    expect(page.locator("#error-slurm-profile")).to_be_visible()
    expect(page.locator("#error-machine")).to_be_visible()
    profile.select_option("frontier")
    expect(machine).to_have_value("frontier")
    page.get_by_label("Jobs").select_option("pilot")
    page.get_by_label("Nodes", exact=True).first.fill("2")
    page.get_by_role("button", name="Start the campaign").click()
    page.wait_for_url(re.compile(r"/campaigns/\d+$"))
    page.wait_for_selector("body[data-ready]")
    page.locator("#summary").get_by_text("Details").click()
    expect(page.get_by_text("with the profile frontier, as steps of one")).to_be_visible()
    with service.campaigns.store.session() as session:
        request = get_campaign(session, int(page.url.rpartition("/")[2])).request
    assert request.slurm == SlurmChoice(profile="frontier", mode="pilot")


def test_form_forgets_the_profile_of_another_evaluator(
    service: Service, visit: Open, faults: list[Faults]
) -> None:
    page = visit(f"{service.url}/campaigns/new")
    faults[0].expect(HALF_TYPED)
    page.get_by_label("Evaluator").select_option("slurm")
    page.get_by_label("Cluster profile").select_option("frontier")
    page.get_by_label("Evaluator").select_option("simulated")
    page.get_by_label("Model", exact=True).fill("gpt-22b")
    page.get_by_label("Nodes", exact=True).first.fill("2")
    page.get_by_role("button", name="Check").click()
    expect(page.locator("#report")).to_contain_text("Layouts to try")


def test_form_asks_for_a_ray_cluster(service: Service, visit: Open, faults: list[Faults]) -> None:
    page = visit(f"{service.url}/campaigns/new")
    faults[0].expect("422")
    expect(page.get_by_label("Ray cluster")).to_be_hidden()
    page.get_by_label("Evaluator").select_option("ray")
    page.get_by_label("Ray cluster").fill("my cluster")
    page.get_by_role("button", name="Check").click()
    expect(page.locator("#error-ray-address")).to_contain_text("HOST:PORT")


def test_form_offers_own_profiles_first_and_names_a_broken_one(
    own_service: Service, visit: Open, faults: list[Faults]
) -> None:
    folder = own_service.settings.profiles_dir
    folder.mkdir(parents=True)
    (folder / "mine.toml").write_text('description = "Ours. More of it."\nmachine = "frontier"')
    (folder / "broken.toml").write_text('[slurm]\npartitoin = "batch"')
    page = visit(f"{own_service.url}/campaigns/new")
    faults[0].expect("422")
    page.get_by_label("Evaluator").select_option("slurm")
    profile = page.get_by_label("Cluster profile")
    expect(profile).to_have_value("mine")
    expect(profile.locator("option").first).to_have_text("mine: Ours")
    expect(page.get_by_label("Machine")).to_have_value("frontier")
    profile.select_option("broken")
    page.get_by_role("button", name="Check").click()
    expect(page.locator("#error-slurm-profile")).to_contain_text("slurm.partitoin")


def test_form_offers_what_a_trainer_described_by_a_file_can_vary(
    service: Service, visit: Open
) -> None:
    page = visit(f"{service.url}/campaigns/new")
    page.locator("#space + .fields + details summary").click()
    flash = page.get_by_label("Flash attention")
    expect(flash).to_be_visible()
    flash.fill("on, off")
    page.get_by_label("Trainer").select_option("torchtitan-0.2")
    expect(flash).to_be_hidden()
    expect(page.get_by_label("Tensor parallel", exact=True)).to_be_visible()
    note = page.locator("#varied")
    expect(note).to_contain_text("torchtitan-0.2 does not vary: ")
    expect(note).to_contain_text("Flash attention")
    # It is simulated by its rules, too: the file as it is configures no model for trials here.
    page.get_by_label("Evaluator").select_option("simulated")
    expect(flash).to_be_hidden()
    # What is hidden is not sent: the service would refuse it.
    page.get_by_role("button", name="Check").click()
    expect(page.locator("#report")).to_contain_text("Layouts to try")
    page.get_by_label("Trainer").select_option("")
    expect(flash).to_be_visible()
    experts = page.get_by_label("Expert parallel")
    expect(experts).to_be_hidden()
    page.get_by_label("Model", exact=True).fill("qwen3-30b-a3b")
    expect(experts).to_be_visible()


def test_form_simulates_another_machine_than_its_own(
    service: Service, visit: Open, faults: list[Faults]
) -> None:
    page = visit(f"{service.url}/campaigns/new?model=gpt-22b&machine=frontier&nodes=2")
    evaluator, machine = page.get_by_label("Evaluator"), page.get_by_label("Machine")
    note = page.locator("#switched")
    expect(evaluator).to_have_value("simulated")
    expect(note).to_have_text("changed to simulated: frontier is not this machine")
    machine.select_option("dgx-h100")
    expect(note).to_contain_text("dgx-h100 is not this machine")
    faults[0].expect("422")  # the plan of 22B on this machine, if it is asked for in time
    machine.select_option("local")
    expect(evaluator).to_have_value("local")
    expect(note).to_be_hidden()
    machine.select_option("frontier")
    expect(evaluator).to_have_value("simulated")
    evaluator.select_option("local")
    expect(machine).to_have_value("local")
    expect(note).to_be_hidden()


def test_form_submits_a_simulation_of_a_trainer(service: Service, visit: Open) -> None:
    page = visit(f"{service.url}/campaigns/new?model=gpt-22b&machine=frontier&nodes=2")
    page.get_by_label("Trainer").select_option("torchtitan-0.2")
    page.get_by_role("button", name="Start the campaign").click()
    page.wait_for_url(re.compile(r"/campaigns/\d+$"))
    with service.campaigns.store.session() as session:
        campaign = get_campaign(session, int(page.url.rpartition("/")[2]))
    assert (campaign.simulated, campaign.request.adapter) == (True, "torchtitan-0.2")


def test_form_changes_the_sequence_length_of_a_named_model(
    service: Service, visit: Open, faults: list[Faults]
) -> None:
    page = visit(f"{service.url}/campaigns/new?machine=frontier&nodes=2")
    faults[0].expect(HALF_TYPED)
    length = page.locator("#seq_length")
    for name in ("tiny", "gpt-22b"):
        page.get_by_label("Model", exact=True).fill(name)
        expect(length).to_have_value(str(load_model(name).seq_length))
    length.fill("0")
    page.get_by_role("button", name="Check").click()
    expect(page.locator("#error-model")).to_contain_text("must be positive")
    length.fill("8,192")
    page.get_by_role("link", name="Full plan").click()
    page.wait_for_url(re.compile("/plan"))
    expect(length).to_have_value("8192")
    expect(page.get_by_label("Model", exact=True)).to_have_value("gpt-22b")
    page.get_by_role("link", name="Start a campaign from this").click()
    page.wait_for_url(re.compile("/campaigns/new"))
    page.wait_for_selector("body[data-ready]")
    page.get_by_role("button", name="Start the campaign").click()
    page.wait_for_url(re.compile(r"/campaigns/\d+$"))
    number = int(page.url.rpartition("/")[2])
    with service.campaigns.store.session() as session:
        model = get_campaign(session, number).model
    assert model == replace(load_model("gpt-22b"), seq_length=8192)
    again = visit(f"{service.url}/campaigns/new?like={number}")
    expect(again.locator("#seq_length")).to_have_value("8192")
    again.get_by_label("Model", exact=True).fill("gpt-175b")
    expect(again.locator("#seq_length")).to_have_value(str(load_model("gpt-175b").seq_length))
