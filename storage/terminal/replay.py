"""Texts of a replay; pages show the same sentences."""

from breakeven.runner.folders.states import RunState
from breakeven.runner.texts import printable
from breakeven.storage.difference.replays import Reason, Replay, ReplayedNumber
from breakeven.storage.numbers.formats import DASH, aligned_table
from breakeven.storage.numbers.metrics import METRICS
from breakeven.storage.numbers.sentences import Sentence, fill

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


def exit_status(replay: Replay) -> int:
    """The exit status of `replay`, as the docstring of `runner.commands.cli` defines it."""
    if replay.count("outside"):
        return OUTSIDE
    judged = replay.count("inside")
    return FINISHED if judged and replay.has_finished else UNFINISHED
