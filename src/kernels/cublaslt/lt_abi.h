// cuBLASLt's binary interface as far as culet calls it. The library is found at run time and may be
// older or newer than any header of the build machine, so its numbers stand here;
// tests/cuda/cublaslt_abi_test.cc compares them with <cublasLt.h> where a toolkit has it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "culet/types.h"

namespace culet::lt {

// Descriptors are plain memory: once initialised they may be copied, and freed without a call.
struct Operation {
  std::uint64_t data[32];
};
struct Layout {
  std::uint64_t data[8];
};
struct Preference {
  std::uint64_t data[8];
};
struct Algorithm {
  std::uint64_t data[8];
};
struct HeuristicResult {
  Algorithm algorithm;
  std::size_t workspace_bytes;
  int status;
  float waves;
  int reserved[4];
};
struct Context;
using Handle = Context*;

enum StatusValue : int {
  kSuccess = 0,
  kAllocFailed = 3,
  kInvalidValue = 7,
  kExecutionFailed = 13,
  kNotSupported = 15,
};

enum CudaType : std::int32_t { kR32F = 0, kR16F = 2, kR16BF = 14, kR8FE4M3 = 28 };
enum ComputeType : int { kCompute32F = 68 };
enum Transposition : std::int32_t { kPlain = 0, kTransposed = 1 };

enum OperationAttribute : int {
  kTransA = 3,
  kTransB = 4,
  kEpilogue = 7,
  kBiasPointer = 8,
  kAScalePointer = 17,
  kBScalePointer = 18,
  kFastAccum = 25,
  kBiasDataType = 26,
  kAScaleMode = 31,
  kBScaleMode = 32,
};
enum EpilogueValue : std::uint32_t { kEpilogueDefault = 1, kEpilogueBias = 4 };
enum ScaleMode : std::int32_t {
  kScalar32F = 0,
  kOuterVec32F = 3,
  kVec128_32F = 4,
  kBlk128x128_32F = 5,
};

enum PreferenceAttribute : int {
  kMaxWorkspaceBytes = 1,
  kReductionSchemeMask = 3,
  kMinAlignmentA = 5,
  kMinAlignmentB = 6,
  kMinAlignmentC = 7,
  kMinAlignmentD = 8,
};
// K may be split when partial sums are kept in FP32 in the workspace and added in a fixed order:
// neither by atomics into D nor in D's type.
enum ReductionScheme : std::uint32_t { kReduceComputeType = 2 };

// The functions, each with the type of its C declaration.
struct Functions {
  int (*Create)(Handle*);
  std::size_t (*GetVersion)();
  const char* (*GetStatusString)(int);
  int (*Matmul)(Handle, Operation*, const void* alpha, const void* A, Layout*, const void* B,
                Layout*, const void* beta, const void* C, Layout*, void* D, Layout*,
                const Algorithm*, void* workspace, std::size_t workspace_bytes, cudaStream_t);
  int (*MatmulAlgoGetHeuristic)(Handle, Operation*, Layout* A, Layout* B, Layout* C, Layout* D,
                                Preference*, int requested, HeuristicResult*, int* returned);
  int (*MatmulAlgoCheck)(Handle, Operation*, Layout* A, Layout* B, Layout* C, Layout* D,
                         const Algorithm*, HeuristicResult*);
  int (*MatmulDescInit)(Operation*, std::size_t size, int compute_type, std::int32_t scale_type);
  int (*MatmulDescSetAttribute)(Operation*, int attribute, const void*, std::size_t size);
  int (*MatrixLayoutInit)(Layout*, std::size_t size, std::int32_t type, std::uint64_t rows,
                          std::uint64_t cols, std::int64_t ld);
  int (*PreferenceInit)(Preference*, std::size_t size);
  int (*PreferenceSetAttribute)(Preference*, int attribute, const void*, std::size_t size);
};

}  // namespace culet::lt
