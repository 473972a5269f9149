"""The books of a step add up to its estimate by sums of their own, whatever the plan."""

from statistics import fmean

import pytest

from predict import estimate, load
from predict.ledger import conventions
from predict.ledger.books import Ledger, ledger_of
from predict.ledger.constants_in_use import USES
from predict.prices.published_constants import CONSTANTS
from sampling.files.places import CONFIGS
from tests.predict.step.ledger_sums import impossible_lines

DENSE, MIXTURE = "llama3-70b-64xh100.yml", "deepseek-v3-1024xh100.yml"
ONE_CHUNK = ("plan.vpp=1", "plan.schedule=1f1b")
PLANS: dict[str, tuple[str, ...]] = {
    "demo": ("demo.yml",),
    "demo in tensor parallel, recomputed": ("demo.yml", "plan.pp=1", "plan.tp=2", "plan.recompute=full"),
    "demo in two replicas": ("demo.yml", "plan.pp=1", "plan.dp=2", "plan.zero=1"),
    "interleaved, cp, zero 1": (DENSE,),
    "mixture of experts": (MIXTURE,),
    "sharded weights": (DENSE, *ONE_CHUNK, "plan.pp=1", "plan.dp=8", "plan.zero=3"),
    "sharded gradients, cp by all-to-all": (DENSE, *ONE_CHUNK, "plan.zero=2", "plan.cp_method=all_to_all"),
    "sends that block": (DENSE, *ONE_CHUNK, "execution.overlap_p2p=false"),
    "forwards first, all recomputed": (DENSE, "plan.vpp=1", "plan.schedule=afab", "plan.recompute=full"),
    "attention recomputed": (DENSE, *ONE_CHUNK, "plan.recompute=selective"),
    "operators recomputed": (DENSE, *ONE_CHUNK, "plan.recompute=ops"),
    "split backward": (DENSE, "plan.vpp=1", "plan.schedule=zb-h1"),
    "dualpipe": (DENSE, "plan.vpp=2", "plan.schedule=dualpipe"),
    "v-half": (DENSE, "plan.vpp=2", "plan.schedule=v-half"),
    "muon": (DENSE, "execution.optimizer=muon"),
}
REL = 1e-9


def _ledger(config: str, *settings: str) -> Ledger:
    return ledger_of(estimate(load(CONFIGS / "runs" / config, settings), require_fit=False))


@pytest.fixture(scope="module", params=PLANS.values(), ids=PLANS.keys())
def ledger(request: pytest.FixtureRequest) -> Ledger:
    return _ledger(*request.param)


def test_parameters_are_those_of_the_tower_and_of_adapters_too() -> None:
    """Of Qwen2.5-VL-7B as its card counts them: 8.29 billion."""
    images, lora = "qwen2.5-vl-7b-8xh100.yml", ("adapters.kind=lora", "adapters.targets=q_proj", "adapters.rank=4")
    whole, frozen, alone = (
        _ledger(images, *settings).parameters
        for settings in (
            ("vision.trained=all",),
            ("vision.trained=none", *lora),
            ("vision.images=0", "vision.trained=all"),
        )
    )
    assert whole["total"] == whole["trained"] == pytest.approx(8.292e9, rel=1e-4)
    assert whole["active"] == alone["total"] == whole["total"] - whole["tower"]
    of_adapters = 28 * 4 * 2 * 3584
    assert (frozen["total"] - whole["total"], frozen["trained"], alone["tower"]) == (of_adapters, of_adapters, 0)


def test_the_books_add_up_to_the_step(ledger: Ledger) -> None:
    assert sum(ledger.account_us.values()) == pytest.approx(ledger.prediction.median_us, rel=REL)


def test_operators_and_messages_add_up_to_the_timeline(ledger: Ledger) -> None:
    """Call by call on one side, the schedule's actions and the ends of the ranks on the other."""
    worked_us = fmean(rank.busy_us + rank.end_us for rank in ledger.schedule.ranks)
    messages_us = ledger.communication.exposed_us - ledger.schedule.sends_us
    assert ledger.compute.total_us + messages_us == pytest.approx(worked_us, rel=REL)


def test_each_rank_works_or_waits_until_the_slowest_is_done(ledger: Ledger) -> None:
    book, step_us = ledger.schedule, ledger.prediction.median_us
    for rank in book.ranks:
        whole_us = rank.busy_us + rank.end_us + rank.idle_us
        assert whole_us == pytest.approx(step_us - book.stragglers_us - book.overhead_us, rel=REL)


def test_the_bubble_of_the_gaps_is_what_the_breakdown_leaves(ledger: Ledger) -> None:
    left_us = ledger.prediction.breakdown_us["pp_bubble"]
    assert ledger.schedule.bubble_us == pytest.approx(left_us, abs=REL * ledger.prediction.median_us)


def test_messages_between_ranks_and_replicas_are_those_of_the_breakdown(ledger: Ledger) -> None:
    exposed_us, breakdown_us = ledger.communication.exposed_by_heading_us(), ledger.prediction.breakdown_us
    for heading in ("p2p", "dp_exposed"):
        assert exposed_us.get(heading, 0.0) == pytest.approx(breakdown_us[heading], rel=REL, abs=1e-3)


def test_no_row_is_negative_or_below_what_compute_bandwidth_and_links_allow(ledger: Ledger) -> None:
    assert list(impossible_lines(ledger)) == []


def test_memory_terms_add_up_to_the_peak(ledger: Ledger) -> None:
    assert sum(ledger.memory.worst.terms.values()) == pytest.approx(ledger.prediction.memory.point_bytes, rel=REL)


