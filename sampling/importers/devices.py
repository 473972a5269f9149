"""Which catalogue entry a device is, by the name that its driver gives it."""

from __future__ import annotations

from sampling.hardware.cluster import device_names, known_hardware


def hardware_of_device(device: str) -> str:
    """The name in configs/hardware of the device that a driver calls `device`; '' if none is."""
    for hardware in known_hardware():
        if device in device_names(hardware):
            return hardware
    return ""
