"""Lengths of a step's real sequences: a distribution read at its quantiles, or a file; and the rows that they are computed in."""

import math
import re
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from statistics import NormalDist

from sampling.errors import ConfigError, UserError
from sampling.files.faults import shown
from sampling.files.schema import LARGEST
from sampling.number_text import significant

PACKED, SORTED, PADDED = "packed", "sorted", "max"
FORMS = "constant:N, uniform:LOW..HIGH, lognormal:MEDIAN,SIGMA, lognormal:mean=N,p90=N or file:PATH"
PATTERN = r"constant:\d+|uniform:\d+\.\.\d+|lognormal:\d+(\.\d+)?,\d+(\.\d+)?|lognormal:mean=\d+(\.\d+)?,p90=\d+(\.\d+)?|file:.+"
OPTIONAL_PATTERN = f"|{PATTERN}"
Z90 = NormalDist().inv_cdf(0.9)
"""Standard deviations from the median to the 90th percentile of a normal distribution."""
MOST_SEQUENCES = 2**17
"""Sequences that are laid out one by one; packing so many takes about a second."""
MOST_FILE_BYTES = 64_000_000
GROUPS = 12
"""Groups of like length whose attention is priced; each has the squares of its sequences."""
Quantile = Callable[[float], float]


@dataclass(frozen=True, kw_only=True, slots=True)
class LikeLengths:
    """Sequences of about one length: `squares` is the sum of their squared lengths, per row that is computed."""

    length: int
    squares: float


@dataclass(frozen=True, kw_only=True, slots=True)
class RealSequences:
    """The sequences of a step, and the rows that hold them."""

    counts: tuple[tuple[int, int], ...]
    """Length → how many, the shortest first."""
    truncated: int
    """Sequences that were longer than `batch.seq_len`, and are cut there."""
    rows: int
    """Rows that are computed over all replicas."""
    row_tokens: int
    """Tokens of the mean row."""
    longest_row: int
    attended: tuple[LikeLengths, ...]
    """The sequences that a fused kernel of attention sees: those packed, or whole rows of padded ones; () where every row is of
    `row_tokens`."""

    @property
    def tokens(self) -> int:
        return sum(length * count for length, count in self.counts)

    @property
    def waste(self) -> float:
        """Share of the computed tokens that no sequence has."""
        return 1 - self.tokens / (self.rows * self.row_tokens)


def require_one_length(real: RealSequences | None, doing: str) -> None:
    """UserError where the sequences have several lengths; `doing` says what takes only one."""
    if real is not None:
        raise UserError(f"batch.lengths: {doing} takes sequences of one length; remove batch.lengths and batch.padding")


MIDDLES, MEDIANS = 0.5, 0.3
"""Plotting positions α of quantiles, at (place − α) / (count + 1 − 2α): the middles of equal shares, whose mean is the distribution's,
and the medians of the sorted lengths of as many draws (Benard and Bos-Levenbach, Statistica Neerlandica 7, 1953), of which the longest
counts where all wait for it."""


def real_lengths(text: str, count: int, folder: Path, *, at: float = MIDDLES) -> tuple[int, ...]:
    """`count` lengths of a distribution, ascending: its quantiles at the plotting positions `at`, each cut to the largest number of tokens
    that a config may state.

    ConfigError, without a key's path, for a distribution that is not valid and a file that cannot be read; `folder` is where its path
    starts.
    """
    if count > MOST_SEQUENCES:
        raise ConfigError(f"{count:,} sequences are too many to lay out one by one; give {MOST_SEQUENCES:,} at most")
    kind, _, values = text.partition(":")
    if kind == "file":
        return _at_shares(_file_quantile(folder / values), count, at)
    return _of_distribution(kind, values, count, at)


@lru_cache(maxsize=8)
def _of_distribution(kind: str, values: str, count: int, at: float) -> tuple[int, ...]:
    """Counted once for a distribution, which the candidates of a search and the draws of a step share."""
    return _at_shares(QUANTILES[kind](values), count, at)


def _at_shares(quantile: Quantile, count: int, at: float) -> tuple[int, ...]:
    shares = ((place + 1 - at) / (count + 1 - 2 * at) for place in range(count))
    return tuple(max(1, round(min(quantile(share), LARGEST))) for share in shares)


def _constant(values: str) -> Quantile:
    length = _positive(values)
    return lambda share: length


def _uniform(values: str) -> Quantile:
    low, high = (_positive(value) for value in values.split(".."))
    if low > high:
        raise ConfigError(f"uniform:{values} ends below its start; give the shorter length first")
    return lambda share: low + share * (high - low)


def _lognormal(values: str) -> Quantile:
    median, sigma = _median_and_sigma(values)
    normal = NormalDist(math.log(median), sigma)
    return lambda share: math.exp(min(normal.inv_cdf(share), 700.0))


