"""A training run: everything a prediction depends on."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Annotated, Any

from predict.kinds import TRAINING, LoadedRun
from predict.model.patches import Patches
from predict.model.shipped import notes_on_name
from predict.model.spec import ModelSpec
from predict.run.adapters import NOTHING_TRAINED, Adapters
from predict.run.calibration_terms import Posterior
from predict.run.execution import Execution
from predict.run.lengths import PACKED, LikeLengths, RealSequences
from predict.run.offload import Offload
from predict.run.plan import Batch, Plan
from predict.run.tuning import Tuning
from predict.run.vision import ALL, NONE, Vision
from predict.schedules import registry
from predict.schedules.building import Schedule
from predict.schedules.engine.order import Order
from predict.schedules.order_files import is_order_file
from sampling.errors import ConfigError
from sampling.files.schema import one_of
from sampling.hardware.cluster import BLOCK_SCALED_BYTES, ELEMENT_BYTES, Cluster, notes_on_trays

SHARDED_GRADIENTS = 2
"""ZeRO stage from which on gradients are reduced, and go to the host, layer by layer."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingRun(LoadedRun):
    """model × cluster × plan × batch, in one precision. `name` is the config file's stem."""

    kind = TRAINING
    name: str
    model: ModelSpec
    """The model: the name of a shipped one, the path of a Hugging Face config.json, or its keys."""
    cluster: Cluster
    """The machines: the name of a shipped cluster, the path of a YAML file with these keys, or the keys themselves."""
    plan: Plan
    """How the run is spread over the ranks."""
    batch: Batch
    """The sequences of one step."""
    precision: Annotated[str, one_of(*ELEMENT_BYTES)]
    """Dtype of weights and activations; with tf32, fp8, nvfp4 and mxfp4 the dtype of the layers' matrix products."""
    execution: Execution = field(default_factory=Execution)
    """How a framework runs the plan."""
    adapters: Adapters = field(default_factory=Adapters)
    """What is trained beside frozen weights."""
    offload: Offload = field(default_factory=Offload)
    """What lies in the host's memory, or on its disks."""
    tuning: Tuning = field(default_factory=Tuning)
    """What a step runs beside the pass that trains."""
    vision: Vision = field(default_factory=Vision)
    """The images of its sequences."""
    teacher: ModelSpec | None = field(default=None, repr=False)
    """The model that `tuning.teacher` names."""
    order: Order | None = field(default=None, repr=False)
    """The order in the file that `plan.schedule` names, read with the config; None for a registered schedule."""
    calibration: Posterior | None = field(default=None, repr=False)
    """The terms that its settings were multiplied by, and what they rest on; None for stated priors alone."""
    real: RealSequences | None = field(default=None, repr=False)
    """The sequences whose rows `batch` has; None where all are as long as a row."""
    spread: Plan | None = field(default=None, repr=False)
    """The plan whose replicas and shards the ranks form, of a part whose weights and tokens `plan` divides in another way; None for a
    whole run, which `plan` spreads too."""
    lone_passes: float | None = field(default=None, repr=False)
    """`lone_share` of a part that has neither the pipeline nor the microbatches of its run; None for a whole run."""
    model_keys: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)
    """The keys of the model's `config.json` as given, for conventions that read them; none where the run has only a shape."""
    model_given_as: str = field(default="", repr=False, compare=False)
    """The name or path of the model as the config gives it; empty for its keys."""
    given: frozenset[str] = field(default=frozenset(), repr=False, compare=False)
    """Key paths that the config gives a value, rather than a default; none where the run was not read from a config."""

    @property
    def notes(self) -> list[str]:
        """Notes on the model's name and on the nodes, for which a config may say something else than its writer means."""
        return [*notes_on_name(self.model_given_as), *notes_on_trays(self.cluster)]

    @property
    def schedule(self) -> Schedule:
        """The plan's schedule. ConfigError for `best`, which only stage times can choose."""
        name = self.plan.schedule
        if self.order is not None and is_order_file(name):
            return registry.of_order(name, self.order)
        return registry.get(name)

    @property
    def sequences(self) -> Mapping[int, int]:
        """Length of a sequence → how many a step has."""
        return dict(self.real.counts) if self.real else {self.batch.seq_len: self.batch.global_}

    @property
    def attended(self) -> tuple[LikeLengths, ...]:
        """The sequences of several lengths that attention sees; () where it sees rows of `batch.seq_len`. Unfused attention computes
        packed rows whole, and masks what lies between their sequences."""
        if self.real is None or (self.batch.padding == PACKED and self.execution.attention == "unfused"):
            return ()
        return self.real.attended

    @property
    def with_longest_row(self) -> TrainingRun:
        """The run with every row as long as the longest, which the memory must hold."""
        if self.real is None or self.real.longest_row == self.batch.seq_len:
            return self
        return replace(self, batch=replace(self.batch, seq_len=self.real.longest_row))

    @property
    def taught_by(self) -> TrainingRun | None:
        """The teacher on the same machines and plan, frozen; None without one."""
        if self.teacher is None:
            return None
        return replace(
            self.without_backward, model=self.teacher, adapters=Adapters(), tuning=Tuning(), teacher=None, model_keys={}
        )

    @property
    def without_backward(self) -> TrainingRun:
        """The run as a pass without a backward has its layers: no activations go to the host, and no microbatch's backward is there to
        hide another one's exchange."""
        offload, execution = self.offload, self.execution
        if offload.activation_share:
            offload = replace(offload, activation_share=0.0)
        if execution.overlap_ep == "microbatch":
            execution = replace(execution, overlap_ep="none")
        if offload is self.offload and execution is self.execution:
            return self
        return replace(self, offload=offload, execution=execution)

    @property
    def is_text_alone(self) -> bool:
        """Whether its model has a tower that its sequences leave out."""
        return self.model.tower is not None and self.tower is None

    @property
    def tower(self) -> TrainingRun | None:
        """The vision tower's run over the images of the sequences, frozen where it is not trained, or the encoder's over its own; None
        without any.

        Each image is a sequence. Tensor parallelism divides the tower where its heads and widths divide, and otherwise every rank has it
        whole; sequence and context parallelism do not (Megatron-LM, examples/multimodal). Its replicas and shards are over the text's
        groups of ranks. Its products stay wide.
        """
        tower, vision = self.model.tower, self.vision
        if tower is None or tower.patches is None:
            return None
        many, tokens = read_by(tower.patches, self.batch, vision)
        if not many:
            return None
        divides = tower.heads % self.plan.tp == 0 and tower.ffn % self.plan.tp == 0
        is_narrow = self.precision == "fp8" or self.precision in BLOCK_SCALED_BYTES
        read = Batch(
            global_=self.batch.global_ * many,
            micro=self.batch.micro * many,
            seq_len=tower.patches.length(tokens),
        )
        # adapters are the encoder's too, and none of a vision tower's
        of_all = self.adapters if self.model.is_encoder_decoder else Adapters()
        return replace(
            self if vision.trained == ALL else self.without_backward,
            model=tower.with_wide_ends(tower.layers * is_narrow, 0),
            plan=replace(self.plan, tp=self.plan.tp if divides else 1, sp=False, cp=1, ep=1, etp=1),
            spread=self.plan,
            batch=read,
            adapters=of_all if vision.trained == ALL else NOTHING_TRAINED,
            tuning=Tuning(),
            vision=Vision(),
            teacher=None,
            real=None,
            model_keys={},
        )

    @property
    def attends_to_frozen(self) -> bool:
        """Whether layers attend to what a frozen tower or encoder makes, which takes no gradient of it."""
        return self.model.encoder is not None and self.vision.trained == NONE

    @property
    def projector(self) -> TrainingRun | None:
        """The tower's run as its projectors have it, which may be trained alone."""
        tower = self.tower
        return tower and (tower if self.vision.trained in (ALL, NONE) else replace(tower, adapters=Adapters()))

    @property
    def sheds_gradients(self) -> bool:
        """Whether gradients go to the host as they are reduced, layer by layer, which they are from ZeRO-2 on."""
        return self.offload.gradients_on_host and self.plan.zero >= SHARDED_GRADIENTS

    @property
    def microbatches(self) -> int:
        return self.batch.microbatches(self.plan.dp)

    @property
    def lone_share(self) -> float:
        """The share of a step's forwards that run before any backward is there to run beside them; of its backwards at the end alike.

        A step is as long as m + (p - 1) / v forwards and backwards of a stage, of which p of each have no other beside them: until the last
        stage has its first backward, and after it has its last forward (Megatron-Core, combined_1f1b.py: without a pipeline the first
        forward and the last backward run alone). All are alone where a schedule has all its forwards first.
        """
        if self.lone_passes is not None:
            return self.lone_passes
        ranks, chunks = self.plan.pp, self.plan.vpp
        if self.schedule.forwards_first:
            return 1.0
        return min(1.0, ranks * chunks / (self.microbatches * chunks + ranks - 1))


