"""Where the machines of one run find each other, on a folder that all of them see."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.protocol.meetings import KEPT_SECONDS, Meeting, Meetings, wait_for_others

MEETING = Meeting(
    run_id="x.baseline", attempt=1, nodes=3, address="here", port=4711, devices=("cuda:0", "cuda:1")
)


def test_a_meeting_is_found_as_it_was_called_until_it_is_over(data_dir: DataDir) -> None:
    meetings = Meetings(data_dir)
    assert list(meetings.all()) == []
    meetings.call(MEETING)
    meetings.come("x.baseline", 1)
    meetings.fail("x.baseline", 2, {"rank": 3})
    assert list(meetings.all()) == [MEETING] and meetings.num_here("x.baseline") == 1
    again = replace(MEETING, attempt=2)
    meetings.call(again)
    assert meetings.read("x.baseline") == again
    assert meetings.num_here("x.baseline") == 0 and meetings.failures("x.baseline") == []
    meetings.close("x.baseline")
    assert list(meetings.all()) == []


def test_a_machine_keeps_its_number_for_all_runs_of_an_experiment(data_dir: DataDir) -> None:
    """Two further machines take part; a third one takes another experiment's place."""
    meetings = Meetings(data_dir)
    meetings.call(MEETING)
    assert [meetings.take_seat(MEETING, who) for who in ("a", "b", "c")] == [1, 2, None]
    control = replace(MEETING, run_id="x.control")
    assert [meetings.take_seat(control, who) for who in ("c", "b", "a")] == [None, 2, 1]
    assert meetings.take_seat(replace(MEETING, run_id="y.baseline"), "c") == 1


def test_a_seat_is_free_when_it_is_given_back_or_nobody_kept_it(data_dir: DataDir) -> None:
    meetings = Meetings(data_dir)
    meetings.call(MEETING)
    assert [meetings.take_seat(MEETING, who) for who in ("a", "b")] == [1, 2]
    meetings.leave("a")
    assert meetings.take_seat(MEETING, "c") == 1
    seat = Path(data_dir.path / "meetings" / "x.2.seat")
    old = seat.stat().st_mtime - KEPT_SECONDS - 1
    os.utime(seat, (old, old))
    meetings.keep_seats("b")
    assert meetings.take_seat(MEETING, "d") is None, "it was kept"
    os.utime(seat, (old, old))
    assert meetings.take_seat(MEETING, "d") == 2


def test_what_cannot_be_read_is_no_meeting(data_dir: DataDir) -> None:
    meetings = Meetings(data_dir)
    meetings.call(MEETING)
    for text in ("", "[]", '{"run_id": "x"}', '{"devices": 3}'):
        (data_dir.path / "meetings" / "y.baseline.json").write_text(text)
        assert list(meetings.all()) == [MEETING]


@pytest.mark.heavy
def test_a_machine_waits_for_others_no_longer_than_its_limit(data_dir: DataDir) -> None:
    meetings = Meetings(data_dir)
    meetings.call(MEETING)
    meetings.come("x.baseline", 1)
    assert not wait_for_others(meetings, MEETING, 0.2)
    meetings.come("x.baseline", 2)
    assert wait_for_others(meetings, MEETING, 0.2)
