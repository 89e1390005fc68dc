// The usage examples that fixed culet's vocabulary, as they were written for TurboMind: each must
// compile and work unchanged with `namespace turbomind = culet`.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <sstream>
#include <type_traits>
#include <vector>

#include "culet/device.h"
#include "culet/dispatch_cache.h"
#include "culet/kernel.h"
#include "culet/model.h"
#include "culet/registry.h"
#include "culet/layout/smem_layout.h"
#include "culet/layout/swizzle.h"

namespace turbomind = culet;

namespace {

using namespace turbomind;

// The signatures that the examples' documents state.
static_assert(std::is_same_v<
              decltype(&Kernel::Launch),
              int (Kernel::*)(const Operation&, float alpha,                         //
                              const void* A, const MatrixLayout& Adesc,              //
                              const void* U, const MatrixLayout& Udesc,              //
                              const void* B, const MatrixLayout& Bdesc,              //
                              const void* V, const MatrixLayout& Vdesc,              //
                              float beta, const void* C, const MatrixLayout& Cdesc,  //
                              void* D, const MatrixLayout& Ddesc,                    //
                              int swizzle, int splits, Workspace& workspace, cudaStream_t stream)>);
static_assert(std::is_same_v<decltype(&Kernel::is_feasible),
                             bool (Kernel::*)(const GemmDesc& desc) const noexcept>);
static_assert(
    std::is_same_v<decltype(&Kernel::GetMaxSwizzle), int (Kernel::*)(const int4& shape) const>);
static_assert(std::is_same_v<decltype(&Kernel::GetMaxSplits),
                             int (Kernel::*)(const int4& shape, int swizzle, std::size_t bsize,
                                             std::size_t psize) const>);
static_assert(
    std::is_same_v<decltype(&Kernel::desc), const KernelDesc& (Kernel::*)() const noexcept>);
static_assert(
    std::is_same_v<decltype(&Kernel::info), const KernelInfo& (Kernel::*)() const noexcept>);
static_assert(std::is_abstract_v<Kernel>);

TEST(SeedExample, Kernel) {
  const int m = 3, n = 5, k = 7;
  std::vector<float> a(m * k), b(k * n), c(m * n), d(m * n, -1.0f);
  for (std::size_t i = 0; i < a.size(); ++i) a[i] = static_cast<float>(i % 5) - 2;
  for (std::size_t i = 0; i < b.size(); ++i) b[i] = static_cast<float>(i % 7) - 3;
  for (std::size_t i = 0; i < c.size(); ++i) c[i] = static_cast<float>(i);

  const Operation op;
  const float alpha = 2.0f, beta = 0.5f;
  const void *A = a.data(), *U = nullptr, *B = b.data(), *V = nullptr, *C = c.data();
  void* D = d.data();
  const MatrixLayout Adesc = RowMajor(DataType::kFloat32, m, k), Udesc;
  const MatrixLayout Bdesc = RowMajor(DataType::kFloat32, k, n), Vdesc;
  const MatrixLayout Cdesc = RowMajor(DataType::kFloat32, m, n), Ddesc = Cdesc;
  const GemmArgs args{op, alpha, A, Adesc, U, Udesc, B, Bdesc, V, Vdesc, beta, C, Cdesc, D, Ddesc};
  const GemmDesc gemm_desc = *Describe(args, 0);

  const DeviceInfo host = HostDevice();
  const Registry registry = Registry::Builtin(host);
  Kernel* kernel = registry.kernels().back();  // the reference takes every problem
  const int swizzle = 0, splits = 1;
  const WorkspaceSize size = kernel->workspace_size(gemm_desc, swizzle, splits);
  std::vector<std::byte> buffer(size.total() + 256);
  void* aligned = buffer.data();
  std::size_t space = buffer.size();
  aligned = std::align(256, size.total(), aligned, space);
  Workspace workspace = *InitWorkspace(size, aligned, space);
  cudaStream_t stream = nullptr;

  // clang-format off
if (kernel->is_feasible(gemm_desc)) {
    kernel->Launch(op, alpha, A, Adesc, U, Udesc, B, Bdesc, V, Vdesc,
                   beta, C, Cdesc, D, Ddesc, swizzle, splits, workspace, stream);
}
  // clang-format on

  for (int row = 0; row < m; ++row) {
    for (int column = 0; column < n; ++column) {
      float sum = 0;  // exact: small integers
      for (int i = 0; i < k; ++i) sum += a[row * k + i] * b[i * n + column];
      EXPECT_EQ(d[row * n + column], alpha * sum + beta * c[row * n + column])
          << row << ", " << column;
    }
  }
}

TEST(SeedExample, DispatchCache) {
  const Registry registry = Registry::Builtin(HostDevice());
  const std::vector<Kernel*> kernels = registry.kernels();
  const GemmDesc desc = *MakeDesc(Format::kBf16, 4, 64, 64, 0);
  LaunchSpec measured_spec;
  measured_spec.kernel = kernels.back();
  measured_spec.time_us = 12.5;
  measured_spec.origin = Origin::kMeasured;
  measured_spec.when = 1'700'000'000;
  std::stringstream file_stream;

  // The first run tunes and inserts, the second finds; both through the same stream.
  for (const bool tuned_before : {false, true}) {
    int tuned = 0;
    // clang-format off
DispatchCache cache(kernels);
cache.Import(file_stream);  // Load previous tuning results
if (auto spec = cache.Find(desc)) {
    // Use cached kernel
    EXPECT_EQ(spec->kernel, measured_spec.kernel);
    EXPECT_EQ(spec->time_us, 12.5);
} else {
    // Tune and insert
    ++tuned;
    cache.Insert(desc, measured_spec);
}
cache.Export(file_stream);  // Persist results
    // clang-format on
    EXPECT_EQ(tuned, tuned_before ? 0 : 1);
    EXPECT_TRUE(file_stream.good());
    EXPECT_NE(file_stream.str().find(measured_spec.kernel->id()), std::string::npos);
  }
}

// What CUDA brings; tests/layout_device_test.cu compiles the same lines with nvcc.
struct half {
  std::uint16_t bits;
};
#undef __shared__  // <vector_types.h> defines it where CUDA is installed
#define __shared__ static

TEST(SeedExample, SmemLayout) {
  // clang-format off
using namespace turbomind;

// Define a 64x64 shared memory layout with 3-bit swizzle
using Layout = SmemLayoutV2<64, 64, 8, 64, Swizzle<3, 3, 3>>;
__shared__ half smem[Layout::kSize];
SmemAccessor<half, Layout> acc(smem);

  for (int i = 0; i < Layout::kSize; ++i) smem[i].bits = static_cast<std::uint16_t>(i);

// Access element at row 5, column 10
half val = acc(5, 10);
  // clang-format on

  // Row 5, chunk 10 / 8 = 1: chunk 1 ^ 5 = 4 of the row, element 2 of it.
  EXPECT_EQ(val.bits, 5 * 64 + 4 * 8 + 2);
}
#undef __shared__

}  // namespace
