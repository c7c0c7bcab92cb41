"""Texts of a comparison of experiments, and of a replay; pages show the same sentences."""

from collections.abc import Sequence

from breakeven.runner.folders.states import RunState
from breakeven.runner.texts import printable
from breakeven.storage.comparison.results import Result, ended_early
from breakeven.storage.difference.replays import Reason, Replay, ReplayedNumber
from breakeven.storage.difference.sides import (
    Comparable,
    Obstacle,
    Side,
    comparable,
    differing,
    labels,
)
from breakeven.storage.difference.speedups import (
    Difference,
    Refusal,
    Scaling,
    ScalingKind,
    ScalingObstacle,
    alone_and_together,
    devices_of,
    differences,
)
from breakeven.storage.numbers.formats import (
    DASH,
    aligned_table,
    format_ratio,
    format_share,
    format_verdict,
)
from breakeven.storage.numbers.metrics import METRICS
from breakeven.storage.numbers.sentences import Sentence, fill
from breakeven.storage.statistics.speedups import ratio_text

SHOWN = ("step_seconds", "compile_seconds", "break_even_steps", "peak_memory_bytes", "parity",
         "accuracy", "final_loss")  # fmt: skip
"""Numbers that follow the speedup."""
OF_LEARNING = ("accuracy", "final_loss")
WHY: dict[Obstacle, str] = {
    "scenario": "they measure different things",
    "part": "one trains, the other only makes forward passes",
    "task": "the tasks differ",
    "model": "the models differ",
    "weights": "the initial weights differ",
    "data": "the data differ",
    "unknown": "not all of them recorded their weights and data",
}

SCALING_KINDS: dict[ScalingKind, str] = {
    "strong": "strong scaling: all devices share the batch of the one",
    "weak": "weak scaling: each device has a batch as large as that of the one",
}
WHY_NO_SCALING: dict[ScalingObstacle, str] = {
    "work": "their speeds may not be compared",
    "cpu": "processes that share the CPUs of a machine are not several devices",
    "device": "the devices are of different models",
    "moved": "a run was resumed on another number of devices",
    "dropout": "one of them trains with dropout, the other without",
    "setting": "settings that decide the work per sample differ: {}",
    "batch": "a step has {} samples, which is neither the number on one device, {}, nor this "
    "number times the devices",
}


def difference_report(
    sides: Sequence[Side], scaled: tuple[Sequence[Scaling], Sequence[Refusal]] = ((), ())
) -> str:
    """The sides, the ratios of their numbers, obstacles to comparing, and differing settings.
    `scaled` is the result of `scalings`."""
    lines = [f"{side.letter}  {side.experiment_id}  {printable(side.name)}" for side in sides]
    lines += ["", *aligned_table(_speed_rows(sides, differences(sides)), 1)]
    found_scalings, refused = scaled
    if found_scalings or refused:
        rows = scaling_rows(found_scalings)
        table = aligned_table(rows, 2) if len(rows) > 1 else []
        lines += ["", *table, *scaling_notes(sides, found_scalings, refused)]
    for name in SHOWN:
        rows = number_rows(sides, name)
        if len(rows) > 1:
            lines += ["", METRICS[name].title, *aligned_table(rows, 1)]
    lines += ["", *obstacles(sides), *_doubts(sides)]
    found = differing(sides)
    if found:
        header = ["what differs", *(side.letter for side in sides)]
        rows = [list(map(printable, (f"{one.kind} {one.name}", *one.values))) for one in found]
        lines += ["", *aligned_table([header, *rows], len(header))]
    else:
        lines.append("Settings, machines, software and data are the same.")
    return "\n".join(lines)


def _doubts(sides: Sequence[Side]) -> list[str]:
    """The number of warnings of each side, and the command that shows them."""
    return [
        f"{side.letter}: `breakeven show {side.experiment_id}` warns of its numbers "
        f"({len(side.comparison.warnings)})."
        for side in sides
        if side.comparison.warnings
    ]


def difference_text(found: Difference | None) -> str:
    """`1.10 times (1.06 to 1.14), higher`; a dash for None."""
    if found is None:
        return DASH
    interval = "" if found.low is None else f" ({found.low:.2f} to {found.high:.2f})"
    return f"{found.ratio:.2f} times{interval}, {format_verdict(found.verdict)}"


