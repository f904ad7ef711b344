"""A layout as a user writes it, `tp=8,pp=4,mbs=1,zero=1`, and what was read of it."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from search_spaces.choices import describe_valid, values_of
from search_spaces.dimensions import BY_NAME, DIMENSIONS, IN_LINE, TABLE, Scalar
from search_spaces.errors import InvalidInput, closest, suggestion

FIELD = "baseline"
BATCH = "global_batch_size"
EXAMPLE = "tp=8,pp=4,mbs=1,zero=1"
FORMS = f'such as "{EXAMPLE}", a line of Megatron\'s arguments, or "none"'

SHORT: Mapping[str, str] = {
    **{key: dimension.name for dimension in TABLE for key in dimension.keys},
    "gbs": BATCH,
    "global_batch": BATCH,
}
KEYS: Mapping[str, str] = {**SHORT, **{name: name for name in (*DIMENSIONS, BATCH)}}
"""Accepted keys and the dimension that each sets."""

SWITCH_WORDS = {"on": True, "true": True, "yes": True, "off": False, "false": False, "no": False}


@dataclass(frozen=True, kw_only=True)
class LayoutStatement:
    """The dimensions of a layout that the user named.

    Attributes:
        global_batch_size: samples of one optimizer step, if named.
        settings: dimensions of the trainer's own, as written.
        unread: options that may change speed or memory and are no dimension, as written.
        notes: defaults of the program that are easily overlooked.
    """

    dimensions: Mapping[str, Scalar] = field(default_factory=dict)
    global_batch_size: int | None = None
    settings: Mapping[str, Scalar] = field(default_factory=dict)
    unread: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def layout(self) -> str:
        read = (d.brief(self.dimensions[d.name]) for d in IN_LINE if d.name in self.dimensions)
        return " · ".join(filter(None, read))


def words_of(text: str) -> list[str]:
    """Split a line into words as a shell would. Raises InvalidInput."""
    try:
        return shlex.split(text.replace("\\\n", " "))
    except ValueError as error:
        reason = f"it cannot be split into words: {str(error).lower()}"
        raise InvalidInput(FIELD, text, reason, valid=FORMS) from None


def key_values(text: str, *, own: Collection[str] = ()) -> LayoutStatement:
    """Parse `tp=8,pp=4,mbs=1,zero=1`, separated by commas or spaces, in any order.

    Args:
        own: names of dimensions of the trainer's own.

    Raises:
        InvalidInput: field `baseline`: not a pair, an unknown key, a repeated key, or a value that
            its dimension cannot have.
    """
    pairs = words_of(text.replace(",", " "))
    if not pairs:
        raise InvalidInput(FIELD, text, "the text names no part of a layout", valid=FORMS)
    values: dict[str, Scalar] = {}
    settings: dict[str, Scalar] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals:
            raise InvalidInput(FIELD, text, f"{pair!r} is no key=value", valid=FORMS)
        name = key if key in own else _meaning(key, text)
        if name in values or name in settings:
            reason = f"{key} is given twice"
            raise InvalidInput(FIELD, text, reason, valid="each key once")
        if name in own:
            settings[name] = value
        else:
            values[name] = read_value(name, value, shown=f"{key}={value}", text=text)
    return replace(statement(values), settings=settings)


def statement(
    values: Mapping[str, Scalar], *, unread: tuple[str, ...] = (), notes: tuple[str, ...] = ()
) -> LayoutStatement:
    """Return dimensions, which may include a global batch size, as a statement."""
    batch = values.get(BATCH)
    return LayoutStatement(
        dimensions={name: value for name, value in values.items() if name != BATCH},
        global_batch_size=None if batch is None else int(batch),
        unread=unread,
        notes=notes,
    )


def _meaning(key: str, text: str) -> str:
    name = KEYS.get(key.strip().lower().replace("-", "_"))
    if name is None:
        meant = suggestion(closest(key, KEYS, count=1))
        reason = f"{key!r} is no dimension of a layout{meant}"
        raise InvalidInput(FIELD, text, reason, valid=", ".join(SHORT))
    return name


def read_value(name: str, value: str, *, shown: str, text: str) -> Scalar:
    """Return the value of a dimension or of the global batch size.

    Args:
        shown: the value as the user wrote it, for the error.
        text: everything that the user wrote.

    Raises:
        InvalidInput: field `baseline`: the dimension has no such value.
    """
    # A batch is a number of samples, as a micro-batch is.
    dimension = BY_NAME["micro_batch_size" if name == BATCH else name]
    read: Scalar = value.lower()
    if dimension.is_switch:
        read = SWITCH_WORDS.get(value.lower(), value)
    elif dimension.is_counted:
        read = int(value) if value.isascii() and value.isdigit() else value
    try:
        values_of(dimension.name, read)
    except InvalidInput:
        reason = f"{shown}: this is no value of {name}"
        raise InvalidInput(FIELD, text, reason, valid=describe_valid(dimension.name)) from None
    return read
