"""`supervise --ray ADDRESS`: the queue worked off on the machines of a cluster."""

import argparse

from runner.errors import RunnerError
from runner.folders.run_dir import DataDir
from runner.supervision.supervisor import LINGER_SECONDS

HOW_TO_INSTALL = "pip install -r requirements-cluster.txt"


def add_cluster_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--ray", metavar="ADDRESS",
        help="place experiments on the machines of this Ray cluster (auto: the one that this "
        "machine belongs to), and go on until stopped",
    )  # fmt: skip
    parser.add_argument(
        "--until-empty", action="store_true",
        help="with --ray: end once nothing waits and nothing runs",
    )  # fmt: skip
    parser.add_argument(
        "--same-versions", action="store_true",
        help="with --ray: leave out machines whose Python, torch, transformers, triton or numpy "
        "is another one than here",
    )  # fmt: skip
    parser.add_argument(
        "--orphan-patience", type=float, default=600.0, metavar="SECONDS",
        help="with --ray: how long work goes on while no supervisor asks for it (default: 600)",
    )  # fmt: skip


def supervise_cluster(data_dir: DataDir, options: argparse.Namespace) -> bool:
    """False if another supervisor holds the data folder; raises `RunnerError` without Ray."""
    try:
        # Only who has a cluster needs its packages.
        from runner.cluster.driver import drive
        from runner.cluster.ray_engine import RayEngine
    except ImportError as error:
        raise RunnerError(f"--ray needs the package ray ({error}): {HOW_TO_INSTALL}") from error
    engine = RayEngine(options.ray, namespace=f"breakeven {data_dir.path}",
                       patience_seconds=options.orphan_patience)  # fmt: skip
    linger = LINGER_SECONDS if options.until_empty else None
    return drive(data_dir, engine, same_versions=options.same_versions, linger=linger)
