"""A vision tower of a real step (vision.py): images in their places, and what each sees."""

import torch
from torch.nn.functional import scaled_dot_product_attention as attend

from predict.measurement.decoder import in_chunks, random_batch
from predict.measurement.training import build_training
from predict.measurement.vision import WithImages, random_pixels
from predict.run.training_run import TrainingRun
from tests.laws.test_real_steps import IMAGES, PIXTRAL, of


def built(run: TrainingRun) -> WithImages:
    module = build_training(run).module
    assert isinstance(module, WithImages)
    return module


def test_tokens_of_a_chunk_see_it_alone() -> None:
    """And of a last one that is shorter those that are left."""
    query, key, value = torch.randn(3, 2, 4, 10, 8)
    own = [attend(*(each[:, :, part] for each in (query, key, value))) for part in map(slice, (0, 4, 8), (4, 8, 10))]
    assert torch.allclose(in_chunks(query, key, value, 4), torch.cat(own, dim=2), atol=1e-6)


def test_images_take_the_places_of_the_first_tokens_and_each_sees_itself_alone() -> None:
    run = of(PIXTRAL, vision=IMAGES)
    module, pixels = built(run), random_pixels(run)
    assert pixels is not None
    tokens, _ = random_batch(run, replica=0)
    places = run.vision.images * run.vision.image_tokens
    other_tokens, other_pixels = tokens.clone(), pixels.clone()
    other_tokens[:, :places] += 1
    other_pixels[:, 1] += 1.0
    with torch.no_grad():
        first = module(tokens, pixels)
        assert torch.equal(module(other_tokens % run.model.vocab, pixels), first), "what the text has there is not seen"
        changed = module(tokens, other_pixels)
    half = run.vision.image_tokens
    assert torch.allclose(changed[:, :half], first[:, :half], atol=1e-6)
    assert not torch.allclose(changed[:, half:], first[:, half:], atol=1e-6)
