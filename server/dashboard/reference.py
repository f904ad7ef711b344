"""The reference of the API: its description, as a page tells it."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from markupsafe import Markup, escape

from server.api.conditional import JSON
from server.api.description import Document, first_sentence, operations
from server.dashboard.reference_types import TypeWord, object_name, type_words

STREAM = "text/event-stream"
LANGUAGES = {"Shell": "autotune"}
"""Of samples, where they have another name for people."""

WIDTH = 76
"""Characters of a JSON document that stands in one line."""


@dataclass(frozen=True, kw_only=True)
class Described:
    """A parameter or a property. `place` is where a parameter stands: path, query or header."""

    name: str
    type: list[TypeWord]
    words: Markup
    required: bool
    default: str = ""
    place: str = ""


@dataclass(frozen=True, kw_only=True)
class Told:
    """A text that is to be read as it is, such as a document, under its name."""

    name: str
    text: str


@dataclass(frozen=True, kw_only=True)
class AnswerTold:
    """An answer; `kinds` are its media types, and without a type it has no body or no JSON. `like`
    is an operation before it whose example is of the same type."""

    status: str
    words: Markup
    kinds: str
    type: list[TypeWord]
    headers: list[str]
    example: str
    like: str = ""


@dataclass(frozen=True, kw_only=True)
class OperationTold:
    """An operation. `more` is what is said beyond its summary; `refusals` are answers of 400 and
    above. `calls` begin with curl, and end with bodies besides that of curl."""

    name: str
    method: str
    path: str
    summary: Markup
    more: Markup
    parameters: list[Described]
    body: list[TypeWord]
    answers: list[AnswerTold]
    refusals: list[AnswerTold]
    calls: list[Told]


@dataclass(frozen=True, kw_only=True)
class ResourceTold:
    """The operations on one kind of resource."""

    name: str
    words: Markup
    operations: list[OperationTold]


@dataclass(frozen=True, kw_only=True)
class ObjectTold:
    """An object that is sent or answered, or one of a few words: then it has `values`."""

    key: str
    name: str
    words: Markup
    properties: list[Described]
    values: list[str]


@dataclass(frozen=True, kw_only=True)
class Reference:
    """The whole of it."""

    version: str
    summary: Markup
    resources: list[ResourceTold]
    objects: list[ObjectTold]


def reference(document: Document, base_url: str) -> Reference:
    """Return what the page says, with calls of the service at `base_url`."""
    told: dict[str, list[OperationTold]] = {tag["name"]: [] for tag in document["tags"]}
    for path, method, operation in operations(document):
        told[operation["tags"][0]].append(_operation(path, method, operation, base_url))
    examples: dict[str, str] = {}
    return Reference(
        version=document["info"]["version"],
        summary=marked(document["info"]["description"]),
        resources=[
            ResourceTold(
                name=tag["name"],
                words=marked(tag["description"]),
                operations=[_without_repeats(each, examples) for each in told[tag["name"]]],
            )
            for tag in document["tags"]
        ],
        objects=[
            _object(key, each) for key, each in sorted(document["components"]["schemas"].items())
        ],
    )


def marked(text: str) -> Markup:
    """Return a text as HTML: paragraphs where it has several, `code` and **strong** words."""
    paragraphs = [" ".join(each.split()) for each in text.strip().split("\n\n")]
    html = [_inline(each) for each in paragraphs]
    return (
        html[0] if len(html) == 1 else Markup("").join(Markup("<p>{}</p>").format(h) for h in html)
    )


def _inline(text: str) -> Markup:
    html = re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text)))
    return Markup(re.sub(r"\*\*([^*]+)\*\*", r"<strong>\1</strong>", html))


def _operation(path: str, method: str, operation: Document, base_url: str) -> OperationTold:
    answers = [_answer(status, each) for status, each in sorted(operation["responses"].items())]
    content = operation.get("requestBody", {}).get("content", {}).get(JSON, {})
    said = " ".join(operation["description"].split())
    more = said.removeprefix(first_sentence(said)).lstrip(".; ")
    return OperationTold(
        name=operation["operationId"],
        method=method.upper(),
        path=path,
        summary=marked(operation["summary"]),
        more=marked(more[:1].upper() + more[1:]),
        parameters=[_parameter(each) for each in _own_parameters(operation)],
        body=type_words(content["schema"]) if content else [],
        answers=[each for each in answers if each.status < "400"],
        refusals=[each for each in answers if each.status >= "400"],
        calls=list(_calls(path, method, operation, base_url)),
    )


def _without_repeats(operation: OperationTold, examples: dict[str, str]) -> OperationTold:
    """Return an operation whose examples are of types that no operation before it has shown, which
    `examples` has by type, and notes its own there."""
    answers = []
    for answer in operation.answers:
        kind = "".join(word.text for word in answer.type)
        first = examples.setdefault(kind, operation.name) if answer.example and kind else ""
        repeated = first not in ("", operation.name)
        answers.append(replace(answer, example="", like=first) if repeated else answer)
    return replace(operation, answers=answers)


def _own_parameters(operation: Document) -> list[Document]:
    """Return those of this operation alone; what many have is told once."""
    return [each for each in operation.get("parameters", []) if "$ref" not in each]


def _parameter(parameter: Document) -> Described:
    return _described(
        parameter["name"],
        parameter["schema"] | {"description": parameter["description"]},
        required=parameter.get("required", False),
        place=parameter["in"],
    )


def _described(name: str, schema: Document, *, required: bool, place: str = "") -> Described:
    default = schema.get("default")
    return Described(
        name=name,
        type=type_words(schema),
        words=marked(schema["description"]),
        required=required,
        default="" if default in (None, "", [], {}) else json.dumps(default),
        place=place,
    )


def _answer(status: str, answer: Document) -> AnswerTold:
    content = answer.get("content", {})
    first: Mapping[str, Any] = next(iter(content.values()), {})
    example = first.get("example")
    schema = first.get("schema", {})
    return AnswerTold(
        status=status,
        words=marked(answer["description"]),
        kinds=", ".join(kind for kind in content if kind != JSON),
        type=type_words(schema) if JSON in content else [],
        headers=sorted(answer.get("headers", {})),
        example=example if isinstance(example, str) else _json(example) if example else "",
    )


def _object(key: str, schema: Document) -> ObjectTold:
    required = set(schema.get("required", ()))
    return ObjectTold(
        key=key,
        name=object_name(key),
        words=marked(schema["description"]),
        properties=[
            _described(name, each, required=name in required)
            for name, each in schema.get("properties", {}).items()
        ],
        values=[str(value) for value in schema.get("enum", ())],
    )


def _calls(path: str, method: str, operation: Document, base_url: str) -> Iterator[Told]:
    """Yield the same call with curl, in Python and as a command, as far as there are such; then
    other bodies than that of curl."""
    yield Told(name="curl", text=_curl(path, method, operation, base_url))
    for sample in operation.get("x-codeSamples", []):
        yield Told(name=LANGUAGES.get(sample["lang"], sample["lang"]), text=sample["source"])
    for name, each in list(_bodies(operation).items())[1:]:
        yield Told(name=f"Body: {each.get('summary', name)}", text=_json(each["value"]))


def _curl(path: str, method: str, operation: Document, base_url: str) -> str:
    query = []
    for parameter in _own_parameters(operation):
        examples: Sequence[Any] = parameter["schema"].get("examples", ())
        if parameter["in"] == "path":
            path = path.replace("{" + parameter["name"] + "}", str(examples[0]))
        elif parameter.get("required"):
            query.append(f"{parameter['name']}={examples[0]}")
    url = shlex.quote(base_url + path + ("?" + "&".join(query) if query else ""))
    content = operation["responses"].get("200", {}).get("content", {})
    bodies = _bodies(operation)
    words = ["curl"]
    words += ["-N"] if STREAM in content else []
    words += ["-O"] if "binary" in json.dumps(content) else []
    words += [] if method == "get" or (method == "post" and bodies) else ["-X", method.upper()]
    called = " ".join([*words, url])
    if not bodies:
        return called
    body = shlex.quote(_json(next(iter(bodies.values()))["value"]))
    return f"{called} \\\n  -H 'Content-Type: application/json' \\\n  -d {body}"


def _bodies(operation: Document) -> Mapping[str, Any]:
    content = operation.get("requestBody", {}).get("content", {}).get(JSON, {})
    bodies: Mapping[str, Any] = content.get("examples", {})
    return bodies


def _json(value: Any) -> str:
    """Return a document as text, short ones in one line."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= WIDTH else json.dumps(value, indent=2, ensure_ascii=False)
