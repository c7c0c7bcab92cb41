"""The order of the queue: moved, held, paused, and kept in the data folder."""

import threading

import pytest

from breakeven.runner.commands import cli, queue
from breakeven.runner.errors import RunnerError
from breakeven.runner.experiments import queue_order
from breakeven.runner.experiments.queue import find_experiment, submit
from breakeven.runner.processes import ProcessIdentity
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.protocol.records import Claim, Exit
from breakeven.runner.protocol.states import RunState
from tests.helpers.journals import experiment_spec


@pytest.fixture
def three(data_dir: DataDir) -> list[str]:
    """The ids of three experiments that wait, oldest first."""
    return [submit(data_dir, experiment_spec(name=name)) for name in ("a", "b", "c")]


def names(data_dir: DataDir) -> str:
    return "".join(experiment.spec.name for experiment in queue_order.waiting(data_dir))


def startable(data_dir: DataDir) -> str:
    return "".join(experiment.spec.name for experiment in queue_order.startable(data_dir))


def test_the_queue_is_in_order_of_submission_unless_it_is_changed(
    data_dir: DataDir, three: list[str]
) -> None:
    a, _, c = three
    assert names(data_dir) == "abc"
    queue_order.move(data_dir, c)
    assert names(data_dir) == "cab"
    queue_order.move(data_dir, a, by=1)
    assert names(data_dir) == "cba"
    queue_order.move(data_dir, a, by=-1)
    queue_order.move(data_dir, c, by=-1)  # it is the first already
    assert names(data_dir) == "cab"
    submit(data_dir, experiment_spec(name="d"))
    assert names(data_dir) == "cabd", "what comes later waits behind"


def test_what_is_held_is_passed_over_and_a_paused_queue_begins_nothing(
    data_dir: DataDir, three: list[str]
) -> None:
    a, b, _ = three
    queue_order.hold(data_dir, a)
    queue_order.hold(data_dir, b)
    assert (names(data_dir), startable(data_dir)) == ("abc", "c")
    queue_order.release(data_dir, b)
    assert startable(data_dir) == "bc"
    queue_order.pause(data_dir)
    assert startable(data_dir) == ""
    queue_order.pause(data_dir, paused=False)
    assert startable(data_dir) == "bc"


def test_what_does_not_wait_cannot_be_moved_and_is_forgotten(
    data_dir: DataDir, three: list[str]
) -> None:
    a, b, c = three
    queue_order.move(data_dir, b)
    queue_order.hold(data_dir, b)
    for run in find_experiment(data_dir, b).runs:
        run.write_claim(Claim.by(ProcessIdentity(pid=2**22 + 1, started="long ago")))
        run.write_exit(Exit.now(RunState.FINISHED, "done", 0))
    with pytest.raises(RunnerError, match="does not wait in the queue"):
        queue_order.move(data_dir, b)
    queue_order.move(data_dir, c)
    assert queue_order.read_order(data_dir) == queue_order.QueueOrder(order=(c, a))


def test_changes_of_several_people_are_all_kept(data_dir: DataDir, three: list[str]) -> None:
    holders = [
        threading.Thread(target=queue_order.hold, args=(data_dir, experiment_id))
        for experiment_id in three
    ]
    for holder in holders:
        holder.start()
    for holder in holders:
        holder.join()
    assert startable(data_dir) == ""


@pytest.mark.parametrize("content", ["", "[", '{"order": 7}', '{"paused": "yes"}', "[1, 2]"])
def test_an_order_that_cannot_be_read_is_that_of_submission(
    data_dir: DataDir, three: list[str], content: str
) -> None:
    data_dir.queue_file.write_text(content)
    assert startable(data_dir) == "abc"


def test_the_command_line_does_the_same_and_prints_the_queue(
    data_dir: DataDir,
    three: list[str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    started: list[DataDir] = []
    monkeypatch.setattr(queue, "ensure_supervisor", started.append)

    def command(*arguments: str) -> str:
        assert cli.main(["queue", *arguments, f"--data-folder={data_dir.path}"]) == 0
        return capsys.readouterr().out

    a, b, c = three
    assert command() == f"1. {a}  a\n2. {b}  b\n3. {c}  c\n"
    assert command("next", c).startswith(f"1. {c}  c\n")
    assert len(started) == 1, "somebody has to work it off"
    assert f"2. {a}  a  (held)\n" in command("hold", a)
    assert "(held)" not in command("release", a)
    assert "the queue is paused" in command("pause")
    assert "paused" not in command("continue")
    assert command("down", c).startswith(f"1. {a}  a\n2. {c}  c\n")
    assert command("up", c).startswith(f"1. {c}  c\n")
    assert command("duplicate", b).count("  b\n") == 2
    with pytest.raises(SystemExit, match="2"):
        cli.main(["queue", "next", f"--data-folder={data_dir.path}"])
    assert cli.main(["queue", f"--data-folder={data_dir.path}", "list"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 4, "of the folder that was named"
    assert cli.main(["queue", "next", "nonsense", f"--data-folder={data_dir.path}"]) == 2


def test_a_duplicate_is_something_of_its_own(data_dir: DataDir) -> None:
    spec = experiment_spec(name="cell", suite_run="nightly", controls=2)
    first = find_experiment(data_dir, submit(data_dir, spec))
    second = find_experiment(data_dir, queue_order.duplicate(data_dir, first))
    assert second.spec.suite_run is None and second.spec.controls == 2
