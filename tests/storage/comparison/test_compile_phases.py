"""What torch reports of a compiled frame, taken apart by phase."""

import pandas as pd

from breakeven.runner.folders.data_dir import DataDir
from breakeven.storage.compiling.timeline import phases_by_run, taken_apart
from breakeven.storage.index.store import Store
from tests.helpers.journals import EXPERIMENT_ID, Recording


def frame(function: str | None = "forward", **seconds: float) -> pd.DataFrame:
    names = ("total_seconds", "aot_seconds", "inductor_seconds", "code_seconds", "kernel_seconds")
    return pd.DataFrame([{"function": function, **{name: seconds.get(name) for name in names}}])


def alone(one: pd.DataFrame) -> dict[str, float]:
    return {str(phase): round(value, 9) for phase, value in taken_apart(one).iloc[0].items()}


def test_each_phase_is_given_without_those_that_lie_in_it() -> None:
    one = frame(total_seconds=10.0, aot_seconds=8.0, inductor_seconds=7.0, code_seconds=5.0,
                kernel_seconds=1.0)  # fmt: skip
    assert alone(one) == {
        "Dynamo": 2.0, "AOTAutograd": 1.0, "Inductor lowering": 2.0, "Code generation": 4.0,
        "Triton and C++": 1.0,
    }  # fmt: skip


def test_a_backward_of_its_own_spent_nothing_in_dynamo() -> None:
    one = frame(None, total_seconds=5.0, inductor_seconds=4.0, code_seconds=3.0)
    found = alone(one)
    assert (found["Dynamo"], found["AOTAutograd"], found["Inductor lowering"]) == (0.0, 1.0, 1.0)


def test_a_phase_that_a_cache_spared_takes_nothing_from_the_ones_around_it() -> None:
    one = frame(total_seconds=3.0, aot_seconds=2.0, kernel_seconds=0.5)
    found = alone(one)
    assert (found["Dynamo"], found["AOTAutograd"], found["Triton and C++"]) == (1.0, 1.5, 0.5)
    assert found["Inductor lowering"] == found["Code generation"] == 0.0


def test_frames_of_a_run_add_up_and_those_of_evaluating_do_not_count(data_dir: DataDir) -> None:
    run = Recording(data_dir.runs, "inductor")
    for phase, total in (("training", 3.0), ("training", 2.0), ("evaluating", 9.0)):
        run.log.append("compile_metrics", step=0, phase=phase, compile_id="0/0", function="f",
                       total_seconds=total, aot_seconds=1.0)  # fmt: skip
    run.log.flush()
    with Store.in_memory(data_dir) as store:
        found = phases_by_run(store, EXPERIMENT_ID).set_index("phase")["seconds"]
    assert (found["Dynamo"], found["AOTAutograd"], found.sum()) == (3.0, 2.0, 5.0)
