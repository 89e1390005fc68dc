// The host side of the kernels for any shape: what is handed to which CTA, how operands are seen,
// what is refused. Needs no GPU.
#include "kernels/cuda/any_shape.h"
#include "verify/special_problems.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <numeric>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "culet/device.h"
#include "culet/scratch.h"
#include "culet/verify.h"
#include "gemm/cost_model.h"
#include "gpu_info.h"
#include "kernels/catalog.h"

namespace culet {
namespace {

using any_shape::CompiledKernel;
using any_shape::WorkOrder;

constexpr DataType kE4m3 = DataType::kFloat8_e4m3;
constexpr int kArchs[] = {800, 860, 870, 890, 900, 1000, 1030, 1200, 1210};

std::vector<const CompiledKernel*> AllKernels() {
  std::vector<const CompiledKernel*> kernels = {&any_shape::SimtKernel()};
  for (const CompiledKernel& kernel : any_shape::MmaKernels()) kernels.push_back(&kernel);
  return kernels;
}

TEST(AnyShapeWorkOrder, HandsOutEveryTileAndPartOnce) {
  for (const WorkOrder order : {WorkOrder{1, 1, 0, 1}, WorkOrder{5, 7, 0, 3}, WorkOrder{5, 7, 1, 1},
                                WorkOrder{3, 10, 2, 2}, WorkOrder{4, 3, 3, 1}}) {
    std::set<std::vector<int>> seen;
    for (std::int64_t i = 0; i < order.count(); ++i) {
      const WorkOrder::Position at = order.At(i);
      EXPECT_TRUE(0 <= at.tile_m && at.tile_m < order.tiles_m);
      EXPECT_TRUE(0 <= at.tile_n && at.tile_n < order.tiles_n);
      EXPECT_EQ(at.split, i / order.tiles());
      EXPECT_EQ(at.tile, i % order.tiles());
      EXPECT_TRUE(seen.insert({at.tile_m, at.tile_n, at.split}).second) << i;
    }
    EXPECT_EQ(static_cast<std::int64_t>(seen.size()), order.count());
  }
}

TEST(AnyShapeWorkOrder, PartsOfATileShareItsNumber) {
  const WorkOrder order{5, 7, 2, 4};
  for (std::int64_t tile = 0; tile < order.tiles(); ++tile) {
    const auto first = order.At(tile), last = order.At(tile + 3 * order.tiles());
    EXPECT_EQ(first.tile, last.tile);
    EXPECT_EQ(first.tile_m, last.tile_m);
    EXPECT_EQ(first.tile_n, last.tile_n);
  }
}

TEST(AnyShapeWorkOrder, WalksBandsAlongM) {
  const WorkOrder order{8, 6, 2, 1};
  std::set<int> columns;
  for (int i = 0; i < 8 * 4; ++i) columns.insert(order.At(i).tile_n);
  EXPECT_THAT(columns, testing::ElementsAre(0, 1, 2, 3));
  EXPECT_EQ(order.At(8 * 4).tile_n, 4);
  EXPECT_EQ(order.At(8 * 4).tile_m, 0);
}

TEST(AnyShapeWorkOrder, CountsBeyond32Bits) {
  constexpr int kMost = std::numeric_limits<int>::max();
  const WorkOrder order{kMost / 16 + 1, kMost / 64 + 1, 3, 2};
  const auto last = order.At(order.count() - 1);
  EXPECT_EQ(last.tile_m, order.tiles_m - 1);
  EXPECT_EQ(last.tile_n, order.tiles_n - 1);
  EXPECT_EQ(last.split, 1);
  EXPECT_EQ(any_shape::GridSize(order, 0), kMost);
  EXPECT_EQ(any_shape::GridSize(order, 7), 7);
  EXPECT_EQ(any_shape::GridSize({2, 3, 0, 1}, 7), 6);
}

TEST(AnyShapeSplits, CoverKEvenlyUpToItsEnd) {
  for (const auto& [k_tiles, splits] : {std::pair(1, 1), {7, 3}, {64, 32}, {33, 32}}) {
    EXPECT_EQ(any_shape::SplitBegin(k_tiles, splits, 0), 0);
    EXPECT_EQ(any_shape::SplitBegin(k_tiles, splits, splits), k_tiles);
    for (int i = 0; i < splits; ++i) {
      const int part =
          any_shape::SplitBegin(k_tiles, splits, i + 1) - any_shape::SplitBegin(k_tiles, splits, i);
      EXPECT_TRUE(part == k_tiles / splits || part == k_tiles / splits + 1);
      EXPECT_GE(part, 1) << "a part without k-tiles";
    }
  }
  constexpr int kMost = std::numeric_limits<int>::max();
  EXPECT_EQ(any_shape::SplitBegin(kMost, 32, 32), kMost);
}

TEST(AnyShapeSplits, StayWithinTheWorkspace) {
  for (const CompiledKernel& kernel : any_shape::MmaKernels()) {
    const int k = 40 * kernel.tile_k;
    for (const std::size_t partials :
         {std::size_t{0}, std::size_t{1} << 18, std::size_t{1} << 30}) {
      const int splits = any_shape::MaxSplits(kernel, 100, 300, k, 1 << 10, partials);
      EXPECT_GE(splits, 1);
      EXPECT_LE(splits, any_shape::kMaxSplits);
      EXPECT_LE(any_shape::WorkspaceOf(kernel, 100, 300, splits).partials, partials) << kernel.id;
      EXPECT_LE(any_shape::WorkspaceOf(kernel, 100, 300, splits).barriers, 1u << 10);
    }
    EXPECT_EQ(any_shape::MaxSplits(kernel, 100, 300, k, 1 << 10, 1 << 30), any_shape::kMaxSplits);
    EXPECT_EQ(any_shape::MaxSplits(kernel, 100, 300, kernel.tile_k + 1, 1 << 10, 1 << 30), 2);
    EXPECT_EQ(any_shape::MaxSplits(kernel, 1 << 20, 300, k, 1 << 10, 1 << 30), 1)
        << "more tiles than barriers";
    EXPECT_EQ(any_shape::WorkspaceOf(kernel, 100, 300, 1).total(), WorkspaceSize{}.total());
  }
}

// Row-major A (m, k) E4M3 with 1 x 128 scales, B (k, n) column-major with 128 x 128.
GemmArgs Fp8(std::uintptr_t a, std::uintptr_t b, std::int64_t lda, std::int64_t ldb) {
  GemmArgs args;
  args.A = reinterpret_cast<const void*>(a);
  args.B = reinterpret_cast<const void*>(b);
  args.Adesc = RowMajor(kE4m3, 5, 300, lda);
  args.Bdesc = ColMajor(kE4m3, 300, 200, ldb);
  args.Ddesc = RowMajor(DataType::kBfloat16, 5, 200, 1000);
  args.operation.quant_a = {QuantType::kK, 128};
  args.operation.quant_b = {QuantType::kB, 128};
  args.Udesc = ColMajor(DataType::kFloat32, 5, 3, 9);
  args.Vdesc = ColMajor(DataType::kFloat32, 3, 2, 11);
  args.U = args.V = reinterpret_cast<const void*>(std::uintptr_t{1} << 20);
  return args;
}

TEST(AnyShapeProblem, CopiesAsWidelyAsPointerAndPitchAllow) {
  const CompiledKernel& kernel = any_shape::MmaKernels()[0];
  const auto copy_bytes = [&](const GemmArgs& args) {
    const auto p = any_shape::MakeProblem(kernel, args, 0, 1);
    return std::pair(p.operands[0].copy_bytes, p.operands[1].copy_bytes);
  };
  EXPECT_EQ(copy_bytes(Fp8(256, 512, 304, 320)), std::pair(16, 16));
  EXPECT_EQ(copy_bytes(Fp8(256 + 8, 512, 304, 308)), std::pair(4, 4));
  EXPECT_EQ(copy_bytes(Fp8(256 + 4, 512 + 2, 304, 320)), std::pair(4, 0));
  EXPECT_EQ(copy_bytes(Fp8(256, 512, 301, 302)), std::pair(0, 0));
  GemmArgs columns = Fp8(256, 512, 304, 320);
  columns.Adesc = ColMajor(kE4m3, 5, 300, 16);
  columns.Bdesc = RowMajor(kE4m3, 300, 200, 208);
  EXPECT_EQ(copy_bytes(columns), std::pair(0, 0)) << "not along K";
  GemmArgs halves = Fp8(256, 512 + 2, 304, 320);
  halves.Adesc.type = halves.Bdesc.type = DataType::kFloat16;
  EXPECT_EQ(copy_bytes(halves), std::pair(16, 0));
}

TEST(AnyShapeProblem, SeesAnyOrderAsStrides) {
  GemmArgs args = Fp8(256, 512, 304, 320);
  args.Bdesc = RowMajor(kE4m3, 300, 200, 208);
  args.Ddesc = ColMajor(DataType::kBfloat16, 5, 200, 6);
  float bias = 0;
  args.operation.bias = {&bias, DataType::kFloat32, Bias::Axis::kM};
  const any_shape::Problem p = any_shape::MakeProblem(any_shape::MmaKernels()[0], args, 1, 2);
  const any_shape::Operand &a = p.operands[0], &b = p.operands[1];
  EXPECT_EQ(std::pair(a.row_stride, a.k_stride), std::pair(std::int64_t{304}, std::int64_t{1}));
  EXPECT_EQ(std::pair(b.row_stride, b.k_stride), std::pair(std::int64_t{1}, std::int64_t{208}));
  EXPECT_EQ(std::pair(a.scale_row_stride, a.scale_k_stride),
            std::pair(std::int64_t{1}, std::int64_t{9}));
  EXPECT_EQ(std::pair(b.scale_row_stride, b.scale_k_stride),
            std::pair(std::int64_t{11}, std::int64_t{1}));
  EXPECT_EQ(std::pair(a.group_rows, a.group_k), std::pair(1, 128));
  EXPECT_EQ(std::pair(b.group_rows, b.group_k), std::pair(128, 128));
  EXPECT_EQ(std::pair(p.d.row_stride, p.d.col_stride), std::pair(std::int64_t{1}, std::int64_t{6}));
  EXPECT_EQ(std::pair(p.bias.row_stride, p.bias.col_stride),
            std::pair(std::int64_t{1}, std::int64_t{0}));
  EXPECT_EQ(p.c.type, DataType::kNull);
  EXPECT_EQ(p.order.tiles_m, 1);
  EXPECT_EQ(p.order.tiles_n, 4);
  EXPECT_EQ(p.order.splits, 2);
  EXPECT_EQ(p.order.swizzle, 1);
}

TEST(AnyShapeProblem, LooksAtTheAlignmentOfEachNewPointer) {
  any_shape::Problem p =
      any_shape::MakeProblem(any_shape::MmaKernels()[0], Fp8(0, 512, 304, 320), 0, 1);
  EXPECT_EQ(p.operands[0].copy_bytes, 16) << "null before it is known";
  const auto at = [](std::uintptr_t address) { return reinterpret_cast<void*>(address); };
  any_shape::Rebind(at(1001), at(2000), nullptr, at(3000), 0.5f, 0.0f, &p);
  EXPECT_EQ(p.operands[0].copy_bytes, 0);
  EXPECT_EQ(p.operands[0].data, at(1001));
  EXPECT_EQ(p.operands[0].scales, at(2000));
  EXPECT_EQ(p.d.data, at(3000));
  EXPECT_EQ(p.alpha, 0.5f);
}

TEST(AnyShapeKernels, FitEveryGpuFromComputeCapability80On) {
  for (const CompiledKernel* kernel : AllKernels()) {
    EXPECT_LE(kernel->smem_bytes, 99 * 1024) << kernel->id;
    EXPECT_EQ(kernel->tile_m * kernel->tile_n % kernel->threads, 0) << kernel->id;
  }
  EXPECT_TRUE(BuiltinKernels(GpuInfo(750)).empty());
}

// Without a library, which may be absent.
bool Own(const Kernel& kernel, const GemmDesc& problem) {
  return kernel.desc().provider == kOwnProvider && kernel.is_feasible(problem);
}

TEST(AnyShapeKernels, LeaveNoProblemOfTheSuiteWithoutAKernel) {
  for (const int arch : kArchs) {
    const KernelList kernels = BuiltinKernels(GpuInfo(arch));
    // Epilogues that gate, batches, zero points and 4 bits are not everybody's.
    const auto special = SpecialProblems(arch, false);
    for (const GemmDesc& problem : ConformanceProblems(arch, false)) {
      if (std::ranges::find(special, problem) != special.end()) continue;
      const bool served =
          std::ranges::any_of(kernels, [&](const auto& kernel) { return Own(*kernel, problem); });
      EXPECT_TRUE(served) << arch << ": " << ToString(problem);
    }
  }
}

// A GPU takes exactly what the CPU reference takes.
TEST(AnyShapeKernels, TakeWhatTheReferenceTakes) {
  const KernelList host = BuiltinKernels(HostDevice()), gpu = BuiltinKernels(GpuInfo(800));
  const auto served = [](const KernelList& kernels, const GemmDesc& problem) {
    return std::ranges::any_of(kernels, [&](const auto& kernel) { return Own(*kernel, problem); });
  };
  const DataType types[] = {DataType::kFloat32, DataType::kFloat16, DataType::kBfloat16, kE4m3,
                            DataType::kFloat8_ue8m0};
  const QuantDesc quants[] = {{}, {QuantType::kK, 128}, {QuantType::kB, 128}, {QuantType::kK, 7}};
  int both = 0, neither = 0;
  for (const DataType a : types) {
    for (const DataType b : types) {
      for (const DataType d : types) {
        for (const QuantDesc& quant : quants) {
          for (const DataType scale : types) {
            for (const Determinism determinism :
                 {Determinism::kFast, Determinism::kRepeatable, Determinism::kBatchInvariant}) {
              GemmDesc problem;
              problem.a.type = a, problem.b.type = b, problem.d.type = d, problem.c.type = d;
              problem.m = 3, problem.n = 5, problem.k = 1000;
              problem.a.quant = quant;
              if (quant.type != QuantType::kNone) problem.a.scale_type = scale;
              problem.determinism = determinism;
              // D never holds scales: Describe refuses it before any kernel is asked.
              if (d == DataType::kFloat8_ue8m0) continue;
              // The reference alone takes such scales.
              if (problem.a.scale_type == DataType::kFloat8_ue8m0) continue;
              const bool on_host = served(host, problem);
              problem.arch = 800;
              EXPECT_EQ(served(gpu, problem), on_host) << ToString(problem);
              (on_host ? both : neither) += 1;
            }
          }
        }
      }
    }
  }
  EXPECT_GT(both, 1000);
  EXPECT_GT(neither, 1000);
}

// Both operands of a weight's gradient have a scale for 128 elements along K.
TEST(AnyShapeKernels, TakeTheScalesOfAGradient) {
  GemmArgs args = Fp8(1 << 12, 1 << 16, 304, 304);
  args.Ddesc = RowMajor(DataType::kFloat32, 5, 200, 1000);
  args.Cdesc = args.Ddesc;
  args.C = args.D;
  args.beta = 1.0f;
  args.operation.quant_b = {QuantType::kK, 128};
  args.Vdesc = ColMajor(DataType::kFloat32, 3, 200, 4);
  const auto desc = Describe(args, 900);
  ASSERT_TRUE(desc.ok()) << desc.status().ToString();
  int takers = 0;
  for (const auto& kernel : BuiltinKernels(GpuInfo(900))) {
    if (!kernel->id().starts_with("cuda_any/") || !kernel->why(*desc).ok()) continue;
    takers += kernel->desc().tile_k == 128;  // those on tensor cores
  }
  EXPECT_GE(takers, 2);
  for (const CompiledKernel* kernel : AllKernels()) {
    const any_shape::Operand b = any_shape::MakeProblem(*kernel, args, 0, 1).operands[1];
    EXPECT_EQ(b.group_rows, 1) << kernel->id;
    EXPECT_EQ(b.group_k, 128) << kernel->id;
    EXPECT_EQ(b.scale_row_stride, 4) << kernel->id;
    EXPECT_EQ(b.scale_k_stride, 1) << kernel->id;
  }
}

TEST(AnyShapeKernels, SayWhyTheyRefuse) {
  GemmDesc problem;
  problem.arch = 890;
  problem.a.type = problem.b.type = kE4m3;
  problem.d.type = DataType::kBfloat16;
  problem.m = problem.n = problem.k = 256;
  problem.a.quant = {QuantType::kK, 64};
  problem.a.scale_type = DataType::kFloat32;
  int refused = 0;
  for (const auto& kernel : BuiltinKernels(GpuInfo(890))) {
    if (!kernel->id().starts_with("cuda_any/")) continue;
    const Feasibility feasibility = kernel->why(problem);
    if (feasibility.ok()) continue;
    EXPECT_STRNE(feasibility.reason(), "") << kernel->id();
    ++refused;
    if (kernel->id().starts_with("cuda_any/e4m3")) {
      EXPECT_THAT(feasibility.reason(), testing::HasSubstr("multiple of 128"));
    }
  }
  EXPECT_EQ(refused, 9);
}

// Times measured on one H200 (2026-11-21, culet bench over rotating inputs).
TEST(AnyShapeKernels, PredictWhatWasMeasured) {
  struct Measured {
    const char* kernel;
    DataType type;
    int m, n, k, splits;
    double us;
  };
  constexpr DataType kF32 = DataType::kFloat32, kBf16 = DataType::kBfloat16;
  constexpr Measured kMeasured[] = {
      {"e4m3/16x64", kE4m3, 16, 4096, 7168, 1, 86.2},
      {"e4m3/16x64", kE4m3, 16, 4096, 7168, 8, 18.4},
      {"e4m3/16x64", kE4m3, 16, 512, 512, 1, 8.46},
      {"e4m3/16x64", kE4m3, 1, 28672, 8192, 4, 110},
      {"e4m3/64x64", kE4m3, 64, 4096, 7168, 4, 35.8},
      {"e4m3/64x64", kE4m3, 4096, 4096, 7168, 1, 1390},
      {"e4m3/128x128", kE4m3, 512, 4096, 7168, 1, 150},
      {"e4m3/128x128", kE4m3, 4096, 4096, 7168, 1, 1130},
      {"e4m3/128x128", kE4m3, 2048, 4096, 7172, 1, 849},
      {"bf16/16x64", kBf16, 16, 4096, 7168, 8, 20.4},
      {"bf16/64x64", kBf16, 4096, 4096, 7168, 1, 1140},
      {"e4m3/16x64", kE4m3, 16, 4096, 7169, 10, 70.2},
      {"bf16/64x64", kBf16, 2048, 4096, 7169, 3, 3140},
      {"bf16/128x128", kBf16, 4096, 4096, 7168, 1, 885},
      {"any/64x64", kF32, 1, 4096, 4096, 4, 110},
      {"any/64x64", kF32, 1024, 4096, 4096, 1, 1740},
  };
  const DeviceInfo device = GpuInfo(900);
  const KernelList kernels = BuiltinKernels(device);
  for (const Measured& at : kMeasured) {
    GemmDesc problem;
    problem.arch = 900;
    problem.a.type = problem.b.type = at.type;
    problem.d.type = DataType::kBfloat16;
    problem.m = at.m, problem.n = at.n, problem.k = at.k;
    const int pitch = at.k * static_cast<int>(SizeOf(at.type));
    problem.a.align = problem.b.align = static_cast<std::uint8_t>(std::gcd(pitch, 16));
    const auto kernel = std::ranges::find_if(kernels, [&](const auto& candidate) {
      return candidate->id() == std::string("cuda_any/") + at.kernel;
    });
    ASSERT_NE(kernel, kernels.end()) << at.kernel;
    const double us =
        (*kernel)->PredictUs(problem, device, TypicalRates(device, at.type), 0, at.splits);
    EXPECT_LT(us, 1.4 * at.us) << at.kernel << " m " << at.m << " splits " << at.splits;
    EXPECT_GT(us, at.us / 1.4) << at.kernel << " m " << at.m << " splits " << at.splits;
  }
}

// The families made for Hopper come first where they are feasible.
TEST(AnyShapeKernels, NeverPredictLessThanTheFamiliesForHopper) {
  const DeviceInfo device = GpuInfo(900);
  const HardwareRates rates = TypicalRates(device, kE4m3);
  const KernelList kernels = BuiltinKernels(device);
  for (const int m : {1, 16, 64, 128, 512, 4096, 16384}) {
    for (const auto& [n, k] : {std::pair(512, 512), {2112, 7168}, {4096, 4096}, {28672, 8192}}) {
      GemmDesc problem;
      problem.arch = 900;
      problem.a.type = problem.b.type = kE4m3;
      problem.d.type = DataType::kBfloat16;
      problem.a.quant = {QuantType::kK, 128};
      problem.b.quant = {QuantType::kB, 128};
      problem.a.scale_type = problem.b.scale_type = DataType::kFloat32;
      problem.m = m, problem.n = n, problem.k = k;
      double any_us = std::numeric_limits<double>::infinity(), hopper_us = any_us;
      for (const auto& kernel : kernels) {
        if (!Own(*kernel, problem)) continue;
        const bool any = kernel->id().starts_with("cuda_any/");
        const int4 shape = ShapeOf(problem);
        for (int swizzle = 0; swizzle <= kernel->GetMaxSwizzle(shape); ++swizzle) {
          const int most = kernel->GetMaxSplits(shape, swizzle, 1 << 20, 128 << 20);
          for (int splits = 1; splits <= most; ++splits) {
            const double us = kernel->PredictUs(problem, device, rates, swizzle, splits);
            if (any) {
              EXPECT_GE(us, RooflineUs(problem, rates)) << kernel->id();
            }
            double& best = any ? any_us : hopper_us;
            best = std::min(best, us);
          }
        }
      }
      EXPECT_GT(any_us, hopper_us) << "m " << m << " n " << n << " k " << k;
      EXPECT_LT(any_us, 30 * hopper_us) << "m " << m << " n " << n << " k " << k;
    }
  }
}

}  // namespace
}  // namespace culet
