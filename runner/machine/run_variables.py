"""Selects the environment variables of a run: those that a training needs, and those in
`BREAKEVEN_PASS`.

A supervisor has all variables of the user who started it, including tokens. A run executes models,
data and code of other people, so it gets only listed variables.

This module also protects the folder for compiler files outside a run's cache. Torch puts
precompiled headers into the machine's temporary folder, under a predictable name. Another account
that created this folder first could put code into them, which every compiled graph would run.
"""

import getpass
import os
import re
import stat
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from breakeven.runner.machine.placement import DEVICES_VARIABLE, Place
from breakeven.runner.masking import is_secret_name
from breakeven.runner.processes import RUN_VARIABLE

PASS_VARIABLE = "BREAKEVEN_PASS"
"""Names of further variables that runs get, separated by commas; required for secrets."""
OWN_PYTHON_VARIABLE = "BREAKEVEN_PYTHON"
"""Path of Breakeven's own Python, for runs that execute another one."""
OF_OWN_PYTHON = ("PYTHONHOME", "PYTHONPATH", "PYTHONUSERBASE", "VIRTUAL_ENV")
"""Variables with which a Python finds its packages."""
WITHHELD_VARIABLE = "BREAKEVEN_WITHHELD"
"""Has the names of the variables that a run did not get, so that the run can record them."""
NAMES = frozenset(
    [
        "PATH",
        "HOME",
        "USER",
        "LOGNAME",
        "SHELL",
        "LANG",
        "LANGUAGE",
        "TZ",
        "TERM",
        "PWD",
        "HOSTNAME",
        "TMPDIR",
        "TEMP",
        "TMP",
        "CC",
        "CXX",
        "CFLAGS",
        "CXXFLAGS",
        "CPPFLAGS",
        "LDFLAGS",
        "CPATH",
        "C_INCLUDE_PATH",
        "CPLUS_INCLUDE_PATH",
        "LIBRARY_PATH",
        "VIRTUAL_ENV",
        "SSL_CERT_FILE",
        "SSL_CERT_DIR",
        "REQUESTS_CA_BUNDLE",
        "CURL_CA_BUNDLE",
        "GLIBC_TUNABLES",
        "RANK",
        "LOCAL_RANK",
        "WORLD_SIZE",
        "LOCAL_WORLD_SIZE",
        "MASTER_ADDR",
        "MASTER_PORT",
        "BREAKEVEN_CODE",
        "BREAKEVEN_DATA",
        "BREAKEVEN_PASS",
    ]
)
PREFIXES = tuple(
    [
        "LC_",
        "LD_",
        "DYLD_",
        "XDG_",
        "PYTHON",
        "CONDA_",
        "SDKROOT",
        "TORCH",
        "PYTORCH",
        "TRITON",
        "INDUCTOR",
        "AOT_",
        "FX_",
        "KINETO_",
        "TENSORPIPE_",
        "CUDA",
        "CUDNN",
        "CUBLAS",
        "NVIDIA_",
        "NCCL_",
        "NVTE_",
        "HIP",
        "HSA_",
        "ROCM",
        "ROCR_",
        "MIOPEN_",
        "AMD_",
        "PJRT_",
        "XLA_",
        "TPU_",
        "GLOO_",
        "UCX_",
        "FI_",
        "SLURM_",
        "RAY_",
        "OMPI_",
        "PMI_",
        "OMP_",
        "GOMP_",
        "KMP_",
        "MKL_",
        "OPENBLAS_",
        "NUMEXPR_",
        "VECLIB_",
        "BLIS_",
        "MALLOC_",
        "NUMBA_",
        "ARROW_",
        "DNNL_",
        "ONEDNN_",
        "HF_",
        "HUGGINGFACE_",
        "TRANSFORMERS_",
        "DATASETS_",
        "TOKENIZERS_",
        "ACCELERATE_",
        "PL_",
        "LIGHTNING_",
        "TQDM_",
    ]
)
PROXIES = re.compile(r"(?:https?|ftp|all|no)_proxy", re.IGNORECASE)
"""A machine behind a proxy needs these to reach a hub."""
SHORTEST_NAME = 4
"""Shorter names would match in any text."""
HUB_REFUSES = re.compile(r"\b401\b|gated repo|hf auth login|Access to model .* is restricted")
HUB_TOKENS = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN")


