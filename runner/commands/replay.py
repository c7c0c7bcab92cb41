"""What the command `replay` is asked for: a run that is there, measured again."""

from runner.errors import UnknownExperiment
from runner.folders.data_dir import DataDir
from runner.folders.library import example_folders
from runner.folders.queue import agreed_spec, folders_of
from runner.specs.experiment import ExperimentSpec
from runner.specs.replays import replay


def read_replay(data_dir: DataDir, run: str) -> ExperimentSpec:
    """The experiment that measures a run, `EXPERIMENT.LABEL`, again; also one of the examples.

    Raises `RunnerError` if there is no such run.
    """
    experiment_id, _, label = run.partition(".")
    spec = agreed_spec([*folders_of(data_dir, experiment_id), *example_folders(experiment_id)])
    if spec is None:
        raise UnknownExperiment(
            f"no experiment {experiment_id!r} in {data_dir.runs} or among the examples; "
            "`python -m runner list` has those that are there"
        )
    return replay(spec, experiment_id, label)