def obstacles(sides: Sequence[Side]) -> list[str]:
    """A sentence for each side with numbers that may not be compared with the first side."""
    reference, *others = sides
    obstacles = []
    for side in others:
        found = comparable(reference, side)
        if found.obstacles:
            obstacles.append(obstacle_text(reference, side, found))
    return obstacles


def obstacle_text(reference: Side, side: Side, found: Comparable) -> str:
    """The numbers of two sides that are not compared, and why."""
    what = "losses and accuracies" if found.speed else "neither speeds nor losses"
    verb = "are not compared" if found.speed else "are compared"
    why = " and ".join(WHY[obstacle] for obstacle in found.obstacles)
    return f"{reference.letter} and {side.letter}: {what} {verb}, because {why}."


def number_rows(sides: Sequence[Side], name: str) -> list[list[str]]:
    """A row for each backend and the baseline: its number on each side that may be compared with
    the first."""
    rows = [["", *(side.letter for side in sides)]]
    for label in ["baseline", *labels(sides)]:
        cells = [
            DASH if one is None else one.text(name) for one in results_by_side(sides, label, name)
        ]
        if any(cell != DASH for cell in cells):
            rows.append([label, *cells])
    return rows


def results_by_side(sides: Sequence[Side], label: str, name: str) -> list[Result | None]:
    """The results of a run on every side; None if the number of that name may not be compared with
    the first side's."""
    reference = sides[0]
    return [side.result(label) if side is reference or may_stand_beside(reference, side, name)
            else None for side in sides]  # fmt: skip


def _speed(result: Result) -> str:
    verdict = result.speed_verdict and format_verdict(result.speed_verdict)
    parts = [ratio_text(result.speedup), verdict]
    if result.speedup is not None and ended_early(result):
        parts.append(result.state.replace("_", " "))
    return ", ".join(filter(None, parts))


def may_stand_beside(reference: Side, side: Side, name: str) -> bool:
    """Whether a number of two sides may be compared as if both had the same workload."""
    found = comparable(reference, side)
    return found.learning if name in OF_LEARNING else found.speed


def _speed_rows(sides: Sequence[Side], found: Sequence[Difference]) -> list[list[str]]:
    by_place = {(one.label, one.letter): one for one in found}
    others = [f"{side.letter} over {sides[0].letter}" for side in sides[1:]]
    rows = [["speedup", *(side.letter for side in sides), *others]]
    for label in labels(sides):
        results = [side.result(label) for side in sides]
        speeds = [DASH if one is None else _speed(one) for one in results]
        quotients = [difference_text(by_place.get((label, side.letter))) for side in sides[1:]]
        rows.append([label, *speeds, *quotients])
    return rows


def efficiency_text(found: Scaling) -> str:
    """`81.3 % (79.0 % to 83.5 %)`; `81.3 %` without an interval."""
    text = format_share(found.efficiency)
    if found.low is None or found.high is None:
        return text
    return f"{text} ({format_share(found.low)} to {format_share(found.high)})"


def scaling_rows(found: Sequence[Scaling]) -> list[list[str]]:
    """A header, and a row for each run on several devices."""
    rows = [["scaling efficiency", "", "devices", "efficiency", "times one device"]]
    for one in found:
        rows.append([one.label, one.letter, str(one.num_devices), efficiency_text(one),
                     format_ratio(one.throughput)])  # fmt: skip
    return rows


def scaling_notes(
    sides: Sequence[Side], found: Sequence[Scaling], refused: Sequence[Refusal]
) -> list[str]:
    """The kind of scaling of each side, and why other sides are not compared with one device."""
    alone, together = alone_and_together(sides)
    if alone is None:
        return []
    kinds = {one.letter: one.kind for one in found}
    notes = [
        f"{side.letter} on {devices_of(side)} devices against {alone.letter} on one, "
        f"{SCALING_KINDS[kinds[side.letter]]}."
        for side in together if side.letter in kinds
    ]  # fmt: skip
    return notes + [
        f"{one.letter} is not compared with one device ({alone.letter}): {_why_no_scaling(one)}."
        for one in refused
    ]


def _why_no_scaling(one: Refusal) -> str:
    names = reversed(one.names) if one.obstacle == "batch" else [", ".join(one.names)]
    return WHY_NO_SCALING[one.obstacle].format(*names)


