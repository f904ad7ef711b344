"""Commands that are imported when they run, so that `autotune --help` does not load all of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand
from typer.main import get_command

from server.cli.examples import EXAMPLES
from server.cli.failures import Command, Commands

PACKAGE = "server.cli.commands"


@dataclass(frozen=True)
class CommandPlace:
    """The location of a command, and its summary before it is imported.

    Attributes:
        place: `module:function` within server.cli.commands.
        sentence: the first sentence of the function's docstring.
    """

    place: str
    sentence: str

    def load(self) -> Any:
        module, _, name = self.place.partition(":")
        return getattr(import_module(f"{PACKAGE}.{module}"), name)


@dataclass(frozen=True)
class GroupPlace(CommandPlace):
    """A group of two-word commands.

    Attributes:
        place: `module:constant` of its help.
        commands: the second words.
    """

    commands: Mapping[str, CommandPlace]


class LateCommand(TyperCommand):
    """A command that shows its summary, and is loaded when it is called.

    `name` is its whole name, of two words in a group.
    """

    def __init__(self, place: CommandPlace, *, name: str, panel: str | None = None) -> None:
        super().__init__(name=name.split()[-1], help=place.sentence, rich_help_panel=panel)
        self._place = place
        self._words = name

    @cached_property
    def loaded(self) -> Any:
        """The command with its options, or the group with its commands."""
        content = self._place.load()
        lines = EXAMPLES.get(self._words, ())
        epilog = "\n\n".join(["Examples:", *(f"  {line}" for line in lines)]) if lines else None
        if isinstance(self._place, GroupPlace):
            return Commands(
                name=self.name,
                help=content,
                epilog=epilog,
                no_args_is_help=True,
                rich_markup_mode="rich",
                commands={
                    name: LateCommand(place, name=f"{self._words} {name}")
                    for name, place in self._place.commands.items()
                },
            )
        from server.cli.options import flattened

        single = typer.Typer(
            add_completion=False, rich_markup_mode="rich", pretty_exceptions_enable=False
        )
        single.command(self.name, cls=Command, epilog=epilog)(flattened(content))
        return get_command(single)

    def make_context(self, *arguments: Any, **others: Any) -> Any:
        """Create the context of the loaded command; a group runs the command of this context."""
        return self.loaded.make_context(*arguments, **others)
