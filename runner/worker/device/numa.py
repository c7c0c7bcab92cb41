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
    if not hasattr(found, "pci_domain_id"):
        return None
    address = f"{found.pci_domain_id:04x}:{found.pci_bus_id:02x}:{found.pci_device_id:02x}.0"
    try:
        node = int((PCI / address / "numa_node").read_text())
    except (OSError, ValueError):
        return None
    return None if node < 0 else node