def test_times_by_source_are_all_but_the_waiting(ledger: Ledger) -> None:
    account = ledger.account_us
    assert sum(ledger.calibration.by_source_us.values()) == pytest.approx(
        sum(account.values()) - account["bubble"], rel=REL
    )
    assert sum(ledger.calibration.shares.values()) == pytest.approx(1, rel=REL)


def test_hidden_and_exposed_make_the_whole_message(ledger: Ledger) -> None:
    measured_whole = ledger.prediction.run.execution.whole_layers  # where waiting for one another is part of a message
    for message in ledger.communication.messages:
        if message.heading != "p2p" and not measured_whole:
            assert message.hidden_us + message.exposed_us == pytest.approx(message.total_us, rel=REL, abs=1e-6)
            assert message.exposed_us <= message.total_us * (1 + REL)


def test_parts_are_the_exact_count_and_recomputation_is_hfu() -> None:
    ledger = _ledger(DENSE, *ONE_CHUNK, "plan.recompute=full")
    run, lengths = ledger.prediction.run, [8192] * 128
    assert ledger.compute.required_flops == conventions.exact(run.model_keys, lengths)
    hardware = conventions.hfu(run.model_keys, lengths, recompute="full")
    assert ledger.compute.required_flops + ledger.compute.recompute_flops == pytest.approx(hardware, rel=REL)
    assert ledger.mfu["hfu"].flops == pytest.approx(hardware, rel=REL)


def test_calls_of_the_forward_do_the_required_flops() -> None:
    """The operators of all ranks, as they are priced, beside the parts that the model's shape gives."""
    ledger = _ledger(DENSE)
    gpus, flops = ledger.compute.gpus, 0.0
    for line in ledger.compute.operators:
        flops += line.flops * gpus * (line.phase == "forward")
    assert flops == pytest.approx(sum(part.forward_flops for part in ledger.compute.parts), rel=1e-3)


def test_the_share_of_the_peak_is_what_shapes_and_clocks_leave() -> None:
    products, attention = _ledger(DENSE).peak_shares
    assert (products.heading, products.stated, products.clocks) == ("gemm", 0.87, 1.12)
    assert products.reached == pytest.approx(0.87 / 1.12, rel=0.04)
    assert attention.kernel == "FlashAttention-3 or cuDNN"
    assert attention.backward == pytest.approx(
        CONSTANTS["ATTENTION_BACKWARD_HOPPER"].value * (1 + 215 / 4096), rel=0.01
    )
    burst = _ledger(DENSE, "execution.clocks=burst", "execution.attention=fa2").peak_shares
    assert [one.clocks for one in burst] == [1.0, 1.0]
    assert burst[1].kernel == "FlashAttention-2"
    assert burst[1].reached < attention.reached
    assert _ledger("demo.yml").peak_shares == ()


def test_each_copy_of_sharded_weights_says_what_it_copies() -> None:
    single = ("tp=1", "sp=false", "pp=1", "vpp=1", "cp=1", "dp=64", "zero=3", "schedule=1f1b")
    settings = (*(f"plan.{each}" for each in single), "execution.framework=torchtitan")
    messages = _ledger("llama3-70b-64xh100.yml", *settings).communication.messages
    copies = {message.carries for message in messages if message.kind == "copy"}
    assert copies == {"gathered weights", "widened gradients"}


def test_expert_gradients_stand_apart() -> None:
    carried = {message.carries: message.group for message in _ledger(MIXTURE).communication.messages}
    assert carried["gradients"] == "shard"
    assert carried["expert gradients"] == "expert shard"
    assert carried["tokens"] == "ep"


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        (("execution.stragglers=false",), "STRAGGLERS"),
        (("execution.overlap_tp=none",), "PIPELINED_TP"),
        (("execution.clocks=burst",), "SUSTAINED_HOPPER"),
        (("cluster.hardware=b200",), "ATTENTION_BACKWARD_HOPPER"),
    ],
)
def test_a_constant_is_listed_where_the_step_depends_on_it(settings: tuple[str, ...], name: str) -> None:
    assert name in _ledger(DENSE).calibration.constants
    assert name not in _ledger(DENSE, *settings).calibration.constants


@pytest.mark.parametrize(("framework", "is_listed"), [("nemo", True), ("torchtitan", False), ("megatron-core", False)])
def test_the_share_of_products_on_blackwell_is_listed_for_nvidias_recipes_alone(
    framework: str, is_listed: bool
) -> None:
    single = ("tp=1", "sp=false", "pp=1", "vpp=1", "cp=1", "dp=64", "zero=1", "schedule=1f1b")
    settings = (*(f"plan.{each}" for each in single), "cluster.hardware=b200", f"execution.framework={framework}")
    assert ("BLACKWELL_PRODUCTS" in _ledger(DENSE, *settings).calibration.constants) == is_listed


def test_a_constant_of_16_bit_products_is_used_where_only_some_have_16_bits() -> None:
    assert "SUSTAINED_HOPPER" in _ledger(DENSE, "precision=fp8").calibration.constants


def test_the_factor_of_eager_kernels_is_listed_for_those_of_a_gpu_alone() -> None:
    eager = "execution.elementwise=eager"
    assert "EAGER" in _ledger(DENSE, eager).calibration.constants
    assert "EAGER" not in _ledger(DENSE).calibration.constants
    assert "EAGER" not in _ledger("demo.yml", "execution.framework=megatron-core", eager).calibration.constants


def test_every_published_constant_has_its_condition() -> None:
    assert USES.keys() == CONSTANTS.keys()
