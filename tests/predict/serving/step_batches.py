"""Batches of every kind that a step model answers."""

from predict.serving.batch import Chunk, StepBatch


def batches() -> list[StepBatch]:
    return [
        StepBatch(chunks=(Chunk(tokens=tokens),) if tokens else (), decodes=(keys,) * decodes)
        for decodes in (1, 2, 4, 8, 15)
        for keys in (32, 64)
        for tokens in (0, 16, 128)
    ]
