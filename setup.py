"""The packages of the wheel. The rest is in pyproject.toml, which cannot give a package to a folder of another name.

An installation finds configs and the shipped rows inside the package `sampling` (sampling/files/places.py).
"""

from setuptools import find_namespace_packages, setup

PROFILES = ("epyc-2-cores",)
"""The profiles that are shipped; others in data/ are the user's own."""
SHIPPED = {
    "configs": ["**/*"],
    "data": [
        "published/*.csv",
        "serving/*.json",
        *(f"published/{name}-steps.json" for name in PROFILES),
        *(f"{kind}/{name}/*" for kind in ("samples", "regressors") for name in PROFILES),
    ],
}
"""Folder of the clone → what a wheel holds of it."""

setup(
    packages=[
        *find_namespace_packages(include=["sampling*", "regressors*", "predict*"]),
        *(f"sampling.shipped.{folder}" for folder in SHIPPED),
    ],
    package_dir={f"sampling.shipped.{folder}": folder for folder in SHIPPED},
    package_data={
        **{f"sampling.shipped.{folder}": files for folder, files in SHIPPED.items()},
        "predict.reports.page": ["assets/*"],
    },
    include_package_data=False,
)
