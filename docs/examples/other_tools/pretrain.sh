#!/usr/bin/env bash
# Llama 3 70B with Megatron-LM, on 8 nodes of 8 GPUs
GPUS_PER_NODE=8
NNODES=${NNODES:-8}
TP=4
MODEL_ARGS=(
    --num-layers 80 --hidden-size 8192 --ffn-hidden-size 28672
    --num-attention-heads 64 --group-query-attention --num-query-groups 8
    --swiglu --normalization RMSNorm --disable-bias-linear
    --untie-embeddings-and-output-weights --position-embedding-type rope
    --attention-dropout 0 --hidden-dropout 0 --max-position-embeddings 8192
    --tokenizer-type HuggingFaceTokenizer --vocab-size 128256
)
PARALLEL_ARGS="--tensor-model-parallel-size $TP --sequence-parallel --pipeline-model-parallel-size 4 \
    --num-layers-per-virtual-pipeline-stage 5 --context-parallel-size 2 --use-distributed-optimizer \
    --overlap-grad-reduce --overlap-param-gather"
torchrun --nproc_per_node $GPUS_PER_NODE --nnodes $NNODES pretrain_gpt.py \
    ${MODEL_ARGS[@]} \
    $PARALLEL_ARGS \
    --micro-batch-size 1 --global-batch-size 128 --seq-length 8192 \
    --bf16 --lr 1.5e-4 --train-iters 100 --data-path my-data