def read_by(patches: Patches, batch: Batch, vision: Vision) -> tuple[int, int]:
    """Images, or sequences of an encoder, beside each sequence, and the tokens that one becomes."""
    if patches.of_sequences:
        return 1, batch.encoder_seq_len or patches.tokens
    return vision.images, vision.image_tokens or patches.tokens


# One replica of a plan: the ranks that everything but data parallelism spreads over.


@dataclass(frozen=True, kw_only=True, slots=True)
class Replica:
    """GPUs of the smallest whole copy of a plan, its experts included; whether they fit in memory is another matter."""

    gpus: int
    dp: int
    """Data-parallel ranks of attention in it: above 1 only where experts spread over more ranks than attention does."""
    folded: bool
    """Experts share the ranks of attention."""
    unfolded_gpus: int
    """GPUs with experts on ranks of their own, as in plans without parallel folding."""


def one_replica(run: TrainingRun) -> Replica:
    """tp · pp · cp for a dense model; with experts, the least that both tp · cp and etp · ep tile (Liu et al., MoE Parallel
    Folding, arXiv 2504.14960)."""
    plan = run.plan
    attention, experts = plan.tp * plan.cp, plan.etp * plan.ep
    ranks = math.lcm(attention, experts)
    return Replica(
        gpus=plan.pp * ranks,
        dp=ranks // attention,
        folded=experts > 1,
        unfolded_gpus=plan.pp * attention * plan.ep,
    )


