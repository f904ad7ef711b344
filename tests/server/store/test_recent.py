"""What nobody asks for any more goes, by its number and by its age."""

from __future__ import annotations

from server.store.recent import Recent


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_what_nobody_asked_for_in_a_while_is_kept_no_longer() -> None:
    clock = Clock()
    recent: Recent[str, int] = Recent(3, idle_s=10.0, clock=clock)
    recent.keep({"left": 1, "watched": 2})
    clock.now = 8.0
    recent.keep({"watched": 2})
    clock.now = 12.0
    recent.keep({"new": 3})
    assert (recent.get("left"), recent.get("watched"), recent.get("new")) == (None, 2, 3)
    recent.keep({"one more": 4, "and another": 5})
    assert recent.get("watched") is None
    assert len(recent) == 3
