"""Sentences about an investigation, and the text of an issue for PyTorch."""

import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import takewhile

from breakeven.runner.errors import InvalidSpec
from breakeven.runner.masking import mask_private
from breakeven.runner.protocol.states import state_words
from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.runner.specs.follow_ups import DATA_FILE, Finding
from breakeven.runner.specs.ladder import RUNGS
from breakeven.runner.texts import capital, duration, first_sentence, printable
from breakeven.storage import queries
from breakeven.storage.errors import NotInStore
from breakeven.storage.index.store import Store
from breakeven.storage.investigation import COMPILER_CAUSES, Investigation, Trial
from breakeven.storage.numbers.formats import DASH, count_of
from breakeven.storage.profile.findings import Remedy
from breakeven.storage.words.issues import escaped, fenced, markdown_table, source_words
from breakeven.storage.words.known_causes import KnownCause, changed

SUBSYSTEMS = {
    "decomposition": ("decomposition of", "decompositions"),
    "lowerings": ("lowering of", "lowerings"),
    "pre_grad_passes": ("pre-grad pass", "pre-grad passes"),
    "joint_graph_passes": ("joint-graph pass", "joint-graph passes"),
    "post_grad_passes": ("post-grad pass", "post-grad passes"),
    "cudagraphs": ("CUDA graph", "CUDA graphs"),
}
"""Subsystems of torch's CompilerBisector: one of them, before its name, and all of them."""
LONGEST_ERROR = 200
MOST_CODE_LINES = 150
"""Generated code with more lines is no part of an issue."""
HAVE_FAULT = ("raises", "differs", "crashes")
ANOTHER = "another fault"
"""Outcome of a trial that failed, but not as the run; it supports no cause."""
TRIAL_HEADER = ("trial", "stage", "under", "outcome", "detail", "time")


def headline(investigation: Investigation) -> str:
    """The answer in a sentence, as far as it is known."""
    label, finding = investigation.label, investigation.finding
    trials = count_of(len(investigation.trials), "trial")
    if finding.cause == "own code":
        return (
            f"The fault of {label} is there without a compiler as well: the model, the data or the "
            "settings are the cause, and no compiler is to blame."
        )
    if finding.cause == "not reproduced":
        return f"The fault of {label} did not come back in {trials}, so its cause is not known."
    if finding.cause == "unstable":
        return f"Equal trials of {label} disagree: the fault comes and goes, so no cause is named."
    if finding.cause == "setting":
        without = "".join(f"; {label} does not" for label in finding.labels)
        setting = finding.compiler_stage or "its settings"
        return f"Because of {setting}, {label} {_does(finding)}{without}."
    if finding.cause == "training only":
        return (
            f"{label} {_does(finding)} in the training, but in no single step alone. The smallest "
            f"part of the compiler with the fault is {_culprit(finding)}."
        )
    if finding.cause in COMPILER_CAUSES:
        return f"{capital(_culprit(finding))} {_does(finding)}."
    if finding.cause == "out of time":
        known = ""
        if finding.compiler_stage is not None:
            known = f" The smallest part with the fault so far is {_culprit(finding)}."
        return f"The time ran out after {trials}, before the cause was known.{known}"
    if investigation.is_over:
        return f"The search ended after {trials}, before the cause was known."
    return f"The search goes on: {trials} so far, and the cause is not known yet."


def facts(investigation: Investigation) -> list[str]:
    """Sentences on the evidence: what differs, where, what removes the fault, how certain it is."""
    return [*filter(None, _facts(investigation))]


def _facts(investigation: Investigation) -> Iterator[str]:
    finding = investigation.finding
    if finding.tensor is not None:
        yield _about_tensor(finding)
    if finding.step is not None:
        yield f"The fault is at step {finding.step:,}."
    if finding.graph is not None and finding.num_graphs is not None:
        yield f"The fault is in graph {finding.graph} of {finding.num_graphs}."
    if finding.labels and finding.cause != "own code":
        yield f"Without the fault: {', '.join(finding.labels)}."
    yield certainty(investigation)
    state = investigation.record.state
    if state.ended_early:
        yield f"The search ended early ({state_words(state)}): {investigation.record.reason or ''}."


