"""Groups of options: dataclasses whose fields Typer reads as the options of a command.

Typer reads a command's options from its signature and has no groups. A parameter of a command may
have an `OptionGroup` as its type; `flattened` converts the signature for Typer, and builds the
group for the command.
"""

from __future__ import annotations

import inspect
import shlex
from collections.abc import Callable, Container, Mapping
from copy import copy
from dataclasses import dataclass, field, fields
from functools import wraps
from typing import Annotated, Any, ClassVar, get_type_hints

import typer


def option(
    flags: str, meaning: str, *others: str, default: str = "", value: Any = None, **more: Any
) -> Any:
    """Return a field of an `OptionGroup`.

    Args:
        flags: its name; for a switch with two, `--on/--off`.
        meaning: a sentence for --help.
        others: further names.
        default: what --help shows as its default; empty for nothing.
        value: the field's value without the option.
        more: arguments of `typer.Option`.
    """
    shown = f"{meaning}  \\[default: {default}]" if default else meaning
    return field(
        default=value, metadata={"option": typer.Option(flags, *others, help=shown, **more)}
    )


@dataclass(frozen=True, kw_only=True)
class OptionGroup:
    """Base class of frozen dataclasses whose fields are made by `option`.

    Fields are named as in a request, so that errors can name the flag of an invalid field
    (`server.cli.failures`).

    Attributes:
        PANEL: the group's heading in --help; empty to list it with the other options.
        DEFAULTS: field -> what --help shows as its default.
    """

    PANEL: ClassVar[str] = ""
    DEFAULTS: ClassVar[Mapping[str, object]] = {}

    @classmethod
    def flags(cls) -> dict[str, str]:
        # Within Annotated, Typer stores an option's first name as its default.
        return {each.name: each.metadata["option"].default for each in fields(cls)}

    def given(self, names: Container[str] | None = None) -> dict[str, Any]:
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return chosen(**{n: v for n, v in values.items() if names is None or n in names})

    def words(self) -> list[str]:
        """Return shell words that give the same values, without defaults."""
        words: list[str] = []
        for name, flag in self.flags().items():
            value = getattr(self, name)
            if isinstance(value, bool):
                on, _, off = flag.partition("/")
                words.append(on if value else off)
            elif value is not None:
                several = value if isinstance(value, list) else [value]
                words += [word for each in several for word in (flag, shlex.quote(str(each)))]
        return words


def flattened(command: Callable[..., None]) -> Callable[..., None]:
    """Return `command` with the fields of each group as parameters."""
    hints = get_type_hints(command, include_extras=True)
    groups = {
        name: hint
        for name, hint in hints.items()
        if isinstance(hint, type) and issubclass(hint, OptionGroup)
    }

    @wraps(command)
    def flat(**options: Any) -> None:
        filled = {
            name: group(**{each.name: options.pop(each.name) for each in fields(group)})
            for name, group in groups.items()
        }
        command(**options, **filled)

    parameters: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(command).parameters.items():
        if name in groups:
            parameters.extend(_parameters(groups[name]))
        else:
            keyword = parameter.replace(kind=parameter.KEYWORD_ONLY, annotation=hints[name])
            parameters.append(keyword)
    flat.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    flat.__annotations__ = {each.name: each.annotation for each in parameters}
    return flat


def _parameters(group: type[OptionGroup]) -> list[inspect.Parameter]:
    hints = get_type_hints(group)
    parameters = []
    for each in fields(group):
        declared = copy(each.metadata["option"])
        declared.rich_help_panel = group.PANEL or None
        if each.name in group.DEFAULTS:
            declared.help += f"  \\[default: {group.DEFAULTS[each.name]}]"
        parameters.append(
            inspect.Parameter(
                each.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=each.default,
                annotation=Annotated[hints[each.name], declared],
            )
        )
    return parameters


def chosen(**options: Any) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}
