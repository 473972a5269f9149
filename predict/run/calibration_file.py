"""Calibration of a run: its terms applied, and the file that holds them.

None of them is used unasked: a prediction whose cluster and command name no calibration file rests on samples and stated priors alone.
"""

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import TypeVar

import yaml

from predict.run.calibration_terms import Calibration, Posterior
from predict.run.training_run import TrainingRun
from predict.serialise import rebuild
from sampling.errors import UNREADABLE, ConfigError, UserError
from sampling.files.documents import read_json, read_yaml
from sampling.files.schema import read
from sampling.hardware.cluster import Cluster

T = TypeVar("T")
CALIBRATION = "a calibration of `predict calibrate`, which --calibration takes"
COEFFICIENTS = "a file of `predict serving-fit`, which --coefficients takes"
FORMATS = {
    "serving-coefficients": COEFFICIENTS,
    "layer-benchmark": "a file of `predict benchmark`",
    "measured-run": "a run that `predict record` kept",
}
"""Value of the key `format` → what such a file is."""
OF_CALIBRATION = {"version", "terms", "covariance"}
"""Keys that only a calibration has; its file has no `format`."""


def read_written(cls: type[T], path: Path, wanted: str, *, fix: str) -> T:
    """The content of a file that is `wanted`; ConfigError lists every fault of it, or says what else the file is."""
    try:
        return read(cls, path, fix=fix)
    except ConfigError:
        found = _kind_of(path)
        if found in ("", wanted):
            raise
        raise ConfigError(f"{path}: is {found}, not {wanted.partition(',')[0]}; give one of those") from None


def _kind_of(path: Path) -> str:
    """The kind of a file in words; empty for one of no known kind."""
    content, _ = read_json(path) if path.suffix.lower() == ".json" else read_yaml(path)
    if content is None:
        return ""
    if content.keys() >= OF_CALIBRATION:
        return CALIBRATION
    written = content.get("format")
    return FORMATS.get(written, "") if isinstance(written, str) else ""


SAID = "# Written by `predict calibrate`; a cluster uses it where its file has the key `calibration`.\n"


def scaled(run: TrainingRun, terms: Calibration) -> TrainingRun:
    """The run with its times multiplied by the terms, beyond what a calibration of it did already."""
    if not terms.moved:
        return run
    execution = run.execution
    return replace(
        run,
        execution=replace(
            execution,
            launch_floor_us=execution.launch_floor_us * terms.launch,
            product_time=execution.product_time * terms.products,
            memory_time=execution.memory_time * terms.memory_bound,
            in_node_time=execution.in_node_time * terms.in_node,
            between_nodes_time=execution.between_nodes_time * terms.between_nodes,
            waiting_time=execution.waiting_time * terms.stragglers,
            exposed_time=execution.exposed_time * terms.exposed,
        ),
    )


def calibrated(run: TrainingRun, posterior: Posterior) -> TrainingRun:
    """The run with the fitted terms applied, which it names; unchanged by a calibration that rests on no run."""
    return replace(scaled(run, posterior.terms), calibration=posterior) if posterior.runs else run


def calibrated_by(run: TrainingRun, path: Path) -> TrainingRun:
    """The run with the terms of a calibration file. UserError where the file is of runs on another GPU or other links."""
    posterior = read_calibration(path)
    name, known = _first_described(posterior)
    if known and (differing := other_cluster(known, run.cluster)):
        raise UserError(
            f"{path}: is of {name} on {known.gpu.name}, not of the cluster of {run.name}: {differing}; calibrate that cluster by "
            "its own runs, or leave the calibration out"
        )
    return calibrated(run, posterior)


def _first_described(posterior: Posterior) -> tuple[str, Cluster | None]:
    """Name and cluster of the first run that a calibration rests on; None where this version cannot read its description, so that
    nothing is known."""
    for one in posterior.runs:
        try:
            described = json.loads(one.described)
            return described["name"], rebuild(Cluster, described["cluster"])
        except UNREADABLE:
            continue
    return "", None


def other_cluster(one: Cluster, two: Cluster) -> str:
    """The difference of two clusters in what a calibration is of, in words; empty where they do not. Their sizes may differ."""
    if one.gpu.name != two.gpu.name:
        return f"it has {two.gpu.name}"
    pairs = (("in a node", one.intra_node, two.intra_node), ("between nodes", one.inter_node, two.inter_node))
    differing = [where for where, first, second in pairs if first != second]
    return f"its links {' and '.join(differing)} are others" if differing else ""


def read_calibration(path: Path) -> Posterior:
    """The calibration in a file; ConfigError lists every fault of it."""
    return read_written(Posterior, path, CALIBRATION, fix="write it anew with `predict calibrate`")


def calibration_text(posterior: Posterior) -> str:
    """The file of a calibration (YAML)."""
    content = {**Posterior.HEADER, **asdict(posterior)}
    return SAID + yaml.safe_dump(_plain(content), sort_keys=False, allow_unicode=True, width=120)


def _plain(value: object) -> object:
    """Tuples as lists, and numbers with six digits, which is more than they are known to."""
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return float(f"{value:.6g}") if isinstance(value, float) else value
