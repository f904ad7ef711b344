"""The cache computes a value once, and is bounded by size, version and time."""

from __future__ import annotations

import gc
import weakref

import pytest

from server.cache import Cache


class Value:
    """Something that a weak reference can watch."""


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_newer_version_takes_the_place_of_its_predecessor() -> None:
    cache = Cache(2)
    first = weakref.ref(cache.of("campaign", Value, version=1))
    assert cache.of("campaign", Value, version=1) is first()
    assert cache.ready("campaign", version=2) is None
    assert cache.latest("campaign") is first()
    second = cache.of("campaign", Value, version=2)
    gc.collect()
    assert first() is None
    assert cache.ready("campaign", version=1) is None
    assert cache.ready("campaign", version=2) is cache.latest("campaign") is second
    assert cache.latest("other") is None


def test_the_value_requested_longest_ago_is_dropped_first() -> None:
    cache = Cache(2)
    first, _ = cache.of(1, Value), cache.of(2, Value)
    assert cache.of(1, Value) is first
    third = Value()
    cache.put(3, third)
    assert cache.ready(1) is first
    assert cache.ready(2) is None
    assert cache.ready(3) is third


def test_a_value_that_is_not_requested_for_long_is_dropped() -> None:
    clock = Clock()
    cache = Cache(3, idle_s=10.0, clock=clock)
    cache.put("left", 1)
    cache.put("watched", 2)
    clock.now = 8.0
    assert cache.ready("watched") == 2
    clock.now = 12.0
    cache.put("new", 3)
    assert (cache.ready("left"), cache.ready("watched"), cache.ready("new")) == (None, 2, 3)
    assert len(cache) == 2


def test_large_values_displace_more_than_small_ones() -> None:
    cache = Cache(10)
    for number in range(10):
        cache.put(number, number)
    cache.of("large", Value, size=8)
    assert [cache.ready(number) for number in (7, 8, 9)] == [None, 8, 9]


def test_a_failure_is_not_cached_and_spares_a_newer_version() -> None:
    cache = Cache(2)

    def overtaken() -> int:
        assert cache.of("campaign", lambda: 2, version=2) == 2
        raise LookupError

    with pytest.raises(LookupError):
        cache.of("campaign", overtaken, version=1)
    assert cache.ready("campaign", version=2) == 2
    with pytest.raises(ZeroDivisionError):
        cache.of("other", lambda: 1 // 0)
    assert cache.of("other", lambda: 1) == 1
