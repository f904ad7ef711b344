from __future__ import annotations

from server.runner.turns import Turns


def test_one_campaign_at_a_time() -> None:
    turns = Turns()
    assert turns.ask(1)
    assert not turns.ask(2)
    assert turns.ask(1)


def test_who_has_had_a_turn_queues_up_behind_the_others() -> None:
    turns = Turns()
    assert turns.ask(1)
    assert not turns.ask(2)
    assert not turns.ask(3)
    turns.leave(1)
    assert not turns.ask(1)
    assert not turns.ask(3)
    assert turns.ask(2)
    turns.leave(2)
    assert turns.ask(3)
    turns.leave(3)
    assert turns.ask(1)


def test_who_leaves_the_queue_holds_nobody_up() -> None:
    turns = Turns()
    assert turns.ask(1)
    assert not turns.ask(2)
    assert not turns.ask(3)
    turns.leave(2)
    turns.leave(1)
    assert turns.ask(3)
