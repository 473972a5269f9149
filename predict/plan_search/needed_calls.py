"""The calls that configs need timed: runs, searches, servers and RL steps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from predict import load
from predict.config.draft import is_run_config
from predict.kinds import RL, SERVING, kind_of
from predict.plan_search.axes import read_questions, stands_for_several
from predict.plan_search.legal import legal_plans
from predict.rl.config import load_rl
from predict.rl.plain_torch import requests_of_rl
from predict.run.training_run import TrainingRun
from predict.serving.config import load_serving
from predict.serving.kernels import requests_of_server
from predict.workload.decompose import merged_requests, requests_of_runs
from sampling.call import Request
from sampling.choosing.calls_file import calls_file_content
from sampling.errors import UserError, naming
from sampling.files.faults import counted
from sampling.hardware.cluster import hardware_facts
from sampling.hardware.this_device import detect_hardware

Report = Callable[[str], None]


def calls(
    configs: Sequence[str], overrides: Sequence[str] = (), *, hardware: str = "", report: Report = lambda line: None
) -> dict[str, Any]:
    """The content of a calls file: what the configs need timed on a device, by default theirs, or this machine's where they are on several.
    Configs that are passed over are reported.

    ConfigError lists the faults of a config; UserError where none is a run config, or none is on the device.
    """
    by_config = {config: _needs(config, overrides, report) for config in _run_configs(configs, report)}
    chosen = _hardware(hardware, {needed.gpu for needed in by_config.values()})
    requests = []
    for config, needed in by_config.items():
        if needed.gpu == chosen:
            requests.append(needed.requests)
        else:
            report(f"{config}: passed over: it is on {needed.gpu}, and these are the calls of runs on {chosen}")
    return calls_file_content(merged_requests(requests), chosen)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Needs:
    """The name of a config's Gpu, and the calls to time there, by ranks per node."""

    gpu: str
    requests: Mapping[int, Sequence[Request]]


def _needs(config: str, overrides: Sequence[str], report: Report) -> _Needs:
    """Needs of a run config, of a search's, or of a serving or RL config. ConfigError lists every fault of it."""
    kind = kind_of(config)
    if kind == SERVING:
        server = load_serving(config, overrides).server
        ranks = server.cluster.gpus_per_node
        return _Needs(gpu=server.cluster.gpu.name, requests={ranks: requests_of_server(server)})
    if kind == RL:
        rl = load_rl(config, overrides)
        return _Needs(gpu=rl.base.cluster.gpu.name, requests=requests_of_rl(rl))
    runs = _searched(config, overrides, report) if stands_for_several(config, overrides) else [load(config, overrides)]
    return _Needs(gpu=runs[0].cluster.gpu.name, requests=requests_of_runs(runs))


def _searched(config: str, overrides: Sequence[str], report: Report) -> list[TrainingRun]:
    """The legal plans of a search's config; UserError where they are on several kinds of GPU, or there is none."""
    spaces = [legal_plans(question) for question in read_questions(config, overrides)]
    gpus = sorted({space.question.base.cluster.gpu.name for space in spaces})
    if len(gpus) > 1:
        raise UserError(f"{config}: its plans are on {' and '.join(gpus)}; choose one with --set cluster.hardware=NAME")
    runs = [space.run(row) for space in spaces for row in range(len(space.rows))]
    if not runs:
        raise UserError(f"{config}: none of its plans is legal; `predict search {config}` says why")
    report(f"{config}: the calls of {counted(len(runs), 'legal plan')}")
    return runs


def _run_configs(configs: Sequence[str], report: Report) -> list[str]:
    """The run configs among several files, once each; UserError where there is none. A single file is taken for one."""
    if len(configs) == 1:
        return [*configs]
    found = [config for config in dict.fromkeys(configs) if is_run_config(Path(config))]
    if not found:
        raise UserError(f"{', '.join(configs)}: none is a run config; `predict schema` describes one")
    for config in configs:
        if config not in found:
            report(f"{config}: passed over: it is not a run config")
    return found


def _hardware(wanted: str, named: Iterable[str]) -> str:
    """The name of the Gpu whose runs are meant; UserError where no run is on it, or several are possible."""
    there = sorted(named)
    if not wanted and len(there) == 1:
        return there[0]
    here = "" if wanted else _hardware_here()
    with naming("--hardware"):
        chosen = hardware_facts(wanted or here).name if wanted or here else ""
    if chosen in there:
        return chosen
    whose = f"--hardware {wanted}: {chosen} is none of" if wanted else "cluster.hardware: this machine is none of"
    raise UserError(f"{whose} {' and '.join(there)}, which the runs are on; name one of them with --hardware")


def _hardware_here() -> str:
    """This machine's hardware, '' where torch, which detects it, is not installed."""
    try:
        return detect_hardware()
    except ModuleNotFoundError:
        return ""
