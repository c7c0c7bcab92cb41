"""How long the dashboard takes at any size, beside what others take for the same work.

    python -m benchmarks.library_at_size --folder FOLDER [--peers PYTHON] [--write]

Makes data folders of 10 to 10,000 runs in FOLDER (about 4 GB, kept for the next time), times what
the server does and pages in Chromium, and, with the Python of an environment that has them, the
same work in TensorBoard, MLflow, trackio and Aim. Prints Markdown; `--write` makes it the measured
part of `docs/performance.md`.
"""

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.at_size.live import live
from benchmarks.at_size.page import renewed, written
from benchmarks.at_size.peers import NUM_READ, NUM_TIMES, PEERS
from benchmarks.big_store import NUM_RUNS, added, make_store
from runner.folders.data_dir import DataDir
from runner.machine.cpus import cpu_allowance
from tests.helpers.serving import ROOT, served

if TYPE_CHECKING:
    from playwright.sync_api import Page

SIZES = ((12, 10_000), (102, 10_000), (1002, 10_000), (9996, 100))
"""Runs, and steps of each."""
PAGES = ("compare", "run", "live", "experiments", "launch", "suites", "definitions")
OF_EXPERIMENT = ("compare", "run", "live")
NUM_VISITS = 60
NUM_LEAST = 5
VISITED = 6
"""Experiments that a page is opened for, the first one before anything is timed."""
LIVE_SECONDS = 40.0
WATCHED: dict[str, dict[str, int]] = {
    "one reader": {},
    "five readers": {"readers": 5},
    "one reader, 10,000 steps done already": {"before": 10_000},
}
"""How Live is watched: six runs at 100 steps a second each."""
PEER_RUNS, PEER_STEPS = 24, 10_000
PEER_SECONDS = 400
INTERACTIVE = """() => [...document.querySelectorAll("button")].some((one) =>
  one.innerText.includes("Time spent") && one.checkVisibility({ visibilityProperty: true }))"""
"""Of the page Compare, and of the least that there is: a choice of a chart, which a reader may
click."""
CHOSEN = """one => new URLSearchParams(location.search).get("experiment") === one &&
  [...document.querySelectorAll("[data-testid=stElementContainer]:not([data-stale=true])")].some(
    (part) => part.innerText.includes("Time spent"))"""
"""The same of an experiment, in the place of what another one left on the page."""
OVER = "[data-testid=stApp][data-test-script-state=notRunning]"
DOCUMENT = ROOT / "docs" / "performance.md"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--peers", type=Path, help="the Python that has the other tools")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--sizes", type=int, nargs="*", default=[runs for runs, _ in SIZES])
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        print(json.dumps(measured(DataDir(arguments.measure))))  # noqa: T201
        return
    sizes = [size for size in SIZES if size[0] in arguments.sizes]
    found = {size: measure(arguments.folder, *size) for size in sizes}
    browsed = {size: in_browser(folder_of(arguments.folder, *size)) for size in sizes}
    least = least_of_streamlit(arguments.folder)
    watched = {name: live(LIVE_SECONDS, **how) for name, how in WATCHED.items()}
    peers = of_peers(arguments.folder, arguments.peers) if arguments.peers else {}
    text = page(found, browsed, least, watched, peers)
    print(text)  # noqa: T201
    if arguments.write:
        DOCUMENT.write_text(renewed(DOCUMENT.read_text(), text))


def folder_of(parent: Path, runs: int, steps: int) -> DataDir:
    return DataDir(parent / f"{runs}-runs-of-{steps}-steps")


