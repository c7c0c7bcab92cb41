"""Which runs have a fault to investigate, what an investigation says, and the issue it writes."""

import json
import math
import re
import shutil
from dataclasses import replace
from typing import Any

import pytest

from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.protocol.states import RunState
from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.runner.specs.follow_ups import Finding
from breakeven.storage.__main__ import main
from breakeven.storage.comparison.comparison import compare
from breakeven.storage.index.store import Store
from breakeven.storage.investigation import (
    Fault,
    Investigation,
    NoFault,
    Trial,
    fault_of,
    fault_to_find,
    finished_investigation,
    load_investigation,
    next_experiment,
    suspects,
)
from breakeven.storage.library.catalog import backend_rows, summaries
from breakeven.storage.library.summary import Summary, summarize
from breakeven.storage.numbers.formats import DASH
from breakeven.storage.statistics.outcomes import Reading
from breakeven.storage.statistics.parity import Parity, ParityFinding, doubt_fault, suspected_step
from breakeven.storage.words.investigation import facts, headline, issue
from breakeven.storage.words.parity import parity_text, parity_words
from tests.faults.investigations import (
    INVESTIGATION_ID,
    RELU,
    SPEC,
    TRIALS,
    record_broken,
    record_failed,
    record_investigation,
)
from tests.helpers import correctness_journals
from tests.helpers.journals import (
    EXPERIMENT_ID,
    Recording,
    experiment_spec,
    falling_losses,
    record_experiment,
)


def fault(folder: DataDir, run: str) -> Fault:
    with Store.in_memory(folder) as store:
        return fault_of(store, run)


def suspect_labels(store: Store) -> list[str]:
    return [result.label for result in suspects(store, compare(store, EXPERIMENT_ID))]


def investigation(folder: DataDir, **finding: Any) -> Investigation:
    record_investigation(folder, finding)
    with Store.in_memory(folder) as store:
        return load_investigation(store, INVESTIGATION_ID)


@pytest.fixture(scope="module")
def usual(tmp_path_factory: pytest.TempPathFactory) -> Investigation:
    """What found the wrong lowering."""
    return investigation(DataDir(tmp_path_factory.mktemp("found")))


def other(investigation: Investigation, **finding: Any) -> Investigation:
    """With fields of its finding changed; None: not known."""
    known = {name: value for name, value in {**RELU, **finding}.items() if value is not None}
    return replace(investigation, finding=Finding(**known))


def test_a_failed_run_raises_at_the_first_missing_step(data_dir: DataDir) -> None:
    # One block of 10 steps was recorded: steps 0 to 9.
    run = record_failed(data_dir, "inductor")
    fault_of_run = fault(data_dir, run)
    assert (fault_of_run.kind, fault_of_run.step) == ("raises", 10)
    assert fault_of_run.error == "InductorError: no kernel for rsqrt"
    other = DataDir(data_dir.path / "memory")
    run = record_failed(other, "inductor", state=RunState.OUT_OF_MEMORY)
    with Store.in_memory(other) as store:
        assert fault_of(store, run).kind == "memory"
        assert next_experiment(store, run).investigation.problem == "memory"


def test_a_run_with_broken_parity_differs_from_a_step_on(data_dir: DataDir) -> None:
    run = record_broken(data_dir)
    with Store.in_memory(data_dir) as store:
        assert fault_of(store, run) == Fault(kind="differs", step=0)
        assert suspect_labels(store) == ["inductor"]


@pytest.mark.parametrize("roles", [("baseline", "backend"), ("backend",)])
def test_a_loss_may_be_infinite_by_itself(roles: tuple[str, ...], data_dir: DataDir) -> None:
    """If the baseline has it, the training is to blame."""
    for arm in SPEC.arms:
        losses = falling_losses(SPEC.num_steps)
        if arm.role in roles:
            losses[7:] = [math.nan] * len(losses[7:])
        run = Recording(data_dir.runs, arm.label, SPEC).claim().start()
        run.blocks([0.2] * 4, losses).evaluation(0.8).end()
    run_id = f"{EXPERIMENT_ID}.inductor"
    expected = Fault(kind="not finite" if "baseline" in roles else "differs", step=7)
    with Store.in_memory(data_dir) as store:
        assert fault_of(store, run_id) == fault_to_find(store, run_id) == expected
        spec = next_experiment(store, run_id)
        assert suspect_labels(store) == ["inductor"]
    assert (spec.investigation.problem, spec.investigation.step) == ("differs", 7)


