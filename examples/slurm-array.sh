#!/bin/bash
# A deduplication on 16 machines of a Slurm cluster, without anything else between them than a shared folder or a bucket.
#
#   sbatch slurm-array.sh data/ unique/            (or s3://... for both)
#
# The array does the parts. When all have ended well, the last job joins them. A part that was killed (a time limit, a machine)
# is done again by the same command: what it had committed stays.
#SBATCH --job-name=tamis
#SBATCH --array=0-15
#SBATCH --cpus-per-task=16
#SBATCH --mem=64G
#SBATCH --time=12:00:00
#SBATCH --requeue
#SBATCH --signal=B:TERM@60
set -euo pipefail
in=$1 out=$2

command=(dedup fuzzy "$in" "$out" --memory "${TAMIS_MEMORY:-60GB}")  # below --mem: the rest is for the page cache of the node
if [ "${3:-}" = merge ]; then
    exec tamis merge "${command[@]}"
fi
if [ "${SLURM_ARRAY_TASK_ID}" = "${SLURM_ARRAY_TASK_MIN:-0}" ]; then
    sbatch --array=0-0 --dependency="afterok:${SLURM_ARRAY_JOB_ID}" "$0" "$in" "$out" merge
fi
exec tamis "${command[@]}" --shard "${SLURM_ARRAY_TASK_ID}/${SLURM_ARRAY_TASK_COUNT}"
