from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from search_spaces import catalog
from search_spaces.catalog import (
    load_model,
    model_from_line,
    model_names,
    model_with,
    read_model,
)
from search_spaces.catalog.models import meaning_of_size
from search_spaces.errors import InvalidInput, InvalidInputs
from search_spaces.layers import Experts

PUBLISHED_PARAMETERS = {
    "llama-2-7b": 6_738_415_616,
    "llama-2-13b": 13_015_864_320,
    "llama-2-70b": 68_976_648_192,
    "llama-3-8b": 8_030_261_248,
    "llama-3-70b": 70_553_706_496,
    "llama-3-405b": 405_853_388_800,
    "llama-3.2-1b": 1_235_814_400,
    "llama-3.2-3b": 3_212_749_824,
}


@pytest.mark.parametrize(("name", "parameters"), PUBLISHED_PARAMETERS.items())
def test_llama_has_the_published_parameters(name: str, parameters: int) -> None:
    assert load_model(name).parameters == parameters


@pytest.mark.parametrize(
    ("name", "layers", "hidden", "heads"),
    [
        ("gpt-1.4b", 24, 2064, 24),
        ("gpt-22b", 48, 6144, 48),
        ("gpt-175b", 96, 12288, 96),
        ("gpt-1t", 128, 25600, 128),
    ],
)
def test_models_of_the_study(name: str, layers: int, hidden: int, heads: int) -> None:
    model = load_model(name)
    assert (model.num_layers, model.hidden_size, model.num_attention_heads) == (
        layers,
        hidden,
        heads,
    )
    assert (model.seq_length, model.vocab_size, model.ffn_hidden_size) == (2048, 51200, 4 * hidden)


def test_every_preset_loads_under_its_own_name() -> None:
    assert len(model_names()) >= 13
    assert [load_model(name).name for name in model_names()] == model_names()


def test_the_tiny_model_allows_four_way_tp_and_pp() -> None:
    tiny = load_model("tiny")
    assert tiny.num_layers % 4 == tiny.num_attention_heads % 4 == tiny.vocab_size % 4 == 0
    assert tiny.parameters < 2_000_000


def test_an_unknown_model_is_refused_with_the_closest_names() -> None:
    with pytest.raises(InvalidInput, match="did you mean") as refusal:
        load_model("lama-2-7b")
    assert refusal.value.field == "model"
    assert "llama-2-7b" in refusal.value.reason
    assert "gpt-22b" in refusal.value.valid


def test_a_model_of_another_family_and_size_is_not_suggested() -> None:
    with pytest.raises(InvalidInput) as refusal:
        load_model("codellama-34b")
    assert refusal.value.reason == "no such model"
    with pytest.raises(InvalidInput, match="did you mean llama-3-70b or llama-3-8b"):
        load_model("llama-3-7b")


@pytest.mark.parametrize("nonsense", ["", "B", "13", "13 G", "-1B", "1e9B", "13BB", "½B"])
def test_what_is_no_size_is_no_model(nonsense: str) -> None:
    with pytest.raises(InvalidInput, match="no such model"):
        load_model(nonsense)


@pytest.mark.parametrize("size", ["0B", "1M", "100T"])
def test_a_size_beyond_convention_is_refused(size: str) -> None:
    with pytest.raises(InvalidInput, match="no conventional shape") as refusal:
        load_model(size)
    assert refusal.value.valid == "20M to 20T"


@pytest.mark.parametrize(
    ("size", "layers", "hidden", "heads"),
    [
        ("125M", 12, 768, 12),
        ("0.35B", 24, 1024, 16),
        ("760M", 24, 1536, 16),
        ("1.3b", 24, 2048, 16),
        ("2.7B", 32, 2560, 32),
        ("6.7B", 32, 4096, 32),
        ("7B", 32, 4096, 32),
        ("13B", 40, 5120, 40),
        ("22B", 48, 6144, 48),
        ("30B", 48, 7168, 56),
        ("65B", 80, 8192, 64),
        ("70B", 80, 8192, 64),
        ("71B", 80, 8192, 64),
        ("175B", 96, 12288, 96),
        ("405B", 126, 16384, 128),
        ("1T", 128, 25600, 128),
        ("1000B", 128, 25600, 128),
        (" 1 t ", 128, 25600, 128),
    ],
)
def test_a_bare_size_gives_the_shape_that_is_known_by_it(
    size: str, layers: int, hidden: int, heads: int
) -> None:
    model = load_model(size)
    assert (model.num_layers, model.hidden_size, model.num_attention_heads) == (
        layers,
        hidden,
        heads,
    )
    assert model.name == "".join(size.split()).upper()


@pytest.mark.parametrize(
    ("choice", "meaning"),
    [
        ("70B", "the shape of llama-3-70b"),
        ("22b", "the shape of gpt-22b"),
        ("60B", "a GPT-3-like shape, assumed for this size"),
        (
            "671B",
            "a GPT-3-like shape, assumed for this size; presets of this size: deepseek-v3, "
            "deepseek-v3.2",
        ),
        ("Llama-3-70B", ""),
    ],
)
def test_the_meaning_of_a_size_is_reported(choice: str, meaning: str) -> None:
    model = load_model(choice)
    assert meaning_of_size(model) == meaning
    assert meaning_of_size(replace(model, seq_length=4096)) == meaning
    assert meaning_of_size(replace(model, num_layers=4)) == ""


