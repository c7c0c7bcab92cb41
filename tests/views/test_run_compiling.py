"""Run's tab about compiling: the timeline, what another run's compiler did otherwise, and what was
kept of it."""

from dataclasses import replace

import pandas as pd

from breakeven.runner.folders.data_dir import DataDir
from breakeven.views.shared.inert import JOINER
from breakeven.views.tabs.compiling import frames
from tests.helpers.journals import EXPERIMENT_ID, Recording, experiment_spec
from tests.helpers.pages import cards, charts, opened, opened_run, text
from tests.helpers.pages_journals import INDUCTOR, LOSSES

SPEC = replace(experiment_spec(), backends=("inductor", "eager"), keep_code=True)
HOSTILE = "<img src=x> **bold** `code` [link](http://evil.example)"


def compiled(folder: DataDir, label: str, breaks: tuple[int, ...], spans: bool = True) -> Recording:
    """A run that compiled two frames, 4 s apart, with graph breaks in these lines."""
    run = Recording(folder.runs, label, SPEC).claim().start()
    for number, name in enumerate(("forward", HOSTILE)):
        stages = [
            {"stage": "dynamo", "name": "x", "start": 100.0 + 4 * number, "seconds": 2.0,
             "thread": 0},
            {"stage": "kernels", "name": HOSTILE, "start": 101.0 + 4 * number, "seconds": 1.0,
             "thread": 1},
        ]  # fmt: skip
        run.log.append("compile_metrics", step=0, phase="training", compile_id=f"{number}/0",
                       function=name, file="net.py", line=10 + number, total_seconds=2.0,
                       graph_ops=5, guards=3)  # fmt: skip
        if spans:
            run.log.append("compile_spans", step=0, phase="training", compile_id=f"{number}/0",
                           spans=stages)  # fmt: skip
    for line in breaks:
        run.log.append("graph_break", step=0, phase="training", reason=f"print\n{HOSTILE}",
                       location=f"net.py:{line}", stopped_at=f"net.py:{line}", count=1)  # fmt: skip
    run.blocks([0.1] * 4, LOSSES)
    return run


def test_the_tab_has_the_timeline_and_says_what_another_run_compiled_otherwise(folder: DataDir):
    compiled(folder, "inductor", (12,)).end()
    compiled(folder, "eager", (12, 17)).end()
    address = {"run": INDUCTOR, "part": "Compiling", "with": EXPERIMENT_ID}
    app = opened("experiment", tab="Runs", **address)
    drawn = charts(app)
    assert "net.py:10, step 0" in drawn and "Time spent compiling" in drawn
    assert "2.00 s not compiling" in drawn
    assert "img" not in drawn.replace("&lt;img", ""), "foreign text is inert"
    said = text(app).replace(JOINER, "")
    assert "net.py:17: print" in said and "net.py:12: print" not in said
    assert "distinct graph breaks" in said and "backend" in said
    assert "Time by phase, each measured once" in "".join(cards(app))
    same = opened("experiment", tab="Runs", **{**address, "with": "nothing that is here"})
    assert "Compiler differences" not in text(same)


def test_breaks_that_several_devices_cause_stand_apart(folder: DataDir):
    run = compiled(folder, "inductor", (12,))
    run.log.append("graph_break", step=0, phase="training", count=5, location="net.py:3",
                   reason="DDPOptimizer intentional graph-break",
                   stopped_at="torch/_dynamo/backends/distributed.py:0")  # fmt: skip
    run.end()
    app = opened_run(part="Compiling")
    frames = [one.value.to_csv() for one in app.dataframe]
    (of_ranks,) = [frame for frame in frames if "DDPOptimizer" in frame]
    assert "Breaks that several devices cause" in "".join(cards(app))
    assert "a bucket of DDP ends" in of_ranks and "net.py:12" not in of_ranks
    assert "They do not count as graph breaks of your code." in text(app)


def test_kept_code_is_shown_and_nothing_outside_the_run_folder(folder: DataDir):
    run = compiled(folder, "inductor", (), spans=False)
    run.run.path.joinpath("artifacts/code").mkdir(parents=True)
    run.run.path.joinpath("artifacts/code/0-0-graph.py").write_text("class GraphModule: pass")
    for what, file in (("graph of Dynamo", "artifacts/code/0-0-graph.py"),
                       (HOSTILE, "../../../../etc/passwd"),
                       ("trace", "artifacts/trace/dedicated.log")):  # fmt: skip
        run.log.append("kept_file", what=what, compile_id="0/0", file=file, bytes=23)
    run.end()
    app = opened_run(part="Compiling")
    assert "class GraphModule: pass" in text(app)
    assert "No times of compile stages are recorded" in text(app)
    assert "structured trace" in text(app)
    outside = opened_run(part="Compiling", kept="../../../../etc/passwd")
    assert "root:" not in text(outside)
    assert outside.error, "it says that there is no such file in the folder"


def test_a_run_that_kept_nothing_says_how_to_ask(folder: DataDir):
    run = Recording(folder.runs, "inductor").claim().start()
    run.blocks([0.1] * 4, LOSSES).end()
    assert "--keep-code" in text(opened_run(part="Compiling"))


def test_a_frame_of_which_torch_names_no_file_has_none() -> None:
    metrics = pd.DataFrame({"file": ["net.py", None], "line": [6.0, None], "graph_ops": [3, 4]})
    shown = frames(metrics)
    assert list(shown.columns) == ["file", "graph_ops"]
    assert shown["file"].iloc[0] == "net.py:6" and pd.isna(shown["file"].iloc[1])
