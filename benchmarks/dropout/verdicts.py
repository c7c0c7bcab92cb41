"""What parity says of the experiments that `trials.py` trained, as Markdown tables."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

from benchmarks.dropout.trials import CORRECT, IN_TURNS
from runner.folders.events import read_events
from runner.specs.variants import parse_backend
from storage.comparison.results import Result
from storage.terminal.parity_words import parity_words
from tests.faults.judging import judge_trial
from tests.faults.trial import TRIAL


def tables(folder: Path) -> str:
    """False alarms by model, precision and backend; what became of each fault; then each wrong
    verdict in words."""
    correct: dict[tuple[str, str], list[Result]] = defaultdict(list)
    faulty: dict[str, list[Result]] = defaultdict(list)
    wrong: list[str] = []
    alarms, number = 0, 0
    every = (*CORRECT.values(), *IN_TURNS)
    labels = {parse_backend(text).label for texts in every for text in texts}
    for runs in sorted(folder.rglob("runs")):
        place = runs.parent
        comparison = judge_trial(place)
        number += 1
        group = place.parent.name
        backends = [
            one
            for one in comparison.results
            if one.parity is not None and _is_over(runs / f"{TRIAL}.{one.label}")
        ]
        for one in backends:
            (correct[group, one.label] if one.label in labels else faulty[one.label]).append(one)
        wrong += [f"* {group} {place.name} {text}" for text in _wrong(backends, labels)]
        alarms += any(one.label in labels and _verdict(one) == "broken" for one in backends)
    lines = [
        f"{alarms} of {number} experiments have a correct backend called broken.",
        "",
        "| model and precision | correct backend | runs | own numbers | broken | unknown | holds |",
        "|---|---|---|---|---|---|---|",
        *(_row((*key, len(found), _own(found)), found) for key, found in sorted(correct.items())),
        "",
        "| fault | runs | broken | unknown | holds | by |",
        "|---|---|---|---|---|---|",
        *(
            f"{_row((key, len(found)), found)} {_by(found)} |"
            for key, found in sorted(faulty.items())
        ),
        "",
        *wrong,
    ]
    return "\n".join(lines) + "\n"


def _is_over(run: Path) -> bool:
    """Whether the run came to its end: of an experiment that was cut short some runs did not."""
    events = read_events(run / "events.jsonl")[0]
    return bool(events) and events[-1].get("phase") == "done"


def _row(head: tuple[object, ...], found: list[Result]) -> str:
    counts = Counter(map(_verdict, found))
    cells = [*head, counts["broken"], counts["unknown"], counts["holds"]]
    return "| " + " | ".join(map(str, cells)) + " |"


def _verdict(one: Result) -> str:
    return "" if one.parity is None else one.parity.verdict


def _own(found: list[Result]) -> int:
    return sum("own numbers" in _kinds(one) for one in found)


def _kinds(one: Result) -> list[str]:
    return [] if one.parity is None else [finding.kind for finding in one.parity.findings]


def _by(found: list[Result]) -> str:
    kinds = Counter(
        kind for one in found for kind in _kinds(one) if kind not in ("own numbers", "inside band")
    )
    return ", ".join(f"{kind} {count}" for kind, count in kinds.most_common())


def _wrong(backends: list[Result], correct: set[str]) -> Iterator[str]:
    for one in backends:
        if (one.label in correct) is (_verdict(one) != "holds") and one.parity is not None:
            yield f"{one.label}: {_verdict(one)}: {parity_words(one.parity)}"
