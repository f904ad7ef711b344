"""The house itself: one meaning for each class name, and a map that leads somewhere."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from pathlib import Path

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
