from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from search_spaces.catalog import load_machine, machine_from_table, machine_names, read_machine
from search_spaces.catalog.machines import unit_slips
from search_spaces.errors import InvalidInput, InvalidInputs
from search_spaces.machine import Machine

FIELDS = [field.name for field in fields(Machine)]
UNUSUAL = {"fast_domain", "peaks_tflops"}
PRESETS = [name for name in machine_names() if name != "local"]
MINE: dict[str, Any] = {
    "gpu": "H100",
    "gpus_per_node": 8,
    "max_nodes": 4,
    "memory_gib": 80,
    "peak_tflops": 989,
    "memory_bandwidth_gb_per_s": 3350,
    "intra_node_gb_per_s": 450,
    "inter_node_gb_per_s": 50,
}


def refused(table: dict[str, Any]) -> dict[str, InvalidInput]:
    with pytest.raises(InvalidInputs) as refusal:
        machine_from_table(table)
    return {problem.field: problem for problem in refusal.value.problems}


def test_names_are_known_in_any_case() -> None:
    assert load_machine("Frontier") == load_machine("frontier")
    assert load_machine("LOCAL") is load_machine("local")


def test_frontier() -> None:
    frontier = load_machine("frontier")
    assert (frontier.gpus_per_node, frontier.memory_gib, frontier.peak_tflops) == (8, 64, 191.5)
    assert (frontier.gpu_idle_watt, frontier.gpu_max_watt) == (45, 250)
    assert frontier.inter_node_gb_per_s == 12.5


@pytest.mark.parametrize(
    ("changes", "field", "text"),
    [
        ({"inter_node_gb_per_s": 400}, "inter_node_gb_per_s", "Gbit/s; in GB/s it would be 50"),
        (
            {"gpu": "MI250X GCD", "peak_tflops": 191.5, "intra_node_gb_per_s": 50}
            | {"inter_node_gb_per_s": 100},
            "inter_node_gb_per_s",
            "Gbit/s; in GB/s it would be 12.5",
        ),
        ({"intra_node_gb_per_s": 900}, "intra_node_gb_per_s", "one direction has 450 GB/s"),
        ({"peak_tflops": 1979}, "peak_tflops", "sparsity; one H100 reaches 989 TFLOP/s, dense"),
        ({"gpu": "MI250X", "peak_tflops": 383}, "peak_tflops", "looks like both dies of a module"),
    ],
)
def test_a_users_file_with_a_figure_in_another_unit(
    changes: dict[str, Any], field: str, text: str, tmp_path: Path
) -> None:
    file = tmp_path / "mine.toml"
    file.write_text("\n".join(f"{k} = {json.dumps(v)}" for k, v in (MINE | changes).items()))
    with pytest.raises(InvalidInputs) as refusal:
        read_machine(file)
    assert {p.field for p in refusal.value.problems} == {f"machine.{field}"}
    assert text in str(refusal.value)


@pytest.mark.parametrize("name", PRESETS)
def test_no_figure_of_a_preset_looks_like_one_of_another_unit(name: str) -> None:
    assert list(unit_slips(load_machine(name))) == []


def test_the_bundled_machines_are_there() -> None:
    names = (
        "aurora dgx-a100 dgx-b200 dgx-b300 dgx-h100 dgx-h200 frontier gb200-nvl72 gb300-nvl72 "
        "gh200 local lumi-g mi300x mi325x mi355x perlmutter polaris summit"
    )
    assert set(names.split()) <= set(machine_names())


@pytest.mark.parametrize("name", PRESETS)
def test_every_figure_of_a_preset_has_a_source(name: str) -> None:
    machine = load_machine(name)
    assert machine.name == name
    assert machine.description
    text = " ".join(source.split(":")[0] for source in machine.sources)
    sourced = set(text.replace(",", " ").split())
    figures = set(FIELDS) - {"name", "description", "gpu", "sources", *UNUSUAL}
    assert figures <= sourced
    assert {figure for figure in UNUSUAL if getattr(machine, figure)} <= sourced


@pytest.mark.parametrize(
    ("name", "gpus", "fp8", "nvfp4"),
    [("gb300-nvl72", 72, 2.0, 6.0), ("gb200-nvl72", 72, 2.0, 4.0), ("dgx-h100", 8, 2.0, 4.0)],
)
def test_fast_links_and_peaks_of_a_rack_and_of_a_node(
    name: str, gpus: int, fp8: float, nvfp4: float
) -> None:
    machine = load_machine(name)
    assert machine.fast_gpus == gpus
    assert (machine.narrow_gain("fp8"), machine.narrow_gain("nvfp4")) == (fp8, nvfp4)


