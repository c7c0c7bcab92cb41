"""The measures of load and of long times: what they call late, and what they call growing."""

import os
from contextlib import AsyncExitStack

import numpy as np
import pytest

from benchmarks.load.__main__ import options_of
from benchmarks.load.ages import ages
from benchmarks.load.logged import errors_in
from benchmarks.load.reader import Reader, reading
from benchmarks.load.soak import Look, slope, table
from runner.folders.data_dir import DataDir
from runner.folders.process import ProcessIdentity
from runner.locks import FileLock
from tests.helpers.journals import EXPERIMENT_ID, Recording, experiment_spec
from tests.helpers.serving import served
from tests.helpers.waiting import awaited


def test_a_page_is_late_by_the_first_step_that_it_should_have_shown(data_dir: DataDir) -> None:
    run = Recording(data_dir.runs, "baseline").run
    lines = [f'{{"v":1,"kind":"step","time":{100 + step},"seq":{step},"step":{step}}}\n'
             for step in range(3)]  # fmt: skip
    run.events_file.write_text("".join(lines))
    # Until 100.1 it shows none of the steps of 100, 101 and 102; then all.
    assert ages([(100.0, [0]), (100.1, [3])], [run], 100.1) == pytest.approx(
        [0, 0.05, 0.1, 0], abs=1e-6
    )
    # After step 0 the one of 101 is missing, which at 100.9 is to come.
    assert ages([(100.9, [1])], [run], 101.1) == pytest.approx([0, 0, 0, 0.05, 0.1], abs=1e-6)


def test_who_names_no_part_has_all_of_them_measured() -> None:
    assert tuple(options_of([]).parts) == ("queue", "readers", "events")
    assert options_of(["events", "--seconds", "1"]).parts == ["events"]
    with pytest.raises(SystemExit):
        options_of(["event"])


def test_what_grows_has_a_slope_that_its_interval_tells_from_none() -> None:
    hours = np.arange(100) / 100
    assert slope(hours, 5 + 3 * hours) == pytest.approx((3, 0), abs=1e-6)
    assert slope(hours, np.full(100, 7.0)) == (0.0, 0.0)
    noise = np.random.default_rng(0).normal(size=100)
    growth, half = slope(hours, noise)
    assert abs(growth) < half
    # Looks that are each like the last are worth fewer: a random walk without a trend.
    assert slope(hours, np.cumsum(noise))[1] > 5 * half


@pytest.mark.parametrize(
    ("hours", "warm", "files_an_hour"),
    # A quarter of an hour of one; half of a tenth of one.
    [(1.0, 5, 20), (0.1, 10, 200)],
)
def test_the_table_of_a_long_time_leaves_out_the_time_in_which_caches_fill(
    hours: float, warm: int, files_an_hour: int
) -> None:
    looks = [Look(of="dashboard", hours=hours * number / 20, memory=900 if number < warm else 300,
                  descriptors=20 + number, threads=4, share=1.5)
             for number in range(21)]  # fmt: skip
    rows = table(looks).splitlines()[2:]
    assert rows[0] == "| dashboard | memory, MB | 300 | 300 | 300 | 0 | 0 to 0 |"
    # Twenty looks after the first, one file more at each.
    assert rows[1].startswith(
        f"| dashboard | open files | {20 + warm} | 40 | 40 | {files_an_hour} | "
        f"{files_an_hour} to {files_an_hour} |"
    )


@pytest.mark.heavy
def test_readers_without_a_browser_see_what_the_page_shows_and_many_of_them_less_often(
    data_dir: DataDir,
) -> None:
    spec = experiment_spec()
    for variant in spec.variants:
        run = Recording(data_dir.runs, variant.label, spec)
        run.claim(ProcessIdentity.of(os.getpid())).start().block([0.1] * 10, [1.0] * 10)
        run.log.flush()

    async def look(address: str) -> tuple[Reader, Reader]:
        async with AsyncExitStack() as stack:
            readers = [await stack.enter_async_context(reading(address))]
            await readers[0].visit("live", f"experiment={EXPERIMENT_ID}")
            for _ in range(11):
                readers.append(await stack.enter_async_context(reading(address)))
            await readers[-1].visit("live", f"experiment={EXPERIMENT_ID}")
            return readers[0], readers[-1]

    lock = FileLock(data_dir.supervisor_lock)  # a supervisor would take the runs for lost
    assert lock.try_acquire()
    with served(data_dir, supervised=False) as (address, _):
        first, twelfth = awaited(look(address))
    for reader in (first, twelfth):
        assert reader.seen[-1][1] == [10, 10, 10] and not reader.errors
    assert first.intervals[:3] == pytest.approx([2, 0.35, 4])
    # Three times as seldom, as there are three times as many as are served alike; the numbers of
    # the runs twice a second all the same.
    assert twelfth.intervals[:3] == pytest.approx([5, 0.5, 12])
    assert errors_in(data_dir) == []
    lock.release()