@pytest.mark.parametrize("wrong", ["training", "inference"])
def test_tensors_that_differ_are_a_fault_of_their_part(wrong: str, data_dir: DataDir) -> None:
    for label in ("baseline", "eager", "inductor"):
        parts = correctness_journals.passing()
        if label == "inductor":
            other = correctness_journals.tensor("a", passed=False)
            parts[wrong] = ("fail_accuracy", [other])
        correctness_journals.record(data_dir, label, parts)
    run = f"{EXPERIMENT_ID}.inductor"
    with Store.in_memory(data_dir) as store:
        fault_of_run = fault_of(store, run)
        assert next_experiment(store, run).is_inference == (wrong == "inference")
    assert (fault_of_run.kind, fault_of_run.part) == ("differs", wrong)


def test_without_a_compiler_or_a_fault_nothing_is_investigated(data_dir: DataDir) -> None:
    record_experiment(data_dir.runs, SPEC)
    with Store.in_memory(data_dir) as store:
        with pytest.raises(NoFault, match="there is nothing to investigate"):
            fault_of(store, f"{EXPERIMENT_ID}.inductor")
        assert suspect_labels(store) == []
    for failed, label, why in (
        (("baseline", "inductor"), "inductor", "the baseline failed as well"),
        (("inductor",), "control", "control has no compiler"),
    ):
        folder = DataDir(data_dir.path / label)
        record_failed(folder, *failed)
        with pytest.raises(NoFault, match=why):
            fault(folder, f"{EXPERIMENT_ID}.{label}")


def test_of_a_run_that_is_only_slow_the_stages_are_timed(data_dir: DataDir) -> None:
    long = experiment_spec(120, 10, name="nightly")
    record_experiment(data_dir.runs, long, backend_seconds=0.4)
    run = f"{EXPERIMENT_ID}.inductor"
    with Store.in_memory(data_dir) as store:
        assert fault_of(store, run) == Fault(kind="slow")
        spec = next_experiment(store, run, budget_seconds=60)
    stages = ("eager", "aot_eager", "aot_eager_decomp_partition", "inductor")
    assert (spec.backends[:4], spec.scenario, spec.name) == (
        stages,
        "train",
        "stages of inductor in nightly",
    )
    assert (spec.controls, spec.time_limit_seconds) == (1, 60)


def test_the_headline_names_the_operation_and_facts_say_how_sure(usual: Investigation) -> None:
    assert headline(usual) == (
        "Inductor's lowering of aten.relu.default (number 12 of the lowerings) computes another "
        "gradient."
    )
    assert facts(usual) == [
        "Gradient encoder.weight differs by up to 0.312; rounding alone explains 1.5e-06.",
        "The fault is at step 3.",
        "The fault is in graph 2 of 5.",
        "Without the fault: inductor:epilogue_fusion=false.",
        "Certain: a program of 3 operations that needs torch alone fails in 3 of 3 fresh processes "
        "when it is compiled, and passes in 2 without a compiler.",
    ]


NOTHING = dict.fromkeys(
    ("subsystem", "subsystem_number", "operation", "program", "quantity", "tensor", "graph")
)
RAISES = {"problem": "raises", "error": "KeyError: 'a'\nmore", **NOTHING}


