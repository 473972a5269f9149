"""A mixture of experts in place of the MLP."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from predict.layers.dense import activation, mlp_works
from predict.layers.norms import normed_input
from predict.layers.part import FeedForward
from predict.layers.routing import busiest_rank, distribution_on_rank, expected_places
from predict.layers.saved_tensors import FP32, INDEX, Saved, SavedTensors, Sizes
from predict.layers.served import GroupedCall, ServerShare, served_products
from predict.model.spec import Experts, LayerKind, LayerShape, ModelSpec
from predict.rank.blocks import Calls
from predict.rank.exchanges import entering, leaving
from predict.rank.module import Exchange, Module, Works
from predict.rank.share import NARROW, RankShare, narrow_item_bytes
from predict.run.execution import IN_TURN
from sampling.arithmetic.expert_rows import experts_with_rows
from sampling.arithmetic.operator import Operator
from sampling.cells.matrices import Matrix, mlp_matrices, products_on_rank
from sampling.collectives.kinds import AllGather, Collective, ReduceScatter, TokenExchange
from sampling.hardware.cluster import DTYPE_BYTES
from sampling.operators.experts import IN_GRAPH, PER_EXPERT, UNTUNED, UNTUNED_WIDTH, GroupedGemm
from sampling.operators.memory_bound import Gelu, ResidualAdd, Stream, SwiGLU
from sampling.operators.routing import Permute, Router, Unpermute

SHARED = "shared_experts"
BIAS_BYTES = 34
"""Bytes that adding a bias moves per element of the rows: 28 in forward (written 4, summed 2 + 4 + 4, concatenated 8, cast 4 + 2) and 40
in backward (casts 6 + 6, gradients of bias and routing weight 8 + 4 and 8 + 4, the rows' own parts concatenated 4); their mean."""
CLAMP_BYTES = 23
"""Bytes that clamping moves per element of a gated activation's result: 16 in forward (two clamps 4 + 4, their concatenation 8) and 30
in backward (torch, clamp_backward: masks 3 + 3 + 3 + 3 and gradients 5 + 5, and their concatenation 8); their mean."""
PLACED = 1.7
"""Time of torch's kernels on halves of rows and on biases spread over rows, over that of a copy of as many bytes: they work out where each
element lies, so that instructions bound them, not memory (torch, aten/src/ATen/native/cuda/CUDALoops.cuh: only contiguous operands
are read as vectors). Not measured: some 40 instructions an element of three operands make 1.6 on Blackwell. Published runs of
gpt-oss-120b without whole graphs, all of one source and on Blackwell, were 11 to 26 % fast without it, and are 0 to 18 % fast with it."""
WEIGHT_TENSORS = 1.5
"""Tensors of an activation's result that the gradient of its routing weights reads: three in backward, the activation's two inputs and
the gradient of its result (Megatron-LM, fusions/fused_bias_swiglu.py, `weighted_swiglu_back`: a sum over each row, which is a kernel
of its own); their mean over both phases."""
FUSED_BIAS_TENSORS = 0.5
"""Tensors of the rows that gradients of biases and routing weights read in one kernel (Transformer Engine,
triton/grouped_dbias_dscales.py): one in backward; its mean over both phases."""
STASHED = 1.65
"""Time of the kernel that copies what experts keep to pages and back, over that of a copy of as many bytes (Megatron-LM, pull request
6414: 640 MiB more take it 312 µs more on GB300, 0.54 of the bandwidth). It runs on a stream of its own and fills the multiprocessors
(moe/paged_stash.py: up to 2,048 blocks), so that work beside it takes longer by as much."""
SHARE_BESIDE_MICROBATCH = 0.8
"""Share of another microbatch's work behind which tokens can travel; the two streams have to wait for each other at times. Assumed."""
MOE = {"moe": 0.0}
LOW_LATENCY_TOKENS = 256
"""Tokens of a GPU up to which DeepEP's low-latency kernels run, whose buffers hold so many (SGLang's large-scale deployment of DeepSeek-V3
sets SGLANG_DEEPEP_NUM_MAX_DISPATCH_TOKENS_PER_RANK to 256 where it decodes). Priced as its normal ones are, with a copy for each expert,
they come out at 0.70 to 1.0 of what its README has for 8 to 256 GPUs of H800 (128 tokens of 7,168): 184 µs there and 332 µs back for
192 and 369 with 128 GPUs."""
DEEPEP_MULTIPROCESSORS = 24
"""Multiprocessors that DeepEP's normal kernels hold (its README sets so many, and its published rates are theirs); low-latency ones hold
none while tokens travel."""
DISPATCHED_FP8_BYTES = 1 + 4 / 128
"""An fp8 element with its share of a scale for each 128."""
EVEN = "power_law_0"
"""Routing in a server in which every expert is equally likely."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Mixture(Experts, FeedForward):
    """A router, `count` MLPs, `topk` of which a token visits, and shared ones that every token visits."""

    NAME: ClassVar[str] = "experts"

    def matrices(self, model: ModelSpec) -> tuple[Matrix, ...]:
        """The router and the ways to a compressed width, which every rank holds whole, the shared experts and their gate."""
        return (*self.routers(model), *self.latent_matrices(model), *self.shared_matrices(model))

    def latent_matrices(self, model: ModelSpec) -> tuple[Matrix, ...]:
        """The ways of a token to its experts' compressed width and back."""
        if not self.latent:
            return ()
        return (
            Matrix(product="latent_down", name="fc1_latent_proj", outputs=self.latent, inputs=model.hidden),
            Matrix(product="latent_up", name="fc2_latent_proj", outputs=model.hidden, inputs=self.latent),
        )

    def routers(self, model: ModelSpec) -> tuple[Matrix, ...]:
        router = Matrix(
            product="router", outputs=self.count, inputs=model.hidden, bias=self.router_bias, is_linear=False
        )
        gate = Matrix(product="shared_gate", outputs=1, inputs=model.hidden, is_linear=False)
        return (router, gate) if self.shared_gate else (router,)

    def shared_matrices(self, model: ModelSpec) -> tuple[Matrix, ...]:
        if not self.shared_ffn:
            return ()
        return mlp_matrices(hidden=model.hidden, width=self.shared_ffn, gated=self.gated)

    def expert_matrices(self, model: ModelSpec) -> tuple[Matrix, ...]:
        return mlp_matrices(hidden=self.width_of(model), width=self.ffn, gated=self.gated, bias=self.bias)

    def elements_per_token(self, model: ModelSpec) -> int:
        routed = self.topk * sum(matrix.elements for matrix in self.expert_matrices(model))
        return LayerShape.elements_per_token(self, model) + routed

    def routed_parameters(self, model: ModelSpec) -> int:
        return self.count * self._expert_parameters(model)

    def idle_parameters(self, model: ModelSpec) -> int:
        return (self.count - self.topk) * self._expert_parameters(model)

    def _expert_parameters(self, model: ModelSpec) -> int:
        return sum(matrix.parameters for matrix in self.expert_matrices(model))

    def modules(self, rank: RankShare, kind: LayerKind) -> tuple[Module, ...]:
        """Router, dispatch, grouped products, combination (Fedus et al., arXiv 2101.03961; dropless: arXiv 2211.15841).

        A rank routes its own rows; after the exchange it holds as many on average, gathered over etp.
        """
        plan, dtype = rank.plan, rank.dtype
        # with tp > 1 each rank routes its share of the sequence, as Megatron asks for
        own_rows = rank.tokens // plan.tp
        routed: dict[str, Any] = {
            "dtype": dtype,
            "tokens": own_rows,
            "hidden": rank.model.hidden,
            "topk": self.topk,
            "experts": self.count,
        }
        router = Router(**routed, product=rank.execution.router_product)
        fused = rank.execution.fuse_permute
        moved = routed | {"hidden": self.width_of(rank.model)}
        permuted = (Permute(**moved, fused=fused), 1), (Unpermute(**moved, fused=fused), 1)
        return (
            Module(name="router", works=((router, 1),), part_of="moe"),
            *_compressing(rank, self, own_rows),
            Module(name="permute", works=permuted, part_of="moe"),
            *_expert_modules(rank, self, own_rows),
            *_shared(rank, self),
        )

    def saved_tensors(self, sizes: Sizes) -> Saved:
        """Router, dispatch, grouped products, combination, each byte-equal in torch's operators (transformers 5.23, grouped_mm):
        with a softmax router T[e·H + 4E + 12k + 4] + Tk[e(2H + 4Fe) + e + 24] + 4E bytes.

        A rank routes 1/tp of its tokens; its experts receive k·etp rows for each, times the imbalance of `expert_load`.
        """
        plan = sizes.rank.plan
        own_rows = sizes.tokens / sizes.tp
        load = busiest_rank(sizes.rank.execution.expert_load, self, plan.ep)
        rows = own_rows * self.topk * plan.etp * load
        shares_input = sizes.model.parallel_residual
        return (
            *normed_input(sizes, "router", is_module=True, shares_input=shares_input, not_only_products=True),
            _saved_of_router(sizes, self, own_rows),
            *_saved_of_routed(sizes, self, own_rows, rows),
            *_saved_of_latent(sizes, self, own_rows),
            *_saved_of_shared(sizes, self),
        )

    def token_calls(self, share: ServerShare, tokens: int) -> Iterator[GroupedCall]:
        """Router and shared experts on every GPU; of the others each GPU has a slice of all, or whole ones of its own, for the tokens of
        all replicas."""
        model = share.model
        yield from served_products(share, self.matrices(model), tokens)
        everywhere = tokens * share.dp
        rows = max(1, round(everywhere * self.topk / share.ep * share.expert_load))
        held = max(1, (self.count + share.redundant_experts) // share.ep)
        busy = max(1, round(experts_with_rows(held, rows, EVEN)))
        if share.expert_alignment > 1:
            # a graph does not know how many rows each expert gets, so that its kernels run over the most that there may be
            busy, rows = held, rows + held * (share.expert_alignment - 1)
        width, products = self.sliced_ffn(share.expert_slices), share.expert_products
        for outputs, inputs in products_on_rank(self.expert_matrices(model), share.expert_slices).values():
            product = GroupedGemm(
                dtype=products.dtype,
                groups=busy,
                rows=max(rows, busy),
                n=outputs,
                k=inputs,
                distribution=EVEN,
                kernel=products.kernel or (UNTUNED if width >= UNTUNED_WIDTH else ""),
            )
            yield "moe", product, 1
        yield "elementwise", SwiGLU(dtype=share.activations, tokens=rows, width=width), 1
        yield from (("all_reduce", call, 1) for call in self.served_exchange(share, tokens))

    def served_exchange(self, share: ServerShare, tokens: int) -> Iterator[Collective]:
        """Tokens of a server's replica to the experts on the others' GPUs, and back."""
        if share.dp == 1:
            return
        if share.dispatch == "deepep":
            yield from _by_deepep(share, self, -(-tokens // share.tp))
            return
        size = DTYPE_BYTES[share.activations] * tokens * share.dp * self.width_of(share.model)
        # GPUs of a tensor-parallel group are neighbours, and each exchanges with its counterparts of the other replicas
        per_node = min(share.dp, max(1, share.gpus_per_node // share.tp))
        for kind in (AllGather, ReduceScatter):
            yield kind(size_bytes=size, ranks=share.dp, ranks_per_node=per_node)


def _by_deepep(share: ServerShare, experts: Mixture, tokens: int) -> Iterator[TokenExchange]:
    """Copies of a GPU's own tokens to the experts of others, in fp8 with a scale for each 128 where the products are, and the experts'
    results back in 16 bits. Low-latency kernels send one to each expert, normal ones one to each node, forwarded there to each GPU."""
    ranks, in_node = share.ep, min(share.ep, share.gpus_per_node)
    nodes = -(-ranks // in_node)
    if tokens <= LOW_LATENCY_TOKENS:
        inside, away = (experts.topk * others / ranks for others in (in_node - 1, ranks - in_node))
    else:
        inside = expected_places(experts, ranks) * (in_node - 1) / in_node
        away = expected_places(experts, nodes) * (nodes - 1) / nodes
    in_16_bits = float(DTYPE_BYTES[share.activations])
    there = DISPATCHED_FP8_BYTES if share.expert_products.dtype == "fp8" else in_16_bits
    for element_bytes in (there, in_16_bits):
        size = element_bytes * tokens * experts.width_of(share.model) * share.expert_load
        yield TokenExchange(
            size_bytes=round(size * inside), away_bytes=round(size * away), ranks=ranks, ranks_per_node=in_node
        )


def expert_rows(rank: RankShare, experts: Experts) -> int:
    """Rows of all experts of the busiest rank: those of its share of the tokens, each as often as it is sent somewhere, gathered over
    etp."""
    own_rows = rank.tokens // rank.plan.tp
    busiest = busiest_rank(rank.execution.expert_load, experts, rank.plan.ep)
    return round(own_rows * experts.topk * rank.plan.etp * busiest)


def _compressing(rank: RankShare, experts: Mixture, own_rows: int) -> tuple[Module, ...]:
    """The products to the experts' compressed width and back, of the rows that a rank routes."""
    products = products_on_rank(experts.latent_matrices(rank.model), rank.plan.tp)
    works = tuple((rank.gemm(*shape, m=own_rows), 1) for shape in products.values())
    return (Module(name="latent", works=works, part_of="moe"),) if works else ()


def _expert_modules(rank: RankShare, experts: Mixture, own_rows: int) -> tuple[Module, ...]:
    plan = rank.plan
    groups, rows = experts.count // plan.ep, expert_rows(rank, experts)
    busiest = busiest_rank(rank.execution.expert_load, experts, plan.ep)
    products = products_on_rank(experts.expert_matrices(rank.model), plan.etp)

    calls = groups if rank.execution.expert_products == IN_TURN else 1

    def product(n: int, k: int) -> tuple[Operator, int]:
        if groups == calls:
            return rank.gemm(n, k, m=max(1, rows // calls)), calls
        call = GroupedGemm(
            dtype=rank.run.precision,
            groups=groups,
            rows=rows,
            n=n,
            k=k,
            distribution=distribution_on_rank(rank.execution.expert_load),
            kernel=_kernel(rank),
        )
        return call, calls

    activation = (SwiGLU if experts.gated else Gelu)(dtype=rank.dtype, tokens=rows, width=products["down"][1])
    return (
        Module(
            name="moe",
            works=(product(*products["up"]),),
            exchanges=_exchanges(rank, experts, own_rows, busiest),
        ),
        Module(
            name="moe_act",
            works=(*_clamp(rank, experts, rows), (activation, 1), *_weight_gradients(rank, experts, rows)),
            part_of="moe",
        ),
        Module(name="moe", works=(product(*products["down"]), *_biases(rank, experts, rows))),
        *_stashed(rank, experts, rows),
        *_sorted_chunks(rank, experts, groups, rows),
    )


def _kernel(rank: RankShare) -> str:
    """The name of the kernel of a rank's experts; a graph of the whole step quantises the rows of all of them at once."""
    if rank.execution.expert_products != PER_EXPERT:
        return ""
    return IN_GRAPH if rank.execution.cuda_graphs == "full" else PER_EXPERT


def _fused(rank: RankShare) -> bool:
    """A graph of the whole step cannot ask the host where an expert's rows begin, so its kernels add biases, clamp and weigh rows
    themselves (Transformer Engine's fused grouped MLP)."""
    return rank.execution.cuda_graphs == "full"


def _clamp(rank: RankShare, experts: Mixture, rows: int) -> Works:
    """Clamping the gate and the linear half before the fused activation, by torch's own operators (Megatron-LM,
    fusions/fused_bias_geglu.py)."""
    passes = _passes(rank, CLAMP_BYTES * rows * (experts.ffn // rank.plan.etp), slowdown=PLACED)
    return passes if experts.clamped and not _fused(rank) else ()


def _weight_gradients(rank: RankShare, experts: Mixture, rows: int) -> Works:
    """The gradient of the routing weights, where the activation multiplies its rows by them."""
    weighs_rows = rank.execution.expert_products == PER_EXPERT and experts.gated
    passes = _passes(rank, round(WEIGHT_TENSORS * rank.item_bytes * rows * (experts.ffn // rank.plan.etp)))
    return passes if weighs_rows and not _fused(rank) else ()


def _biases(rank: RankShare, experts: Mixture, rows: int) -> Works:
    """The bias of the product down, which torch adds expert by expert: bias times routing weight, their sum with the rows, and a
    concatenation (Megatron-LM, moe/experts.py, `_apply_bias`), all but the first read in fp32, as the routing weights are."""
    if not experts.bias:
        return ()
    elements = rows * experts.width_of(rank.model)
    if _fused(rank):
        return _passes(rank, round(FUSED_BIAS_TENSORS * rank.item_bytes * elements))
    return _passes(rank, BIAS_BYTES * elements, slowdown=PLACED)


def _passes(rank: RankShare, size_bytes: int, *, slowdown: float = 1.0) -> Works:
    return ((Stream(dtype=rank.dtype, size_bytes=size_bytes), slowdown),)


def _stashed(rank: RankShare, experts: Mixture, rows: int) -> tuple[Module, ...]:
    """The tensors that a backward needs of the experts, out of buffers whose size a graph of the whole step fixes, beyond the rows that
    arrive, into pages after the forward, and back before the backward (Megatron-LM, moe/paged_stash.py): the inputs of both products, and
    in 16 bits the result of the first."""
    if not _fused(rank) or rank.execution.expert_products != PER_EXPERT or rank.plan.recompute == "full":
        return ()
    width = experts.ffn // rank.plan.etp
    narrow = narrow_item_bytes(rank.run) if rank.run.precision in NARROW else rank.item_bytes
    inputs = narrow * (experts.width_of(rank.model) + width)
    size = rows * (inputs + rank.item_bytes * width * (2 if experts.gated else 1))
    return (Module(name="paged_stash", works=_passes(rank, round(2 * size), slowdown=STASHED)),)


def _sorted_chunks(rank: RankShare, experts: Mixture, groups: int, rows: int) -> tuple[Module, ...]:
    """After NCCL's exchange, rows that lie by sender are sorted by expert, and back (Megatron-LM, `sort_chunks_by_idxs`)."""
    if rank.execution.dispatch != "alltoall" or rank.plan.ep == 1 or groups == 1:
        return ()
    sort = Permute(
        dtype=rank.dtype,
        tokens=rows,
        hidden=experts.width_of(rank.model),
        topk=1,
        experts=groups,
        fused=rank.execution.fuse_permute,
    )
    return (Module(name="permute", works=((sort, 2),), part_of="moe"),)


def _exchanges(rank: RankShare, experts: Mixture, own_rows: int, busiest: float) -> tuple[Exchange, ...]:
    """Tokens to their experts and back; each over ep, then gathered and summed over etp."""
    etp = rank.groups.etp
    size = rank.item_bytes * round(own_rows * experts.topk * busiest) * experts.width_of(rank.model)
    there, back = _dispatch(rank, experts, own_rows * busiest)
    gathered, summed = etp.all_gather(size * etp.ranks), etp.reduce_scatter(size * etp.ranks)
    share, most, hidden_by = _hiding(rank)
    found = []
    if there:
        found.append(
            Exchange(
                heading="ep",
                forward=(*there, *back),
                backward=(*there, *back),
                forward_share=share,
                backward_share=share,
                hidden_by=hidden_by,
                most=most,
            )
        )
    if gathered:
        found.append(Exchange(heading="ep", forward=(*gathered, *summed), backward=(*gathered, *summed)))
    return tuple(found)


def _dispatch(rank: RankShare, experts: Mixture, tokens: float) -> tuple[Calls, Calls]:
    """The exchange there and back over ep, of `tokens` per rank in 16 bits: Megatron-Core dispatches before it quantises
    (fused_a2a.py: Hybrid-EP "does not support fp8 dispatch")."""
    ep, kind = rank.groups.ep, rank.execution.dispatch
    size = rank.item_bytes * experts.width_of(rank.model) * tokens
    if kind == "alltoall":
        calls = ep.all_to_all(rank.item_bytes * experts.width_of(rank.model) * round(tokens * experts.topk))
        return calls, calls
    if kind == "allgather":
        return ep.all_gather(size * ep.ranks), ep.reduce_scatter(size * ep.ranks)
    in_node = min(ep.ranks, ep.ranks_per_node)
    nodes = -(-ep.ranks // in_node)
    # a copy that comes through the network lands on one of the node's ranks, which needs no further copy
    inside = expected_places(experts, ep.ranks) * (in_node - 1) / in_node
    away = expected_places(experts, nodes) * (nodes - 1) / nodes
    calls = ep.token_exchange(size * inside, size * away, kind)
    return calls, calls


def _hiding(rank: RankShare) -> tuple[float, float, tuple[str, ...]]:
    """The share of the hiding modules' time that hides the exchange, the share of the exchange that can be hidden, and these modules."""
    if rank.execution.overlap_ep == "shared_expert":
        return 1.0, 1.0, (SHARED,)
    if rank.execution.overlap_ep == "microbatch":
        # another microbatch's attention and experts, which take as long as this one's; the first forwards and last backwards have none
        accompanied = 1 - rank.run.lone_share
        by = ("qkv", "core_attn", "proj", "mla_up_proj", "moe", "moe_act", SHARED)
        return SHARE_BESIDE_MICROBATCH * accompanied, accompanied, by
    return 0.0, 1.0, ()


def _shared(rank: RankShare, experts: Mixture) -> tuple[Module, ...]:
    if not experts.shared_ffn:
        return ()
    works = mlp_works(rank, experts.shared_matrices(rank.model), gated=experts.gated)
    joined = ResidualAdd(dtype=rank.dtype, tokens=rank.rows, hidden=rank.model.hidden)
    return (
        Module(name=SHARED, works=(*works, (joined, 1)), exchanges=(*entering(rank), *leaving(rank)), part_of="moe"),
    )


def _grouped_router(sizes: Sizes) -> bool:
    """Whether the router is DeepSeek's sigmoid router with groups."""
    return sizes.model.attention.GROUPED_ROUTER


def _saved_of_router(sizes: Sizes, experts: Mixture, rows: float) -> SavedTensors:
    """Hugging Face's softmax router: fp32 probabilities, indices, chosen weights and their sum, T(4E + 12k + 4). DeepSeek-V3's
    in fp32: copies of its 16-bit weight and input, sigmoids, a mask and the indices of groups, 4EH + T(4H + 5E + 16·groups +
    8·chosen + 12k + 4). Megatron-Core (moe_utils.py): fp32 logits and probabilities and their map, 9E per token."""
    count, chosen = experts.count, (INDEX + FP32) * experts.topk + FP32
    if sizes.profile.megatron:
        kept = rows * (2 * FP32 + 1) * count
    elif _grouped_router(sizes):
        copies = FP32 * (count + rows) * sizes.hidden if sizes.item < FP32 else 0.0
        groups = 2 * INDEX * experts.groups + INDEX * experts.topk_groups
        kept = copies + rows * ((FP32 + 1) * count + groups + chosen)
    else:
        kept = rows * (FP32 * count + chosen)
    return SavedTensors(component="router", kept=kept, if_recomputed=MOE)


def _saved_of_routed(sizes: Sizes, experts: Mixture, own_rows: float, rows: float) -> Saved:
    """The routed experts of a rank: their input, the tensors between the products, and the maps of rows there and back.

    Where rows are weighted after the experts, their outputs and weights are kept. The exchange of tokens keeps nothing.
    """
    plan, item = sizes.rank.plan, sizes.item
    weighted = sizes.profile.weighted_activation
    offsets = 0.0 if weighted else FP32 * experts.count / plan.ep
    maps = INDEX * own_rows * experts.topk if weighted else 3 * INDEX * rows
    in_fp32 = sizes.profile.weighs_in_fp32 and not sizes.profile.compiled
    weight_item = FP32 if weighted or in_fp32 or _grouped_router(sizes) else item
    tensor = rows * experts.width_of(sizes.model)
    moved = tensor * (item if weighted else weight_item)
    width = experts.ffn // plan.etp
    return (
        SavedTensors(
            component="permute",
            kept=maps + offsets + weight_item * rows,
            if_recomputed=MOE,
            in_forward=2 * item * tensor,
        ),
        SavedTensors(
            component="experts",
            kept=sizes.input_item * tensor,
            if_recomputed=MOE,
            in_backward=2 * item * tensor,
            input_of=("up",),
        ),
        *activation(
            sizes,
            "experts",
            rows,
            width,
            gated=experts.gated,
            modules=("moe",),
            activation_module="moe_act",
            weighted=weighted,
        ),
        SavedTensors(
            component="experts",
            kept=0.0 if weighted else (FP32 if in_fp32 else item) * tensor,
            if_recomputed=MOE,
            in_forward=2 * moved,
            # gradients of the weighed rows and of the rows; in fp32 also their product with the rows, which sums to the weights' gradient
            in_backward=(3 if in_fp32 else 2) * moved,
        ),
    )


def _saved_of_latent(sizes: Sizes, experts: Mixture, own_rows: float) -> Saved:
    """The input of the way back from a compressed width; the way there reads the router's."""
    if not experts.latent:
        return ()
    kept = sizes.item * own_rows * experts.latent
    return (SavedTensors(component="experts", kept=kept, if_recomputed=MOE, input_of=("latent_up",)),)


def _saved_of_shared(sizes: Sizes, experts: Mixture) -> Saved:
    """Shared experts read the router's input; their gate keeps its sigmoid and the output that it weighs."""
    if not experts.shared_ffn:
        return ()
    gate = sizes.item * sizes.tokens * (1 + sizes.hidden) if experts.shared_gate else 0.0
    width = experts.shared_ffn // sizes.tp
    return (
        *activation(sizes, SHARED, sizes.tokens, width, gated=experts.gated, modules=(SHARED, "moe")),
        SavedTensors(component=SHARED, kept=gate, if_recomputed=MOE),
    )
