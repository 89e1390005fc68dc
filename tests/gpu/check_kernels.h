// Kernels that look at outputs where they lie: the checks of programs with millions of launches.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace culet {

/// What an output holds before a launch, byte by byte.
inline constexpr int kPoisonByte = 0xff;

/// An output with its guard zones, and what it must be. 16-byte aligned; `bytes` a multiple of 16.
struct ExpectedOutput {
  void* found = nullptr;
  const void* expected = nullptr;
  std::int64_t bytes = 0;
  int job = 0;  ///< names it
};

inline constexpr int kOutputsACheck = 4;
struct OutputChecks {
  ExpectedOutput outputs[kOutputsACheck];
};

/// What checks found so far; starts as {0, -1}.
struct Tally {
  unsigned long long wrong = 0;  ///< groups of 16 bytes that differ
  int job = -1;                  ///< one that differs
};

/// Counts what differs into `tally` and fills the outputs with poison again. Outputs with 0 bytes
/// are skipped.
cudaError_t CompareAndPoison(const OutputChecks& checks, Tally* tally, cudaStream_t stream);

/// What the next kernel finds in all shared memory: what lies beyond a matrix may not be loaded.
cudaError_t FillShared(std::uint32_t word, cudaStream_t stream);

/// A region of an input that a kernel writes for the next one.
struct LateInput {
  void* to = nullptr;
  const void* from = nullptr;
  std::int64_t bytes = 0;
};

/// Those of a product: A, its scales, C and the bias, in any order; what is absent has no bytes.
struct LateInputs {
  LateInput all[4];
};

/// The kernel before, under programmatic dependent launch: lets its dependent start at once, waits
/// some 20 us, counts the bytes of `output` that are no poison any more, and only then writes its
/// results, the inputs.
cudaError_t WriteLate(const LateInputs& inputs, const void* output, std::int64_t output_bytes,
                      unsigned* touched_early, cudaStream_t stream);

/// What a kernel must not do: a programmatic dependent that copies without waiting for the kernel
/// before.
cudaError_t CopyWithoutWaiting(void* to, const void* from, std::int64_t bytes, cudaStream_t stream);

}  // namespace culet
