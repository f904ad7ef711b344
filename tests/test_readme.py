"""The README: its command prints what it shows, its other commands exist; links of all pages."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from server.cli.application import app
from tests.readme import README, SHOWN, with_output

TEXT = README.read_text(encoding="utf-8")
ROOT = README.parent
PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), ROOT / "docker" / "README.md"]
LINK = re.compile(r"\]\(([^)#:\s]*)(?:#([^)\s]+))?\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def test_its_command_prints_what_it_shows() -> None:
    assert SHOWN.search(TEXT)
    assert _timeless(with_output(TEXT)) == _timeless(TEXT), "run: make readme"


def test_its_commands_are_some() -> None:
    top: Any = get_command(app)
    typed = re.findall(r"autotune ((?:[a-z]+ ?)+)([^`\n]*)", "\n".join(_code()))
    assert {words.split()[0] for words, _ in typed} > {"sweep", "doctor", "serve", "submit"}
    for words, options in typed:
        command = top.commands[words.split()[0]].loaded
        flags = {flag for each in command.params for flag in (*each.opts, *each.secondary_opts)}
        own = options.partition(" && ")[0].partition("#")[0]
        assert set(re.findall(r"(?<!\S)--[a-z-]+", own)) <= flags, words


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for name, anchor in LINK.findall(page.read_text(encoding="utf-8")):
        target = page.parent / name if name else page
        assert target.exists(), name
        if anchor:
            assert anchor in _anchors(target), f"{name}#{anchor}"


def _anchors(page: Path) -> set[str]:
    """Return the anchors that GitHub gives the headings of a page."""
    headings = HEADING.findall(page.read_text(encoding="utf-8"))
    return {re.sub(r"[^\w -]", "", each.lower()).replace(" ", "-") for each in headings}


def _timeless(text: str) -> str:
    return re.sub(r"in [\d.]+ m?s$", "in …", text, flags=re.MULTILINE)


def _code() -> list[str]:
    return re.findall(r"```(?:console)?\n(.*?)```", TEXT, re.DOTALL)