def _about_tensor(finding: Finding) -> str:
    """What differs and by how much, or where numbers begin that are not finite."""
    if finding.problem == "raises":
        phase = "" if finding.quantity is None else f", in the {finding.quantity}"
        return f"The first number that is not finite comes from {finding.tensor}{phase}."
    name = capital(" ".join(dict.fromkeys(filter(None, [finding.quantity, finding.tensor]))))
    error, allowed = finding.max_error, finding.allowed_error
    if name.endswith("is missing"):
        return f"{name}."
    if error is None or not math.isfinite(error):
        return f"{name} is not finite; without a compiler it is."
    rounding = "" if allowed is None else f"; rounding alone explains {allowed:.3g}"
    return f"{name} differs by up to {error:.3g}{rounding}."


def certainty(investigation: Investigation) -> str:
    """How certain the named cause is, and why; empty without one."""
    finding = investigation.finding
    if finding.cause not in COMPILER_CAUSES:
        return ""
    fails = sum(trial.outcome in HAVE_FAULT for trial in investigation.trials)
    doubts = []
    if others := dict.fromkeys(_hiding(investigation.trials)):
        named = " and ".join(others)
        doubts.append(f"{named} had another fault, behind which this one may hide")
    if finding.program is None or not finding.program_fails:
        note = "" if finding.program_note is None else f" ({finding.program_note})"
        doubts.append(f"no program of its own shows it{note}")
    if doubts:
        return (
            f"Likely, not certain: of {count_of(len(investigation.trials), 'trial')} {fails} "
            f"had the "
            f"fault, as the cause predicts, but {', and '.join(doubts)}."
        )
    size = "" if finding.num_nodes is None else f" of {count_of(finding.num_nodes, 'operation')}"
    return (
        f"Certain: a program{size} that needs {program_needs(finding)} fails in "
        f"{finding.program_fails} of {finding.program_tries} fresh processes when it is compiled, "
        f"and passes in {finding.program_passes or 0} without a compiler."
    )


def _hiding(trials: Sequence[Trial]) -> Iterator[str]:
    """Stages and settings with another fault, behind which the one of the run may hide. It is in no
    stage below one that passes, because each stage has all parts of the lower ones."""
    for at, trial in enumerate(trials):
        if trial.outcome != ANOTHER or trial.stage not in ("stages", "settings"):
            continue
        higher = takewhile(lambda later: later.stage == "stages", trials[at + 1 :])
        is_cleared = any(later.outcome == "passes" and later.what != trial.what for later in higher)
        if trial.stage == "settings" or not is_cleared:
            yield trial.what


def program_needs(finding: Finding) -> str:
    """The packages that the program needs; `runpy` loads a backend that is named by its path."""
    loads_backend = finding.cause == "backend" or "import runpy" in (finding.program or "")
    return "torch and the backend" if loads_backend else "torch alone"


def _culprit(finding: Finding) -> str:
    """`Inductor's lowering of aten.relu.default (number 12 of the lowerings)`."""
    stage = finding.compiler_stage or "the compiler"
    owner = {"decompositions": "AOTAutograd"}.get(stage, stage)
    if finding.subsystem is None:
        if finding.compiler_stage is None:
            return "a part of the compiler"
        is_torchs = any(rung.stage == stage for rung in RUNGS)
        return f"the compiler stage {stage}" if is_torchs else f"the backend {stage}"
    singular, plural = SUBSYSTEMS.get(finding.subsystem, ("", finding.subsystem))
    if finding.subsystem_number is None:
        return f"{owner}'s {finding.subsystem}"
    number = f"number {finding.subsystem_number} of the {plural}"
    if finding.operation is None or not singular:
        return f"{owner}'s {number}"
    return f"{owner}'s {singular} {finding.operation} ({number})"


