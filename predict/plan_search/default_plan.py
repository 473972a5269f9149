"""A run config for a model on some GPUs, where nobody has written one: the plan that a framework's user tries first.

The rule is `predict.plan_search.default_plan`; `_plans` lists the plans in its order, and the first that fits is taken.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from predict.config.document import Document
from predict.config.load import load, model_of
from predict.config.overrides import parse_overrides
from predict.memory.estimate import MemoryEstimate, memory_of
from predict.model.shipped import name_of_file
from predict.model.spec import ModelSpec
from predict.run.plan import BEST
from predict.run.training_run import TrainingRun
from sampling.errors import ConfigError, InfeasibleError, UserError
from sampling.files.faults import near_multiples, shown
from sampling.hardware.cluster import hardware_facts
from sampling.number_text import gib

# A number of GPUs in a word, such as `64xh100`, and the nodes that hold them.

OPTION = "--gpus"
FORM = re.compile(r"(?i)\s*([1-9]\d{0,6})\s*[x×*]\s*(\S.*?)\s*")
"""At most seven digits: more GPUs than anyone has."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Gpus:
    """GPUs of one kind, on whole nodes of the usual size or on a part of one."""

    hardware: str
    """Entry of configs/hardware, an alias such as h100, or the path of a file."""
    count: int
    node: int
    """GPUs that are usual in a node."""

    @property
    def nodes(self) -> int:
        return max(1, self.count // self.node)

    @property
    def per_node(self) -> int:
        return self.count // self.nodes

    def twice(self) -> Gpus:
        """Twice as many; the next whole node, where that is in between."""
        return replace(self, count=self.node if self.count < self.node < 2 * self.count else 2 * self.count)

    def __str__(self) -> str:
        return f"{self.count}x{self.hardware}"


def parse_gpus(text: str) -> Gpus:
    """The GPUs of `64xh100`. UserError for another form, unknown hardware, or a count that no whole nodes make."""
    found = FORM.fullmatch(text)
    if found is None:
        raise UserError(f"{OPTION}: {shown(text)} is not a number of GPUs; write NUMBERxHARDWARE, as in 64xh100")
    count, hardware = int(found[1]), found[2]
    try:
        facts = hardware_facts(hardware)
    except ConfigError as error:
        raise UserError(f"{OPTION}: {error}") from None
    # the ranks that share a CPU are as many as are asked for
    node = count if facts.kind == "cpu" else facts.gpus_per_node
    if count > node and count % node:
        raise UserError(
            f"{OPTION}: {count} {hardware} do not fill nodes of {node}; give {near_multiples(count, node)}, or write a config "
            "with cluster.gpus_per_node"
        )
    return Gpus(hardware=hardware, count=count, node=node)


# The rule by which a plan is chosen where nobody has written one, in words, and its figures.

RULE = (
    "the smallest tp · pp that fits in memory; tp inside a node, with sequence parallelism; experts over as many ranks of a node as "
    "they divide among, over more nodes only where that does not fit; the rest data-parallel with ZeRO-1; 1F1B; microbatches of one "
    "sequence; full recomputation only where nothing fits without it"
)
TOKENS_PER_STEP = 4 * 2**20
"""The global batch of Llama 2 (arXiv 2307.09288, table 1: 4M tokens), in whole sequences per replica."""
LONGEST_SEQUENCE = 8192
"""The sequences of Llama 3's pre-training (arXiv 2407.21783, section 3.2), or as many positions as the model has, if fewer."""
MOST_GPUS = 2**17
"""GPUs up to which a number is sought that would do."""


def default_config(model: str, gpus: str, *, batch: int | None = None, overrides: Sequence[str] = ()) -> Document:
    """The config of the plan that a framework's user tries first, for a model, by its name or config.json's path, on GPUs such as
    `64xh100`; `as_yaml()` writes it.

    `batch` is the sequences of a step; `overrides` are settings that the plan is chosen around: give them to
    `one_batch` too. UserError for an unknown model or hardware and for settings that no plan of the rule keeps;
    InfeasibleError, with the number of GPUs that would do, where none fits.
    """
    wanted = parse_gpus(gpus)
    given = ({"batch.global": batch} if batch else {}) | _given(overrides)
    spec = _spec(model, wanted, overrides)
    found, smallest = _first_fitting(model, spec, wanted, given, overrides)
    if found is not None:
        return found

    def fits(more: Gpus) -> bool:
        try:
            return _first_fitting(model, spec, more, given, overrides)[0] is not None
        except ConfigError:
            return False

    enough = _enough(wanted, fits)
    fix = f"give {enough}" if enough else "take a device with more memory"
    need = f": even the plan that needs least takes {_in_words(smallest)}" if smallest else ""
    raise InfeasibleError(f"{OPTION}: {spec.name} does not fit on {wanted}{need}; {fix}")


def open_config(model: str, gpus: str, *, batch: int | None = None, overrides: Sequence[str] = ()) -> Document:
    """The config of a model on GPUs with the rule's sequences and precision, and its plan left open."""
    wanted = parse_gpus(gpus)
    spec = _spec(model, wanted, [text for text in overrides if not text.startswith("plan")])
    given = {"batch.global": batch} if batch else {}
    sequences = _batch(spec, {"dp": wanted.count}, given)
    return _document(model, wanted, plan={}, batch={key: value for key, value in sequences.items() if key != "micro"})


def _enough(short: Gpus, fits: Callable[[Gpus], bool]) -> Gpus | None:
    """A number of GPUs that fit, by doubling and then by halving the gap in whole nodes; None up to MOST_GPUS. Fewer may fit where
    a number between does not, since degrees must divide it."""
    enough = short.twice()
    while not fits(enough):
        if enough.count > MOST_GPUS:
            return None
        short, enough = enough, enough.twice()
    while enough.nodes - short.nodes > 1:
        middle = replace(short, count=(short.nodes + enough.nodes) // 2 * short.node)
        short, enough = (short, middle) if fits(middle) else (middle, enough)
    return enough


def _given(overrides: Sequence[str]) -> dict[str, int]:
    """Key path → value of the settings that are counts; loading reports what is wrong with others."""
    settings = parse_overrides(overrides)[0]
    return {setting.path: setting.value for setting in settings if type(setting.value) is int and setting.value > 0}


def _spec(model: str, gpus: Gpus, overrides: Sequence[str]) -> ModelSpec:
    """The model; ConfigError for a name or key of it that is wrong."""
    of_model = [text for text in overrides if text.startswith("model")]
    alone = _document(model, replace(gpus, count=1), plan={}, batch={"global": 1, "micro": 1, "seq_len": 1})
    return model_of(alone, of_model)


def _first_fitting(
    model: str, spec: ModelSpec, gpus: Gpus, given: Mapping[str, int], overrides: Sequence[str]
) -> tuple[Document | None, MemoryEstimate | None]:
    """The first config that fits, or None; and the memory of the one that needs least, where none fits.

    ConfigError where the settings leave no plan, or the rules of a config refuse every one, with the faults of the first.
    """
    refusal: ConfigError | None = None
    needs: list[MemoryEstimate] = []
    for plan in _plans(spec, gpus, given):
        document = _document(model, gpus, plan=plan, batch=_batch(spec, plan, given))
        try:
            memory = _memory(load(document, overrides))
        except ConfigError as error:
            refusal = refusal or error
            continue
        if memory.verdict == "FITS":
            return document, None
        needs.append(memory)
    if not needs:
        degrees = ", ".join(f"{key}={value}" for key, value in given.items() if key.startswith("plan."))
        raise refusal or ConfigError(f"{OPTION}: {gpus} do not divide among {degrees}; change either")
    return None, min(needs, key=lambda memory: memory.upper_bytes)


def _in_words(memory: MemoryEstimate) -> str:
    """`158.7 GiB of each GPU's 79.6 GiB, and with a probability of 95 % no more than 168.8 GiB`."""
    sizes = (memory.point_bytes, memory.upper_bytes, memory.capacity_bytes)
    peak, upper, capacity = (gib(size) for size in sizes)
    return f"{peak} GiB of each GPU's {capacity} GiB, and with a probability of 95 % no more than {upper} GiB"


def _memory(run: TrainingRun) -> MemoryEstimate:
    """The memory of a run; of one whose schedule time is to choose, under 1F1B."""
    schedule = "1f1b" if run.plan.schedule == BEST else run.plan.schedule
    return memory_of(replace(run, plan=replace(run.plan, schedule=schedule)))


def _plans(spec: ModelSpec, gpus: Gpus, given: Mapping[str, int]) -> Iterator[dict[str, Any]]:
    """The plans of the rule, the first choice first. A degree that is given stays."""
    cp = given.get("plan.cp", 1)
    degrees = [
        (tp, pp, ep)
        for tp in _tensor(gpus, given)
        for pp in _pipeline(spec, gpus, given)
        if gpus.count % (tp * pp * cp) == 0
        for ep in _experts(spec, gpus.count // pp, gpus.per_node, given)
    ]
    degrees.sort(key=lambda each: _preference(*each, in_node=gpus.per_node))
    for recompute in ("none", "full"):
        for tp, pp, ep in degrees:
            dp = gpus.count // (tp * pp * cp)
            plan = {"tp": tp, "sp": tp > 1, "pp": pp, "dp": dp, "ep": ep, "zero": int(dp * cp > 1)}
            yield plan | {"schedule": "1f1b", "recompute": recompute}


def _preference(tp: int, pp: int, ep: int, *, in_node: int) -> tuple[bool, int, int, int]:
    """The key that sorts degrees: of equal tp · pp the one with fewer pipeline ranks, which idle less."""
    return ep > in_node, tp * pp, pp, ep


def _tensor(gpus: Gpus, given: Mapping[str, int]) -> list[int]:
    if "plan.tp" in given:
        return [given["plan.tp"]]
    return [2**power for power in range(gpus.per_node.bit_length()) if gpus.per_node % 2**power == 0]


def _pipeline(spec: ModelSpec, gpus: Gpus, given: Mapping[str, int]) -> list[int]:
    if "plan.pp" in given:
        return [given["plan.pp"]]
    return [pp for pp in range(1, min(gpus.count, spec.layers) + 1) if gpus.count % pp == 0]


def _experts(spec: ModelSpec, ranks: int, in_node: int, given: Mapping[str, int]) -> list[int]:
    """The widest spread of experts inside a node, and those over more nodes, among the ranks of a pipeline stage."""
    if "plan.ep" in given or spec.experts is None:
        return [given.get("plan.ep", 1)]
    spreads = [ep for ep in range(1, min(ranks, spec.experts.count) + 1) if ranks % ep == 0 == spec.experts.count % ep]
    inside = max(ep for ep in spreads if ep <= in_node)
    return [inside, *(ep for ep in spreads if ep > in_node)]


def _batch(spec: ModelSpec, plan: Mapping[str, Any], given: Mapping[str, int]) -> dict[str, Any]:
    micro = given.get("batch.micro", 1)
    seq_len = given.get("batch.seq_len", min(LONGEST_SEQUENCE, spec.max_positions or LONGEST_SEQUENCE))
    together = plan["dp"] * micro
    sequences = max(1, round(TOKENS_PER_STEP / seq_len / together)) * together
    return {"global": given.get("batch.global", sequences), "micro": micro, "seq_len": seq_len}


def _document(model: str, gpus: Gpus, *, plan: Mapping[str, Any], batch: Mapping[str, Any]) -> Document:
    facts = hardware_facts(gpus.hardware)
    return Document(
        name=f"{_stem(model)}-{gpus.count}x{_stem(gpus.hardware)}",
        content={
            "model": _from_anywhere(model),
            "cluster": {
                "hardware": _from_anywhere(gpus.hardware),
                "nodes": gpus.nodes,
                "gpus_per_node": gpus.per_node,
                **({"node_size": gpus.node} if 1 < gpus.per_node < gpus.node else {}),
            },
            "plan": plan,
            "batch": batch,
            "precision": "bf16" if facts.kind != "cpu" else "fp32",
        },
        sources={"": f"--model {model} {OPTION} {gpus}", "model": "--model", "cluster": OPTION},
    )


def _is_path(name: str) -> bool:
    return Path(name).suffix.lower() in (".json", ".yml", ".yaml")


def _stem(name: str) -> str:
    """The last part of a name, whose points are those of a version, or of a path."""
    return name_of_file(Path(name)) if _is_path(name) else Path(name).name


def _from_anywhere(name: str) -> str:
    """A name, or a path that means the same from any folder."""
    return os.path.abspath(name) if _is_path(name) else name  # noqa: PTH100  (resolve() reads the disk, and fails on odd names)
