"""How often what is measured again comes out where it should: 20 recorded runs, each replayed once.

Run from the project's root: `.venv/bin/python -m benchmarks.replay_trials FOLDER`

Records five experiments of tiny models under four backends on the CPU, replays each backend's run
as `python -m runner replay` does, and judges all replays at the end, when how far compile latency
strays is known from the other ones. What is in FOLDER already is not run again. Prints Markdown.
"""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.aa_trials import markdown
from runner.commands.waiting import run_through
from runner.folders.data_dir import DataDir
from runner.folders.queue import experiments
from runner.folders.states import RunState
from runner.specs.experiment import (
    DataSpec,
    EvaluationSpec,
    ExperimentSpec,
    ModelSpec,
    TrainingSpec,
)
from runner.specs.replays import replay
from runner.specs.variants import parse_backend
from storage.difference.figures import Verdict
from storage.difference.replays import Replay, load_replay
from storage.index.store import Store
from storage.numbers.metrics import METRICS

BACKENDS = ("eager", "aot_eager", "inductor", "inductor:scope=forward")
REVIEWS = DataSpec(num_train_samples=1280, num_eval_samples=40, sequence_length=32)
BERT = ExperimentSpec(
    name="bert-tiny",
    model=ModelSpec(source="builtin:bert-tiny"),
    data=REVIEWS,
    training=TrainingSpec(learning_rate=1e-3, batch_size=8),
    evaluation=EvaluationSpec(when="end", compiled=False),
    backends=BACKENDS,
    block_steps=5,
)
WORKLOADS = (
    BERT,
    replace(BERT, name="bert-tiny in bf16", training=replace(BERT.training, precision="bf16")),
    replace(BERT, name="bert-tiny, masked words", task="masked_lm"),
    replace(BERT, name="gpt2-tiny", task="causal_lm", model=ModelSpec(source="builtin:gpt2-tiny")),
    replace(
        BERT, name="vit-small", task="image_classification",
        model=ModelSpec(source="builtin:vit-small"),
        data=DataSpec(source="builtin:digits", num_train_samples=1280, num_eval_samples=40),
    ),
)  # fmt: skip
FIGURES = ("speedup", "step_seconds", "compile_seconds", "peak_memory_bytes", "final_loss")


def record(folder: DataDir) -> Iterator[str]:
    """Ids of the replays, one for each backend of each workload, made now unless they were."""
    for spec in WORKLOADS:
        recorded = _made(folder, spec)
        for text in BACKENDS:
            yield _made(folder, replay(spec, recorded, parse_backend(text).label))


def _made(folder: DataDir, spec: ExperimentSpec) -> str:
    for there in experiments(folder):
        if there.spec == spec and all(run.state is RunState.FINISHED for run in there.runs):
            return there.experiment_id
    return run_through(folder, spec).experiment_id


def rows(replays: Sequence[Replay]) -> Iterator[dict[str, object]]:
    """Of each number, how it came out."""
    for name in FIGURES:
        yield _row(METRICS[name].title, replays, [name])
    yield _row("all numbers together", replays, FIGURES)


def _row(title: str, replays: Sequence[Replay], names: Sequence[str]) -> dict[str, object]:
    figures = [one for replay in replays for one in replay.figures if one.name in names]
    counts = {verdict: sum(one.verdict == verdict for one in figures)
              for verdict in ("inside", "outside", "not judged")}  # fmt: skip
    judged = [one for one in figures if one.verdict != "not judged"]
    widths = sorted(
        (one.high - one.low) / 2 / abs(one.recorded)
        for one in judged
        if one.low is not None and one.high is not None and one.recorded
    )
    half = f"{widths[len(widths) // 2]:.1%}" if widths else ""
    share = f"{counts['inside'] / len(judged):.0%}" if judged else ""
    return {"number": title, **counts, "share inside": share, "half width (median)": half}


def strays(replays: Sequence[Replay]) -> Iterator[str]:
    """What came out elsewhere, a line each."""
    for one in replays:
        for figure in one.figures:
            verdict: Verdict = figure.verdict
            if verdict == "outside":
                yield (f"* {one.recorded.name}, {one.label}: {figure.name} {figure.recorded:.6g}, "
                       f"again {figure.again:.6g}, expected {figure.low:.6g} to "
                       f"{figure.high:.6g}")  # fmt: skip


def main() -> None:
    folder = DataDir(Path(sys.argv[1]).resolve())
    ids = list(record(folder))
    with Store.in_memory(folder) as store:
        replays = [load_replay(store, one) for one in ids]
    sys.stdout.write(f"{markdown(list(rows(replays)))}\n\n")
    sys.stdout.writelines(f"{line}\n" for line in strays(replays))


if __name__ == "__main__":
    main()
