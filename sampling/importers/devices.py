"""The hardware file of a device, found by the name that its driver reports."""

from __future__ import annotations

from sampling.hardware.cluster import device_names, known_hardware


def hardware_of_device(device: str) -> str:
    """Name of the hardware file of the device that a driver calls `device`; '' if there is none."""
    for hardware in known_hardware():
        if device in device_names(hardware):
            return hardware
    return ""