def test_an_unknown_machine_is_refused_with_the_closest_names() -> None:
    with pytest.raises(InvalidInput, match="did you mean frontier") as refusal:
        load_machine("Fronteer")
    assert refusal.value.field == "machine"
    assert "local" in refusal.value.valid


def test_a_users_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text("\n".join(f"{key} = {value!r}" for key, value in MINE.items()))
    machine = read_machine(path)
    assert (machine.name, machine.memory_gib, machine.gpu_max_watt) == ("mine", 80.0, None)


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        ("memory_gib", 65536, "looks like MiB; in GiB it would be 64"),
        ("memory_gib", 68719476736, "looks like bytes; in GiB it would be 64"),
        ("peak_tflops", 191.5e12, "looks like FLOP/s; in TFLOP/s it would be 191.5"),
        ("peak_tflops", 191_500, "looks like GFLOP/s; in TFLOP/s it would be 191.5"),
        ("memory_bandwidth_gb_per_s", 1.6, "looks like TB/s"),
        ("memory_bandwidth_gb_per_s", 1.6e12, "looks like bytes per second"),
        ("intra_node_gb_per_s", 2e11, "looks like bytes per second"),
        ("inter_node_gb_per_s", 12_500, "looks like MB/s"),
        ("gpu_max_watt", 0.7, "looks like kW"),
        ("memory_gib", 0, "must be positive"),
        ("memory_gib", -64, "must be positive"),
        ("memory_gib", 10**400, "not plausible"),
        ("memory_gib", float("nan"), "not a number"),
        ("memory_gib", "64", "not a number"),
        ("memory_gib", None, "a value is needed"),
        ("gpus_per_node", 8.0, "not a whole number"),
        ("gpus_per_node", True, "not a whole number"),
        ("gpus_per_node", 0, "must be positive"),
        ("gpu", 100, "not text"),
        ("sources", "a book", "not a list of texts"),
        ("fast_domain", 12, "nodes of 8 GPUs do not fill it"),
        ("peaks_tflops", 1979, "not a table"),
    ],
)
def test_a_figure_in_a_wrong_unit_or_type_is_refused(field: str, value: Any, reason: str) -> None:
    faults = refused(MINE | {field: value})
    assert list(faults) == [f"machine.{field}"]
    assert reason in str(faults[f"machine.{field}"])
    assert faults[f"machine.{field}"].valid


def test_a_peak_of_an_unknown_format_is_refused() -> None:
    faults = refused(MINE | {"peaks_tflops": {"int8": 1979, "fp8": 1.979e15}})
    assert "no such field" in faults["machine.peaks_tflops.int8"].reason
    assert "in TFLOP/s it would be 1979" in faults["machine.peaks_tflops.fp8"].reason


def test_a_field_in_another_unit_is_refused_with_the_right_one() -> None:
    table = {key: value for key, value in MINE.items() if key != "memory_gib"} | {"memory_gb": 80}
    faults = refused(table)
    assert faults["machine.memory_gb"].reason.startswith("memory is given in GiB, as memory_gib")
    assert faults["machine.memory_gib"].reason == "this field is missing"


def test_an_unknown_field_is_refused_with_the_closest() -> None:
    faults = refused(MINE | {"gpu_per_node": 8})
    assert "did you mean gpus_per_node?" in faults["machine.gpu_per_node"].reason


def test_a_gpu_that_idles_above_its_cap_is_refused() -> None:
    faults = refused(MINE | {"gpu_idle_watt": 500, "gpu_max_watt": 300})
    assert "cannot idle above its cap of 300 W" in faults["machine.gpu_idle_watt"].reason


def test_a_machine_without_a_peak_is_allowed() -> None:
    assert machine_from_table(MINE | {"peak_tflops": None}).peak_tflops is None


anything = st.none() | st.booleans() | st.integers() | st.floats() | st.text("a1 ", max_size=3)


@given(st.dictionaries(st.sampled_from([*FIELDS, "memory_gb"]), anything))
def test_any_table_is_taken_or_refused_by_field(table: dict[str, Any]) -> None:
    try:
        machine = machine_from_table(MINE | table)
    except InvalidInputs:
        assert all(field.startswith("machine.") for field in refused(MINE | table))
    else:
        assert 0 < machine.memory_gib <= 2048