def measure(parent: Path, runs: int, steps: int) -> dict[str, Any]:
    """What `measured` says in a process of its own, of a data folder that is made if need be."""
    data_dir = folder_of(parent, runs, steps)
    before = len(list(added(data_dir)))
    make_store(data_dir, runs // NUM_RUNS - before, steps, before)
    for file in data_dir.path.glob("breakeven.duckdb*"):
        shutil.rmtree(file) if file.is_dir() else file.unlink()
    command = [sys.executable, "-m", "benchmarks.library_at_size", "--folder", str(parent),
               "--measure", str(data_dir.path)]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def measured(data_dir: DataDir) -> dict[str, Any]:
    """Rows a second of taking all in, and milliseconds: of a tick in which nothing changed, of what
    pages ask, and of pages on their first visit of an experiment and on the next ones."""
    from storage import queries
    from storage.comparison.comparison import compare
    from storage.compiling.ladder import find_ladder
    from storage.index.store import Store
    from views.comparison.ahead import import_all
    from views.comparison.charts import draw

    os.environ["BREAKEVEN_DATA"] = str(data_dir.path)
    with Store.open(data_dir, ROOT / "examples") as store:
        begun = time.perf_counter()
        rows = store.ingest_all()
        rate = rows / (time.perf_counter() - begun)
        time.sleep(3)  # Time stamps that are younger than two seconds are not relied on.
        store.ingest()
        ids = [
            one for one in queries.list_experiments(store)["experiment_id"] if one[:6] == "202601"
        ]
        compare(store, ids[0])  # From here on all is loaded that comparing needs.
        found: dict[str, Any] = {
            "rows": rows,
            "rows_per_second": rate,
            "idle tick": milliseconds(store.ingest, 40),
            "compare": statistics.median(
                milliseconds(lambda one=one: compare(store, one), 1)  # type: ignore[misc]
                for one in ids[1 : 1 + min(5, len(ids) - 1)]
            ),
        }
        for one in ids[-VISITED:]:  # As a server does that nobody reads.
            compare(store, one)
            find_ladder(store, one)
            draw(store, one)
    import_all()
    if new := ids[VISITED:-VISITED][:VISITED]:  # Those before were timed above.
        found["new"] = visits("compare", new)["first"]
    return found | {"pages": {name: visits(name, ids) for name in PAGES}, "memory": memory()}


def visits(name: str, ids: Sequence[str]) -> dict[str, float]:
    """Server time of a page: of the first visit of an experiment (median), and of the next (95th
    percentile)."""
    from tests.helpers.pages import opened

    chosen = (
        [{"experiment": one} for one in ids[-VISITED:]] if name in OF_EXPERIMENT else [{}, {}, {}]
    )
    opened(name, **chosen[0])
    first: list[float] = []
    again: list[float] = []
    for query in chosen[1:]:
        begun = time.perf_counter()
        app = opened(name, **query)
        first.append(1e3 * (time.perf_counter() - begun))
        for _ in range(NUM_VISITS // len(chosen) + 1):
            again.append(milliseconds(app.run, 1))
    return {"first": statistics.median(first or [0]), "again": percentile(again)}


def milliseconds(act: Callable[[], object], times: int) -> float:
    """The median of so many times."""
    taken = []
    for _ in range(times):
        begun = time.perf_counter()
        act()
        taken.append(1e3 * (time.perf_counter() - begun))
    return statistics.median(taken)


def percentile(values: Sequence[float]) -> float:
    """The 95th, by the nearest rank."""
    ordered = sorted(values) or [0.0]
    return ordered[min(len(ordered) - 1, int(0.95 * len(ordered)))]


def memory() -> float:
    """Resident set of this process, in MB."""
    status = Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) / 1e3 for line in status.splitlines() if "VmRSS" in line)


def in_browser(data_dir: DataDir) -> dict[str, float]:
    """Seconds in Chromium until Compare can be used: from the start of a server on, of what it
    shows of its own accord; of a server that has just said that it is there, by an experiment's
    address; others that are opened by their address, and others that are chosen on the page."""
    opened, chosen = [], []
    ids = list(added(data_dir))[:6]
    with browsing(data_dir) as (address, tab):
        for one in ids:
            begun = time.perf_counter()
            tab.goto(f"{address}/?experiment={one}")
            interactive(tab)
            opened.append(time.perf_counter() - begun)
    with browsing(data_dir) as (address, tab):
        tab.goto(f"{address}/?experiment={ids[0]}")
        for one in ids[1:]:
            interactive(tab)
            tab.locator(OVER).wait_for()
            choice = tab.get_by_role("combobox", name="Experiment")
            choice.click()
            choice.fill(f"{int(one[6:8])} Jan 2026, {one[9:11]}:{one[11:13]}")
            tab.locator("[role=option]").first.wait_for()
            begun = time.perf_counter()
            choice.press("Enter")
            tab.wait_for_function(CHOSEN, arg=one, polling=20)
            chosen.append(time.perf_counter() - begun)
    return {
        "start": from_the_start(data_dir, "serve.py")["start"],
        "first": opened[0],
        "other": statistics.median(opened[1:] or [0]),
        "chosen": statistics.median(chosen or [0]),
    }


def interactive(tab: "Page") -> None:
    """Waits until the page can be used. It is looked at with each of its frames: waiting for a
    selector looks twice a second, and tells the next half of a second."""
    tab.wait_for_function(INTERACTIVE, polling="raf")


