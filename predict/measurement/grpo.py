"""One step of GRPO in plain torch: generation, rewards, log-probabilities, the policy's update, and the copy of its weights."""

import importlib.metadata
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.optim import AdamW

from predict.measurement.decoder import DTYPES, SEED, Attention, Block, Decoder, rotate
from predict.measurement.reference_calls import ReferenceTimes
from predict.measurement.system_noise import Usage
from predict.model.spec import ModelSpec
from predict.rl.config import RlRun, load_rl


class Generator:
    """A model that generates, and the cache of its layers."""

    def __init__(self, model: Decoder, spec: ModelSpec, *, sequences: int, longest: int) -> None:
        self.model = model
        self.longest = longest
        weight = next(model.parameters())
        shape = (2, sequences, spec.kv_heads, longest, spec.head_dim)
        self.caches = [torch.zeros(shape, dtype=weight.dtype) for _ in model.layers]

    @torch.no_grad()
    def generate(self, prompts: Tensor, lengths: Sequence[int]) -> Tensor:
        """Tokens [sequences, longest] of prompts [sequences, prompt] and responses of these lengths, which must descend.

        A response ends at its length: which tokens end one is the load, not the model's choice.
        """
        count, prompt = prompts.shape
        tokens = torch.zeros(count, self.longest, dtype=torch.long)
        tokens[:, :prompt] = prompts
        tokens[:, prompt : prompt + 1] = self._next(prompts, 0)
        active = count
        for place in range(prompt, prompt + lengths[0] - 1):
            while lengths[active - 1] <= place - prompt + 1:
                active -= 1
            tokens[:active, place + 1 : place + 2] = self._next(tokens[:active, place : place + 1], place)
        return tokens

    def _next(self, tokens: Tensor, first: int) -> Tensor:
        """A token [batch, 1] drawn after tokens [batch, seq], which stand at places `first` and following."""
        model = self.model
        assert model.embedding is not None and model.norm is not None and model.head is not None
        x = model.embedding(tokens)
        for layer, cache in zip(model.layers, self.caches, strict=True):
            assert isinstance(layer, Block) and isinstance(layer.attention, Attention)
            assert layer.attention_norm is not None and layer.mlp_norm is not None and layer.mlp is not None
            x = x + self._attend(layer.attention, layer.attention_norm(x), cache, first)
            x = x + layer.mlp(layer.mlp_norm(x))
        logits = model.head(model.norm(x[:, -1]))
        return torch.multinomial(logits.float().softmax(dim=-1), 1)

    def _attend(self, attention: Attention, x: Tensor, cache: Tensor, first: int) -> Tensor:
        """Attention of new tokens over all of their sequences; their keys and values enter the cache."""
        count, seq, _ = x.shape
        end = first + seq
        query, key, value = (attention._heads(linear(x)) for linear in (attention.q, attention.k, attention.v))
        assert self.model.rope_tables is not None
        cosine, sine = (table[first:end] for table in self.model.rope_tables)
        query, key = rotate(query, (cosine, sine)), rotate(key, (cosine, sine))
        cache[0, :count, :, first:end], cache[1, :count, :, first:end] = key, value
        keys, values = cache[:, :count, :, :end]
        mixed = F.scaled_dot_product_attention(query, keys, values, is_causal=seq > 1, enable_gqa=True)
        output: Tensor = attention.o(mixed.transpose(1, 2).flatten(2))
        return output


T = TypeVar("T")
LEARNING_RATE = 1e-3
CLIP, KL_WEIGHT, SMALL = 0.2, 1e-3, 1e-6  # arXiv 2402.03300, section 4.2


