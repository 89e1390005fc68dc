# Two commands: `make run` shows culet at work, `make test` runs the whole suite.
# They install what is missing, configure and build. CUDA is used when nvcc is found.

PRESET ?= $(if $(shell command -v nvcc 2>/dev/null),cuda,cpu)
BUILD := build/$(PRESET)
CULET := $(BUILD)/culet
MODEL ?= examples/models/qwen3-0.6b
# `make run` keeps its choices here, apart from the user's own cache.
RUN_CACHE := $(BUILD)/run-cache.jsonl

.PHONY: run test asan build dependencies clean

run: build
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

test: build
	ctest --preset $(PRESET)

asan: dependencies
	cmake --preset asan
	cmake --build --preset asan
	ctest --preset asan

build: dependencies
	cmake --preset $(PRESET)
	cmake --build --preset $(PRESET)

dependencies:
	@scripts/install-dependencies

clean:
	rm -rf build
