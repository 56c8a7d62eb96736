"""Who gets the next slot of a queue, without threads."""

from __future__ import annotations

from proxy.access.fairness import Queue, Waiter


def enter(queue: Queue, *owners: str, most: int | None = None) -> list[Waiter]:
    return [queue.enter(owner, most, lambda: None) for owner in owners]


def test_a_free_slot_goes_to_the_owner_with_the_fewest_and_then_to_the_one_who_waits_longest() -> (
    None
):
    queue = Queue(2)
    first, second, third, fourth, other = enter(queue, "a", "a", "a", "a", "b")
    assert [first.has_slot, second.has_slot, queue.waiting] == [True, True, 3]
    queue.leave(first)
    assert [other.has_slot, third.has_slot] == [True, False]
    queue.leave(other)
    assert [third.has_slot, fourth.has_slot] == [True, False]
    queue.leave(fourth)
    queue.leave(second)
    queue.leave(third)
    assert queue.waiting == 0
    assert not queue._in_use


def test_an_owner_at_his_limit_lets_others_pass() -> None:
    queue = Queue()
    first, second, other = enter(queue, "a", "a", "b", most=1)
    assert [first.has_slot, second.has_slot, other.has_slot] == [True, False, True]
    queue.leave(first)
    assert second.has_slot


def test_one_owner_leaves_a_slot_for_who_comes_next() -> None:
    queue = Queue(24)
    assert sum(waiter.has_slot for waiter in enter(queue, *["a"] * 30)) == 19
    (other,) = enter(queue, "b")
    assert other.has_slot
