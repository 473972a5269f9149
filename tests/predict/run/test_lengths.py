"""Real batches: lengths of a distribution, the rows that hold them, and what they change in time, memory and MFU."""

from pathlib import Path

import pytest

from predict import estimate, launch_arguments, load
from predict.ledger import conventions
from predict.ledger.books import Ledger, ledger_of
from predict.ledger.verl_flops import verl
from predict.run.lengths import laid_out, real_lengths
from sampling.errors import ConfigError, UserError
from sampling.files.places import CONFIGS

DENSE, DEMO = CONFIGS / "runs" / "llama3-70b-64xh100.yml", CONFIGS / "runs" / "demo.yml"
PLAN = ("plan.vpp=1", "plan.schedule=1f1b", "batch.global=64")
SPREAD = "batch.lengths=lognormal:1500,1.0"
REL = 1e-9


def _ledger(*settings: str, config: Path = DENSE) -> Ledger:
    own = PLAN if config == DENSE else ("batch.global=32",)
    return ledger_of(estimate(load(config, [*own, *settings]), require_fit=False))


def test_distributions_are_read_at_their_quantiles(tmp_path: Path) -> None:
    (tmp_path / "lengths.txt").write_text("30\n10\n20\n40\n")
    assert real_lengths("constant:7", 3, tmp_path) == (7, 7, 7)
    assert real_lengths("uniform:10..50", 4, tmp_path) == (15, 25, 35, 45)
    assert real_lengths("file:lengths.txt", 4, tmp_path) == (10, 20, 30, 40)
    assert real_lengths("file:lengths.txt", 2, tmp_path) == (20, 40)
    lognormal = real_lengths("lognormal:1000,0.5", 1001, tmp_path)
    assert lognormal[500] == 1000
    assert sum(lognormal) / 1001 == pytest.approx(1000 * 2.718281828 ** (0.5**2 / 2), rel=0.01)


def test_rows_of_each_padding() -> None:
    lengths = [10, 30, 40, 60, 90, 130]
    shared = {"longest": 100, "micro": 2, "replicas": 1, "multiple": 4}
    padded = laid_out(lengths, padding="max", **shared)
    assert (padded.rows, padded.row_tokens, padded.tokens, padded.truncated) == (6, 100, 330, 1)
    in_order = laid_out(lengths, padding="sorted", **shared)
    assert (in_order.rows, in_order.row_tokens, in_order.longest_row) == (6, 64, 100)  # of 32, 60 and 100
    packed = laid_out(lengths, padding="packed", **shared)
    assert (packed.rows, packed.row_tokens) == (4, 100)  # 100, 90 + 10, 60 + 40, 30: four rows, two at once
    for real in (in_order, packed):
        assert sum(like.squares for like in real.attended) * real.rows == pytest.approx(
            sum(length**2 for length in (10, 30, 40, 60, 90, 100)) if real is packed else 2 * (32**2 + 60**2 + 100**2),
            rel=REL,
        )


@pytest.mark.parametrize("config", [DENSE, DEMO])
@pytest.mark.parametrize("padding", ["max", "sorted", "packed"])
def test_sequences_as_long_as_a_row_change_nothing(config: Path, padding: str) -> None:
    alike = _ledger(f"batch.lengths=constant:{load(config).batch.seq_len}", f"batch.padding={padding}", config=config)
    plain = _ledger(config=config)
    assert alike.prediction.median_us == pytest.approx(plain.prediction.median_us, rel=1e-3)
    assert alike.mfu["exact"].flops == plain.mfu["exact"].flops


@pytest.mark.parametrize("config", [DENSE, DEMO])
def test_packing_and_sorting_save_what_padding_wastes(config: Path) -> None:
    spread = SPREAD if config == DENSE else "batch.lengths=lognormal:40,0.8"
    padded, in_order, packed = (
        _ledger(spread, f"batch.padding={padding}", config=config) for padding in ("max", "sorted", "packed")
    )
    assert padded.prediction.median_us == pytest.approx(_ledger(config=config).prediction.median_us, rel=REL)
    for better in (in_order, packed):
        assert better.prediction.median_us < 0.8 * padded.prediction.median_us
        assert better.mfu["exact"].flops == padded.mfu["exact"].flops
        assert better.mfu["exact"].mfu > padded.mfu["exact"].mfu
        assert better.schedule.padding.wasted_us < padded.schedule.padding.wasted_us
    assert packed.schedule.microbatches < padded.schedule.microbatches
    assert in_order.prediction.memory.point_bytes == pytest.approx(padded.prediction.memory.point_bytes, rel=0.01)
    for ledger in (padded, in_order, packed):
        assert sum(ledger.account_us.values()) == pytest.approx(ledger.prediction.median_us, rel=REL)


