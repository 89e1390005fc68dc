#!/bin/sh
# Builds bench/sm90_bench.cu with kernel families into one self-contained program.
# usage: bench/gpu_build.sh OUTPUT SOURCE...   (sources of the families; objects are kept beside OUTPUT)
set -eu
out=$1
shift
dir=$(dirname "$out")/obj
mkdir -p "$dir"
flags="-gencode=arch=compute_90a,code=sm_90a -O3 --std=c++20 -Isrc -Iinclude -I. -Xptxas -v -Xcompiler -Wall"
objects=""
for source in bench/sm90_bench.cu "$@"; do
  object=$dir/$(echo "$source" | tr / _).o
  log=$object.log
  if [ ! -e "$object" ] || [ -n "$(find src/sm90 src/kernels/sm90 bench include "$source" -newer "$object" -type f \( -name '*.h' -o -name '*.cuh' -o -path "$source" \) | head -1)" ]; then
    if ! nvcc $flags -x cu -c "$source" -o "$object" >"$log" 2>&1; then
      cat "$log"
      rm -f "$object"
      exit 1
    fi
    # Spills, an ignored setmaxnreg (C7508) and serialised wgmma (C7510, C7514) are errors of the kernel.
    grep -E "C75(08|10|14)" "$log" || true
    grep -B1 -E "spill" "$log" | grep -E -A1 "Function" | grep -v " 0 bytes spill stores" | grep spill || true
  fi
  objects="$objects $object"
done
nvcc -gencode=arch=compute_90a,code=sm_90a -cudart static -Xcompiler -static-libstdc++ $objects -o "$out"
echo "built $out"
