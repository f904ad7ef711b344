from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from evaluators.adapter.adapter import Adapter
from evaluators.adapter.names import strategy_names
from evaluators.adapter.reading import read_adapter
from evaluators.adapter.rendering import StartPlan, capabilities_of_adapter, start_of
from search_spaces.choices import DimensionChoice
from search_spaces.errors import InvalidInput, InvalidInputs
from search_spaces.lattice import Lattice
from search_spaces.machine import Machine
from search_spaces.space import SearchSpace
from tests.evaluators.adapter.samples import MACHINE, MODEL, my_script, strategy

FILE = """command = ["train"]
[dimension.overlap]
values = [false, true]
[dimension.bucket]
values = [50, 12.5, 100]
[dimension.kernel]
values = ["plain", "fused"]
[set]
"--overlap" = "{overlap}"
"--bucket" = "{bucket}"
"--kernel" = "{kernel}"
[[refuse]]
when = "overlap and bucket < 20"
because = "it would overlap nothing"
[[read]]
log = 'kernel (?P<kernel>\\w+): (?P<iteration_time_s>\\S+)'
"""


def _read(folder: Path, text: str = FILE) -> Adapter:
    path = folder / "own.toml"
    path.write_text(text)
    return read_adapter(path)


def _space(adapter: Adapter, **choices: object) -> SearchSpace:
    return SearchSpace.build(
        MODEL,
        MACHINE,
        nodes=1,
        choices=choices,  # type: ignore[arg-type]
        program=capabilities_of_adapter(adapter),
    )


def test_own_dimensions_are_searched_except_refused_values(tmp_path: Path) -> None:
    adapter = _read(tmp_path)
    found = _space(adapter, bucket=["12.5", 100], kernel="fused")
    assert found.settings == {"overlap": (False, True), "bucket": (12.5, 100), "kernel": ("fused",)}
    settings = [dict(strategy.settings) for strategy in found.lattice()]
    tried = {(each["overlap"], each["bucket"], each["kernel"]) for each in settings}
    assert tried == {(False, 12.5, "fused"), (False, 100, "fused"), (True, 100, "fused")}
    assert found.enumerate().removed["program"] == len(found.lattice()) / 3


@pytest.mark.parametrize("machine", [MACHINE, replace(MACHINE, peak_tflops=300.0)])
@pytest.mark.parametrize("named", [{}, {"tensor_parallel": [1, 2]}, {"zero_stage": 1}])
def test_a_switch_in_the_file_is_searched_unless_named(
    tmp_path: Path, machine: Machine, named: dict[str, DimensionChoice]
) -> None:
    program = capabilities_of_adapter(my_script(tmp_path))

    def legal(**more: DimensionChoice) -> Lattice:
        choices = named | more
        return SearchSpace.build(
            MODEL, machine, nodes=1, choices=choices, program=program
        ).lattice()

    found = legal()
    switches = zip(found["activation_checkpointing"], found["sequence_parallel"], strict=True)
    assert {(str(kind), bool(cut)) for kind, cut in switches} == {
        (kind, cut) for kind in ("none", "full") for cut in (False, True)
    }
    found = legal(activation_checkpointing="full", sequence_parallel=False)
    assert set(found["activation_checkpointing"]) == {"full"}
    assert not found["sequence_parallel"].any()


ON_DEMAND = FILE.replace("values = [false, true]", "values = [true, false]\nsearched = false")


def test_an_unsearched_dimension_takes_its_first_or_named_value(
    tmp_path: Path,
) -> None:
    adapter = _read(tmp_path, ON_DEMAND)
    usual = _space(adapter, bucket=[12.5, 50], kernel="plain").lattice()
    # Its refusals are judged by that value.
    assert [each.settings for each in usual] == [(("bucket", 50), ("kernel", "plain"))]
    plan = StartPlan(transformer=MODEL, machine=MACHINE, strategy=usual.strategy(0), iterations=6)
    assert "--overlap" in start_of(adapter, plan).words
    named = _space(adapter, bucket=50, kernel="plain", overlap="off").lattice().strategy(0)
    assert dict(named.settings)["overlap"] is False
    assert "--overlap" not in start_of(adapter, replace(plan, strategy=named)).words
    both = _space(adapter, bucket=50, kernel="plain", overlap="auto").settings
    assert both["overlap"] == (True, False)


def test_values_are_passed_as_the_file_has_them(tmp_path: Path) -> None:
    adapter = _read(tmp_path)
    (one, *_) = _space(adapter, overlap=True, bucket=50, kernel="plain").lattice()
    start = start_of(
        adapter, StartPlan(transformer=MODEL, machine=MACHINE, strategy=one, iterations=6)
    )
    assert start.words == ("train", "--overlap", "--bucket", "50", "--kernel", "plain")
    assert strategy_names(MODEL, MACHINE, one)["kernel"] == "plain"
    assert one.short().endswith("bucket 50 · kernel plain · overlap on")


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"overlap": True, "bucket": 50}, "kernel"),
        ({"overlap": True, "bucket": 51, "kernel": "plain"}, "bucket"),
        ({"overlap": True, "bucket": 50, "kernel": "plain", "other": 1}, "other"),
    ],
)
def test_other_values_are_refused_before_anything_runs(
    tmp_path: Path, settings: dict[str, object], field: str
) -> None:
    wrong = strategy(settings=tuple(sorted(settings.items())))
    plan = StartPlan(transformer=MODEL, machine=MACHINE, strategy=wrong, iterations=6)
    with pytest.raises(InvalidInput) as refused:
        start_of(_read(tmp_path), plan)
    assert refused.value.field == field


@pytest.mark.parametrize(
    ("choices", "reason"),
    [
        ({"overlap": "sometimes"}, "overlap='sometimes'.*valid: false, true, or auto"),
        ({"bucket": []}, "bucket=.*an empty list"),
        ({"overlapp": True}, "overlapp=True: no such dimension; did you mean overlap"),
    ],
)
def test_a_choice_that_it_does_not_have_is_refused_by_name(
    tmp_path: Path, choices: dict[str, object], reason: str
) -> None:
    with pytest.raises(InvalidInputs, match=reason):
        _space(_read(tmp_path), **choices)


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("[false, true]", "[true]", "dimension.overlap.values=.*a list of 2 to 100"),
        ("[false, true]", "[false, 1]", "not all of one kind"),
        ("12.5", "50.0", "two of them are alike"),
        ("12.5", "nan", "not finite"),
        ('"fused"', '""', "a text has 1 to 200"),
        ("values = [false", "value = [false", "unknown; did you mean values"),
        ("[dimension.bucket]", "[dimension.zero_stage]", "every trainer has this dimension"),
        ("[dimension.bucket]", "[dimension.gas]", "it means something else already"),
        ("[dimension.bucket]", '[dimension."a-b"]', "not a name"),
        (
            "[false, true]",
            "[false, true]\nsearched = 0",
            "dimension.overlap.searched=0: not a switch",
        ),
        ('"--overlap" = "{overlap}"', "", "neither command nor .set. mentions it"),
        ("{kernel}", "{kernels}", "unknown name kernels; did you mean kernel"),
    ],
)
def test_a_dimension_is_checked_when_it_is_read(
    tmp_path: Path, old: str, new: str, reason: str
) -> None:
    assert old in FILE
    with pytest.raises(InvalidInputs, match=reason):
        _read(tmp_path, FILE.replace(old, new))
