"""The order of the queue and its held experiments: `queue.json` of the data folder.

Without the file the order is that of submission. Writers hold the library lock. The supervisor
reads the file at every search for the next experiment, so its restart changes nothing.
"""

from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass, replace

from breakeven.runner.errors import InvalidRunFolder, InvalidSpec, RunnerError
from breakeven.runner.experiments.labels import locked
from breakeven.runner.experiments.queue import Experiment, experiments, submit, writing
from breakeven.runner.files import write_atomically
from breakeven.runner.logs import log_action
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.protocol.plain_files import read_document
from breakeven.runner.protocol.states import RunState
from breakeven.runner.specs.fields import Spec


@dataclass(frozen=True, kw_only=True)
class QueueOrder(Spec):
    """The users' changes to the queue."""

    order: tuple[str, ...] = ()
    """Ids of experiments that come first, in this order; others follow by priority, then by time of
    submission."""
    held: tuple[str, ...] = ()
    """Ids of experiments that do not start until they are released."""
    paused: bool = False
    """Whether no experiment starts; running experiments continue."""

    def sorted(self, waiting: list[Experiment]) -> list[Experiment]:
        """Sorts experiments, given oldest first, into the order of the queue."""
        places = {experiment_id: place for place, experiment_id in enumerate(self.order)}
        return sorted(
            waiting,
            key=lambda experiment: (
                places.get(experiment.experiment_id, len(places)),
                -experiment.spec.priority,
            ),
        )


def read_order(data_dir: DataDir) -> QueueOrder:
    """The order from the file; the order of submission if the file cannot be read."""
    try:
        return QueueOrder.from_json(read_document(data_dir.path, data_dir.queue_file.name))
    except (OSError, InvalidRunFolder, InvalidSpec):
        return QueueOrder()


def waiting(data_dir: DataDir, among: Container[str] | None = None) -> list[Experiment]:
    """Every experiment with a queued run, in the order of the queue. `among`: candidate ids, if the
    caller knows them from the index."""
    queued = [
        experiment
        for experiment in _open(data_dir, among)
        if any(run.state is RunState.QUEUED for run in experiment.runs)
    ]
    return read_order(data_dir).sorted(queued)


def at_work(data_dir: DataDir, among: Container[str] | None = None) -> list[Experiment]:
    """Every experiment with a running run, oldest first; `among` as in `waiting`."""
    return [
        experiment
        for experiment in _open(data_dir, among)
        if any(run.state is RunState.RUNNING for run in experiment.runs)
    ]


def _open(data_dir: DataDir, among: Container[str] | None) -> Iterator[Experiment]:
    return experiments(data_dir, data_dir.open_experiments() if among is None else among)


def startable(data_dir: DataDir) -> list[Experiment]:
    """The waiting experiments that are not held; none while the queue is paused."""
    order = read_order(data_dir)
    if order.paused:
        return []
    return [
        experiment for experiment in waiting(data_dir) if experiment.experiment_id not in order.held
    ]


def move(data_dir: DataDir, experiment_id: str, *, by: int | None = None) -> None:
    """Moves an experiment by `by` places, -1 for one forward; to the front without `by`.

    Raises `RunnerError` if the experiment does not wait, and `NotWritable`.
    """

    def moved(order: QueueOrder, ids: list[str]) -> QueueOrder:
        place = ids.index(experiment_id)
        ids.insert(0 if by is None else max(0, place + by), ids.pop(place))
        return replace(order, order=tuple(ids))

    _change(data_dir, moved, experiment_id)
    places = "first" if by is None else by
    log_action(data_dir.logs, "move in the queue", experiment_id, places=places)


def hold(data_dir: DataDir, experiment_id: str) -> None:
    """Holds an experiment: it does not start. Raises the errors of `move`."""
    _change(
        data_dir,
        lambda order, ids: replace(order, held=(*order.held, experiment_id)),
        experiment_id,
    )
    log_action(data_dir.logs, "hold", experiment_id)


def release(data_dir: DataDir, experiment_id: str) -> None:
    """Releases a held experiment; raises the errors of `move`."""

    def released(order: QueueOrder, ids: list[str]) -> QueueOrder:
        return replace(order, held=tuple(held for held in order.held if held != experiment_id))

    _change(data_dir, released, experiment_id)
    log_action(data_dir.logs, "release", experiment_id)


def pause(data_dir: DataDir, *, paused: bool = True) -> None:
    """Pauses the queue, or resumes it; raises `NotWritable`."""
    _change(data_dir, lambda order, ids: replace(order, paused=paused))
    log_action(data_dir.logs, "pause the queue" if paused else "resume the queue")


def duplicate(data_dir: DataDir, experiment: Experiment) -> str:
    """Queues the same experiment again, as an independent one; returns its id. Raises the errors of
    `submit`."""
    is_checked = not experiment.runs[0].is_unchecked
    return submit(data_dir, experiment.spec.on_its_own, is_checked=is_checked)


def _change(
    data_dir: DataDir,
    change: Callable[[QueueOrder, list[str]], QueueOrder],
    experiment_id: str | None = None,
) -> None:
    """Writes the result of `change`, which gets the order and the waiting ids; drops other ids."""
    with locked(data_dir), writing(data_dir.path):
        ids = [experiment.experiment_id for experiment in waiting(data_dir)]
        if experiment_id is not None and experiment_id not in ids:
            raise RunnerError(
                f"experiment {experiment_id!r} does not wait in the queue; "
                "`breakeven queue` lists what does"
            )
        after = change(read_order(data_dir), ids)
        held = tuple(held_id for held_id in dict.fromkeys(after.held) if held_id in ids)
        order = tuple(ordered_id for ordered_id in after.order if ordered_id in ids)
        write_atomically(data_dir.queue_file, replace(after, held=held, order=order).to_json())
