"""What can be seen of this machine's devices in a millisecond, without torch.

It names no device as torch does. Whoever kept what torch said of them sees by it that something
has changed since, and that torch is to be asked again.
"""

import os
import re
from collections.abc import Mapping
from pathlib import Path

VARIABLES = ("CUDA_DEVICE_ORDER", "CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES",
             "ROCR_VISIBLE_DEVICES")  # fmt: skip
"""Which of its GPUs a process is let see, and in which order."""
PLACES = {
    "gpu": "proc/driver/nvidia/gpus/*",
    "part of a gpu": "proc/driver/nvidia/capabilities/gpu*/mig/gi*/ci*",
    "device file": "dev/nvidia[0-9]*",
    "amd": "sys/class/kfd/kfd/topology/nodes/*",
}
"""Where the system lists what is there: of containers the second and third alone may differ."""
DRIVER = "proc/driver/nvidia/version"

Sight = tuple[str, ...]
"""One word for each thing seen, in order."""


def seen(environment: Mapping[str, str] = os.environ, root: Path = Path("/")) -> Sight:
    """Devices, their driver, and the variables that hide some of them; empty where none of it is
    to be seen, as on a machine without a GPU and on macOS."""
    found = [
        f"{kind} {path.relative_to(root)}"
        for kind, places in PLACES.items()
        for path in sorted(root.glob(places))
    ]
    try:
        version = re.search(r"\b\d+\.\d+(?:\.\d+)?\b", (root / DRIVER).read_text())
        found += [f"driver {version[0]}"] if version else []
    except OSError:
        pass
    found += [f"{name}={environment[name]}" for name in VARIABLES if name in environment]
    return tuple(found)


def shows_gpu(sight: Sight) -> bool:
    """Whether there is a GPU, whether or not torch can use it."""
    return any(word.startswith(("gpu ", "device file ")) for word in sight)
