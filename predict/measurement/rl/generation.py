"""Generation with a cache of keys and values, all sequences in one batch that shrinks as they end."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from predict.measurement.models.real_model import Attention, Block, Decoder, rotate
from predict.model.spec import ModelSpec


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
            assert isinstance(layer, Block)
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
