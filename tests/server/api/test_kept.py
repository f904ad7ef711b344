"""Answers are worked out once, and of what changes the latest alone is kept."""

from __future__ import annotations

import gc
import weakref

import pytest

from server.api.kept import Kept


class Answer:
    """Something that can be looked for after it was let go."""


def test_a_newer_version_takes_the_place_of_its_predecessor() -> None:
    kept: Kept[Answer] = Kept(2)
    first = weakref.ref(kept.of("campaign", Answer, version=1))
    assert kept.of("campaign", Answer, version=1) is first()
    assert kept.ready("campaign", version=2) is None
    second = kept.of("campaign", Answer, version=2)
    gc.collect()
    assert first() is None
    assert kept.ready("campaign", version=1) is None
    assert kept.ready("campaign", version=2) is second


def test_the_answer_asked_for_longest_ago_goes_first() -> None:
    kept: Kept[Answer] = Kept(2)
    first, _ = kept.of(1, Answer), kept.of(2, Answer)
    assert kept.of(1, Answer) is first
    kept.of(3, Answer)
    assert kept.ready(1) is first
    assert kept.ready(2) is None


def test_what_failed_is_made_again_and_spares_a_newer_version() -> None:
    kept: Kept[int] = Kept(2)

    def overtaken() -> int:
        assert kept.of("campaign", lambda: 2, version=2) == 2
        raise LookupError

    with pytest.raises(LookupError):
        kept.of("campaign", overtaken, version=1)
    assert kept.ready("campaign", version=2) == 2
    with pytest.raises(ZeroDivisionError):
        kept.of("other", lambda: 1 // 0)
    assert kept.of("other", lambda: 1) == 1
