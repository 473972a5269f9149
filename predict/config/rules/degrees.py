"""Degrees of tensor parallelism that a model allows, for the rules that advise them."""

from math import gcd

from predict.run.execution import WHOLE_LAYERS
from sampling.files.faults import divisors


def spreads(kv_heads: int, tp: int, framework: str) -> bool:
    """Whether key and value heads spread over the ranks: whole ones, or copies of a head."""
    return kv_heads % tp == 0 or (tp % kv_heads == 0 and framework != WHOLE_LAYERS)


def tensor_degrees(heads: int, kv_heads: int, ffn: int, framework: str, *also: int) -> str:
    """The smallest degrees that heads, key and value heads, the MLP and other numbers allow alike, in words; 0 stands for a number that is
    not known."""
    divide_with_heads = kv_heads in (0, heads)
    return divisors(gcd(heads, ffn, *also), where=lambda tp: divide_with_heads or spreads(kv_heads, tp, framework))
