"""DeepHyper, imported without what only draws its results and what only runs trials on Ray.

Every runner imports it: without these it takes two thirds of the time, and 60 MB less.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from autotune.garbage import staying

DRAWS = "matplotlib"
"""Imported by `deephyper.analysis`, of which a search asks for functions that count."""
RUNS_TRIALS = "ray"
"""DeepHyper does without where it is not installed."""


def import_deephyper() -> None:
    """Import `deephyper.hpo`; what was imported before stays as it is.

    In this process DeepHyper's own figures cannot be drawn after that, and it has no evaluator on
    Ray; matplotlib and Ray themselves are as ever.
    """
    if "deephyper.hpo" in sys.modules:
        return
    with staying(), _absent(RUNS_TRIALS), _standing_in(DRAWS):
        import deephyper.hpo  # noqa: F401


@contextmanager
def _absent(name: str) -> Iterator[None]:
    """Let a package that is not imported yet be as if it were not installed."""
    if name in sys.modules:
        yield
        return
    sys.modules[name] = None  # type: ignore[assignment]  # so the import system has it
    try:
        yield
    finally:
        del sys.modules[name]


@contextmanager
def _standing_in(name: str) -> Iterator[None]:
    """Let a package that is not imported yet be one whose names are all empty classes."""
    if name in sys.modules:
        yield
        return
    finder = _EmptyClasses(name)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        for module in [each for each in sys.modules if finder.has(each)]:
            del sys.modules[module]


class _EmptyModule(ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


class _EmptyClasses(MetaPathFinder, Loader):
    """Finds a package, and in it whatever is asked for."""

    def __init__(self, package: str) -> None:
        self._package = package

    def has(self, name: str) -> bool:
        return name == self._package or name.startswith(f"{self._package}.")

    def find_spec(
        self,
        name: str,
        path: Sequence[str] | None,  # noqa: ARG002
        target: ModuleType | None = None,  # noqa: ARG002
    ) -> ModuleSpec | None:
        return ModuleSpec(name, self, is_package=True) if self.has(name) else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _EmptyModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Leave it empty."""
