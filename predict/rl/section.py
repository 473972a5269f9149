"""The `rl` section of a run config: everything of a step of reinforcement learning that the training run does not say."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import numpy as np

from predict.run.lengths import FORMS, MEDIANS, MIDDLES, MOST_SEQUENCES, PATTERN, real_lengths
from predict.run.plan import MOST_TOKENS
from predict.serving.server import PRECISIONS
from predict.serving.speculation import Speculation
from predict.serving.traffic import SEED
from regressors.features.arrays import Ints
from sampling.errors import ConfigError
from sampling.files.faults import Fault, nearest, shown
from sampling.files.places import shipped_json
from sampling.files.schema import Key, one_of
from sampling.number_text import as_given

COLOCATED: Final = "colocated"
ONE_STEP_OFF: Final = "one_step_off"
ASYNC: Final = "async"
CHUNKS: Final = "chunks"
LAYERS: Final = "layers"
NAME = "rl"
"""The name of the section."""
Count = Annotated[int, Key(minimum=0)]
Lengths = Annotated[str, Key(pattern=PATTERN, meaning=FORMS)]
Share = Annotated[float, Key(minimum=0.01, maximum=1)]


@dataclass(frozen=True, kw_only=True, slots=True)
class Algorithm:
    """The passes, in addition to generation and the actor's update, that an algorithm has where the config does not say."""

    reference: bool
    critic: bool = False


