#!/usr/bin/env bash
# Times culet, tuned and untuned, beside the peers: the runs that bench/peers_table.py reads.
# usage: PEERS=peers.py bench/peers_run.sh OUTPUT_DIR TAG M[,M...]
# needs: Python with torch, and the package culet importable (PYTHONPATH, CULET_LIBRARY).
# LIMIT and LIMIT_UNTUNED: seconds for each of the two processes (400, 200); what is left out by then
# can be measured in another call, whose files belong to the same table:
#   bench/peers_run.sh out all 1,8,16,32,64,128,256,512,1024,2048,4096,8192
#   bench/peers_table.py --anchors ANCHORS.csv --csv bench/results/h200_fp8_block.csv --fact commit=... out/*.csv
set -euo pipefail
out=$1 tag=$2 ms=$3
: "${PEERS:?names the program that times the peers}"
export CULET_CACHE=off PYTHONUNBUFFERED=1
mkdir -p "$out"

nvidia-smi --query-gpu=name,driver_version,clocks.sm,power.draw,temperature.gpu --format=csv,noheader
python3 "$PEERS" --peers culet_tuned,culet_pdl,cublaslt_block --ms "$ms" --limit "${LIMIT:-400}" \
  --out "$out/tuned-$tag.csv"
# A process of its own: what was tuned nearby would help the untuned choice.
python3 "$PEERS" --peers culet,cublaslt_block --ms "$ms" --limit "${LIMIT_UNTUNED:-200}" \
  --out "$out/untuned-$tag.csv"
nvidia-smi --query-gpu=clocks.sm,power.draw,temperature.gpu --format=csv,noheader
