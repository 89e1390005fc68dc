// The numbers of kernels/cublaslt/lt_abi.h against <cublasLt.h>, where a toolkit has it.
#include "kernels/cublaslt/lt_abi.h"

#include <gtest/gtest.h>

#if __has_include(<cublasLt.h>)
#include <cublasLt.h>

#include <type_traits>

namespace culet::lt {
namespace {

static_assert(sizeof(Operation) == sizeof(cublasLtMatmulDescOpaque_t));
static_assert(sizeof(Layout) == sizeof(cublasLtMatrixLayoutOpaque_t));
static_assert(sizeof(Preference) == sizeof(cublasLtMatmulPreferenceOpaque_t));
static_assert(sizeof(Algorithm) == sizeof(cublasLtMatmulAlgo_t));
static_assert(sizeof(HeuristicResult) == sizeof(cublasLtMatmulHeuristicResult_t));
static_assert(offsetof(HeuristicResult, workspace_bytes) ==
              offsetof(cublasLtMatmulHeuristicResult_t, workspaceSize));
static_assert(offsetof(HeuristicResult, status) ==
              offsetof(cublasLtMatmulHeuristicResult_t, state));
static_assert(sizeof(cublasStatus_t) == sizeof(int));

template <class Ours, class Theirs>
void Same(Ours ours, Theirs theirs) {
  EXPECT_EQ(static_cast<long long>(ours), static_cast<long long>(theirs));
}

TEST(LtAbi, NumbersAreTheHeaders) {
  Same(kSuccess, CUBLAS_STATUS_SUCCESS);
  Same(kAllocFailed, CUBLAS_STATUS_ALLOC_FAILED);
  Same(kInvalidValue, CUBLAS_STATUS_INVALID_VALUE);
  Same(kExecutionFailed, CUBLAS_STATUS_EXECUTION_FAILED);
  Same(kNotSupported, CUBLAS_STATUS_NOT_SUPPORTED);
  Same(kR32F, CUDA_R_32F);
  Same(kR16F, CUDA_R_16F);
  Same(kR16BF, CUDA_R_16BF);
  Same(kR8FE4M3, CUDA_R_8F_E4M3);
  Same(kCompute32F, CUBLAS_COMPUTE_32F);
  Same(kPlain, CUBLAS_OP_N);
  Same(kTransposed, CUBLAS_OP_T);
  Same(kTransA, CUBLASLT_MATMUL_DESC_TRANSA);
  Same(kTransB, CUBLASLT_MATMUL_DESC_TRANSB);
  Same(kEpilogue, CUBLASLT_MATMUL_DESC_EPILOGUE);
  Same(kBiasPointer, CUBLASLT_MATMUL_DESC_BIAS_POINTER);
  Same(kAScalePointer, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER);
  Same(kBScalePointer, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER);
  Same(kFastAccum, CUBLASLT_MATMUL_DESC_FAST_ACCUM);
  Same(kBiasDataType, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE);
  Same(kEpilogueDefault, CUBLASLT_EPILOGUE_DEFAULT);
  Same(kEpilogueBias, CUBLASLT_EPILOGUE_BIAS);
  Same(kMaxWorkspaceBytes, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES);
  Same(kReductionSchemeMask, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK);
  Same(kMinAlignmentA, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES);
  Same(kMinAlignmentB, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES);
  Same(kMinAlignmentC, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES);
  Same(kMinAlignmentD, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES);
  Same(kReduceComputeType, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE);
#if defined(CUBLAS_VERSION) && CUBLAS_VERSION >= 120900
  Same(kAScaleMode, CUBLASLT_MATMUL_DESC_A_SCALE_MODE);
  Same(kBScaleMode, CUBLASLT_MATMUL_DESC_B_SCALE_MODE);
  Same(kScalar32F, CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F);
  Same(kOuterVec32F, CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F);
  Same(kVec128_32F, CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F);
  Same(kBlk128x128_32F, CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F);
#endif
}

}  // namespace
}  // namespace culet::lt
#else
TEST(LtAbi, NumbersAreTheHeaders) { GTEST_SKIP() << "no <cublasLt.h> on this machine"; }
#endif
