"""Shows a process one device alone, so that a script's own choice of device is the experiment's."""

from collections.abc import MutableMapping

VARIABLE = "CUDA_VISIBLE_DEVICES"


def show_only(device: str, environment: MutableMapping[str, str]) -> None:
    """Hides all devices of CUDA but this one; torch must not be imported yet.

    `device` is as specifications name it, and counts among those that are visible now.
    """
    _, _, number = device.partition(":")
    listed = environment.get(VARIABLE)
    if not number:
        environment[VARIABLE] = ""
    elif listed is None:
        environment[VARIABLE] = number
    else:
        names = listed.split(",")
        environment[VARIABLE] = names[int(number)] if int(number) < len(names) else ""


def name_of_visible(device: str) -> str:
    """What the device is called where it alone is shown."""
    kind, _, number = device.partition(":")
    return f"{kind}:0" if number else kind