def _does(finding: Finding) -> str:
    if finding.problem == "differs":
        return f"computes another {finding.quantity or 'result'}"
    error = (finding.error or "").strip().partition("\n")[0]
    # A message of several sentences is read in the error log; the first one says what failed.
    error = first_sentence(error)
    return f"fails with {printable(error, LONGEST_ERROR)}" if error else "fails"


def trial_cells(trial: Trial) -> list[str]:
    """The row of a trial, in the order of `TRIAL_HEADER`."""
    took = DASH if trial.trial_seconds is None else duration(trial.trial_seconds)
    detail = trial.detail or DASH
    return [str(trial.number), trial.stage, trial.what, trial.outcome, detail, took]


def remedies(store: Store, investigation: Investigation) -> KnownCause:
    """The answer, with the backends without the fault as remedies of the investigated experiment;
    none that is no backend, or where that experiment is gone."""
    experiment_id, _, label = investigation.investigated.partition(".")
    try:
        spec = queries.experiment_spec(store, experiment_id)
        usable = tuple(_possible(spec, investigation))
    except NotInStore:
        spec, usable = investigation.record.spec, ()
    return KnownCause(
        label=label, kind="investigated", words=headline(investigation), remedies=usable, spec=spec
    )


def _possible(spec: ExperimentSpec, investigation: Investigation) -> Iterator[Remedy]:
    """A remedy for each backend without the fault that the experiment can have."""
    for text in investigation.finding.labels:
        backends = [
            text if backend == investigation.backend else backend for backend in spec.backends
        ]
        remedy = Remedy(fields=(("backends", tuple(dict.fromkeys(backends))),), backend=text)
        with suppress(InvalidSpec):
            changed(spec, remedy)
            yield remedy


def issue_title(investigation: Investigation) -> str:
    finding = investigation.finding
    if finding.cause == "setting":
        return f"torch.compile with {investigation.backend}: {_does(finding)}"
    return f"torch.compile: {_culprit(finding)} {_does(finding)}"


def issue(investigation: Investigation) -> str:
    """The text of an issue in the form that PyTorch asks for, in Markdown, without secrets and
    home folders."""
    return mask_private("\n\n".join(_sections(investigation)) + "\n")


def _sections(investigation: Investigation) -> Iterator[str]:
    finding = investigation.finding
    yield f"# {escaped(issue_title(investigation))}"
    yield "### Describe the bug"
    yield escaped(" ".join([headline(investigation), *facts(investigation)]))
    expected = (
        "The same results as without a compiler, up to rounding."
        if finding.problem == "differs"
        else "No error, as without a compiler."
    )
    yield f"Expected: {expected}"
    what = "forward passes" if investigation.record.spec.is_inference else "a training"
    work = source_words(investigation.record.spec)
    yield f"Found in {what} of {work} by trials, each under one backend:"
    yield markdown_table([TRIAL_HEADER, *map(trial_cells, investigation.trials)])
    if finding.program is not None:
        loads = f"It reads `{DATA_FILE}`, which is attached. " if loads_data(finding) else ""
        yield f"The program. {loads}`python repro.py` fails, `python repro.py eager` does not:"
        yield fenced(finding.program, "python")
    else:
        yield f"There is no smaller program: {escaped(finding.program_note or 'none was found')}."
    code = finding.generated_code
    if code is not None and code.count("\n") < MOST_CODE_LINES:
        yield "The code that Inductor generates for it:"
        yield fenced(code, "python")
    if finding.traceback or finding.error:
        yield "### Error logs"
        yield fenced(finding.traceback or finding.error or "", "pytb")
    yield "### Versions"
    yield fenced(finding.environment or "not recorded", "")


def loads_data(finding: Finding) -> bool:
    """Whether the program reads tensors of the training from a file."""
    return DATA_FILE in (finding.program or "")
