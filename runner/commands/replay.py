"""What the command `replay` is asked for: a run that is there, measured again."""

from breakeven.runner.errors import UnknownExperiment
from breakeven.runner.folders.data_dir import DataDir
from breakeven.runner.folders.library import example_folders
from breakeven.runner.folders.queue import agreed_spec, folders_of
from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.runner.specs.replays import replay


def read_replay(data_dir: DataDir, run: str) -> ExperimentSpec:
    """The experiment that measures a run, `EXPERIMENT.LABEL`, again; also one of the examples.

    Raises `RunnerError` if there is no such run.
    """
    experiment_id, _, label = run.partition(".")
    spec = agreed_spec([*folders_of(data_dir, experiment_id), *example_folders(experiment_id)])
    if spec is None:
        raise UnknownExperiment(
            f"no experiment {experiment_id!r} in {data_dir.runs} or among the examples; "
            "`breakeven list` has those that are there"
        )
    return replay(spec, experiment_id, label)
