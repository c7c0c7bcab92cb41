"""`supervise --ray ADDRESS`, `supervise --slurm`: the queue worked off on machines of a cluster."""

import argparse

from breakeven.runner.cluster.driver import Engine, drive
from breakeven.runner.errors import RunnerError
from breakeven.runner.folders.data_dir import DataDir
from breakeven.runner.supervision.supervisor import LINGER_SECONDS

HOW_TO_INSTALL = "pip install -r requirements-cluster.txt"


def add_cluster_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--ray", metavar="ADDRESS",
        help="place experiments on the machines of this Ray cluster (auto: the one that this "
        "machine belongs to), and go on until stopped",
    )  # fmt: skip
    parser.add_argument(
        "--slurm", nargs="?", const="slurm", choices=("slurm", "local"),
        help="have each experiment be a job of Slurm, whose machines must see the data folder; "
        "with local: processes of this machine, to try it",
    )  # fmt: skip
    parser.add_argument(
        "--slurm-option", action="append", default=[], metavar="NAME=VALUE", type=_option,
        help="what jobs ask for, as submitit names it (slurm_partition=gpu, timeout_min=600, "
        "cpus_per_task=16); can be given several times",
    )  # fmt: skip
    parser.add_argument(
        "--until-empty", action="store_true",
        help="with --ray or --slurm: end once nothing waits and nothing runs",
    )  # fmt: skip
    parser.add_argument(
        "--same-versions", action="store_true",
        help="with --ray: leave out machines whose Python, torch, transformers, triton or numpy "
        "is another one than here",
    )  # fmt: skip
    parser.add_argument(
        "--orphan-patience", type=float, default=600.0, metavar="SECONDS",
        help="with --ray or --slurm: how long work goes on while no supervisor asks for it "
        "(default: 600)",
    )  # fmt: skip


def _option(text: str) -> tuple[str, str | int]:
    name, equals, value = text.partition("=")
    if not (name.isidentifier() and equals and value):
        raise argparse.ArgumentTypeError(f"{text!r} must read NAME=VALUE")
    return name, int(value) if value.isdigit() else value


def supervise_cluster(data_dir: DataDir, options: argparse.Namespace) -> bool:
    """False if another supervisor holds the data folder; raises `RunnerError` without what the
    cluster needs."""
    try:
        engine = _engine(data_dir, options)
    except ImportError as error:
        why = f"a cluster needs a package more ({error}): {HOW_TO_INSTALL}"
        raise RunnerError(why) from error
    linger = LINGER_SECONDS if options.until_empty else None
    return drive(data_dir, engine, same_versions=options.same_versions, linger=linger)


def _engine(data_dir: DataDir, options: argparse.Namespace) -> Engine:
    """Only who has a cluster needs its package, so it is imported here."""
    if options.slurm is not None:
        from breakeven.runner.cluster.submitit_engine import SubmititEngine

        if options.same_versions:
            raise RunnerError("--same-versions cannot be asked of Slurm, which chooses machines")
        return SubmititEngine(data_dir, cluster=options.slurm,
                              parameters=dict(options.slurm_option),
                              patience_seconds=options.orphan_patience)  # fmt: skip
    from breakeven.runner.cluster.ray_engine import RayEngine

    return RayEngine(options.ray, namespace=f"breakeven {data_dir.path}",
                     patience_seconds=options.orphan_patience)  # fmt: skip
