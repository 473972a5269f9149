"""The parts of layers by name: each class of a mixer or feed-forward in a file of this folder, found by being there."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, is_dataclass
from functools import cache
from typing import Any

from predict.layers.attention import Attention
from predict.layers.dense import Dense
from predict.layers.mixture import Mixture
from predict.layers.part import FeedForward, Mixer
from predict.model.spec import LayerShape
from sampling.additions import add, modules_of


@cache
def parts() -> Mapping[str, type[Mixer] | type[FeedForward]]:
    """The class of every part, by the prefix that its sizes have in a family's keys."""
    found: dict[str, type[Mixer] | type[FeedForward]] = {}
    for module in modules_of(__package__):
        for of in vars(module).values():
            is_part = isinstance(of, type) and issubclass(of, (Mixer, FeedForward)) and of.__module__ == module.__name__
            if is_part and "NAME" in vars(of):
                add(found, of.NAME, of, "parts of layers")
    return found


def mixers() -> tuple[type[Mixer], ...]:
    """The classes of mixers."""
    return tuple(of for of in parts().values() if issubclass(of, Mixer))


def mixer_of_text(text: str) -> Mixer | None:
    """The mixer whose sizes a published table states in words; None where the text states none."""
    return next((mixer for of in mixers() if (mixer := of.of_text(text))), None)


def sizes_of(part: LayerShape) -> dict[str, Any]:
    """The sizes that a part states itself."""
    return asdict(part) if is_dataclass(part) else {}


def fields_of_parts(stated: Sequence[Mixer | FeedForward]) -> dict[str, Any]:
    """The fields of a ModelSpec that hold the parts of its layers: those whose sizes are stated, and plain ones otherwise."""
    own = [part for part in stated if isinstance(part, Mixer)]
    attention = [mixer for mixer in own if mixer.IS_ATTENTION] or [Attention()]
    experts = next((part for part in stated if isinstance(part, Mixture)), None)
    others = (part for part in stated if isinstance(part, FeedForward) and part is not experts)
    return {
        "mixers": (*attention, *(mixer for mixer in own if not mixer.IS_ATTENTION)),
        "mlp": Dense(),
        "experts": experts,
        "sparse": next(others, None),
    }