def from_the_start(data_dir: DataDir, app: str, times: int = 0) -> dict[str, float]:
    """Seconds from the start of a server to its first page, in a browser that was there before; and
    until the same page, loaded anew so many times, can be used (median)."""
    with chromium() as tab:
        begun = time.perf_counter()
        with served(data_dir, app=app, supervised=False) as (address, _):
            tab.goto(address)
            interactive(tab)
            found = {"start": time.perf_counter() - begun}
            anew = []
            for _ in range(times):
                begun = time.perf_counter()
                tab.goto(address)
                interactive(tab)
                anew.append(time.perf_counter() - begun)
    return found | {"anew": statistics.median(anew or [0])}


def least_of_streamlit(parent: Path) -> dict[str, float]:
    """The same of an app that has one chart and one button: what no page of Streamlit is below."""
    folder = DataDir(parent / "least")
    folder.path.mkdir(exist_ok=True)
    found = [from_the_start(folder, "benchmarks/at_size/least.py", NUM_LEAST) for _ in range(3)]
    return {name: statistics.median(one[name] for one in found) for name in found[0]}


@contextmanager
def browsing(data_dir: DataDir) -> Iterator[tuple[str, "Page"]]:
    """The address of a fresh server, and a tab."""
    with served(data_dir, supervised=False) as (address, _), chromium() as tab:
        yield address, tab


@contextmanager
def chromium() -> Iterator["Page"]:
    """A tab of a browser that knows nothing yet."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path="/usr/bin/chromium", args=["--no-sandbox"]
        )
        yield browser.new_page(viewport={"width": 1440, "height": 900})
        browser.close()


def of_peers(parent: Path, python: Path) -> dict[str, tuple[float, float, float] | str]:
    """Seconds in which each tool reads the losses of six runs back: the median, the least and the
    most; or why there are none."""
    script = str(ROOT / "benchmarks" / "at_size" / "peers.py")
    found: dict[str, tuple[float, float, float] | str] = {"Breakeven": of_ours(parent)}
    for name in PEERS:
        folder = parent / f"peer-{name}"
        size = [str(folder), str(PEER_RUNS), str(PEER_STEPS)]
        try:
            if not folder.exists():
                subprocess.run([str(python), script, name, "write", *size], check=True,
                               capture_output=True, timeout=PEER_SECONDS)  # fmt: skip
            done = subprocess.run([str(python), script, name, "read", *size], check=True,
                                  capture_output=True, text=True, timeout=PEER_SECONDS)  # fmt: skip
        except (subprocess.SubprocessError, OSError) as error:
            found[name] = f"none: {type(error).__name__}"
            continue
        lines = [line.split() for line in done.stdout.splitlines()[-NUM_TIMES:]]
        if {points for _, points in lines} != {str(NUM_READ * PEER_STEPS)}:
            found[name] = f"none: {lines[-1][1]} points came back"
            continue
        found[name] = spread([float(seconds) for seconds, _ in lines])
    return found


def of_ours(parent: Path) -> tuple[float, float, float]:
    """The same of this tool: the losses of an experiment of six runs."""
    from storage import queries
    from storage.index.store import Store
    from storage.queries import kept

    data_dir = folder_of(parent, PEER_RUNS, PEER_STEPS)
    before = len(list(added(data_dir)))
    make_store(data_dir, PEER_RUNS // NUM_RUNS - before, PEER_STEPS, before)
    with Store.open(data_dir) as store:
        store.ingest_all()
        taken = []
        for one in list(added(data_dir))[: NUM_TIMES + 1]:
            kept._memories.clear()
            begun = time.perf_counter()
            points = len(queries.losses(store, one, max_points=None))
            taken.append(time.perf_counter() - begun)
            assert points == NUM_READ * PEER_STEPS
    return spread(taken[1:])


def spread(taken: Sequence[float]) -> tuple[float, float, float]:
    return statistics.median(taken), min(taken), max(taken)


def page(
    found: dict[Any, Any],
    browsed: dict[Any, Any],
    least: dict[str, float],
    watched: dict[str, Any],
    peers: dict[str, Any],
) -> str:
    machine = f"{platform.machine()}, {cpu_allowance().usable} CPUs"
    versions = {name: version(name) for name in ("duckdb", "pandas", "plotly", "streamlit")}
    load = f"load average {os.getloadavg()[2]:.1f} over the last quarter of an hour"
    size = (PEER_RUNS, PEER_STEPS)
    return written(
        found, browsed, least, watched, peers, size, machine, load, versions, date.today()
    )


if __name__ == "__main__":
    main()
