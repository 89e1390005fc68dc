#!/usr/bin/env bash
# Times culet, tuned and untuned, beside the peers: the runs that bench/peers_table.py reads.
# usage: PEERS=peers.py bench/peers_run.sh OUTPUT_DIR TAG M[,M...]
# needs: Python with torch, and the package culet importable (PYTHONPATH, CULET_LIBRARY).
# Twelve layers times four values of M fit in one call of a few minutes; the files of several calls
# belong together:
#   bench/peers_run.sh out small 1,8,16,32
#   bench/peers_run.sh out middle 64,128,256,512
#   bench/peers_run.sh out large 1024,2048,4096,8192
#   bench/peers_table.py --anchors ANCHORS.csv out/*.csv
set -euo pipefail
out=$1 tag=$2 ms=$3
: "${PEERS:?names the program that times the peers}"
export CULET_CACHE=off PYTHONUNBUFFERED=1
limit=${LIMIT:-400}  # seconds for each of the two
mkdir -p "$out"

nvidia-smi --query-gpu=name,driver_version,clocks.sm,power.draw,temperature.gpu --format=csv,noheader
python3 "$PEERS" --peers culet_tuned,culet_pdl,cublaslt_block --ms "$ms" --limit "$limit" \
  --out "$out/tuned-$tag.csv"
# A process of its own: what was tuned nearby would help the untuned choice.
python3 "$PEERS" --peers culet,cublaslt_block --ms "$ms" --limit "$limit" --out "$out/untuned-$tag.csv"
nvidia-smi --query-gpu=clocks.sm,power.draw,temperature.gpu --format=csv,noheader