ALGORITHMS: Mapping[str, Algorithm] = {
    "grpo": Algorithm(reference=True),
    "ppo": Algorithm(reference=True, critic=True),
    "dapo": Algorithm(reference=False),
    "reinforce++": Algorithm(reference=True),
}
"""GRPO and REINFORCE++ have no critic, DAPO neither a critic nor a KL term (arXiv 2402.03300, 2501.03262, 2503.14476)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Rollout:
    """The engines that generate the responses."""

    tp: int = 1
    """Tensor-parallel GPUs of one engine (verl's GEN_TP)."""
    gpus: Count = 0
    """GPUs of all engines; 0 for those of the trainer, which a colocated placement shares."""
    expert_parallel: bool = False
    """Each GPU of an engine holds whole experts rather than a slice of each."""
    engine: str = "vllm-v1"
    """An engine of configs/engines."""
    step_model: Literal["kernels", "formula", "layers"] = "kernels"
    """The model of an engine's steps; `layers` is of whole layers in plain torch alone."""
    max_num_seqs: Count = 0
    """Most sequences that an engine runs at once; 0 for the engine's default."""
    max_num_batched_tokens: Count = 0
    """Most tokens of one step of an engine; 0 for the engine's default."""
    memory_share: Share = 0.5
    """Share of a GPU's memory that an engine takes (verl's gpu_memory_utilization, 0.5 by default)."""
    precision: Annotated[str, one_of(*PRECISIONS)] = "bf16"
    """Dtype of the engines' weights."""
    speculation: Speculation = field(default_factory=Speculation)
    """Drafts of further tokens, which one step verifies."""
    enforce_eager: bool = False
    """Steps are launched kernel by kernel, rather than as CUDA graphs (verl's enforce_eager)."""
    dispatch: Literal["in_turn", "chunks"] = "in_turn"
    """How responses are divided among engines: `in_turn`, one to each, as a server balances requests; `chunks`: whole prompts side by
    side, as a batch is cut by data parallelism."""
    kept_share: Share = 1.0
    """Share of the prompts that dynamic sampling keeps (DAPO); others are generated until enough are kept."""
    round_prompts: Count = 0
    """Prompts of one round of dynamic sampling (verl's gen_batch_size); 0 for those of a step."""
    partial: bool = False
    """Responses that are not done when new weights come are interrupted, and go on under these (partial rollout); with `async` alone."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ForwardPasses:
    """The computation of log-probabilities and values; 0 for as in the actor's update."""

    micro: Count = 0
    """Sequences of a microbatch."""
    max_tokens: Count = 0
    """Tokens of a microbatch per GPU of context parallelism, where microbatches are filled by tokens."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Reward:
    """The scoring of responses."""

    latency_s: Annotated[float, Key(minimum=0, maximum=1e6)] = 0.0
    """Seconds of one worker per response."""
    workers: int = 1
    """Responses that are scored at once."""
    overlaps: bool = True
    """Responses are scored as they end, while others are generated."""
    model: str = ""
    """A shipped model that scores responses in one pass on the trainer's GPUs and plan; none where it is empty."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Checkpoint:
    """Saving of the actor: weights, and the optimizer's master copy and two moments."""

    every: Count = 0
    """Steps from one to the next; 0 for none."""
    gb_per_s: Annotated[float, Key(minimum=0.001, maximum=1e6)] = 2.0
    """GB/s at which all ranks together write."""


@dataclass(frozen=True, kw_only=True, slots=True)
class WeightSync:
    """The transfer of new weights to the engines."""

    method: Literal["tensors", "buckets", "host"] = "tensors"
    """`tensors`: one tensor after the other, loaded by name; `buckets`: many gathered into one transfer, as a checkpoint engine does;
    `host`: in buckets from the host's memory, where they lie gathered."""
    wake_s: Annotated[float, Key(minimum=0, maximum=1e4)] = 0.0
    """Seconds in which the engines wake up and allocate their cache again."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RlSection:
    """The keys of the section `rl`."""

    algorithm: Annotated[str, one_of(*ALGORITHMS)] = "grpo"
    """grpo, ppo, dapo or reinforce++."""
    placement: Literal["colocated", "one_step_off", "async"] = COLOCATED
    """`colocated`: training and generation take turns on the same GPUs; `one_step_off`: on GPUs of their own, generation one step
    ahead; `async`: ahead by `staleness` steps."""
    staleness: Annotated[float, Key(minimum=0, maximum=64)] = 0.0
    """Steps by which generation may be ahead of training; with `async` alone, which at 0 generates and trains in turn, fetch by fetch."""
    fetches: int = 1
    """Parts in which an asynchronous trainer takes the samples of a step, each as soon as it is there; they divide the mini batches."""
    prompts: int
    """Prompts of a step (verl's train_batch_size)."""
    n: int = 1
    """Responses to each prompt."""
    prompt: Lengths
    """Lengths of prompts, in tokens."""
    prompt_max: Annotated[int, Key(maximum=MOST_TOKENS)]
    """Tokens to which prompts are cut, and padded where padding is kept."""
    response: Lengths
    """Lengths of responses, in tokens."""
    alike: Annotated[float, Key(minimum=0, maximum=1)] = 0.5
    """Share of the variance of response lengths that the responses to one prompt have in common: hard prompts have long
    ones. 0.5 is assumed."""
    draw: Count = 0
    """Seed with which lengths are drawn one by one; 0 for the quantiles of their distributions."""
    response_max: Annotated[int, Key(maximum=MOST_TOKENS)]
    """Tokens to which responses are cut, and padded where padding is kept."""
    mini_batch: Count = 0
    """Prompts of one optimizer step; 0 for all."""
    epochs: int = 1
    """Times that an update goes through the samples."""
    micro: int = 1
    """Sequences of a microbatch of an update, on one replica."""
    max_tokens: Count = 0
    """Tokens of a microbatch per GPU of context parallelism, where microbatches are filled by tokens; 0 for `micro` sequences."""
    padding: Literal["removed", "kept"] = "removed"
    """Whether a sequence takes its own tokens, or prompt_max + response_max."""
    reference: bool | None = None
    """Log-probabilities of a reference model for a KL term; null for what the algorithm usually has."""
    old_log_prob: bool = True
    """The trainer computes the log-probabilities of the responses again, rather than taking those of the engines."""
    offload: tuple[Literal["parameters", "optimizer", "reference"], ...] = ()
    """What lies in the host's memory between phases, any of: `parameters`, the weights of every model, reference and reward model too,
    with which gradient buffers are dropped; `optimizer`, its state; `reference`, the weights of the reference model alone."""
    passes: ForwardPasses = field(default_factory=ForwardPasses)
    """Microbatches of the passes without a backward."""
    rollout: Rollout = field(default_factory=Rollout)
    """The engines."""
    reward: Reward = field(default_factory=Reward)
    """Scoring of the responses."""
    critic: str = ""
    """A shipped model whose shape the critic has; empty for the actor's. Its head gives one value per token."""
    checkpoint: Checkpoint = field(default_factory=Checkpoint)
    """Saving of the actor, spread over the steps between."""
    weight_sync: WeightSync = field(default_factory=WeightSync)
    """The transfer of new weights to the engines."""
    unknown: tuple[str, ...] = ()
    """Keys of this config whose values are guesses; answers mark them."""

    def contradictions(self) -> Iterator[Fault]:
        if self.samples > MOST_SEQUENCES:
            problem = f"{self.prompts} with n {self.n} make {self.samples:,} responses, more than the {MOST_SEQUENCES:,} that are laid out; give fewer"
            yield Fault(path="prompts", problem=problem)
        if self.mini_batch and self.prompts % self.mini_batch:
            yield Fault(
                path="mini_batch",
                problem=f"{self.mini_batch} does not divide the {self.prompts} prompts; give one that does, or 0 for all",
            )
        if self.staleness and self.placement != ASYNC:
            yield Fault(
                path="staleness", problem=f"{as_given(self.staleness)} needs placement: async; set that, or omit it"
            )
        yield from self._contradictions_of_fetches()
        if self.critic and not self.has_critic:
            yield Fault(path="critic", problem=f"{self.algorithm} has none; set algorithm: ppo, or omit it")
        if self.rollout.partial and not (self.placement == ASYNC and self.staleness):
            problem = "true needs placement: async and a staleness above 0; set both, or omit it"
            yield Fault(path="rollout.partial", problem=problem)
        apart = self.placement != COLOCATED
        if apart != bool(self.rollout.gpus):
            fix = "give the GPUs of the engines" if apart else "omit it: engines share the trainer's GPUs"
            yield Fault(path="rollout.gpus", problem=f"{self.rollout.gpus} with placement: {self.placement}; {fix}")
        if self.rollout.gpus % self.rollout.tp:
            problem = f"{self.rollout.gpus} GPUs do not divide into engines of tp {self.rollout.tp}; change one of them"
            yield Fault(path="rollout.gpus", problem=problem)
        if self.max_tokens and self.padding == "kept":
            problem = (
                f"{self.max_tokens} fills microbatches by tokens, which needs padding: removed; set that, or omit it"
            )
            yield Fault(path="max_tokens", problem=problem)
        yield from self._contradictions_of_passes()

    def _contradictions_of_fetches(self) -> Iterator[Fault]:
        if self.fetches == 1:
            return
        if self.placement != ASYNC:
            yield Fault(path="fetches", problem=f"{self.fetches} needs placement: async; set that, or omit it")
        mini_batches = self.prompts // (self.mini_batch or self.prompts)
        if mini_batches % self.fetches:
            problem = f"{self.fetches} do not divide the {mini_batches} mini batches of a step; give fewer, or a smaller mini_batch"
            yield Fault(path="fetches", problem=problem)

    def _contradictions_of_passes(self) -> Iterator[Fault]:
        if self.passes.max_tokens and self.padding == "kept":
            problem = f"{self.passes.max_tokens} fills microbatches by tokens, which needs padding: removed; set that, or omit it"
            yield Fault(path="passes.max_tokens", problem=problem)
        if self.passes.micro and (self.passes.max_tokens or self.max_tokens):
            problem = f"{self.passes.micro} sequences, where max_tokens fills microbatches by tokens; omit one of them"
            yield Fault(path="passes.micro", problem=problem)

    @property
    def ahead(self) -> float:
        """Steps of samples that engines may have made of older weights when a step begins."""
        return {COLOCATED: 0.0, ONE_STEP_OFF: 1.0}.get(self.placement, self.staleness)

    @property
    def samples(self) -> int:
        """Responses that a step trains on."""
        return self.prompts * self.n

    @property
    def optimizer_steps(self) -> int:
        return self.prompts // (self.mini_batch or self.prompts) * self.epochs

    @property
    def longest(self) -> int:
        """Tokens of a padded sequence."""
        return self.prompt_max + self.response_max

    @property
    def has_reference(self) -> bool:
        usual = ALGORITHMS[self.algorithm].reference
        return usual if self.reference is None else self.reference

    @property
    def has_critic(self) -> bool:
        return ALGORITHMS[self.algorithm].critic


FINER = 64
"""Quantiles per length that is drawn, so that the longest may be longer than the last quantile of a step."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Samples:
    """One element per response, those to one prompt side by side."""

    prompt: Ints
    """Tokens of the prompt."""
    response: Ints
    """Tokens of the response."""
    clipped: int
    """Responses that are as long as they may be."""

    @property
    def sequences(self) -> Ints:
        """Tokens of prompt and response, ascending."""
        lengths: Ints = np.sort(self.prompt + self.response)
        return lengths

    @property
    def tokens(self) -> int:
        return int(self.prompt.sum() + self.response.sum())


def samples_of(section: RlSection, folder: Path, faults: list[Fault]) -> Samples | None:
    """The quantiles of both distributions, or with `draw` lengths drawn from them, cut to their longest; which response answers which
    prompt is drawn too, with a fixed seed or the seed of `draw`.

    The path of a file of lengths starts in `folder`; what cannot be read joins the faults, and there are then no samples.
    """
    draw = np.random.default_rng(section.draw or SEED)
    drawn, counts = draw if section.draw else None, {"prompt": section.prompts, "response": section.samples}
    lengths: dict[str, Ints] = {}
    for key, count in counts.items():
        try:
            lengths[key] = _lengths(getattr(section, key), count, folder, drawn)
        except ConfigError as error:
            faults.append(Fault(path=f"{NAME}.{key}", problem=str(error)))
    if len(lengths) < len(counts):
        return None
    prompts = np.minimum(lengths["prompt"], section.prompt_max)
    responses = np.minimum(lengths["response"], section.response_max)
    return Samples(
        prompt=np.repeat(draw.permutation(prompts), section.n).astype(np.int64),
        response=responses[_ranks(draw, section)].astype(np.int64),
        clipped=int((responses == section.response_max).sum()),
    )


def _lengths(text: str, count: int, folder: Path, drawn: np.random.Generator | None) -> Ints:
    """`count` lengths of a distribution, ascending."""
    if drawn is None:
        # the lengths of a file are those of a step that was run
        return np.array(real_lengths(text, count, folder, at=MIDDLES if text.startswith("file:") else MEDIANS))
    return np.sort(drawn.choice(real_lengths(text, min(MOST_SEQUENCES, FINER * count), folder), count))


def _ranks(draw: np.random.Generator, section: RlSection) -> Ints:
    """The rank of each response's length among all; those to one prompt share `alike` of the variance of what they are ranked by."""
    of_prompt = np.repeat(draw.standard_normal(section.prompts), section.n)
    own = draw.standard_normal(section.samples)
    order = np.argsort(np.sqrt(section.alike) * of_prompt + np.sqrt(1 - section.alike) * own)
    ranks: Ints = np.empty(len(order), dtype=np.int64)
    ranks[order] = np.arange(len(order))
    return ranks


# verl's argument names, which an RL config may use in place of the keys they stand for, dotted or as verl's own YAML nests them.

ROOTS = ("data", "actor_rollout_ref", "algorithm", "critic", "trainer", "async_training")
"""Sections of verl's configuration."""
ESTIMATORS: Mapping[str, str] = {"gae": "ppo", "grpo": "grpo", "reinforce_plus_plus": "reinforce++"}
"""verl's adv_estimator → algorithm."""


def _estimator(value: Any) -> Any:
    return ESTIMATORS.get(value, value) if isinstance(value, str) else value


def _padding(removed: Any) -> Any:
    return ("removed" if removed else "kept") if isinstance(removed, bool) else removed


_NAMES = shipped_json("verl-names.json")
VERL: Mapping[str, str] = _NAMES["names"]
"""verl's name → the key it stands for."""
CONVERSIONS: Mapping[str, Callable[[Any], Any]] = {
    "algorithm.adv_estimator": _estimator,
    "actor_rollout_ref.model.use_remove_padding": _padding,
}
"""verl's name → the conversion of its value, where that is not the key's."""
SIMILAR = frozenset(_NAMES["similar"])
"""Names of verl's that are not read and could be taken for misspelt ones that are (its generated reference configs at
00bbce4 and 035682e)."""


def resolved(path: str, value: Any) -> tuple[str, Any]:
    """The key and value that a name of verl's stands for; another name as it is."""
    if path not in VERL:
        return path, value
    return VERL[path], CONVERSIONS[path](value) if path in CONVERSIONS else value


def fault_of(path: str, value: Any) -> Fault | None:
    """The fault of a name under verl's sections that is not read: a misspelt one, or a value in place of a section. None for another,
    which changes nothing here."""
    above, _, name = path.rpartition(".")
    if not above:
        return Fault(path=path, problem=f"{shown(value)} is not a mapping; give verl's keys of {path}, or remove it")
    beside = [known.rpartition(".")[2] for known in VERL if known.rpartition(".")[0] == above]
    whole = [f"{above}.{each}" for each in nearest(name, beside)]
    near = "" if path in SIMILAR or not whole else f"; did you mean {' or '.join(map(repr, whole))}?"
    return Fault(path=path, problem=f"verl's argument is not read here{near} If not, remove it") if near else None


def leaves(values: Mapping[Any, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """The dotted paths of a nested mapping, and their values."""
    for name, value in values.items():
        path = f"{above}.{name}" if above else str(name)
        if isinstance(value, Mapping):
            yield from leaves(value, path)
        else:
            yield path, value
