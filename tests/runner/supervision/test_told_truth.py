"""What pages are told of experiments while a supervisor works at them, look by look."""

import threading

import pytest

from breakeven.runner.folders.data_dir import DataDir
from breakeven.runner.folders.queue import submit
from breakeven.runner.supervision.supervisor import supervise
from tests.helpers.fake_worker import COMMAND as FAKE_WORKER
from tests.helpers.waiting import wait_until
from tests.runner.supervision.supervised import impatience as impatience
from tests.runner.supervision.test_supervisor import events, experiment, run_dirs
from tests.runner.supervision.witness import Witness

pytestmark = pytest.mark.heavy


def test_no_look_is_told_what_is_not_so_and_one_at_a_changed_journal_is_found_out(
    data_dir: DataDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.runner.supervision.witness.LOOK_SECONDS", 0.05)
    keys = [submit(data_dir, experiment("slow", steps=steps)) for steps in (20, 5)]
    witness = Witness(data_dir, dict(zip(keys, (20, 5), strict=True)))
    witness.start()
    wait_until(lambda: witness.num_looks > 0)
    working = threading.Thread(target=supervise, args=(data_dir, FAKE_WORKER))
    working.start()
    working.join()
    before = witness.num_looks
    wait_until(lambda: witness.num_looks > before + 1)
    assert witness.wrong == []
    first, second = ([states for _, states, _ in witness.told[key]] for key in keys)
    assert second[0] == {"queued"}, "it waits for the first"
    assert first[-1] == second[-1] == {"finished"}
    assert any("running" in states for states in first)
    # Told to be finished, though a step of it is missing from the journal.
    run = run_dirs(data_dir, keys[0])["slow"]
    assert events(run, "step")
    whole = run.events_file.read_text().splitlines(keepends=True)
    run.events_file.write_text("".join(line for line in whole if '"step":4,' not in line))
    wait_until(lambda: bool(witness.wrong))
    witness.stop()
    assert any("told to be finished after 19 steps" in one for one in witness.wrong)
