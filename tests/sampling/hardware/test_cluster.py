"""The cluster files that come with the project, and what is reported of a wrong one."""

from pathlib import Path

import pytest

from sampling.__main__ import main
from sampling.errors import ConfigError
from sampling.files.places import CONFIGS
from sampling.hardware.cluster import Machine, known_hardware, load_cluster, notes_on_trays, read_cluster_file
from sampling.session import site

FILES = sorted((CONFIGS / "clusters").glob("*.yml"))
GOOD = "{hardware: cpu, nodes: 1, gpus_per_node: 2, profile: test}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_cluster_file_names_hardware_of_the_catalogue(path: Path) -> None:
    cluster = read_cluster_file(path)
    assert cluster.hardware in known_hardware()
    assert cluster.machine == Machine(nodes=cluster.nodes, gpus_per_node=cluster.gpus_per_node)


def test_a_file_of_hardware_is_relative_to_the_cluster_file(tmp_path: Path) -> None:
    path = tmp_path / "cluster.yml"
    path.write_text(GOOD.replace("cpu", "devices/mine.yml"))
    assert read_cluster_file(path).hardware == str(tmp_path / "devices" / "mine.yml")


@pytest.mark.parametrize(
    ("content", "fragment"),
    [
        (GOOD.replace("nodes", "node"), "node: unknown key; did you mean 'node_size' or 'nodes'"),
        ("{hardware: cpu}", "gpus_per_node: missing"),
    ],
)
def test_a_wrong_cluster_file_is_reported_all_that_is_wrong(tmp_path: Path, content: str, fragment: str) -> None:
    path = tmp_path / "cluster.yml"
    path.write_text(content)
    with pytest.raises(ConfigError, match=rf"cluster\.yml: .*{fragment}"):
        read_cluster_file(path)


def test_a_cluster_of_several_nodes_is_reported_how_to_start_on_all(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "cluster.yml"
    path.write_text(GOOD.replace("nodes: 1", "nodes: 3"))
    assert main(["--cluster", str(path), "--data", str(tmp_path)]) == 2
    message = capsys.readouterr().err
    assert "srun --nodes 3 --ntasks-per-node 2" in message
    assert "torchrun --nnodes 3 --nproc-per-node 2" in message


def test_more_ranks_than_the_machine_can_run_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "cluster.yml"
    path.write_text(GOOD.replace("gpus_per_node: 2", "gpus_per_node: 4096"))
    assert main(["--cluster", str(path), "--data", str(tmp_path)]) == 2
    assert "4096 ranks" in capsys.readouterr().err


def test_a_cluster_file_of_other_gpus_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(site, "most_ranks", lambda hardware, named_by: 8)
    monkeypatch.setattr(site, "detect_hardware", lambda: "a100-80gb")
    cluster = CONFIGS / "clusters" / "one-node-8xh100.yml"
    assert main(["--cluster", str(cluster), "--data", str(tmp_path)]) == 2
    assert "this machine has 'a100-80gb'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("hardware", "nodes", "gpus_per_node", "instead"),
    [
        ("gb200", 16, 4, "nodes: 1, gpus_per_node: 64"),
        ("gb300", 36, 4, "nodes: 2, gpus_per_node: 72"),
        ("gb200", 2, 36, ""),
        ("gb200", 1, 4, ""),
        ("h100-sxm", 16, 4, ""),
    ],
)
def test_the_trays_of_a_rack_are_not_taken_for_nodes_in_silence(
    hardware: str, nodes: int, gpus_per_node: int, instead: str
) -> None:
    notes = notes_on_trays(load_cluster(hardware=hardware, nodes=nodes, gpus_per_node=gpus_per_node, profile=""))
    assert [note.endswith(instead) for note in notes] == [True] * bool(instead)
