"""Campaigns in line for the service's own machine."""

from __future__ import annotations

from server.runner.admission import MachineQueue


def test_one_campaign_has_the_machine_at_a_time() -> None:
    queue = MachineQueue()
    assert queue.enter(1)
    assert not queue.enter(2)
    assert queue.enter(1)


def test_a_campaign_served_by_the_machine_queues_behind_others() -> None:
    queue = MachineQueue()
    assert queue.enter(1)
    assert not queue.enter(2)
    assert not queue.enter(3)
    queue.leave(1)
    assert not queue.enter(1)
    assert not queue.enter(3)
    assert queue.enter(2)
    queue.leave(2)
    assert queue.enter(3)
    queue.leave(3)
    assert queue.enter(1)


def test_a_campaign_that_leaves_the_line_holds_nobody_up() -> None:
    queue = MachineQueue()
    assert queue.enter(1)
    assert not queue.enter(2)
    assert not queue.enter(3)
    queue.leave(2)
    queue.leave(1)
    assert queue.enter(3)
