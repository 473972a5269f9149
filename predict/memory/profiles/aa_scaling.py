"""Aleph Alpha's trainer of eager modules, whose pipeline holds on to the logits of the last two microbatches."""

from __future__ import annotations

from predict.run.memory_profile import HELD_LOGITS_LOSS, MemoryProfile

PROFILE = MemoryProfile(
    name="aa-scaling",
    fused_norm=True,  # unless execution.fuse_rms_norm is off
    fused_softmax=True,  # unless execution.fuse_softmax is off
    static_rotary=True,  # Aleph-Alpha/scaling, core/nn/rotary.py: buffers of the module
    gathers_rotary=True,  # the same, vector_gather
    keeps_joint_qkv=True,  # core/nn/attention/attention.py: `qkv_in_one`
    loss=HELD_LOGITS_LOSS,  # transformer/model/losses/cross_entropy.py: `.float()` of what parallel_module.py keeps in its buffers
    # Guo et al., GMLake, arXiv 2401.08156, abstract: 15 % of what torch's allocator reserves is lost on average, 33 % at most; the
    # state is allocated once and loses nothing
    fragmentation=0.15 / (1 - 0.15),
    holds_stage_outputs=True,  # core/nn/parallel_module/parallel_module.py: taken when the gradient arrives, or is sent
    sends_in_pairs=True,  # core/nn/parallel_module/communicator.py; torch's NCCL group makes a communicator for each pair
    held_logits=2,  # core/nn/pipeline_schedule/train.py: two buffers at least, of which each microbatch takes the older
)
