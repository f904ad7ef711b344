"""What stands in for torch's compiler, tried in the place of a module that is imported faster."""

from __future__ import annotations

import colorsys
import sys

import pytest

from evaluators.trainer.compiler import NoCompiler


def test_it_leaves_functions_as_they_are_and_is_the_compiler_for_all_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    absent = NoCompiler(colorsys.__name__)
    monkeypatch.setitem(sys.modules, colorsys.__name__, absent)
    assert absent.disable(len, True, wrapping=False) is len
    assert absent.disable(recursive=False)(len) is len
    absent.graph_break()
    assert not hasattr(absent, "__file__")
    assert sys.modules[colorsys.__name__] is absent
    assert absent.rgb_to_hsv(1.0, 1.0, 1.0) == (0.0, 0.0, 1.0)
    assert sys.modules[colorsys.__name__] is not absent
