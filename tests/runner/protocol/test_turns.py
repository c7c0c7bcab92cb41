"""What the supervisor believes of what comes through the pipe of a run."""

import os

import pytest

from breakeven.runner.protocol.turns import Turn, TurnPost, TurnTaker


@pytest.fixture
def post() -> TurnPost:
    return TurnPost()


def say(post: TurnPost, *lines: bytes) -> list[str]:
    for line in lines:
        os.write(post.run_fds[1], line)
    return post.read()


def test_a_run_is_ready_once_and_hands_each_turn_back_once(post: TurnPost) -> None:
    ready, done = b'{"say": "ready"}\n', b'{"say": "done", "round": 3}\n'
    assert say(post, ready, ready) == ["ready"]
    assert say(post, done) == []
    post.give(Turn(round=3, position=0))
    assert say(post, done, done, ready) == ["done"]


def test_an_answer_to_an_earlier_turn_hands_back_none_and_one_in_two_parts_is_heard_whole(
    post: TurnPost,
) -> None:
    done = b'{"say": "done", "round": 3}\n'
    post.give(Turn(round=3, position=0))
    assert say(post, done[:9]) == [] and say(post, done[9:]) == ["done"]
    post.give(Turn(round=4, position=0))
    assert say(post, done) == []
    assert say(post, b'{"say": "finished", "round": 4}\n') == ["finished"]


@pytest.mark.parametrize(
    "line",
    [
        b"\n",
        b"hello\n",
        b"[]\n",
        b"null\n",
        b"{}\n",
        b'{"say": []}\n',
        b"\xff\n",
        b'{"say": "done"}\n',
        b"[" * 100_000 + b"\n",
    ],
)
def test_what_is_no_word_changes_nothing(post: TurnPost, line: bytes) -> None:
    post.give(Turn(round=0, position=0))
    os.set_blocking(post.run_fds[1], False)
    assert say(post, line[:60_000], b"\n", b'{"say": "done", "round": 0}\n') == ["done"]


def test_a_run_says_with_its_turn_whether_it_was_the_last(post: TurnPost) -> None:
    taker = TurnTaker(*post.run_fds, on_abandoned=lambda: None)
    for finished, word in ((False, "done"), (True, "finished")):
        post.give(Turn(round=2, position=1))
        assert taker.wait() == Turn(round=2, position=1)
        taker.done(finished=finished)
        assert post.read() == [word]
