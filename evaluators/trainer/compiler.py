"""torch's compiler, which no trial uses and which takes a quarter of importing torch and DeepSpeed.

torch imports it at the first step of an optimizer, to be told that nothing is compiled.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Any

NAME = "torch._dynamo"


class NotImported(ModuleType):
    """Stands in for a module until it is asked for what it does not have, which is the module's."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name != "__path__":
            raise AttributeError(name)
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        return getattr(importlib.import_module(self.__name__), name)


class NoTraceRules(NotImported):
    @staticmethod
    def clear_lru_cache() -> None:
        """Keep what is kept: there is nothing."""


class NoCompiler(NotImported):
    """Stands in for `torch._dynamo`, and does what that does where nothing is compiled: nothing."""

    trace_rules = NoTraceRules(f"{NAME}.trace_rules")

    @staticmethod
    def disable(function: Any = None, *_recursive: bool, **_options: Any) -> Any:
        """Return the function, or a decorator that does, as it is written."""
        return NoCompiler.disable if function is None else function

    @staticmethod
    def graph_break(message: str = "") -> None:
        """Break no graph."""


def do_without_compiler() -> None:
    """Keep torch, which is imported here, from importing its compiler before it compiles."""
    import torch

    if NAME not in sys.modules:
        sys.modules[NAME] = torch._dynamo = NoCompiler(NAME)
