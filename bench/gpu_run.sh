#!/bin/sh
# Runs sm90_bench where there is a Hopper GPU: verifies each kernel group in a process of its own, then times.
# usage: bench/gpu_run.sh PROGRAM ANCHORS.csv OUTPUT_DIR [arguments of "sm90_bench bench"]
set -u
program=$1
anchors=$2
out=$3
shift 3
nvidia-smi --query-gpu=name,driver_version,clocks.sm,power.draw --format=csv,noheader
for group in ${GROUPS_TO_VERIFY:-""}; do
  timeout "${VERIFY_LIMIT:-60}" "$program" verify "$group" 2>&1 | tail -n 15
done
timeout "${BENCH_LIMIT:-200}" "$program" bench "$anchors" --log "$out/candidates.csv" "$@" 2>&1 | tee "$out/bench.txt"
nvidia-smi --query-gpu=clocks.sm,power.draw,temperature.gpu --format=csv,noheader
