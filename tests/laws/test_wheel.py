"""The wheel: built without a network, laid in an empty folder beside nothing but what it depends on, it answers."""

import json
import re
import shutil
import subprocess
import sys
import zipfile
from importlib.metadata import distribution
from pathlib import Path

import pytest
import yaml

from sampling.store.profiles import SHIPPED
from tests.trust.supply import built_wheel, copied_sources

ROOT = Path(__file__).resolve().parents[2]
MOST_BYTES = 200e6
"""Of the wheel and all that it depends on, installed."""
RUN = {
    "model": "small-llama",
    "cluster": {"hardware": "cpu", "nodes": 1, "gpus_per_node": 2},
    "plan": {"pp": 2},
    "batch": {"global": 8, "micro": 2, "seq_len": 128},
    "precision": "fp32",
}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `pip install` of the wheel gives an empty environment."""
    place = tmp_path_factory.mktemp("wheel")
    source = copied_sources(place)
    (source / "data" / "samples" / "my-cluster").mkdir()
    (source / "data" / "samples" / "my-cluster" / "gemm.parquet").touch()
    site = place / "site"
    with zipfile.ZipFile(built_wheel(place, source)) as wheel:
        wheel.extractall(site)
    for name in dependencies(next(site.glob("*.dist-info")) / "METADATA"):
        _install(name, site)
    return site


def dependencies(metadata: Path) -> list[str]:
    """The distributions that a wheel needs without extras, and those that they need."""
    found: list[str] = []
    wanted = re.findall(r"^Requires-Dist: (.*)$", metadata.read_text(), re.MULTILINE)
    while wanted:
        requirement = wanted.pop()
        name = re.match(r"[\w.-]+", requirement)
        if name and ";" not in requirement and name[0] not in found:
            found.append(name[0])
            wanted += distribution(name[0]).requires or []
    return found


def _install(name: str, site: Path) -> None:
    """Put a distribution of this environment into `site`."""
    files = distribution(name).files or []
    for top in {file.parts[0] for file in files if ".." not in file.parts and "__pycache__" not in file.parts}:
        (site / top).symlink_to(Path(str(distribution(name).locate_file(top))))


def predict(site: Path, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The command in `folder`, with nothing but `site` installed and `folder` as the user's home."""
    return _run(site, folder, "-m", "predict", *arguments)


def _run(site: Path, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {"PYTHONPATH": str(site), "HOME": str(folder)}
    command = [sys.executable, "-S", *arguments]  # -S: without this environment's packages
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def write_run(folder: Path, **changes: object) -> None:
    cluster = RUN["cluster"] | changes
    (folder / "run.yml").write_text(yaml.safe_dump(RUN | {"cluster": cluster}))


def test_it_predicts_from_the_shipped_rows(site: Path, tmp_path: Path) -> None:
    write_run(tmp_path)
    done = predict(site, tmp_path, "one-batch", "run.yml", "--json")
    assert done.returncode == 0, done.stderr
    prediction = json.loads(done.stdout)
    sources = prediction["sources"]
    assert sources["measured"] + sources["transferred"] > 0.5
    assert 1e3 < prediction["step_time_us"]["median"] < 1e7


def test_it_predicts_what_a_config_names(site: Path, tmp_path: Path) -> None:
    run = RUN | {"model": "Llama-3-8B", "cluster": "one-node-8xh100", "plan": {"tp": 8}, "precision": "bf16"}
    (tmp_path / "run.yml").write_text(yaml.safe_dump(run))
    done = predict(site, tmp_path, "one-batch", "run.yml", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["sources"]["analytic"] == 1


def test_it_holds_what_the_clone_ships_and_no_rows_of_the_users(site: Path) -> None:
    shipped = site / "sampling" / "shipped"
    for folder in ("configs", "data/published"):
        here = {
            path.relative_to(ROOT) for path in (ROOT / folder).rglob("*.*") if path.suffix in (".yml", ".json", ".csv")
        }
        assert {path for path in here if "this-machine" not in path.name} <= {
            path.relative_to(shipped) for path in shipped.rglob("*.*")
        }
    assert [path.name for path in (shipped / "data" / "samples").iterdir()] == [SHIPPED]


def test_the_users_rows_are_found_where_they_are_said_to_be(site: Path, tmp_path: Path) -> None:
    write_run(tmp_path, profile="mine")
    shipped = site / "sampling" / "shipped" / "data" / "regressors" / SHIPPED

    def measured(*option: str) -> float:
        found = json.loads(predict(site, tmp_path, "one-batch", "run.yml", "--json", *option).stdout)
        return float(found["sources"].get("measured", 0))

    assert measured() == 0
    for option, data in ([], tmp_path / ".local/share/steptime"), (["--data", "rows"], tmp_path / "rows"):
        shutil.copytree(shipped, data / "regressors" / "mine")
        assert measured(*option) > 0
        shutil.rmtree(data)


@pytest.mark.parametrize(
    ("arguments", "extra"),
    [
        (["-m", "sampling"], "sample"),
        (["-m", "predict", "benchmark", "run.yml", "--gpus", "1"], "sample"),
        (["-m", "predict", "memory", "run.yml", "--timeline", "memory.svg"], "plot"),
        (["-m", "predict", "schedule", "run.yml", "--plot", "schedule.svg"], "plot"),
    ],
    ids=["sampling", "benchmark", "timeline", "plot"],
)
def test_a_command_that_needs_more_says_what_to_install(
    site: Path, tmp_path: Path, arguments: list[str], extra: str
) -> None:
    write_run(tmp_path, profile=SHIPPED)
    done = _run(site, tmp_path, *arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    assert f"pip install 'steptime[{extra}]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_an_installation_is_light(site: Path) -> None:
    files = (path for top in site.iterdir() for path in top.resolve().rglob("*") if path.is_file())
    assert sum(path.stat().st_size for path in files) < MOST_BYTES
