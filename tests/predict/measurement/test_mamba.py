"""Decoders of a real step that are not plain (mamba.py, decoder.py): what their tokens see."""

from typing import Any

import pytest
import torch

from predict.huggingface.config_json import load_model
from predict.layers.mamba import Mamba
from predict.measurement.decoder import Decoder
from predict.measurement.mamba import MambaMixer
from predict.model.spec import LayerKind
from tests.predict.huggingface.families.test_bert import BERT
from tests.predict.layers.test_mamba import NEMOTRON

MODELS: dict[str, dict[str, Any]] = {"hybrid": NEMOTRON, "encoder": BERT}


def decoder(name: str, seq_len: int = 20) -> Decoder:
    spec = load_model(MODELS[name])
    return Decoder(spec, first=0, last=spec.layers, seq_len=seq_len, dtype=torch.float32, recompute=False, seed=0)


@pytest.mark.parametrize(("name", "is_causal"), [("hybrid", True), ("encoder", False)])
def test_a_decoder_sees_no_later_token_and_an_encoder_all(name: str, is_causal: bool) -> None:
    own = decoder(name).eval()
    tokens = torch.randint(0, load_model(MODELS[name]).vocab, (1, 20))
    changed = tokens.clone()
    changed[:, 15:] = (changed[:, 15:] + 1) % 64
    with torch.no_grad():
        first, second = own(tokens)[:, :15], own(changed)[:, :15]
    assert torch.allclose(first, second, atol=1e-5) == is_causal


def test_chunks_of_any_length_give_one_result() -> None:
    spec = load_model(NEMOTRON)
    mamba = spec.mixer(LayerKind(mixer="mamba"))
    assert isinstance(mamba, Mamba)
    torch.manual_seed(0)
    own = MambaMixer(spec, mamba)
    x, outputs = torch.randn(2, 20, spec.hidden), []
    for chunk in (4, 16, 64):
        own.sizes = Mamba(heads=4, head_dim=6, groups=2, state=10, conv=4, chunk=chunk)
        outputs.append(own(x))
    torch.testing.assert_close(outputs[0], outputs[1])
    torch.testing.assert_close(outputs[0], outputs[2])
