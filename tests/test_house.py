"""The house itself: one meaning for each class name, and a map that leads somewhere."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from pathlib import Path

from search_spaces.dimensions import DIMENSIONS

HOUSE = Path(__file__).parents[1]
PACKAGES = ("search_spaces", "autotune", "evaluators", "server")


def test_a_class_name_means_one_thing() -> None:
    """A reader who has met a name knows it everywhere; private names count, too."""
    homes = defaultdict(list)
    for path in sorted(path for package in PACKAGES for path in (HOUSE / package).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                homes[node.name.lstrip("_")].append(str(path.relative_to(HOUSE)))
    assert homes
    assert {name: paths for name, paths in homes.items() if len(paths) > 1} == {}


def test_every_place_of_the_map_is_there() -> None:
    """CONTRIBUTING names folders and files; a name that was moved misleads a newcomer."""
    text = (HOUSE / "CONTRIBUTING.md").read_text(encoding="utf-8")
    starts = "|".join((*PACKAGES, "tests", "docs", "docker"))
    places = set(re.findall(rf"`((?:{starts})/[\w./-]*)`", text))
    assert len(places) > 20
    assert sorted(place for place in places if not (HOUSE / place).exists()) == []


def test_dimensions_are_listed_once() -> None:
    """Who lists three dimensions by hand will not know of the next one: such lists follow from
    `search_spaces.dimensions.TABLE`. A trainer and the cost model say what they know of."""
    own = ("search_spaces", "autotune/cost_model", "evaluators/trainer", "evaluators/frameworks")
    listed = defaultdict(list)
    for path in sorted(path for package in PACKAGES for path in (HOUSE / package).rglob("*.py")):
        place = str(path.relative_to(HOUSE))
        if place.startswith(own):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.List | ast.Tuple | ast.Set):
                texts = {each.value for each in node.elts if isinstance(each, ast.Constant)}
                if len(texts & set(DIMENSIONS)) >= 3:
                    listed[place].append(node.lineno)
    assert listed == {}


def test_a_test_name_has_at_most_60_characters() -> None:
    names = [
        (node.name, str(path.relative_to(HOUSE)))
        for path in sorted((HOUSE / "tests").rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.name.startswith("test_")
    ]
    assert names
    assert [(name, path) for name, path in names if len(name) > 60] == []