@pytest.mark.parametrize(
    ("finding", "said"),
    [
        (
            {"cause": "stage", "compiler_stage": "AOTAutograd", **RAISES},
            "The compiler stage AOTAutograd fails with KeyError: 'a'.",
        ),
        (
            {"cause": "backend", "compiler_stage": "tvm", **RAISES},
            "The backend tvm fails with KeyError: 'a'.",
        ),
        (
            {
                "cause": "setting",
                "compiler_stage": "CUDA graphs",
                "labels": ["inductor:triton.cudagraphs=false"],
                **RAISES,
            },
            "Because of CUDA graphs, inductor fails with KeyError: 'a'; "
            "inductor:triton.cudagraphs=false does not.",
        ),
        (
            {"cause": "training only", "compiler_stage": "Inductor", **NOTHING},
            "inductor computes another result in the training, but in no single step alone. The ",
        ),
        (
            {"subsystem": "post_grad_passes", "operation": "pad_mm"},
            "Inductor's post-grad pass pad_mm (number 12 of the post-grad passes) computes "
            "another ",
        ),
        ({"cause": "own code"}, "The fault of inductor is there without a compiler as well: the "),
        ({"cause": "not reproduced"}, "The fault of inductor did not come back in 3 trials, so "),
        (
            {"cause": "out of time", **NOTHING},
            "The time ran out after 3 trials, before the cause was known. The smallest part "
            "with the "
            "fault so far is the compiler stage Inductor.",
        ),
    ],
)
def test_each_cause_has_words(finding: dict[str, Any], said: str, usual: Investigation) -> None:
    assert headline(other(usual, **finding)).startswith(said)


PASSES, ANOTHER, DIFFERS = (
    ("eager", "passes"),
    ("aot_eager", "another fault"),
    ("inductor", "differs"),
)
DECOMPOSED = ("aot_eager_decomp_partition", "passes")


@pytest.mark.parametrize(
    ("stages", "said"),
    [
        # The stage before fails otherwise, so the fault of Inductor may be one of that stage.
        (
            (PASSES, ANOTHER, DIFFERS, DIFFERS, ("repro.py", "times out")),
            "Likely, not certain: of 5 trials 2 had the fault, as the cause predicts, but "
            "aot_eager "
            "had another fault, behind which this one may hide.",
        ),
        # Decompositions have all parts of `aot_eager` and pass, so the fault is in neither.
        ((PASSES, ANOTHER, DECOMPOSED, DIFFERS, DIFFERS, DECOMPOSED), "Certain: "),
    ],
)
def test_a_trial_with_another_fault_makes_a_cause_less_certain(
    stages: tuple[tuple[str, str], ...], said: str, usual: Investigation
) -> None:
    trials = tuple(
        Trial(number=number, stage="stages", what=what, outcome=outcome)
        for number, (what, outcome) in enumerate(stages, 1)
    )
    assert facts(replace(usual, trials=trials))[-1].startswith(said)


def test_a_cause_without_a_whole_program_is_not_called_certain(data_dir: DataDir) -> None:
    uncertain = investigation(data_dir, program="#" * 100_001)
    assert uncertain.finding.program is None
    # Of the three trials, one under inductor differs.
    assert facts(uncertain)[-1] == (
        "Likely, not certain: of 3 trials 1 had the fault, as the cause predicts, but no program "
        "of its own shows it (the program has more than 100,000 characters)."
    )


def test_runs_that_vanished_show_no_fault(data_dir: DataDir) -> None:
    for label, why in (
        ("baseline", "the baseline ended early, and not by a fault"),
        ("inductor", "inductor vanished without an error"),
    ):
        folder = DataDir(data_dir.path / label)
        for arm in SPEC.arms:
            run = Recording(folder.runs, arm.label, SPEC).claim().start()
            run.block([0.1], [1.0]).end(RunState.LOST if arm.label == label else RunState.FINISHED)
        with pytest.raises(NoFault, match=why):
            fault(folder, f"{EXPERIMENT_ID}.inductor")


