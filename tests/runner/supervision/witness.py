"""A witness that reads again and again what pages show, and compares it with the run folders."""

import threading
import time
from dataclasses import dataclass, field

from breakeven.runner.experiments.queue import find_experiment
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.protocol.events import read_events
from breakeven.runner.protocol.states import RunState
from breakeven.storage import queries
from breakeven.storage.index.store import Store

LOOK_SECONDS = 0.5


@dataclass
class Witness:
    """Looks from `start` to `stop`; `wrong` then lists what was shown wrongly."""

    data_dir: DataDir
    expected: dict[str, int]
    """Steps of each run of an experiment, by its id."""
    num_looks: int = 0
    wrong: list[str] = field(default_factory=list)
    seen: dict[str, list[tuple[float, set[str], int]]] = field(default_factory=dict)
    """By experiment, what each look saw: time on the monotonic clock, states of the runs, and the
    latest attempt in the folders."""
    _is_over: threading.Event = field(default_factory=threading.Event)

    def start(self) -> None:
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._is_over.set()
        self._thread.join()

    def seconds_shown_alive(self, key: str, since: float) -> float:
        """How long after that moment the first attempt was still shown as running."""
        alive = [
            at - since
            for at, states, attempt in self.seen[key]
            if at > since and attempt == 1 and "running" in states
        ]
        return max(alive, default=0.0)

    def _watch(self) -> None:
        with Store.in_memory(self.data_dir) as store:
            while not self._is_over.wait(LOOK_SECONDS):
                store.ingest_all()
                try:
                    self._look(store)
                except Exception as error:
                    self.wrong.append(f"a look failed: {type(error).__name__}: {error}")
                self.num_looks += 1

    def _look(self, store: Store) -> None:
        listed = queries.list_experiments(store).set_index("experiment_id")
        if set(listed.index) != set(self.expected):
            self.wrong.append(f"shown: {sorted(listed.index)}")
        for key, steps in self.expected.items():
            row = listed.loc[key]
            runs = queries.latest_runs(store, key)
            experiment = find_experiment(self.data_dir, key)
            if not row["num_ended"] <= row["num_runs"] == len(runs) == len(experiment.runs):
                self.wrong.append(f"{key}: {row['num_ended']} of {row['num_runs']} over")
            if row["num_ended"] != sum(RunState(state).is_final for state in runs["state"]):
                self.wrong.append(f"{key}: {row['num_ended']} over, of {list(runs['state'])}")
            if row["state"] == "finished":
                self._must_be_finished(key, steps)
            attempt = max(run.attempt for run in experiment.runs)
            self.seen.setdefault(key, []).append((time.monotonic(), set(runs["state"]), attempt))

    def _must_be_finished(self, key: str, steps: int) -> None:
        """By the files, which were there before they were shown."""
        for run in find_experiment(self.data_dir, key).runs:
            ended = run.read_exit()
            done = sum(event["kind"] == "step" for event in read_events(run.events_file)[0])
            if ended is None or ended.state is not RunState.FINISHED or done != steps:
                self.wrong.append(f"{run.run_id}: shown as finished after {done} steps")
