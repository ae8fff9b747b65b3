"""console.chat.tree: branches of a chat."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from console.chat.records import Message
from console.chat.tree import Fork, Tree


def message(id_: str, parent_id: str | None = None) -> Message:
    return Message(id=id_, chat_id="c", parent_id=parent_id, role="user", text=id_)


def ids(messages: list[Message]) -> str:
    return "".join(message.id for message in messages)


def test_branches_are_counted_and_switched() -> None:
    tree = Tree([message("a"), message("b", "a"), message("c", "b"), message("d", "a"), message("e", "d")])
    assert ids(tree.path("c")) == "abc"
    assert tree.leaf_of("a") == "e"
    assert tree.leaf_of("b") == "c"
    assert tree.leaf_of(None) == "e"
    assert tree.fork("b") == Fork(1, 2)
    assert tree.other("b", 1) == "d"
    assert tree.other("d", 1) == "d"
    assert tree.fork("c") == Fork(1, 1)
    assert ids(tree.below("a")) == "abcde"


def test_what_is_taken_out_comes_back_where_it_was_missing() -> None:
    tree = Tree([message("a"), message("b", "a"), message("c", "b"), message("d", "a")])
    taken = tree.take_out("b")
    assert ids(taken) == "bc"
    assert tree.fork("d") == Fork(1, 1)
    for each in taken:
        tree.put(each)
    assert tree.fork("b") == Fork(2, 2)
    assert ids(tree.path("c")) == "abc"


def test_a_message_whose_parent_is_gone_begins_a_branch() -> None:
    tree = Tree([message("a"), message("x", "gone")])
    assert tree.fork("x") == Fork(2, 2)
    assert ids(tree.path("x")) == "x"
    assert tree.path("nobody") == []
    assert Tree().leaf_of(None) is None


@given(st.lists(st.integers(-1, 30), max_size=30))
def test_every_message_is_on_the_branch_that_ends_in_its_leaf(parents: list[int]) -> None:
    tree = Tree()
    for place, parent in enumerate(parents):
        tree.put(message(str(place), str(parent) if 0 <= parent < place else None))
    for each in tree.all():
        path = [other.id for other in tree.path(tree.leaf_of(each.id))]
        assert each.id in path
        fork = tree.fork(each.id)
        assert 1 <= fork.place <= fork.count
        assert tree.other(tree.other(each.id, -100), fork.place - 1) == each.id
