"""Rules of how a batch is divided among replicas, and a sequence among ranks."""

from __future__ import annotations

from predict.config.rules.rule import Problems, rule
from predict.run.lengths import PADDED
from sampling.files.faults import near_multiples


@rule("batch.global")
def replicas_divide_the_batch(global_: int, micro: int, dp: int) -> Problems:
    at_once = micro * dp
    if global_ % at_once:
        multiples = near_multiples(global_, at_once)
        yield f"{global_} is not a multiple of batch.micro · plan.dp = {micro} · {dp} = {at_once}; set {multiples}"


@rule("batch.padding")
def padding_needs_lengths(padding: str, lengths: str) -> Problems:
    if padding != PADDED and not lengths:
        yield f"{padding} without batch.lengths changes nothing, since every sequence is as long as a row; give them, or omit it"


@rule("batch.seq_len")
def tp_divides_the_sequence(seq_len: int, sp: bool, tp: int) -> Problems:
    if sp and seq_len % tp:
        yield f"{seq_len} is not a multiple of plan.tp = {tp}, which plan.sp needs; set {near_multiples(seq_len, tp)}"


@rule("batch.seq_len")
def cp_divides_the_sequence(seq_len: int, cp: int) -> Problems:
    if seq_len % cp:
        yield f"{seq_len} is not a multiple of plan.cp = {cp}; set {near_multiples(seq_len, cp)}"


@rule("batch.seq_len")
def tp_and_cp_divide_the_sequence(seq_len: int, sp: bool, tp: int, cp: int) -> Problems:
    if sp and seq_len % tp == 0 and seq_len % cp == 0 and seq_len % (tp * cp):
        nearest = near_multiples(seq_len, tp * cp)
        yield f"{seq_len} is not a multiple of plan.tp · plan.cp = {tp} · {cp} = {tp * cp}, which plan.sp needs; set {nearest}"


@rule("batch.seq_len")
def positions_suffice(seq_len: int, max_positions: int, rope: bool) -> Problems:
    if not rope and seq_len > max_positions:
        yield f"{seq_len} is longer than the model's {max_positions} learnt positions; set {max_positions} or less"
