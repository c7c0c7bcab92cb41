"""The timeline of compiling: every stage where it was, without time in which nothing compiled."""

from breakeven.runner.folders.data_dir import DataDir
from breakeven.storage.compiling.timeline import timeline
from breakeven.storage.index.store import Store
from tests.helpers.journals import EXPERIMENT_ID, Recording


def span(stage: str, start: float, seconds: float, thread: int = 0) -> dict[str, object]:
    return {"stage": stage, "name": stage, "start": start, "seconds": seconds, "thread": thread}


def record(data_dir: DataDir, *rows: tuple[str, int, list[dict[str, object]]]) -> Recording:
    run = Recording(data_dir.runs, "inductor").claim().start()
    for number, (compile_id, step, spans) in enumerate(rows):
        run.log.append("compile_metrics", step=step, phase="training", compile_id=compile_id,
                       function=f"forward_{number}", file="net.py", line=10 + number,
                       total_seconds=1.0)  # fmt: skip
        run.log.append("compile_spans", step=step, phase="training", compile_id=compile_id,
                       spans=spans)  # fmt: skip
    run.end()
    return run


def test_time_between_compilations_is_left_out(data_dir: DataDir):
    """The second frame begins 100 s after the first one ended: 5 s into the picture."""
    first = [span("dynamo", 1000, 5), span("aot", 1001, 4), span("kernels", 1002, 2, thread=1)]
    run = record(data_dir, ("0/0", 0, first), ("0/1", 7, [span("dynamo", 1105, 2)]))
    with Store.in_memory(data_dir) as store:
        found = timeline(store, EXPERIMENT_ID, run.run_id)
    assert list(found["frame"]) == ["forward_0 [0/0]"] * 3 + ["forward_1 [0/1]"]
    assert list(found["begin"]) == [0, 1, 2, 5]
    assert list(found["waited"]) == [0, 0, 0, 100]
    assert list(found["stage"]) == ["Dynamo", "AOTAutograd", "Triton and C++", "Dynamo"]
    assert list(found["thread"]) == [0, 0, 1, 0]
    assert list(found["place"]) == ["net.py:10"] * 3 + ["net.py:11"]
    assert list(found["step"]) == [0, 0, 0, 7]


def test_what_no_run_could_have_recorded_is_left_out(data_dir: DataDir):
    spans = [
        span("dynamo", 1000, 5), span("dynamo", -1, 5), span("dynamo", 1000, -5),
        span("dynamo", float("inf"), 5), span("dynamo", 1000, float("nan")), span("magic", 1000, 1),
        {"stage": None}, {"stage": "dynamo", "start": "soon"}, "no span",
    ]  # fmt: skip
    run = record(data_dir, ("0/0", 0, spans))  # type: ignore[list-item]
    with Store.in_memory(data_dir) as store:
        found = timeline(store, EXPERIMENT_ID, run.run_id)
    assert len(found) <= 1


def test_a_journal_without_spans_has_an_empty_timeline(data_dir: DataDir):
    run = record(data_dir)
    with Store.in_memory(data_dir) as store:
        assert timeline(store, EXPERIMENT_ID, run.run_id).empty
