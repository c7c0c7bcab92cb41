"""Which NUMA node a device sits at."""

from pathlib import Path

import torch

PCI = Path("/sys/bus/pci/devices")


def numa_node(name: str) -> int | None:
    """The node whose CPUs and memory are near the device of that name; None where it sits at none,
    or the system does not tell."""
    if not name.startswith("cuda"):
        return None
    found = torch.cuda.get_device_properties(torch.device(name))
    numbers: list[int | None] = [
        getattr(found, f"pci_{part}_id", None) for part in ("domain", "bus", "device")
    ]
    if None in numbers:  # of a torch that does not tell them
        return None
    address = "{:04x}:{:02x}:{:02x}.0".format(*(number or 0 for number in numbers))
    try:
        node = int((PCI / address / "numa_node").read_text())
    except (OSError, ValueError):
        return None
    return None if node < 0 else node
