# Two commands: `make run` shows culet at work, `make test` runs the whole suite.
# They install what is missing, configure and build. CUDA is used when nvcc is found.

NVCC := $(shell command -v nvcc 2>/dev/null)
GPU := $(wildcard /dev/nvidia[0-9]* /dev/dxg)
# `make run` builds the command alone, and without a GPU the CUDA kernels, half of the compiler's
# time, would never run. `make test` builds all that nvcc can.
ifdef PRESET
RUN_PRESET ?= $(PRESET)
else
RUN_PRESET ?= $(if $(and $(NVCC),$(GPU)),cuda,cpu)
PRESET := $(if $(NVCC),cuda,cpu)
endif
CULET := build/$(RUN_PRESET)/culet
MODEL ?= examples/models/qwen3-0.6b
# `make run` keeps its choices here, apart from the user's own cache.
RUN_CACHE := build/$(RUN_PRESET)/run-cache.jsonl

.PHONY: run test asan build command dependencies simd-levels clean

run: command
	@echo "== The products of $(MODEL), a kernel tuned for each, the choices remembered in $(RUN_CACHE)"
	$(CULET) tune --model $(MODEL) --m 1,16,128 --format bf16 --budget 25 --cache $(RUN_CACHE)
	@echo; echo "== Once more: nothing is left to measure"
	$(CULET) tune --model $(MODEL) --m 1,16,128 --format bf16 --budget 25 --cache $(RUN_CACHE)
	@echo; echo "== Why this kernel"
	$(CULET) explain --m 1 --n 4096 --k 1024 --format bf16 --cache $(RUN_CACHE)
	@echo; echo "== Run with the choices"
	$(CULET) bench --model $(MODEL) --m 1,16 --format bf16 --kernels best --budget 15 --cache $(RUN_CACHE)
	@echo; echo "== A model that learnt to add, on kernels tuned for it"
	$(CULET) run --model examples/adder --prompt "481516+42108=" --tune --cache $(RUN_CACHE)

# SIMD=LEVEL runs the tests that the SIMD level can change at that level, LABEL=unsanitized of these
# the ones that `make asan`, whose best level is AVX2, leaves out.
test: build
	$(if $(SIMD),CULET_SIMD=$(SIMD)) ctest --preset $(PRESET) -j2 $(if $(SIMD),-LE any_simd) \
	  $(if $(LABEL),-L $(LABEL))

# The levels of this machine, best first, for SIMD=.
simd-levels:
	@build/$(PRESET)/culet devices --json 2>/dev/null | \
	  python3 -c 'import json, sys; print(*json.load(sys.stdin)["simd_levels"])'

asan: dependencies
	cmake --preset asan
	cmake --build --preset asan
	ctest --preset asan -j2

build: dependencies
	cmake --preset $(PRESET)
	cmake --build --preset $(PRESET)

command: dependencies
	cmake --preset $(RUN_PRESET)
	cmake --build --preset $(RUN_PRESET) --target culet_cli

dependencies:
	@scripts/install-dependencies

clean:
	rm -rf build