def test_a_baseline_of_another_environment_says_nothing_about_a_fault(data_dir: DataDir) -> None:
    spec = replace(SPEC, environments=("old=/a/python", "new=/b/python"))
    for arm in spec.arms:
        run = Recording(data_dir.runs, arm.label, spec).claim().start()
        is_failed = arm.label in ("baseline@old", "inductor@new")
        run.block([0.1], [1.0]).end(RunState.FAILED if is_failed else RunState.FINISHED)
    with Store.in_memory(data_dir) as store:
        assert fault_of(store, f"{EXPERIMENT_ID}.inductor@new").kind == "raises"
        with pytest.raises(NoFault, match="the baseline failed as well: nothing shows"):
            fault_of(store, f"{EXPERIMENT_ID}.inductor@old")


def test_the_issue_has_pytorchs_form_and_nothing_private(usual: Investigation) -> None:
    text = issue(other(usual, traceback="File /home/somebody/train.py, line 3"))
    assert text.startswith(
        "# torch.compile: Inductor's lowering of aten.relu.default (number 12 of the lowerings) "
        "computes another gradient\n\n### Describe the bug\n\nInductor's lowering"
    )
    assert "Expected: The same results as without a compiler, up to rounding.\n" in text
    assert f"\n| 1 | reproduction | no compiler | passes | {DASH} | 1.0 s |\n" in text
    # The program prints a fence of its own.
    assert "````python\nimport torch\nprint('```')\n````\n" in text
    assert "```python\nkernel = 1\n```\n\n### Error logs\n\n```pytb\nFile ~/train.py" in text
    assert text.endswith("### Versions\n\n```\nPyTorch version: 2.13.0\nOS: Linux, ~/venv\n```\n")
    assert "somebody" not in text
    assert "Found in a training of bert-tiny on reviews by trials" in text


