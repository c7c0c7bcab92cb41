"""Issues for PyTorch in Markdown: their pieces, and the one about a backend that is slower."""

import re
from collections.abc import Iterator, Sequence
from typing import Any

from breakeven.runner.masking import mask_private
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.runner.texts import printable
from breakeven.storage import queries
from breakeven.storage.comparison.results import Comparison, Result
from breakeven.storage.compiling.ladder import find_ladder
from breakeven.storage.errors import StoreError
from breakeven.storage.index.store import Store
from breakeven.storage.library.catalog import short_source
from breakeven.storage.numbers.formats import format_seconds
from breakeven.storage.numbers.metrics import METRICS
from breakeven.storage.numbers.sentences import MAX_SHORT
from breakeven.storage.profile.explanation import Bridge, Explanation, explain
from breakeven.storage.profile.findings import arm_of
from breakeven.storage.statistics.speedups import ratio_text
from breakeven.storage.words.compiling import findings, ladder_rows
from breakeven.storage.words.findings import finding_words
from breakeven.storage.words.profile import (
    bridge_rows,
    bridge_words,
    class_title,
    profile_words,
    signed_seconds,
)

MOST_KERNELS = 12
LONGEST_LOG = 20_000
"""Characters of an error log; GitHub takes 65,536 for a whole issue."""
MACHINE = {
    "python": "Python",
    "platform": "OS",
    "cpu_model": "CPU",
    "device_name": "device",
    "driver": "driver",
    "cuda": "CUDA",
}
"""Recorded facts of a machine with their names."""


def has_issue(experiment_id: str, data_dir: DataDir) -> str:
    """The command that prints the text of an issue."""
    show = f"breakeven show {experiment_id} --issue{data_dir.option}"
    return f"the text of an issue for PyTorch: {show}"


def escaped(text: str) -> str:
    """A text on one line that Markdown shows as it is, without secrets: later its marks would hide
    them. A space without width keeps GitHub from mentioning people and linking other issues."""
    text = mask_private(text)
    text = re.sub(r"([\\`*\[\]<>|~&])", r"\\\1", printable(text, len(text)))
    text = re.sub(r"(?<!\w)_+|_+(?!\w)", lambda match: r"\_" * len(match[0]), text)
    return re.sub(r"@|(?<!\w)#(?=\d)", lambda match: f"{match[0]}\u200b", text)


def markdown_table(rows: Sequence[Sequence[str]]) -> str:
    """A table; its first row has the titles."""
    header, *others = [[escaped(cell) for cell in row] for row in rows]
    every = [header, ["---"] * len(header), *others]
    return "\n".join(f"| {' | '.join(row)} |" for row in every)


def fenced(text: str, language: str) -> str:
    """A block of code that ends where it should, without control characters; the end of a text that
    is too long."""
    if len(text) > LONGEST_LOG and language == "pytb":
        text = f"...\n{text[-LONGEST_LOG:]}"
    lines = [line.expandtabs(4) for line in text.rstrip().split("\n")]
    text = "\n".join(printable(line, len(line)) for line in lines)
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}{language}\n{text}\n{fence}"


def source_words(spec: ExperimentSpec) -> str:
    """What was trained, without the folders of models and data."""
    if spec.workload.is_own_program:
        return "a script"
    return escaped(f"{short_source(spec.model.source)} on {short_source(spec.data.source)}")


def slower(comparison: Comparison) -> Result | None:
    """The backend that is surely slower than its baseline without a compiler; of several the last,
    which in a ladder has most stages of the compiler."""
    slower_results = [
        result
        for result in comparison.results
        if result.role == "backend"
        and result.speed_verdict == "slower"
        and (base := comparison.baseline_of(result.label)) is not None
        and base.backend is None
    ]
    return slower_results[-1] if slower_results else None


def slow_issue(store: Store, comparison: Comparison) -> str:
    """The text of an issue about a slower backend, without secrets and home folders. Raises
    `StoreError` if no backend is surely slower."""
    slow = slower(comparison)
    if slow is None:
        raise StoreError(
            f"no backend of {comparison.experiment_id} is surely slower than a baseline without a "
            "compiler, so there is no issue to write; breakeven investigate finds the cause of "
            "other faults"
        )
    return mask_private("\n\n".join(_sections(store, comparison, slow)) + "\n")


def _sections(store: Store, comparison: Comparison, slow: Result) -> Iterator[str]:
    base = comparison.baseline_of(slow.label)
    assert base is not None and slow.speedup is not None
    backend = arm_of(comparison.spec, slow.label)[1]
    label, times = escaped(backend or slow.label), 1 / slow.speedup.median
    step = METRICS["step_seconds"].format
    yield f"# torch.compile: with {label}, a step takes {times:.2f}x as long as without a compiler"
    yield "### Describe the bug"
    order = "took turns" if comparison.spec.takes_turns else "did not take turns"
    yield (
        f"A step takes {step(slow.value('step_seconds'))} with {label} and "
        f"{step(base.value('step_seconds'))} without a compiler: it is {ratio_text(slow.speedup)} "
        f"as fast (95 % interval). Compiling does not count, and the runs {order}."
    )
    yield "Expected: no slower than without a compiler."
    ladder = find_ladder(store, comparison.experiment_id)
    yield f"Measured in a training of {source_words(comparison.spec)}:"
    if ladder is None:
        yield markdown_table(
            [
                ["run", "step time", "speedup"],
                *(
                    [result.label, step(result.value("step_seconds")), ratio_text(result.speedup)]
                    for result in comparison.results
                    if result.role != "control"
                ),
            ]
        )
    else:
        yield markdown_table(ladder_rows(ladder))
        yield " ".join(escaped(str(finding)) for finding in findings(ladder))
    yield "### Where the time goes"
    yield from _profiled(explain(store, comparison.experiment_id), slow.label)
    yield "### Versions"
    yield fenced("\n".join(_machine(queries.run_record(store, slow.run_id).environment)), "")


def _profiled(explanation: Explanation, label: str) -> Iterator[str]:
    bridge = explanation.bridges.get(label)
    if bridge is None:
        yield escaped(str(profile_words(explanation.profile_of(label))))
        return
    yield escaped(str(bridge_words(bridge, explanation.own_speedups.get(label))))
    yield markdown_table(bridge_rows(bridge))
    yield "The kernels, or operators on a CPU, whose time differs most, a step:"
    yield markdown_table(kernel_rows(bridge))
    known = [
        str(finding_words(finding)) for finding in explanation.findings if finding.label == label
    ]
    if known:
        yield "\n".join(f"* {escaped(words)}" for words in known)


def kernel_rows(bridge: Bridge) -> list[list[str]]:
    """Titles, and a row for each of the kernels whose time differs most."""
    by_itself = bridge.run.works_by_itself
    return [
        ["kernel", "kind", "baseline", bridge.run.label, "difference"],
        *(
            [
                printable(row.name, MAX_SHORT),
                class_title(row.work_class, works_by_itself=by_itself),
                *map(format_seconds, (row.baseline, row.run)),
                signed_seconds(row.difference),
            ]
            for row in bridge.kernels.head(MOST_KERNELS).itertuples(index=False)
        ),
    ]


def _machine(environment: dict[str, Any] | None) -> Iterator[str]:
    """Versions of torch and the other packages, and the machine, as recorded."""
    known = environment or {}
    versions = known.get("versions") or {}
    names = sorted(versions, key=lambda name: (name != "torch", name))
    yield from (f"{name}: {versions[name]}" for name in names if versions[name])
    yield from (f"{title}: {known[name]}" for name, title in MACHINE.items() if known.get(name))