FINISHED, UNFINISHED, OUTSIDE = 0, 1, 6
NOTICEABLE_PACE = 0.01
"""Smallest change of the machine's speed that is mentioned."""
WHY_NOT: dict[Reason, str] = {
    "missing": "one of the two experiments lacks this number",
    "no control": "no control shows how far equal processes differ here",
    "yardstick": "it measures how fast the machine is",
    "compiled once": "nothing else was compiled twice on this machine, so the spread of compile "
    "latency is not known",
    "not known yet": "other compilations on this machine are still being counted",
    "other training": "initial weights or data differ",
    "other work": "the model or its work differs",
}


def replay_report(replay: Replay) -> str:
    """A table of the numbers, and the differences of the two experiments."""
    header = ["", "recorded", "again", "expected (95 %)", ""]
    rows = [[METRICS[figure.name].title, *figure_texts(figure), outcome(figure)]
            for figure in replay.figures]  # fmt: skip
    lines = [
        f"{printable(replay.recorded.name)}: {replay.label}, replicated",
        f"recorded  {replay.recorded.experiment_id}",
        f"again     {replay.again.experiment_id}",
        "",
        *aligned_table([header, *rows], 1),
        "",
        str(summary(replay)),
        *map(str, remarks(replay)),
    ]
    if replay.differs:
        rows = [list(map(printable, (f"{one.kind} {one.name}", *one.values)))
                for one in replay.differs]  # fmt: skip
        lines += ["", *aligned_table([["what differs", "recorded", "again"], *rows], 3)]
    return "\n".join(lines)


def figure_texts(figure: ReplayedNumber) -> tuple[str, str, str]:
    """The recorded value, the new value, and the expected range."""
    written = METRICS[figure.name].format
    expected = DASH
    if figure.low is not None and figure.high is not None:
        expected = f"{written(figure.low)} to {written(figure.high)}"
    return written(figure.recorded), written(figure.again), expected


def outcome(figure: ReplayedNumber) -> str:
    """`inside`, `outside`, or why the number is not judged."""
    return figure.verdict if figure.reason is None else f"not judged: {WHY_NOT[figure.reason]}"


def summary(replay: Replay) -> Sentence:
    """The number of figures within their expected ranges."""
    if not replay.is_over:
        return fill("The replay is not finished.")
    inside, outside = replay.count("inside"), replay.count("outside")
    judged = inside + outside
    if not judged:
        return fill("No number could be judged.")
    if not outside:
        whole = f"All {judged} numbers" if judged > 1 else "The one number"
        return fill(f"{whole} that could be judged came out as expected.")
    missed = [METRICS[one.name].title.lower() for one in replay.figures if one.verdict == "outside"]
    return fill(
        f"{inside} of {judged} numbers came out as expected, all but: {', '.join(missed)}. "
        "One correct number in twenty falls outside by chance."
    )


def remarks(replay: Replay) -> list[Sentence]:
    """Facts that a reader needs to interpret the figures."""
    found = []
    if elsewhere(replay):
        found.append(
            fill("Machine or software differ from the recording's, so a different number "
                 "does not refute the recording.")
        )  # fmt: skip
    pace = replay.pace
    if pace is not None and abs(pace - 1) > NOTICEABLE_PACE:
        found.append(
            fill("A step of baseline and controls takes [{change:noise_floor}](replayed) {way} "
                 "than in the recording: the machine causes this, and the expected step time "
                 "allows for it.", change=abs(pace - 1), way="longer" if pace > 1 else "shorter")
        )  # fmt: skip
    before, after = replay.parity
    if before is not None and after is not None:
        same = before == after
        found.append(fill("Parity: {after}, as before." if same else
                          "Parity was {before} and is {after} now.", before=before,
                          after=after))  # fmt: skip
    ended = [f"{one.label} {RunState(one.state).replace('_', ' ')}"
             for one in replay.again.comparison.results
             if RunState(one.state).ended_early]  # fmt: skip
    if ended:
        found.append(fill("Some runs did not finish: {runs}.", runs=ended))
    return found


def elsewhere(replay: Replay) -> bool:
    """Whether machine or software differ from the recording's."""
    return any(one.kind == "environment" for one in replay.differs)


def replay_status(replay: Replay) -> int:
    """The exit status of `replay`, as the docstring of `runner.commands.cli` defines it."""
    if replay.count("outside"):
        return OUTSIDE
    judged = replay.count("inside")
    return FINISHED if judged and replay.has_finished else UNFINISHED