SECTIONS = ("plan", "batch", "execution")
OF_FEW_MODELS = ("encoder_seq_len",)
"""Keys that only some models have, which are no setting of others."""


def settings_of(run: TrainingRun) -> dict[str, Any]:
    """Key path → value of a run's settings, the model and the cluster by their names."""
    keys = {
        f"{section}.{name.rstrip('_')}": value
        for section in SECTIONS
        for name, value in asdict(getattr(run, section)).items()
        if value or name not in OF_FEW_MODELS
    }
    cluster = run.cluster
    return {
        "model": run.model.name,
        "cluster.hardware": cluster.gpu.name,
        "cluster.nodes": cluster.nodes,
        "cluster.gpus_per_node": cluster.gpus_per_node,
        "cluster.profile": cluster.profile,
        "precision": run.precision,
        **keys,
    }


# The same run on another number of nodes: more or fewer replicas share the same global batch.

NAMED = 2
"""Node counts, below and above, that an error offers."""


def settings_for_nodes(run: TrainingRun, nodes: int) -> list[str]:
    """The settings that put a run on another number of nodes. ConfigError if its ranks or its batch do not divide."""
    if nodes < 1:
        raise ConfigError(f"--target-nodes: {nodes} is not a positive number; give 1 or more")
    reason = _why_not(run, nodes)
    if reason:
        fitting = _nearest(run, nodes)
        offer = f"give {' or '.join(map(str, fitting))}" if fitting else "no number of nodes does; change plan or batch"
        raise ConfigError(f"--target-nodes: {nodes}: {reason}; {offer}")
    return [f"cluster.nodes={nodes}", f"plan.dp={nodes * run.cluster.gpus_per_node // _model_ranks(run)}"]


def _model_ranks(run: TrainingRun) -> int:
    return run.plan.tp * run.plan.pp * run.plan.cp


def _why_not(run: TrainingRun, nodes: int) -> str:
    plan, batch = run.plan, run.batch
    ranks, world = _model_ranks(run), nodes * run.cluster.gpus_per_node
    if world % ranks:
        return f"{world} ranks are not a multiple of tp · pp · cp = {ranks}"
    dp = world // ranks
    if plan.tp * plan.cp * dp % (plan.ep * plan.etp):
        return f"ep · etp = {plan.ep * plan.etp} does not divide the tp · cp · dp = {plan.tp * plan.cp * dp} ranks of a stage"
    if batch.global_ % (batch.micro * dp):
        return (
            f"batch.global = {batch.global_} is not a multiple of batch.micro · dp = {batch.micro} · {dp} (or, with --set "
            f"batch.global={_multiple(batch.global_, batch.micro * dp)}, it is)"
        )
    return ""


def _multiple(value: int, of: int) -> int:
    return max(1, round(value / of)) * of


def _nearest(run: TrainingRun, nodes: int) -> list[int]:
    """The nearest fitting node counts below and above, at most NAMED of each; a replica count divides batch.global / micro."""
    ranks, per_node, sequences = _model_ranks(run), run.cluster.gpus_per_node, run.batch.global_ // run.batch.micro
    counts = {
        ranks * dp // per_node for dp in range(1, sequences + 1) if sequences % dp == 0 and ranks * dp % per_node == 0
    }
    fitting = sorted(count for count in counts if not _why_not(run, count))
    below, above = [count for count in fitting if count < nodes], [count for count in fitting if count > nodes]
    return [*below[-NAMED:], *above[:NAMED]]
