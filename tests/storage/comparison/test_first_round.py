"""The first round of a race, whose order is no draw of chance, is in no speedup."""

from breakeven.runner.folders.data_dir import DataDir
from breakeven.storage.comparison.comparison import compare
from breakeven.storage.comparison.rounds import round_speedups
from breakeven.storage.index.store import Store
from tests.helpers.journals import EXPERIMENT_ID, Recording, experiment_spec, falling_losses
from tests.helpers.speed_journals import record_speed, speed_spec


def rounds(store: Store) -> dict[str, list[int]]:
    """Of each run those that its speedup rests on, counted from 1."""
    frame = round_speedups(store, EXPERIMENT_ID)
    return {label: list(of_run["round"]) for label, of_run in frame.groupby("label")}


def test_the_first_round_of_a_training_is_in_no_speedup(data_dir: DataDir) -> None:
    losses = falling_losses(40)
    for label, seconds in (("baseline", 0.2), ("control", 0.2), ("inductor", 0.1)):
        # Nothing compiles, so that being the first is all that speaks against the first round.
        Recording(data_dir.runs, label).claim().start().blocks(
            [10 * seconds, seconds, seconds, seconds], losses
        ).evaluation(0.8).end()
    with Store.in_memory(data_dir) as store:
        assert rounds(store) == {"control": [2, 3, 4], "inductor": [2, 3, 4]}
        results = {one.label: one for one in compare(store, EXPERIMENT_ID).results}
        assert results["inductor"].speedup.median == 2.0


def test_the_first_round_after_a_resumption_is_in_no_speedup(data_dir: DataDir) -> None:
    spec = experiment_spec(num_steps=80)
    losses = falling_losses(80)
    for label, seconds in (("baseline", 0.2), ("control", 0.2), ("inductor", 0.1)):
        run = Recording(data_dir.runs, label, spec).claim().start()
        run.blocks([seconds] * 3, losses).checkpoint().resume(30)
        run.blocks([10 * seconds, *[seconds] * 4], losses[30:]).evaluation(0.8).end()
    with Store.in_memory(data_dir) as store:
        assert rounds(store)["inductor"] == [2, 3, 5, 6, 7, 8]


def test_warm_up_and_with_it_the_first_round_is_in_no_speedup(data_dir: DataDir) -> None:
    spec = speed_spec()
    for label in ("baseline", "control", "eager"):
        record_speed(data_dir, label, spec, 0.2, num_rounds=6)
    with Store.in_memory(data_dir) as store:
        assert rounds(store)["eager"] == [2, 3, 4, 5, 6, 7]
