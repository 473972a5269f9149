"""Sizes of the units that times and bytes are stated in."""

SECOND_US = 1e6
MINUTE_US = 6e7
HOUR_US = 3.6e9
GB = 1e9
"""Bytes of a gigabyte, in which bandwidths and published sizes are stated."""
KIB = 2**10
MIB = 2**20
GIB = 2**30
"""Bytes of a gibibyte, in which a device's memory is stated."""