def test_a_size_of_llama_is_llama_in_all_else() -> None:
    model = load_model("70B")
    assert (model.num_query_groups, model.ffn_hidden_size, model.gated_mlp) == (8, 28672, True)
    assert replace(model, name="llama-3-70b") == load_model("llama-3-70b")


@given(size=st.floats(math.log(20.001e6), math.log(19.999e12)).map(math.exp))
def test_every_size_gets_a_shape_within_six_percent(size: float) -> None:
    model = load_model(f"{size / 1e6:.6f}M")
    assert model.parameters == pytest.approx(size, rel=0.06)
    assert model.hidden_size % 128 == 0
    assert 9 < model.hidden_size / model.num_layers < 260


def test_shapes_between_the_known_ones_divide_well() -> None:
    known = {load_model(name).num_layers for name in model_names()}
    models = [load_model(f"{size / 1e9:.6f}B") for size in np.geomspace(2e9, 19e12, 40)]
    assert all(m.num_layers % 4 == 0 or m.num_layers in known for m in models)
    assert all(m.num_attention_heads % 4 == 0 for m in models)
    eights = [m for m in models if m.num_layers % 8 == 0 and m.num_attention_heads % 8 == 0]
    assert len(eights) > 0.75 * len(models)


def written(folder: Path, text: str, name: str = "mine.toml") -> Path:
    path = folder / name
    path.write_text(text, "utf-8")
    return path


SHAPE = "num_layers = 8\nhidden_size = 512\nnum_attention_heads = 8\n"


def test_a_users_file_is_read(tmp_path: Path) -> None:
    model = read_model(written(tmp_path, SHAPE + 'num_query_groups = 2\nsources = ["me"]\n'))
    assert (model.name, model.num_query_groups, model.ffn_hidden_size) == ("mine", 2, 2048)


def test_every_fault_of_a_users_file_is_named_at_once(tmp_path: Path) -> None:
    path = written(
        tmp_path, "num_layer = 8\nhidden_size = 0\nnum_attention_heads = 8.0\ngated_mlp = 1\n"
    )
    with pytest.raises(InvalidInputs) as refusal:
        read_model(path)
    faults = {problem.field: problem for problem in refusal.value.problems}
    assert "did you mean num_layers?" in faults["model.num_layer"].reason
    assert faults["model.num_layers"].reason == "this field is missing"
    assert faults["model.hidden_size"].reason == "must be positive"
    assert faults["model.gated_mlp"].reason == "not true or false"
    assert faults["model.num_attention_heads"].reason.startswith("not a whole number")


@pytest.mark.parametrize(
    ("shape", "field"),
    [
        ("num_layers = 8\nhidden_size = 512\nnum_attention_heads = 7", "model.num_attention_heads"),
        (SHAPE + "num_query_groups = 3", "model.num_query_groups"),
    ],
)
def test_heads_that_do_not_divide_are_refused(tmp_path: Path, shape: str, field: str) -> None:
    with pytest.raises(InvalidInputs, match="not divisible") as refusal:
        read_model(written(tmp_path, shape))
    assert [problem.field for problem in refusal.value.problems] == [field]


EXPERTS = "[experts]\nnum_experts = 8\nffn_hidden_size = 64\n"
LATENT = "[latent_attention]\nkv_rank = 64\nqk_head_dim = 32\nrope_head_dim = 16\nv_head_dim = 32\n"
MAMBA = "[mamba]\nnum_heads = 8\nhead_dim = 64\nstate_size = 16\nattention_layers = 2\n"


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ("experts = 8", ["experts"]),
        (EXPERTS + "topk = 2", ["experts.topk", "experts.top_k"]),
        (EXPERTS + "top_k = 9", ["experts.top_k"]),
        (EXPERTS + "top_k = true", ["experts.top_k"]),
        (EXPERTS + "top_k = 2\ndense_layers = 8", ["experts.dense_layers"]),
        ("head_dim = 64\nnum_query_groups = 2\n" + LATENT, ["head_dim", "num_query_groups"]),
        ("window_layers = 4", ["window_layers"]),
        ("attention_window = 128", ["window_layers"]),
        ("attention_window = 128\nwindow_layers = 9", ["window_layers"]),
        (MAMBA + "layers = 7\nnum_groups = 8", ["mamba.layers"]),
        (MAMBA + "layers = 4\nnum_groups = 3", ["mamba.num_groups"]),
    ],
)
def test_layers_that_cannot_be_are_refused_by_their_field(
    tmp_path: Path, text: str, fields: list[str]
) -> None:
    with pytest.raises(InvalidInputs) as refusal:
        read_model(written(tmp_path, SHAPE + text))
    assert [each.field for each in refusal.value.problems] == [f"model.{name}" for name in fields]