class Grpo:
    """Trainer, engine and reference model of one run, each with weights of its own."""

    def __init__(self, rl: RlRun) -> None:
        section, model = rl.section, rl.base.model
        self.rl = rl
        self.actor = _model(rl, recompute=rl.base.plan.recompute == "full")
        self.reference = _model(rl, recompute=False) if section.has_reference else None
        self.engine = Generator(_model(rl, recompute=False), model, sequences=section.samples, longest=section.longest)
        self.optimizer = AdamW(self.actor.parameters(), lr=LEARNING_RATE, fused=True)
        lengths = rl.samples.response
        # groups stay together; the engine's batch is in the order of the lengths, so that those that have ended are its tail
        self.order = torch.argsort(torch.as_tensor(lengths), descending=True, stable=True)
        self.lengths = torch.as_tensor(lengths)
        generator = torch.Generator().manual_seed(SEED)
        prompts = torch.randint(model.vocab, (section.prompts, section.prompt_max), generator=generator)
        self.prompts = prompts.repeat_interleave(section.n, dim=0)
        places = torch.arange(section.longest) - section.prompt_max
        self.real = (places >= 0) & (places < self.lengths[:, None])
        """Places of a response's own tokens, [samples, longest]."""
        # of one thread the CPU time, as samples of it are timed: preemption does not count
        self.clock = time.thread_time if rl.base.cluster.threads == 1 else time.perf_counter

    def step(self) -> tuple[dict[str, float], float]:
        """Phase → its seconds under verl's names, in the order in which they ran, and the mean reward."""
        times: dict[str, float] = {}

        def timed(name: str, phase: Callable[[], T]) -> T:
            start = self.clock()
            result = phase()
            times[name] = self.clock() - start
            return result

        section = self.rl.section
        tokens = timed("gen", self._generate)
        advantages, reward = timed("reward", lambda: self._advantages(tokens))
        micro = section.passes.micro or section.micro
        old = timed("old_log_prob", lambda: _log_probs(self.actor, tokens, micro)) if section.old_log_prob else None
        reference = self.reference
        known = timed("ref", lambda: _log_probs(reference, tokens, micro)) if reference else None
        timed("update_actor", lambda: self._update(tokens, advantages, old, known))
        timed("update_weights", self._copy_weights)
        return times, reward

    def _generate(self) -> Tensor:
        tokens = torch.empty(len(self.lengths), self.rl.section.longest, dtype=torch.long)
        tokens[self.order] = self.engine.generate(self.prompts[self.order], self.lengths[self.order].tolist())
        return tokens

    def _advantages(self, tokens: Tensor) -> tuple[Tensor, float]:
        """A response is worth the share of its tokens that are even, and its advantage is that within its group."""
        rewards = ((tokens % 2 == 0) & self.real).sum(dim=-1) / self.real.sum(dim=-1)
        groups = rewards.view(-1, self.rl.section.n)
        spread = groups.std(dim=-1, correction=0, keepdim=True)
        advantages = (groups - groups.mean(dim=-1, keepdim=True)) / (spread + SMALL)
        return advantages.flatten(), float(rewards.mean())

    def _update(self, tokens: Tensor, advantages: Tensor, old: Tensor | None, known: Tensor | None) -> None:
        section = self.rl.section
        minis = section.optimizer_steps // section.epochs
        for _ in range(section.epochs):
            for rows in torch.arange(len(tokens)).chunk(minis):
                self.optimizer.zero_grad(set_to_none=True)
                share = len(rows) // section.micro or 1
                for mine in torch.split(rows, section.micro):
                    loss = self._loss(tokens, advantages, old, known, mine)
                    (loss / share).backward()  # type: ignore[no-untyped-call]
                self.optimizer.step()

    def _loss(
        self, tokens: Tensor, advantages: Tensor, old: Tensor | None, known: Tensor | None, rows: Tensor
    ) -> Tensor:
        """The clipped objective with a KL term, over the responses' own tokens."""
        own = log_probs_of(self.actor, tokens[rows])
        before = own.detach() if old is None else old[rows]
        ratio, worth = (own - before).exp(), advantages[rows, None]
        gain = torch.minimum(ratio * worth, ratio.clamp(1 - CLIP, 1 + CLIP) * worth)
        if known is not None:
            apart = known[rows] - own
            gain = gain - KL_WEIGHT * (apart.exp() - apart - 1)
        real = self.real[rows]
        return -(gain * real).sum() / real.sum()

    @torch.no_grad()
    def _copy_weights(self) -> None:
        for target, source in zip(self.engine.model.parameters(), self.actor.parameters(), strict=True):
            target.copy_(source)


def _model(rl: RlRun, *, recompute: bool) -> Decoder:
    """The model with the weights that every copy starts from."""
    spec = rl.base.model
    return Decoder(
        spec,
        first=0,
        last=spec.layers,
        seq_len=rl.section.longest,
        dtype=DTYPES[rl.base.precision],
        recompute=recompute,
        seed=SEED,
    )


@torch.no_grad()
def _log_probs(model: Decoder, tokens: Tensor, micro: int) -> Tensor:
    return torch.cat([log_probs_of(model, rows) for rows in torch.split(tokens, micro)])


def log_probs_of(model: Decoder, tokens: Tensor) -> Tensor:
    """The log-probability of every token [batch, seq] after those before it, in fp32; 0 for the first."""
    logits = model(tokens)
    following = tokens.roll(-1, dims=1)
    losses = F.cross_entropy(logits.flatten(0, 1).float(), following.flatten(), reduction="none").view_as(tokens)
    first_has_none = torch.zeros_like(losses[:, :1])
    return torch.cat([first_has_none, -losses[:, :-1]], dim=1)


def body(config: str, overrides: Sequence[str], steps: int) -> dict[str, Any]:
    """The times of each phase, and the reward, of every step of a config's run."""
    rl = load_rl(config, overrides)
    grpo, reference = Grpo(rl), ReferenceTimes(rl.base.cluster)
    done = []
    for step in range(steps):
        reference.before_step(step)
        before = Usage.now()
        phases, reward = grpo.step()
        done.append({"phases": phases, "reward": reward, **asdict(Usage.now().since(before))})
    return {
        "steps": done,
        "versions": {"torch": importlib.metadata.version("torch")},
        "references": asdict(reference.summary()),
    }
