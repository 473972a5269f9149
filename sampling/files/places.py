"""Places of configs and data: the shipped ones in the clone or the installation, and the rows of the user's own.

Shipped are configs/, data/published and a profile below data/samples and data/regressors: in the clone, or in the folder `shipped`
of the installed package. The user's own samples/, regressors/, imported/ and published/ lie below `own_data()`.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

PACKAGE = Path(__file__).resolve().parents[1]
INSTALLED = PACKAGE / "shipped"
"""The folder into which setup.py puts configs and data of the clone when it builds a wheel."""
SHIPPED = INSTALLED if INSTALLED.is_dir() else PACKAGE.parent
CONFIGS = SHIPPED / "configs"
SHIPPED_DATA = SHIPPED / "data"
HAS_MAKEFILE = SHIPPED != INSTALLED
"""Whether this is a clone, whose Makefile has a target for each command."""
DATA_VARIABLE = "STEPTIME_DATA"
OWN_DATA_IN_WORDS = (
    f"{DATA_VARIABLE}, else data/ of the clone, else the user's data folder, such as ~/.local/share/steptime"
)


def shipped_json(name: str) -> Any:
    """The content of a JSON file of configs/."""
    return json.loads((CONFIGS / name).read_text(encoding="utf-8"))


def sampling_command(profile: str = "", *, runs: str = "") -> str:
    """The command that times calls, as the clone's Makefile or an installed package has it; `runs`, ` RUNS=…`, where it takes configs."""
    if HAS_MAKEFILE:
        return "`make sample" + (f" PROFILE={profile}" if profile else "") + f"{runs}`"
    calls = " --calls calls.json` after `predict calls RUN.yml --output calls.json" if runs else ""
    return "`python -m regressors.active.guided_sampling" + (f" --profile {profile}" if profile else "") + f"{calls}`"


def fitting_command(profile: str = "") -> str:
    """The command that fits time models to sampled rows."""
    if HAS_MAKEFILE:
        return "`make train-regressors" + (f" PROFILE={profile}`" if profile else "`")
    return "`python -m regressors" + (f" --profile {profile}`" if profile else "`")


def own_data() -> Path:
    """The folder of the user's own rows and time models: STEPTIME_DATA, else the clone's data, else the user's data folder."""
    if named := os.environ.get(DATA_VARIABLE):
        return Path(os.path.abspath(named))  # noqa: PTH100  (resolve() reads the disk, and fails on odd names)
    return _user_data() if SHIPPED == INSTALLED else SHIPPED_DATA


def _user_data() -> Path:
    """The folder that the platform's convention gives to a program's data."""
    if sys.platform == "win32":
        home = os.environ.get("LOCALAPPDATA") or "~/AppData/Local"
    elif sys.platform == "darwin":
        home = "~/Library/Application Support"
    else:
        home = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
    return Path(os.path.expanduser(home)) / "steptime"  # noqa: PTH111  (Path.expanduser fails where there is no home)


def benchmarks() -> Path:
    """The folder of the time models' tables of accuracy: the clone's, or one in the user's data where that is elsewhere."""
    data = own_data()
    return SHIPPED / "benchmarks" if data == SHIPPED_DATA else data / "benchmarks"