def test_show_prints_the_answer(data_dir: DataDir, capsys: pytest.CaptureFixture[str]) -> None:
    """With the trials, and commands that try what removes the fault."""
    record_broken(data_dir)
    record_investigation(data_dir)
    where = f"--data-folder={data_dir.path}"
    assert main(["show", INVESTIGATION_ID, where]) == 0
    shown = capsys.readouterr().out
    assert "\nInductor's lowering of aten.relu.default" in shown
    assert "2      reproduction  inductor     differs  gradient encoder.weight" in shown
    assert "to try inductor:epilogue_fusion=false: breakeven compare" in shown
    assert "--backends=inductor:epilogue_fusion=false" in shown
    assert f"breakeven show {INVESTIGATION_ID} --issue" in shown
    assert main(["show", INVESTIGATION_ID, where, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["finding"]["operation"] == "aten.relu.default"
    assert [trial["outcome"] for trial in document["trials"]] == ["passes", "differs", "passes"]
    ids = {"list": [], "trend": [], "diff": [EXPERIMENT_ID, INVESTIGATION_ID]}
    for command in ("list", "trend", "explain", "explain --ladder", "diff"):
        name, *options = command.split()
        # Without a ladder there is none to explain.
        arguments = [name, *ids.get(name, [INVESTIGATION_ID]), *options, where]
        assert main(arguments) == (2 if "--ladder" in options else 0), command


HOSTILE = "<img src=x>\x1b[2J`x` ```\n# heading\n| a |\n[x](http://stranger.example)" + "y" * 3000
"""Of a stranger's journal."""


def test_strange_texts_stay_texts(data_dir: DataDir, capsys: pytest.CaptureFixture[str]) -> None:
    """They stay on their lines and move no cursor."""
    texts = (
        "compiler_stage",
        "subsystem",
        "operation",
        "quantity",
        "tensor",
        "error",
        "traceback",
        "program",
        "program_note",
        "environment",
        "generated_code",
    )
    trials = [{**TRIALS[1], "stage": HOSTILE, "what": HOSTILE, "detail": HOSTILE}]
    record_broken(data_dir)
    finding = dict.fromkeys(texts, HOSTILE) | {"labels": [HOSTILE]}
    record_investigation(data_dir, finding, trials)
    where = f"--data-folder={data_dir.path}"
    assert main(["show", INVESTIGATION_ID, where]) == 0
    shown = capsys.readouterr().out
    assert "\x1b" not in shown and "\\x1b[2J" in shown
    assert not [line for line in shown.splitlines() if line.startswith(("# ", "| "))]
    assert "to try" not in shown, "it is no backend"
    assert main(["show", INVESTIGATION_ID, where, "--issue"]) == 0
    issue = capsys.readouterr().out
    assert "\x1b" not in issue
    outside, is_open = [], False
    for line in issue.splitlines():
        is_open ^= line.startswith("````")
        outside += [] if is_open or line.startswith("````") else [line]
    said = "\n".join(outside)
    assert [line for line in outside if line.startswith("#")][1:] == [
        "### Describe the bug",
        "### Error logs",
        "### Versions",
    ]
    assert not re.search(r"(?<!\\)<|(?<!\\)\]\(", said)


def test_damaged_folders_keep_no_cause_from_being_searched(data_dir: DataDir) -> None:
    run = record_failed(data_dir, "inductor")
    for number, content in enumerate((None, "", '{"a":', "[]")):
        folder = data_dir.runs / f"2026112{number}-101500-123456-7f3b.inductor"
        folder.mkdir()
        if content is not None:
            (folder / "spec.json").write_text(content)
    (data_dir.runs / f"{EXPERIMENT_ID}.control" / "events.jsonl").write_text("[[[\n{}\n")
    file = data_dir.path / "planned.json"
    arguments = ["plan-investigation", run, f"--data-folder={data_dir.path}", "--budget=60"]
    assert main([*arguments, f"--output={file}"]) == 0
    assert ExperimentSpec.from_json(file.read_text()).investigates == run
    shutil.rmtree(data_dir.runs / f"{EXPERIMENT_ID}.baseline")
    assert main([*arguments, f"--output={file}"]) == 0


ENDS: dict[str, tuple[dict[str, str], RunState, int]] = {
    "20261122-101501-123456-7f3a": ({"cause": "own code"}, RunState.FINISHED, 0),
    "20261122-101502-123456-7f3a": ({"cause": "unstable"}, RunState.FINISHED, 4),
    "20261122-101503-123456-7f3a": ({"cause": "not reproduced"}, RunState.FINISHED, 4),
    "20261122-101504-123456-7f3a": ({"cause": "out of time"}, RunState.FINISHED, 1),
    "20261122-101505-123456-7f3a": ({"cause": "searching"}, RunState.FINISHED, 1),
    "20261122-101506-123456-7f3a": ({}, RunState.CANCELLED, 1),
}
"""Investigations by id: what they found, how they ended, and the exit status that says so."""


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> DataDir:
    folder = DataDir(tmp_path_factory.mktemp("ended"))
    for experiment_id, (finding, state, _) in ENDS.items():
        record_investigation(folder, finding, state=state, id=experiment_id)
    return folder


@pytest.mark.parametrize("experiment_id", ENDS)
def test_the_status_is_0_for_a_known_cause_1_for_a_search_cut_short_4_for_no_cause(
    experiment_id: str, ended: DataDir, capsys: pytest.CaptureFixture[str]
) -> None:
    _, state, status = ENDS[experiment_id]
    assert main(["show", "--judged", experiment_id, f"--data-folder={ended.path}"]) == status
    stopped = "The search ended early (stopped): stopped by a person."
    assert (stopped in capsys.readouterr().out) is (state is RunState.CANCELLED)


def test_an_investigation_is_found_by_its_run_and_measures_nothing(data_dir: DataDir) -> None:
    run = record_broken(data_dir)
    record_investigation(data_dir)
    with Store.in_memory(data_dir) as store:
        assert finished_investigation(store, run) == INVESTIGATION_ID
        assert finished_investigation(store, f"{EXPERIMENT_ID}.baseline") is None
        summary = summarize(store, INVESTIGATION_ID)
        assert summary == replace(Summary(), workload=summary.workload)
        assert set(backend_rows(store)["experiment_id"]) <= {EXPERIMENT_ID}
        with pytest.raises(NoFault, match="an investigation"):
            fault_of(store, f"{INVESTIGATION_ID}.inductor")


AGAIN = [TRIALS[0], {**TRIALS[1], "outcome": "passes", "detail": None, "step": None}]
"""The run's steps were made again without its fault."""
ALONE = [{**trial, "stage": "graphs", "what": "graph 1 of 1"} for trial in AGAIN]
"""Only the graphs of a script were tried, each alone."""
NOTHING = {"cause": "not reproduced", "compiler_stage": None, "program": None}


@pytest.mark.parametrize(
    ("finding", "trials", "state", "verdict"),
    [
        (NOTHING, AGAIN, RunState.FINISHED, "unknown"),
        (NOTHING, ALONE, RunState.FINISHED, "broken"),
        (NOTHING, AGAIN, RunState.CANCELLED, "broken"),
        (NOTHING, AGAIN, None, "broken"),
        ({}, TRIALS, RunState.FINISHED, "broken"),
        ({"cause": "unstable"}, TRIALS, RunState.FINISHED, "broken"),
    ],
)
def test_a_fault_that_does_not_come_back_is_no_longer_called_broken(
    finding: dict[str, Any],
    trials: list[dict[str, Any]],
    state: RunState | None,
    verdict: str,
    data_dir: DataDir,
) -> None:
    run = record_broken(data_dir)
    record_investigation(data_dir, finding, trials, state)
    with Store.in_memory(data_dir) as store:
        parity = compare(store, EXPERIMENT_ID).result_of("inductor").parity
        assert parity.verdict == verdict
        is_open = verdict == "unknown"
        assert ("did not come back in 2 trials" in str(parity_words(parity))) is is_open
        assert parity_text(parity) == ("unknown" if is_open else "broken at step 0")
        # It can be investigated again, at the same step.
        assert fault_of(store, run) == Fault(kind="differs", step=0)


def test_stored_results_of_a_time_before_an_investigation_do_not_stay(data_dir: DataDir) -> None:
    record_broken(data_dir)
    with Store.in_memory(data_dir) as store:
        assert compare(store, EXPERIMENT_ID).result_of("inductor").parity.verdict == "broken"
        assert summarize(store, EXPERIMENT_ID).parity == "broken"
        list(summaries(store))
        record_investigation(data_dir, NOTHING, AGAIN)
        store.ingest()
        assert compare(store, EXPERIMENT_ID).result_of("inductor").parity.verdict == "unknown"
        assert summarize(store, EXPERIMENT_ID).parity == "unknown"
        assert EXPERIMENT_ID in summaries(store)  # the list's revision is the comparison's


def test_a_newer_investigation_that_finds_the_fault_counts(data_dir: DataDir) -> None:
    record_broken(data_dir)
    record_investigation(data_dir, NOTHING, AGAIN)
    record_investigation(data_dir, id="20261123-101500-123456-7f3a")
    with Store.in_memory(data_dir) as store:
        assert compare(store, EXPERIMENT_ID).result_of("inductor").parity.verdict == "broken"


def test_a_fault_that_begins_inside_a_window_is_searched_up_to_its_end() -> None:
    window = Reading(
        quantity="loss",
        first_step=60,
        last_step=69,
        value=2.0,
        expected=1.0,
        interval=0.1,
        learned=None,
    )
    late = Parity(verdict="broken", first_step_outside=60, outside=window)
    assert suspected_step(late) == 69
    assert suspected_step(doubt_fault(late, 3)) == 69


def test_wrong_answers_stay_broken_whatever_the_steps_of_a_training_do() -> None:
    outside = ParityFinding(kind="outside band", figures={"first_step_outside": 3})
    wrong = Parity(verdict="broken", first_step_outside=3, findings=(outside,))
    assert (doubt_fault(wrong, 2).verdict, doubt_fault(wrong, 2).first_step_outside) == (
        "unknown",
        None,
    )
    answers = replace(wrong, findings=(outside, ParityFinding(kind="answers wrong")))
    assert doubt_fault(answers, 2) == answers
    holds = Parity(verdict="holds")
    assert doubt_fault(holds, 2) == holds