def run_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables of the supervisor that a run gets."""
    named = named_variables(environment)
    passed = {name: value for name, value in environment.items() if _passes(name, named)}
    return {**passed, WITHHELD_VARIABLE: ",".join(withheld_names(environment))}


def process_variables(folder: str, place: Place, given: Mapping[str, str]) -> dict[str, str]:
    """The variables of a process for the run in this folder. `given`: those that the experiment
    sets."""
    return {
        **run_variables(os.environ),
        # Else each process would have another order of a set of texts.
        "PYTHONHASHSEED": "0",
        **given,
        DEVICES_VARIABLE: ",".join(place.devices),
        RUN_VARIABLE: folder,
        "PYTHONUNBUFFERED": "1",
    }


def other_python_variables(
    variables: Mapping[str, str], code: Path, given: Mapping[str, str]
) -> dict[str, str]:
    """The variables of a run whose Python is not Breakeven's own: it finds its own packages, and in
    the folder `code` the package `breakeven` alone. `given`: those that the experiment sets."""
    path = os.pathsep.join(filter(None, [str(code), given.get("PYTHONPATH")]))
    own = {"PYTHONPATH": path, OWN_PYTHON_VARIABLE: sys.executable}
    return {**without_own_python(variables), **own}


def without_own_python(variables: Mapping[str, str]) -> dict[str, str]:
    """The variables without those by which Breakeven's own Python finds its packages."""
    return {name: value for name, value in variables.items() if name not in OF_OWN_PYTHON}


def withheld_names(environment: Mapping[str, str]) -> list[str]:
    """Names of the variables that a run does not get."""
    named = named_variables(environment)
    return sorted(name for name in environment if not _passes(name, named))


def named_variables(environment: Mapping[str, str]) -> frozenset[str]:
    """The names in `BREAKEVEN_PASS`."""
    given = environment.get(PASS_VARIABLE, "")
    return frozenset(name.strip() for name in given.split(",") if name.strip())


def variable_hint(output: str, names: Iterable[str]) -> str:
    """A hint for a failed run whose last output names a variable that it did not get; empty if
    there is none."""
    names = list(names)
    missed = [
        name
        for name in names
        if len(name) >= SHORTEST_NAME
        and re.search(rf"(?<![A-Za-z0-9_]){re.escape(name)}(?![A-Za-z0-9_])", output)
    ]
    if HUB_REFUSES.search(output):
        missed += [name for name in HUB_TOKENS if name in names and name not in missed]
    if not missed:
        return ""
    listed = ", ".join(missed[:3])
    return (
        f"{listed} was not passed on to the run; start the supervisor with {PASS_VARIABLE}={listed}"
    )


def _passes(name: str, named: frozenset[str]) -> bool:
    if name in named:
        return True
    is_usual = name in NAMES or name.startswith(PREFIXES) or PROXIES.fullmatch(name) is not None
    return is_usual and not is_secret_name(name)


def protect_compiler_folder() -> None:
    """Makes torch's compiler folder private. If another account owns it, this process and its
    children get their own temporary folder. Call it before torch compiles anything."""
    folder = Path(tempfile.gettempdir(), compiler_folder_name())
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        pass
    except OSError:
        return  # No other account can create it either; torch reports the error.
    status = folder.lstat()
    if (
        not stat.S_ISDIR(status.st_mode)
        or status.st_uid != os.getuid()
        or status.st_mode & stat.S_IWOTH
    ):
        tempfile.tempdir = os.environ["TMPDIR"] = tempfile.mkdtemp(prefix="breakeven-")
    elif status.st_mode & 0o077:
        folder.chmod(0o700)


def compiler_folder_name() -> str:
    """The name that torch gives its compiler folder."""
    try:
        user = getpass.getuser()
    except (KeyError, ImportError, OSError):
        user = f"uid_{os.getuid()}"
    return "torchinductor_" + re.sub(r'[\\/:*?"<>|]', "_", user)