def test_packed_attention_does_the_squares_of_the_sequences() -> None:
    """Σs² of the calls, on all GPUs, is that of the lengths: a call of b sequences of length s has 4·b·h·s²·d FLOPs unmasked."""
    ledger = _ledger(SPREAD, "batch.padding=packed")
    run = ledger.prediction.run
    calls = [line for line in ledger.compute.operators if line.heading == "attention" and line.phase == "forward"]
    flops = sum(line.count * line.call.flops("forward") for line in calls) * ledger.compute.gpus
    squares = sum(length**2 * count for length, count in run.sequences.items())
    assert flops == pytest.approx(4 * squares * run.model.q_width * run.model.layers, rel=REL)


@pytest.mark.parametrize("padding", ["sorted", "packed"])
def test_unfused_attention_does_the_squares_of_rows(padding: str) -> None:
    """Of each row alone where it is padded to its own length, and of whole packed rows, whose other sequences it masks."""
    ledger = _ledger("plan.cp=1", "plan.dp=4", "execution.attention=unfused", SPREAD, f"batch.padding={padding}")
    run, waste = ledger.prediction.run, ledger.schedule.padding.attention_waste
    assert run.batch.micro == 1
    products = [line for line in ledger.compute.operators if line.heading == "batched_gemm" and line.phase == "forward"]
    flops = sum(line.count * line.call.flops("forward") for line in products) * ledger.compute.gpus
    up_to_tp = {length: -(-length // run.plan.tp) * run.plan.tp for length in run.sequences}
    padded = sum(up_to_tp[length] ** 2 * count for length, count in run.sequences.items())
    squares = padded if padding == "sorted" else run.batch.global_ * run.batch.seq_len**2
    assert flops == pytest.approx(4 * squares * run.model.q_width * run.model.layers, rel=REL)
    needed = sum(length**2 * count for length, count in run.sequences.items())
    assert waste == pytest.approx(1 - needed / squares, abs=REL)


def test_mfu_counts_the_real_sequences_alone() -> None:
    ledger = _ledger(SPREAD, "batch.padding=packed")
    lengths = [length for length, count in ledger.prediction.run.sequences.items() for _ in range(count)]
    assert ledger.mfu["exact"].flops == conventions.exact(ledger.prediction.run.model_keys, lengths)
    assert ledger.mfu["verl"].flops == verl(ledger.prediction.run.model_keys, lengths)
    assert ledger.prediction.tokens_per_second == pytest.approx(sum(lengths) / ledger.prediction.median_us * 1e6)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (
            ["batch.lengths=normal:5,1"],
            "batch.lengths: 'normal:5,1' is not allowed; give text: constant:N, uniform:LOW",
        ),
        (["batch.lengths=uniform:90..10"], "batch.lengths: uniform:90..10 ends below its start"),
        (["batch.lengths=file:nowhere.txt"], "nowhere.txt cannot be read (No such file or directory)"),
        (["batch.padding=packed"], "batch.padding: packed without batch.lengths changes nothing"),
        (
            ["batch.lengths=constant:9", "batch.padding=best"],
            "batch.padding: 'best' is not known; give one of max, packed",
        ),
    ],
)
def test_faults_name_the_key_and_the_fix(settings: list[str], says: str) -> None:
    with pytest.raises(ConfigError) as raised:
        load(DENSE, settings)
    assert says in str(raised.value)


def test_a_file_with_another_entry_names_it(tmp_path: Path) -> None:
    (tmp_path / "lengths.txt").write_text("12\nlong\n")
    with pytest.raises(ConfigError, match="entry 2, 'long', is not a length"):
        real_lengths("file:lengths.txt", 4, tmp_path)


def test_packed_microbatches_must_fit_the_schedule() -> None:
    with pytest.raises(
        ConfigError, match=r"batch.padding: packed makes \d+ rows, so \d+ microbatches, and interleaved"
    ):
        load(DENSE, [SPREAD, "batch.padding=packed"])


def test_what_takes_one_length_alone_says_so() -> None:
    run = [*PLAN, SPREAD]
    with pytest.raises(UserError, match=r"batch\.lengths: another tool takes sequences of one length"):
        launch_arguments(DENSE, "megatron-lm", run)
