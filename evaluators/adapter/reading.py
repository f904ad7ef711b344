"""Read and validate adapters from TOML files."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from functools import cached_property
from os.path import isfile
from pathlib import Path
from typing import Any, TypeVar, get_args

from pydantic import TypeAdapter, ValidationError

from evaluators.adapter.adapter import (
    Adapter,
    AdapterReader,
    AdapterRefusal,
    AdapterTraining,
    Constant,
    Evidence,
    OneStart,
    OtherModel,
    texts_of,
)
from evaluators.adapter.expression import ExpressionFault, parse
from evaluators.adapter.knobs import check_knob, own_dimensions, read_knobs
from evaluators.adapter.names import (
    AT_START,
    EVERYWHERE,
    IDENTIFIER,
    OF_FIRST,
    OF_ONE_START,
    OF_STRATEGY,
    SET_BY_AUTOTUNE,
)
from evaluators.adapter.own_dimensions import FIGURES, AdapterFaults, own_dimension
from evaluators.adapter.places import Place, file_of, is_table
from evaluators.adapter.template import template
from search_spaces.catalog.files import parse_toml, read_text, read_toml
from search_spaces.choices import values_of
from search_spaces.dimensions import DIMENSIONS, TABLE
from search_spaces.errors import InvalidInput, InvalidInputs, closest, suggestion
from search_spaces.knob import Knob
from search_spaces.program import OwnDimension, StateWidths, Tuning
from search_spaces.traits import read_trait
from search_spaces.transformer import LayerFeature

KEYS = (
    "description",
    "command",
    "prepare",
    "folder",
    "warmup_iterations",
    "base",
    "set",
    "one_start",
    "fixed",
    "dimension",
    "knob",
    "knobs_from",
    "refuse",
    "read",
    "versions",
    "needs",
    "evidence",
    "checked",
    "tuning",
    "states",
    "trains",
    "values",
    "train",
    "other_model",
    "numerics",
)
SOURCES = ("log", "json_lines", "csv", "tensorboard")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,49}")
MOST_WARMUP = 1000
EMPTY_READER = AdapterReader()
_LaunchPart = TypeVar("_LaunchPart", bound=AdapterTraining | OtherModel)
TRAINING, OTHER_MODEL = TypeAdapter(AdapterTraining), TypeAdapter(OtherModel)


def read_adapter(
    path: Path, *, folder: str = "", places: Mapping[str, Any] | None = None
) -> Adapter:
    """Return the adapter in a TOML file. It is named after the file, and the files that it refers
    to are in the same folder.

    Args:
        folder: instead of the file's own.
        places: further ones of `[set]`; they take precedence.

    Raises:
        InvalidInput, InvalidInputs: the file cannot be read, or its content is invalid.
    """
    demand_adapter_name(path)
    table = dict(read_toml(path, field="adapter"))
    if folder:
        table["folder"] = folder
    if places and isinstance(table.get("set", {}), Mapping):
        table["set"] = {**table.get("set", {}), **places}
        other = table.get("other_model")
        if isinstance(other, Mapping) and not set(places).isdisjoint(other.get("set", {})):
            del table["other_model"]  # these places name the model
    return _AdapterTable(table, path).adapter()


def read_sent_adapter(text: str, path: Path, *, files: Mapping[str, str]) -> Adapter:
    """Return the adapter in the text of a TOML file, whose `path` is that on the sender's machine;
    `files` are the texts of the files in its `base`, which are not opened.

    Raises:
        InvalidInput, InvalidInputs: the content is invalid.
    """
    demand_adapter_name(path)
    return _AdapterTable(parse_toml(text, path, field="adapter"), path, files).adapter()


def demand_adapter_name(path: Path) -> None:
    """Raise InvalidInput if an adapter may not have the name of this file."""
    if not NAME.fullmatch(path.stem):
        reason = "not the name of an adapter"
        valid = "up to 50 letters, digits, dots, - and _"
        raise InvalidInput("adapter", path.name, reason, valid=valid)


class _AdapterTable:
    """The table of a file while it is read."""

    def __init__(
        self, table: Mapping[str, Any], path: Path, files: Mapping[str, str] | None = None
    ) -> None:
        self._table, self._path, self._files = table, path, files
        self._faults = AdapterFaults(source=str(path))

    def adapter(self) -> Adapter:
        """Return the adapter; raises InvalidInputs with all problems."""
        for key, value in self._table.items():
            if key not in KEYS:
                self._faults.unknown(key, value, KEYS)
        content: dict[str, Any] = {
            "name": self._path.stem,
            "command": self._words("command", fault="missing"),
            "prepare": self._words("prepare"),
            "description": self._text("description"),
            "folder": self._folder(),
            "warmup_iterations": self._warmup(),
            "base": self._base(),
            "places": self._all_places(),
            "one_start": self._one_start(),
            "fixed": self._fixed(),
            "dimensions": (*self._dimensions, *self._of_knobs),
            "knobs": self._knobs,
            "refuse": tuple(self._refusals()),
            "read": tuple(self._readers()),
            "versions": self._texts("versions"),
            "needs": self._needs(),
            "evidence": self._one_of("evidence", Evidence, default="unchecked"),
            "tuning": self._one_of("tuning", Tuning, default="usual"),
            "states": self._states(),
            "checked": self._text("checked"),
            "trains": self._trains(),
            "values": self._values(),
            "train": self._training(),
            "other_model": self._other_model(),
            "numerics": self._texts("numerics"),
        }
        if not self._faults.problems:
            adapter = Adapter(**content)
            self._check_whole(adapter)
        if self._faults.problems:
            raise InvalidInputs(self._faults.problems)
        return adapter

    def _text(self, key: str) -> str:
        value = self._table.get(key, "")
        if isinstance(value, str):
            return value
        self._faults.add(key, value, "not text; write it in quotes", valid="text")
        return ""

    def _section(self, key: str) -> Mapping[str, Any]:
        value = self._table.get(key, {})
        if isinstance(value, Mapping):
            return value
        self._faults.add(key, value, "not a table of keys and values", valid=f"[{key}]")
        return {}

    def _sections(self, key: str, keys: Sequence[str]) -> Iterator[tuple[str, Mapping[str, Any]]]:
        value = self._table.get(key, [])
        if not isinstance(value, list) or not all(isinstance(each, Mapping) for each in value):
            self._faults.add(key, value, "not a list of tables", valid=f"[[{key}]]")
            return
        for place, each in enumerate(value):
            for name in each:
                if name not in keys:
                    self._faults.unknown(f"{key}[{place}].{name}", each[name], keys)
            yield f"{key}[{place}]", each

    def _states(self) -> StateWidths:
        known: dict[str, float] = {}
        for name, value in self._section("states").items():
            try:
                field, number = read_trait(name, value)
            except InvalidInput as fault:
                self._faults.add(f"states.{name}", value, fault.reason, valid=fault.valid)
            else:
                known[field] = number
        return StateWidths(**known)

    def _texts(self, key: str) -> dict[str, str]:
        section = self._section(key)
        for name, value in section.items():
            if not isinstance(value, str):
                self._faults.add(f"{key}.{name}", value, "not text; write it in quotes")
        return {name: value for name, value in section.items() if isinstance(value, str)}

    def _needs(self) -> tuple[str, ...]:
        names = self._table.get("needs", [])
        if isinstance(names, list) and all(isinstance(n, str) and n.isidentifier() for n in names):
            return tuple(names)
        self._faults.add("needs", names, "not a list of modules", valid='["torch", "deepspeed"]')
        return ()

    def _words(self, key: str, *, fault: str = "") -> tuple[str, ...]:
        """Return the words of a command; `fault`: what is wrong without one."""
        words = self._table.get(key)
        if words is None and not fault:
            return ()
        if not isinstance(words, list) or not words or not all(isinstance(w, str) for w in words):
            valid = 'a list of words, ["{python}", "train.py"]'
            reason = fault if words is None else "not a list of words"
            self._faults.add(key, words, reason, valid=valid)
            return ()
        for place, word in enumerate(words):
            self._check_template(f"{key}[{place}]", word, self._at_start)
        return tuple(words)

    def _folder(self) -> str:
        folder = self._text("folder")
        beside = self._path.parent / Path(folder).expanduser()
        return str(beside.absolute()) if folder or self._runs_here() else ""

    def _runs_here(self) -> bool:
        words = self._table.get("command")
        listed = words if isinstance(words, list) else []
        # A word may be longer than any path.
        return any(isinstance(w, str) and isfile(self._path.parent / w) for w in listed)

    def _warmup(self) -> int:
        value = self._table.get("warmup_iterations", Adapter.warmup_iterations)
        if type(value) is int and 1 <= value <= MOST_WARMUP:
            return value
        valid = f"a whole number from 1 to {MOST_WARMUP}"
        self._faults.add("warmup_iterations", value, "not a number of iterations", valid=valid)
        return Adapter.warmup_iterations

    def _base(self) -> dict[str, str]:
        texts = {}
        for name, file in self._texts("base").items():
            try:
                text = self._own_text(file, field=f"base.{name}")
                file_of(name, text)
            except InvalidInput as problem:
                self._faults.add(f"base.{name}", file, problem.reason, valid=problem.valid)
            else:
                texts[name] = text
        return texts

    def _own_text(self, file: str, *, field: str) -> str:
        if self._files is None:
            return read_text(self._path.parent / Path(file).expanduser(), field=field)
        if file not in self._files:
            raise InvalidInput(field, file, "its text was not sent with the adapter")
        return self._files[file]

    def _places(
        self, section: str, table: Mapping[str, Any], known: Sequence[str]
    ) -> dict[str, Any]:
        """Return the value at each place of a table; `known` are the names available to
        templates."""
        places: dict[str, Any] = {}
        for place, value in table.items():
            key = f"{section}.{place}"
            several = value if isinstance(value, list) else [value]
            if not all(isinstance(each, get_args(Constant)) for each in several):
                valid = "text with {expressions}, a number, true or false, or a list of these"
                self._faults.add(key, value, "not a value that can be set", valid=valid)
                continue
            for each in several:
                if isinstance(each, str):
                    self._check_template(key, each, known)
            try:
                Place.read(place)
            except InvalidInput as problem:
                self._faults.add(key, value, problem.reason, valid=problem.valid)
            places[place] = tuple(value) if isinstance(value, list) else value
        return places

    def _one_start(self) -> OneStart | None:
        if "one_start" not in self._table:
            return None
        section = self._section("one_start")
        for key, value in section.items():
            if key not in ("when", "set"):
                self._faults.unknown(f"one_start.{key}", value, ("when", "set"))
        when, table = section.get("when", ""), section.get("set")
        if not isinstance(when, str):
            self._faults.add("one_start.when", when, "not text", valid="an expression")
        elif when:
            known = (*EVERYWHERE, *self._own, *OF_FIRST)
            self._check_expression("one_start.when", when, known)
        if not isinstance(table, Mapping) or not table:
            reason = "[one_start] needs a table `set` that gives the trainer both batches"
            self._faults.add("one_start.set", table, reason, valid="[one_start.set]")
            return None
        known = (*self._at_start, *OF_ONE_START)
        places = self._places("one_start.set", table, known)
        if not self._faults.problems and not any(
            template(text).names.intersection(OF_FIRST) for text in texts_of(places)
        ):
            valid = f"[one_start.set] with {' or '.join(OF_FIRST)}"
            self._faults.add("one_start", None, "it does not mention the first GAS", valid=valid)
        return OneStart(when=str(when), places=places)

    def _training(self) -> AdapterTraining | None:
        training = self._of_launches("train", TRAINING)
        for number, part in enumerate(training.unknown if training else ()):
            known = (*EVERYWHERE, *self._own)
            self._check_expression(f"train.unknown[{number}].when", part.when, known)
        return training

    def _other_model(self) -> OtherModel | None:
        other = self._of_launches("other_model", OTHER_MODEL)
        if other:
            known = (*EVERYWHERE, *self._own)
            self._check_expression("other_model.when", other.when, known)
        return other

    def _of_launches(self, key: str, kind: TypeAdapter[_LaunchPart]) -> _LaunchPart | None:
        if key not in self._table:
            return None
        section = dict(self._section(key))
        table = section.pop("set", None)
        if not isinstance(table, Mapping):
            reason = f"[{key}] needs a table `set` with what a launch file sets"
            self._faults.add(f"{key}.set", table, reason, valid=f"[{key}.set]")
            return None
        places = self._places(f"{key}.set", table, self._at_start)
        try:
            part = kind.validate_python({**section, "places": places})
        except ValidationError as error:
            for each in error.errors():
                field = ".".join([key, *map(str, each["loc"])])
                self._faults.add(field, each["input"], each["msg"])
            return None
        for name, variable in part.variables.items():
            if not IDENTIFIER.fullmatch(name) or name in SET_BY_AUTOTUNE:
                reason = "not a variable that a user can set"
                self._faults.add(f"{key}.variables.{name}", variable.meaning, reason)
        return part

    def _fixed(self) -> dict[str, Any]:
        section = self._section("fixed")
        for name, value in section.items():
            if name not in DIMENSIONS:
                self._faults.unknown(f"fixed.{name}", value, DIMENSIONS)
                continue
            try:
                if not isinstance(value, get_args(Constant)):
                    raise InvalidInput(name, value, "not one value")
                values_of(name, value)
            except InvalidInput as problem:
                self._faults.add(f"fixed.{name}", value, problem.reason, valid=problem.valid)
        return dict(section)

    @cached_property
    def _dimensions(self) -> tuple[OwnDimension, ...]:
        section = self._section("dimension")
        read = (own_dimension(name, table, self._faults) for name, table in section.items())
        return tuple(each for each in read if each is not None)

    @cached_property
    def _knobs(self) -> dict[str, Knob]:
        """Return the knobs; one without values has those of the dimension of its name."""
        values = {each.name: each.values for each in self._dimensions}
        knobs = {
            name: replace(knob, values=knob.values or values.get(name, ()))
            for name, knob in read_knobs(self._table, self._faults).items()
        }
        known = (*EVERYWHERE, *values, *knobs)
        for name, knob in knobs.items():
            if name in values and knob.values != values[name]:
                reason = "a knob with the name of a dimension has its values"
                self._faults.add(f"knob.{name}.values", list(knob.values), reason)
            check_knob(name, knob, self._faults, known)
        return knobs

    @property
    def _of_knobs(self) -> tuple[OwnDimension, ...]:
        declared = {each.name for each in self._dimensions}
        return tuple(each for each in own_dimensions(self._knobs) if each.name not in declared)

    def _all_places(self) -> dict[str, Any]:
        table = dict(self._section("set"))
        for name, knob in self._knobs.items():
            for place in table.keys() & knob.set.keys():
                self._faults.add(f"knob.{name}.set.{place}", knob.set[place], "[set] has it, too")
            table |= knob.set
        return self._places("set", table, self._at_start)

    @property
    def _own(self) -> tuple[str, ...]:
        return (*self._section("dimension"), *(n for n in self._knobs if n not in DIMENSIONS))

    def _refusals(self) -> Iterator[AdapterRefusal]:
        keys = tuple(each.name for each in fields(AdapterRefusal))
        for name, table in self._sections("refuse", (*keys, "file", "pattern")):
            when, because = table.get("when"), table.get("because")
            if not isinstance(when, str) or not isinstance(because, str) or not because.strip():
                valid = 'when = "an expression", because = "a reason"'
                self._faults.add(name, dict(table), "a refusal needs both texts", valid=valid)
                continue
            self._check_expression(f"{name}.when", when, (*EVERYWHERE, *self._own))
            if self._holds(name, table):
                yield AdapterRefusal(when=when, because=because)

    def _holds(self, name: str, table: Mapping[str, Any]) -> bool:
        """Return whether the trainer's source has what a refusal depends on; without a file, it
        depends on nothing."""
        named = {key: table[key] for key in ("file", "pattern") if key in table}
        if not named:
            return True
        file, pattern = named.get("file"), named.get("pattern")
        if not isinstance(file, str) or not isinstance(pattern, str):
            valid = 'file = "a path in folder", pattern = "a regular expression"'
            self._faults.add(name, named, "a file and a pattern go together", valid=valid)
            return False
        try:
            sign = re.compile(pattern, flags=re.MULTILINE)
            text = Path(self._folder(), file).read_text(encoding="utf-8", errors="replace")
        except re.error as error:
            reason = f"not a regular expression: {error}"
            self._faults.add(f"{name}.pattern", pattern, reason)
        except OSError:
            return False
        else:
            return sign.search(text) is not None
        return False

    def _readers(self) -> Iterator[AdapterReader]:
        keys = tuple(each.name for each in fields(AdapterReader))
        for name, table in self._sections("read", keys):
            values = {key: table[key] for key in keys if key in table}
            if self._reads_well(name, values):
                yield AdapterReader(**values)

    def _reads_well(self, name: str, table: Mapping[str, Any]) -> bool:
        before = len(self._faults.problems)
        for key, value in table.items():
            if not isinstance(value, type(getattr(EMPTY_READER, key))):
                self._faults.add(f"{name}.{key}", value, "of another type than it should be")
        sources = [key for key in SOURCES if table.get(key)]
        if len(sources) != 1:
            reason = "a reader has one source" + (", not several" if sources else "")
            self._faults.add(name, sources or None, reason, valid=" or ".join(SOURCES))
        if len(self._faults.problems) == before:
            self._check_figures(name, table)
        return len(self._faults.problems) == before

    def _check_figures(self, name: str, table: Mapping[str, Any]) -> None:
        own = (*EVERYWHERE, *self._own)
        known = (*own, *self._groups(name, table)) if table.get("log") else None
        for key in FIGURES:
            if table.get(key):
                self._check_expression(f"{name}.{key}", table[key], known)
        for key, text in table.get("echo", {}).items():
            echoed = (*OF_STRATEGY, *self._own)
            if key not in echoed:
                self._faults.unknown(f"{name}.echo.{key}", text, echoed)
            self._check_expression(f"{name}.echo.{key}", str(text), known)

    def _groups(self, name: str, table: Mapping[str, Any]) -> tuple[str, ...]:
        try:
            groups = tuple(re.compile(table["log"]).groupindex)
        except re.error as error:
            self._faults.add(f"{name}.log", table["log"], f"not a regular expression: {error}")
            return ()
        if not groups and not table.get("excludes_next"):
            valid = r"(?P<step>\d+) and the like"
            self._faults.add(f"{name}.log", table["log"], "it has no named group", valid=valid)
        return groups

    def _trains(self) -> tuple[LayerFeature, ...]:
        features, known = self._table.get("trains", []), get_args(LayerFeature)
        if not isinstance(features, list) or any(each not in known for each in features):
            reason = "not a list of layer features"
            self._faults.add("trains", features, reason, valid=", ".join(known))
            return ()
        return tuple(each for each in known if each in features)

    def _values(self) -> dict[str, tuple[str, ...]]:
        section, known = self._section("values"), {d.name: d.special for d in TABLE if d.special}
        for name, several in section.items():
            if name not in known:
                self._faults.unknown(f"values.{name}", several, tuple(known))
            elif not isinstance(several, list) or any(each not in known[name] for each in several):
                valid = ", ".join(map(str, known[name]))
                reason = "not a list of additional values of this dimension"
                self._faults.add(f"values.{name}", several, reason, valid=valid)
        return {
            name: tuple(str(each) for each in known[name] if each in several)
            for name, several in section.items()
            if name in known and isinstance(several, list)
        }

    def _one_of(self, key: str, choices: Any, *, default: str) -> Any:
        value = self._table.get(key, default)
        if value not in get_args(choices):
            self._faults.add(key, value, "not one of them", valid=", ".join(get_args(choices)))
        return value

    @property
    def _at_start(self) -> tuple[str, ...]:
        return (*AT_START, *self._own)

    def _check_template(self, key: str, text: str, known: Sequence[str]) -> None:
        self._check(key, text, known, lambda: template(text).names)

    def _check_expression(self, key: str, text: str, known: Sequence[str] | None) -> None:
        self._check(key, text, known, lambda: parse(text).names)

    def _check(
        self, key: str, text: str, known: Sequence[str] | None, names: Callable[[], Iterable[str]]
    ) -> None:
        try:
            strange = sorted(set(names()) - set(known)) if known is not None else []
        except ExpressionFault as fault:
            self._faults.add(key, text, str(fault))
            return
        for name in strange:
            hint = suggestion(closest(name, known or (), count=1))
            reason = f"unknown name {name}{hint}"
            self._faults.add(key, text, reason, valid=", ".join(known or ()))

    def _check_whole(self, adapter: Adapter) -> None:
        for name in adapter.fixed:
            if name in adapter.varied:
                reason = "the adapter sets this dimension, so it cannot be fixed"
                self._faults.add(f"fixed.{name}", adapter.fixed[name], reason)
        for name in adapter.own_names:
            if name not in adapter.varied:
                reason = "neither command nor [set] mentions it"
                self._faults.add(f"dimension.{name}", name, reason)
        # The columns of a file are unknown until there is one.
        if not any(r.reports("iteration_time_s") or r.arrival or r.file for r in adapter.read):
            valid = "a [[read]] with iteration_time_s, or with arrival = true"
            self._faults.add("read", None, "no pattern reads the time of an iteration", valid=valid)
        files = {Place.read(place).file for place in adapter.places} - {""}
        for name in adapter.base:
            if name not in files:
                reason = "no key of [set] is in this file"
                self._faults.add(f"base.{name}", name, reason, valid=", ".join(sorted(files)))
        self._check_texts(adapter)
        self._check_numerics(adapter)

    def _check_texts(self, adapter: Adapter) -> None:
        for text in adapter.places:
            place = Place.read(text)
            if not place.file or is_table(place.file):
                continue
            if place.file not in adapter.base:
                reason = "texts can be replaced only in a file that base names"
                valid = f'base = {{ "{place.file}" = "…" }}'
                self._faults.add(f"set.{text}", place.file, reason, valid=valid)
                continue
            try:
                file_of(place.file, adapter.base[place.file]).put(place.name, "")
            except InvalidInput as problem:
                self._faults.add(f"set.{text}", place.name, problem.reason)

    def _check_numerics(self, adapter: Adapter) -> None:
        places = (*adapter.places, *(adapter.train.places if adapter.train else ()))
        for place, text in adapter.numerics.items():
            if place not in places:
                self._faults.unknown(f"numerics.{place}", text, places)