def _median_and_sigma(values: str) -> tuple[float, float]:
    """The median and the standard deviation of the logarithm, as given or from `mean=` and `p90=`: the mean is median·e^(σ²/2), the 90th
    percentile median·e^(Z90·σ); the smaller σ is taken."""
    first, second = (_positive(value.rpartition("=")[2]) for value in values.split(","))
    if not values.startswith("mean="):
        return first, second
    within = Z90**2 - 2 * math.log(second / first)
    if second <= first or within < 0:
        most = math.exp(Z90**2 / 2)
        raise ConfigError(
            f"lognormal:{values} is not a distribution: a p90 lies above its mean, {significant(most)} times at most; give others, or lognormal:MEDIAN,SIGMA"
        )
    sigma = Z90 - math.sqrt(within)
    return first * math.exp(-(sigma**2) / 2), sigma


def _positive(text: str) -> float:
    value = float(text)
    if not 0 < value < math.inf:
        raise ConfigError(f"{text} is not above 0; give one of {FORMS}")
    return value


def scaled_lengths(text: str, factor: float) -> str | None:
    """The distribution with every length multiplied; None for a file's."""
    kind, _, values = text.partition(":")
    if kind == "lognormal":
        median, sigma = _median_and_sigma(values)
        return f"lognormal:{median * factor:g},{sigma:g}"
    if kind in ("constant", "uniform"):
        return f"{kind}:{'..'.join(str(max(1, round(int(value) * factor))) for value in values.split('..'))}"
    return None


QUANTILES: Mapping[str, Callable[[str], Quantile]] = {
    "constant": _constant,
    "uniform": _uniform,
    "lognormal": _lognormal,
}


def _file_quantile(path: Path) -> Quantile:
    """Lengths as a file lists them, one whole number per line (or separated by spaces or commas)."""
    try:
        if path.stat().st_size > MOST_FILE_BYTES:
            raise ConfigError(f"{path} is larger than {MOST_FILE_BYTES // 10**6} MB; sample the lengths down")
        words = re.split(r"[\s,]+", path.read_text(encoding="utf-8").strip())
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text"
        raise ConfigError(f"{path} cannot be read ({why}); give a text file with one length per line") from None
    wrong = next(
        (place for place, word in enumerate(words) if not re.fullmatch(r"\d{1,9}", word) or not int(word)), None
    )
    if wrong is not None:
        raise ConfigError(
            f"{path}: entry {wrong + 1}, {shown(words[wrong])}, is not a length; give whole numbers above 0"
        )
    lengths = sorted(map(int, words))
    return lambda share: lengths[min(len(lengths) - 1, int(share * len(lengths)))]


def laid_out(
    lengths: Sequence[int], *, padding: str, longest: int, micro: int, replicas: int, multiple: int
) -> RealSequences:
    """The rows of the sequences, none longer than `longest`; a row's tokens are a `multiple`.

    `max` pads each sequence to `longest`; `sorted` puts sequences of like length into one microbatch and pads them to its longest;
    `packed` fills rows of `longest` tokens, the longest sequence first, each into the fullest row that has room.
    """
    cut = sorted(min(length, longest) for length in lengths)
    truncated = sum(length > longest for length in lengths)
    counts = tuple(sorted(Counter(cut).items()))
    if padding == PACKED:
        at_once = micro * replicas
        rows = -(-_packed_rows(cut, longest) // at_once) * at_once
        attended, row_tokens, longest_row = alike(cut, rows), longest, longest
    elif padding == SORTED:
        padded = [up_to(cut[min(first + micro, len(cut)) - 1], multiple) for first in range(0, len(cut), micro)]
        padded = [min(length, longest) for length in padded]
        rows, longest_row = len(cut), max(padded)
        row_tokens = min(longest, up_to(math.ceil(sum(padded) / len(padded)), multiple))
        attended = alike(padded, len(padded)) if len(set(padded)) > 1 else ()
    else:
        rows, row_tokens, longest_row, attended = len(cut), longest, longest, ()
    return RealSequences(
        counts=counts,
        truncated=truncated,
        rows=rows,
        row_tokens=row_tokens,
        longest_row=longest_row,
        attended=attended,
    )


def up_to(length: int, multiple: int) -> int:
    """The next multiple from `length` on."""
    return -(-length // multiple) * multiple


def _packed_rows(ascending: Sequence[int], longest: int) -> int:
    """Rows that best-fit packing fills, the longest sequence first (Johnson, Journal of Computer and System Sciences 8, 1974)."""
    room: list[int] = []
    for length in reversed(ascending):
        place = bisect_left(room, length)
        left = room.pop(place) if place < len(room) else longest
        insort(room, left - length)
    return len(room)


def alike(ascending: Sequence[int], rows: int) -> tuple[LikeLengths, ...]:
    """The sequences in at most GROUPS groups, ascending, with like squares in all; each by the length that weighs its tokens evenly."""
    groups: list[LikeLengths] = []
    share, tokens, squares = sum(length * length for length in ascending) / GROUPS, 0, 0
    for place, length in enumerate(ascending):
        tokens, squares = tokens + length, squares + length * length
        if squares >= share or place == len(ascending) - 1:
            groups.append(LikeLengths(length=round(squares / tokens), squares=squares / rows))
            tokens = squares = 0
    return tuple(groups)