def test_layers_of_several_kinds_are_read_from_tables(tmp_path: Path) -> None:
    model = read_model(written(tmp_path, SHAPE + LATENT + EXPERTS + "top_k = 2\ndense_layers = 1"))
    assert model.experts == Experts(num_experts=8, top_k=2, ffn_hidden_size=64, dense_layers=1)
    assert model.latent_attention is not None
    assert (model.latent_attention.q_rank, model.head_width) == (None, 48)
    hybrid = read_model(written(tmp_path, SHAPE + MAMBA + "layers = 4\nnum_groups = 8"))
    assert [(kind.count, kind.mixer) for kind in hybrid.kinds] == [
        (4, "recurrent"),
        (2, "attention"),
        (2, None),
    ]


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("mine.toml", "num_layers = = 8", "not TOML"),
        ("mine.toml", f"num_layers = {'9' * 5000}", "not TOML"),
        ("mine.toml", f"{'a.' * 2_000}a = 1", "nested more than 100 deep"),
        ("mine.json", f"{'[' * 500}{']' * 500}", "nested more than 100 deep"),
        ("mine.json", "{", "not JSON"),
        ("mine.json", "[" * 100_000, "not JSON"),
        ("mine.json", "[1]", "no JSON object"),
        ("mine.toml", "#" * 1_000_001, "larger than 1 MB"),
    ],
)
def test_a_file_of_another_kind_is_refused(
    tmp_path: Path, name: str, text: str, reason: str
) -> None:
    with pytest.raises(InvalidInput, match=reason) as refusal:
        read_model(written(tmp_path, text, name))
    assert refusal.value.field == "model"


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="No such file"):
        read_model(tmp_path / "absent.toml")
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(InvalidInput, match="UTF-8"):
        read_model(tmp_path / "binary.toml")


def test_a_line_sets_fields_by_their_names_or_short_forms() -> None:
    llama = load_model("llama-3.2-1b")
    line = (
        f"layers={llama.num_layers}, hidden={llama.hidden_size}, heads={llama.num_attention_heads},"
        f"kv-heads={llama.num_query_groups}, ffn={llama.ffn_hidden_size}, gated=on, tied=yes,"
        f"vocab_size={llama.vocab_size}, seq={llama.seq_length}, name={llama.name}"
    )
    assert model_from_line(line) == replace(llama, details=None)


@pytest.mark.parametrize(
    ("line", "field", "reason"),
    [
        ("layers=4,depth=64", "model", "a model has no such field"),
        ("layers=4,hidden", "model", "it sets no field"),
        ("layers=4,num_layers=5", "model", "the field is set twice"),
        ("layers=4,experts.top_k=2", "model", "it needs a TOML file"),
        ("layers=4,hidden=64", "model.num_attention_heads", "this field is missing"),
        ("layers=4.5,hidden=64,heads=4", "model.num_layers", "whole number"),
        ("layers=4,hidden=64,heads=4,tied=maybe", "model.tied_embeddings", "true or false"),
        ("layers=4,hidden=100,heads=3", "model.num_attention_heads", "not divisible by 3 heads"),
    ],
)
def test_what_a_line_cannot_say_is_refused(line: str, field: str, reason: str) -> None:
    with pytest.raises(InvalidInputs) as refused:
        model_from_line(line)
    [problem] = refused.value.problems
    assert problem.field == field
    assert reason in f"{problem.reason} {problem.valid}"


@pytest.mark.parametrize(
    ("stated", "reason"),
    [
        ("31.2e9", "the shape has 30.53B parameters, not 31.2B"),
        ("true", "not a number of parameters"),
    ],
)
def test_a_stated_number_of_parameters_has_to_be_met(
    tmp_path: Path, stated: str, reason: str
) -> None:
    shape = (Path(catalog.__file__).parent / "models" / "qwen3-30b-a3b.toml").read_text()
    file = tmp_path / "mine.toml"
    file.write_text(f"parameters = 30.1e9\n{shape}")
    assert read_model(file).parameters == load_model("qwen3-30b-a3b").parameters
    file.write_text(f"parameters = {stated}\n{shape}")
    with pytest.raises(InvalidInput, match=reason) as refusal:
        read_model(file)
    assert refusal.value.field == "model.parameters"


def test_a_hub_id_and_a_folder_are_answered(tmp_path: Path) -> None:
    hub = "meta-llama/Llama-3.1-8B"
    asks: tuple[Callable[[], object], ...] = (
        lambda: load_model(hub),
        lambda: read_model(Path(hub)),
    )
    for ask in asks:
        with pytest.raises(InvalidInput, match="not downloaded") as refusal:
            ask()
        assert refusal.value.valid == f"the config.json of {hub}, saved in a file"
    with pytest.raises(InvalidInput, match=r"the folder has no config\.json"):
        read_model(tmp_path)


def test_fields_of_a_known_model_may_differ() -> None:
    deepseek = model_with("deepseek-v3", "mtp=0,seq=8192")
    assert deepseek == replace(load_model("deepseek-v3"), mtp_layers=0, seq_length=8192)
    with pytest.raises(InvalidInputs, match="no such field"):
        model_with("deepseek-v3", "mpt=0")
