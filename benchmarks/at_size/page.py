"""Writes the measured part of `docs/performance.md`: what `benchmarks.library_at_size` found."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from typing import Any

Size = tuple[int, int]

BEGIN, END = "<!-- measured: begin -->\n", "<!-- measured: end -->\n"
"""Between these lines the document is written anew; all else in it people wrote."""
INTRODUCTION = """\
Made on {day}: {machine}, {load}, {versions}.

Times depend on the machine and on what else it does; claim a ratio within one table, not a time. A
load average above 2 means that other work went on beside it: times are then several times as long,
and jump about. The experiments have six runs, a sample of the device for each block of ten steps,
and ten evaluations; with 9,996 runs each has 100 steps, else 10,000.
"""

LIVE = """\
## Watching

What the page Live costs the machine whose runs are timed: CPU time of the server over 40 s, in
which six runs write 100 steps a second each; and the age of the newest step that Chromium shows,
each run at every twentieth of a second. Journals are written ten times a second, which is 0.05 s of
the age. Numbers are looked at each 0.35 s (`RUNS_SECONDS` in `views/live.py`); charts as seldom as
keeps drawing them within the share that `views/shared/pace.py` allows.
"""


def renewed(document: str, measured: str) -> str:
    """The document with this as its measured part; raises `ValueError` if it has none or several,
    rather than write over what people wrote."""
    before, begin, rest = document.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end) or BEGIN in after or END in before + after:
        raise ValueError(f"the document needs {BEGIN!r} and then {END!r}, each once")
    return f"{before}{begin}\n{measured.strip()}\n\n{end}{after}"


def written(
    found: Mapping[Size, Mapping[str, Any]],
    browsed: Mapping[Size, Mapping[str, float]],
    least: Mapping[str, float],
    watched: Mapping[str, Mapping[str, float]],
    peers: Mapping[str, tuple[float, float, float] | str],
    peer_size: Size,
    machine: str,
    load: str,
    versions: Mapping[str, str],
    day: date,
) -> str:
    told = ", ".join(f"{name} {version}" for name, version in versions.items())
    parts = [
        INTRODUCTION.format(day=day, machine=machine, versions=told, load=load),
        "## Neighbours\n\nServer time in milliseconds, by the number of runs in the data folder. A "
        "page's first visit of an experiment is the median of five, the next ones are the 95th "
        "percentile; both with the test client of Streamlit, in one process. Those of Compare are "
        "of experiments that an idle server, or the list of experiments, has compared already, but "
        "for the row that says otherwise.\n",
        _table(["", *(f"{runs:,}" for runs, _ in found)], _server_rows(found)),
        "## In Chromium\n\nSeconds until the page Compare can be used: from the start of a server "
        "to the page that it shows of its own accord, in a browser that was there before; "
        "of a server that answers, by an experiment's address, which nobody prepared; and of "
        "other experiments in the same tab (medians): by the address, which loads the page anew, "
        "or chosen on the page.\n",
        _table(["", *(f"{runs:,}" for runs, _ in browsed)], _browser_rows(browsed)),
        f"An app of one chart and one button, with nothing of ours, takes {least['start']:.2f} s "
        f"from the start of its server (`streamlit run`) and {least['anew']:.2f} s when it is "
        "loaded anew: what Streamlit and Chromium take by themselves.\n",
        LIVE,
        _table(
            ["", "share of a core", "median age, s", "95th percentile, s", "memory, MB"],
            _live_rows(watched),
        ),
    ]
    if peers:
        parts += [_about_peers(peer_size), _table(["", "median", "spread", "ratio"],
                                                  _peer_rows(peers))]  # fmt: skip
    return "\n".join(parts)


def _server_rows(found: Mapping[Size, Mapping[str, Any]]) -> list[list[str]]:
    each = list(found.values())
    rows = [
        ["taking all in, rows a second", *(f"{one['rows_per_second']:,.0f}" for one in each)],
        ["a look in which nothing changed", *(f"{one['idle tick']:.1f}" for one in each)],
        ["comparing an experiment, first time", *(f"{one['compare']:.0f}" for one in each)],
        [
            "compare, first visit before it was compared",
            *(f"{one['new']:.0f}" if "new" in one else "" for one in each),
        ],
    ]
    for name in each[0]["pages"] if each else ():
        for which, title in (("first", "first visit"), ("again", "again")):
            times = (one["pages"][name][which] for one in each)
            rows.append([f"{name}, {title}", *(f"{time:.0f}" for time in times)])
    return [*rows, ["memory of that process, MB", *(f"{one['memory']:.0f}" for one in each)]]


def _browser_rows(browsed: Mapping[Size, Mapping[str, float]]) -> list[list[str]]:
    titles = {
        "start": "from the start of the server to its first page",
        "first": "first page of a fresh server that answers",
        "other": "another experiment, by its address",
        "chosen": "another experiment, chosen on the page",
    }
    return [[title, *(f"{one[name]:.2f}" for one in browsed.values())]
            for name, title in titles.items()]  # fmt: skip


def _live_rows(watched: Mapping[str, Mapping[str, float]]) -> Iterable[Sequence[str]]:
    for name, one in watched.items():
        yield [name, f"{one['share']:.1%}", f"{one['median']:.2f}", f"{one['p95']:.2f}",
               f"{one['memory']:.0f}"]  # fmt: skip


def _about_peers(size: Size) -> str:
    runs, steps = size
    return (
        f"## Beside other tools\n\nSeconds until the losses of six runs, {steps:,} steps each, are "
        f"in Python's hands, out of {runs} runs of which all were written by the tool itself; the "
        "median of three, after a first time that imports. The ratio is to ours, whose journals "
        "are in the database already.\n"
    )


def _peer_rows(peers: Mapping[str, tuple[float, float, float] | str]) -> Iterable[Sequence[str]]:
    ours = peers["Breakeven"]
    assert not isinstance(ours, str)
    for name, times in peers.items():
        if isinstance(times, str):
            yield [name, times, "", ""]
            continue
        median, least, most = times
        yield [name, f"{median:.3f}", f"{least:.3f} to {most:.3f}", f"{median / ours[0]:.1f}"]


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)
