#!/bin/bash
# Train on several machines under Slurm:
#
#     sbatch launch/slurm.sh configs/wmt14_en_de_big.toml [--sharded ...]
#
# One torchrun a machine, one process a GPU. The machines find each other
# through a store on the first of them. What is killed, or the whole job when
# its time is over, goes on from the newest checkpoint: submit it again.
# NOT RUN by us on a cluster; tests/test_launch.py runs the same torchrun
# options on four simulated machines.
#
#SBATCH --job-name=transformer
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=32
#SBATCH --time=24:00:00
#SBATCH --requeue
#SBATCH --open-mode=append
set -euo pipefail

config=${1:?name a file of configs/}
shift

# The corpus and the run must lie where every machine sees them.
export TRANSFORMER_LIT_CACHE=${TRANSFORMER_LIT_CACHE:-$PWD/cache}
export OMP_NUM_THREADS=4
# A restart must not read the addresses of the processes that were killed:
# https://github.com/pytorch/pytorch/issues/135712
export TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1

first=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
gpus=${GPUS_PER_NODE:-${SLURM_GPUS_ON_NODE:-8}}

srun --kill-on-bad-exit=1 torchrun \
    --nnodes="$SLURM_JOB_NUM_NODES" \
    --nproc-per-node="$gpus" \
    --max-restarts=3 \
    --rdzv-backend=c10d \
    --rdzv-endpoint="$first:29400" \
    --rdzv-id="$SLURM_JOB_ID" \
    -m transformer_lit.train "$config" "$@"
