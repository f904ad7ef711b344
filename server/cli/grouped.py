"""Options that several commands share, written once.

Typer reads a command's options from its signature and knows no groups. A command may here take a
dataclass whose fields are options; `expanded` gives Typer the flat signature and the command the
dataclass.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from functools import wraps
from typing import Any, get_type_hints


def expanded(command: Callable[..., None]) -> Callable[..., None]:
    """`command` with each parameter that is a dataclass replaced by that dataclass's fields."""
    hints = get_type_hints(command, include_extras=True)
    parameters = inspect.signature(command).parameters
    groups = {name: hints[name] for name in parameters if is_dataclass(hints[name])}

    @wraps(command)
    def flat(**given: Any) -> None:
        plain = {name: given[name] for name in parameters if name not in groups}
        filled = {name: _filled(group, given) for name, group in groups.items()}
        command(**plain, **filled)

    flat_parameters: list[inspect.Parameter] = []
    for name, parameter in parameters.items():
        if name in groups:
            flat_parameters.extend(_parameters(groups[name]))
        else:
            keyword = parameter.replace(kind=parameter.KEYWORD_ONLY, annotation=hints[name])
            flat_parameters.append(keyword)
    flat.__signature__ = inspect.Signature(flat_parameters)  # type: ignore[attr-defined]
    flat.__annotations__ = {p.name: p.annotation for p in flat_parameters}
    return flat


def _parameters(group: type[Any]) -> list[inspect.Parameter]:
    hints = get_type_hints(group, include_extras=True)
    return [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=field.default,
            annotation=hints[field.name],
        )
        for field in fields(group)
    ]


def _filled(group: type[Any], given: Mapping[str, Any]) -> Any:
    return group(**{field.name: given[field.name] for field in fields(group)})
