// cuBLASLt on a GPU: every format, output, epilogue, order and algorithm against the oracle; inside
// captures and from several threads. Skipped where there is no GPU or no cuBLASLt. Prints a table.
#include <cuda_runtime_api.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "culet/gemm.h"
#include "culet/scratch.h"
#include "gemm/error_model.h"
#include "kernels/cublaslt/lt_kernel.h"

namespace culet::lt {
namespace {

constexpr DataType kF32 = DataType::kFloat32, kF16 = DataType::kFloat16,
                   kBf16 = DataType::kBfloat16, kE4m3 = DataType::kFloat8_e4m3;

struct Shape {
  int m, n, k;
};
// Odd ones for types of 16 and 32 bits; for FP8 rows of 16 bytes, with whole and partial blocks.
constexpr Shape kOdd[] = {{1, 1, 1},       {3, 5, 7},       {17, 33, 129},   {64, 65, 1000},
                          {128, 256, 512}, {65, 520, 2056}, {1, 4096, 4096}, {513, 1024, 2048}};
constexpr Shape kEven[] = {{4, 16, 16},     {16, 64, 128},    {17, 144, 272},  {64, 128, 656},
                           {200, 392, 512}, {68, 1024, 2064}, {4, 4096, 4096}, {516, 1024, 2048}};

// What was done with one kernel.
struct Row {
  int problems = 0, refused = 0, launches = 0, dropped = 0, wrong = 0;
  double relative_l2[2] = {0, 0};  // of normal data: promoted, fast
  double over_bound[2] = {0, 0};
  int most_variants = 0;
};

class LtOnGpu : public testing::Test {
 protected:
  void SetUp() override {
    std::string note;
    for (const DeviceInfo& found : Devices(&note)) {
      if (found.arch != 0) {
        device = found;
        break;
      }
    }
    if (device.arch == 0) GTEST_SKIP() << note;
    const auto library = Library::Shared();
    if (!library.ok()) GTEST_SKIP() << library.status().message();
    std::printf("cuBLASLt %s, %s (%s)\n", (*library)->version_text().c_str(),
                (*library)->file().c_str(), (*library)->origin().c_str());
    ASSERT_EQ(cudaSetDevice(device.ordinal), cudaSuccess);
    kernels = LtKernels(device, &Library::Shared);
  }

  Kernel& Find(const std::string& id) {
    const auto found =
        std::ranges::find_if(kernels, [&](const auto& kernel) { return kernel->id() == id; });
    EXPECT_NE(found, kernels.end()) << id;
    return **found;
  }

  DeviceInfo device;
  std::vector<std::unique_ptr<Kernel>> kernels;
};

GemmDesc Product(const Kernel& kernel, const Shape& shape, DataType d) {
  GemmDesc p;
  p.arch = kernel.desc().arch;
  p.a.type = kernel.desc().type_a, p.b.type = kernel.desc().type_b, p.d.type = d;
  p.a.quant = kernel.desc().quant_a, p.b.quant = kernel.desc().quant_b;
  if (p.a.quant.type != QuantType::kNone) p.a.scale_type = p.b.scale_type = kF32;
  p.m = shape.m, p.n = shape.n, p.k = shape.k;
  return p;
}

// A launch through Prepare, as a plan makes it.
Result<std::unique_ptr<PreparedKernel>> Prepared(Kernel& kernel, const ScratchProblem& scratch,
                                                 int variant) {
  GemmArgs args = scratch.args();
  args.operation.variant = variant;
  return PrepareKernel(kernel, args, 0, 1);
}

Status LaunchOf(const PreparedKernel& prepared, Kernel& kernel, const GemmArgs& args,
                Workspace& workspace, cudaStream_t stream = nullptr) {
  return LaunchStatus(
      prepared.Launch(args.alpha, args.A, args.U, args.beta, args.C, args.D, workspace, stream),
      kernel);
}

// The variants of one problem: all of them, or the first and the last.
void Check(const DeviceInfo& device, Kernel& kernel, const GemmDesc& desc, bool all_variants,
           Row& row) {
  if (!kernel.why(desc).ok()) return;
  ++row.problems;
  const auto variants = Variants(kernel, desc);
  if (!variants.ok()) {
    EXPECT_EQ(variants.status().code(), StatusCode::kUnsupported)
        << ToString(desc) << ": " << variants.status().ToString();
    if (row.refused++ == 0) {
      std::printf("  %s refuses %s: %s\n", kernel.id().c_str(), ToString(desc).c_str(),
                  variants.status().message().c_str());
    }
    return;
  }
  row.most_variants = std::max(row.most_variants, *variants);
  int launched = 0;
  std::string last_words;
  for (const Fill fill : {Fill::kIntegers, Fill::kNormal}) {
    ScratchOptions options;
    options.fill = fill;
    options.alpha = fill == Fill::kIntegers ? -2.0f : 0.7f;
    options.beta = fill == Fill::kIntegers ? 0.5f : -1.3f;
    options.gap_bytes = fill == Fill::kIntegers ? 0 : 48;
    auto scratch = ScratchProblem::Create(device, desc, options);
    ASSERT_TRUE(scratch.ok()) << scratch.status().ToString();
    const auto workspace = scratch->workspace(kernel.workspace_size(desc, 0, 1));
    ASSERT_TRUE(workspace.ok()) << workspace.status().ToString();
    for (int variant = 0; variant < *variants; ++variant) {
      if (!all_variants && variant != 0 && variant != *variants - 1) continue;
      const auto prepared = Prepared(kernel, *scratch, variant);
      if (!prepared.ok()) {
        ++row.dropped;
        last_words = prepared.status().ToString();
        continue;
      }
      const std::string what =
          fmt::format("{} variant {}, {}", kernel.id(), variant, ToString(desc));
      std::vector<std::byte> first;
      for (int repeat = 0; repeat < 2; ++repeat) {
        ASSERT_TRUE(scratch->PoisonOutput().ok());
        const Status status = LaunchOf(**prepared, kernel, scratch->args(), **workspace);
        ASSERT_TRUE(status.ok()) << what << ": " << status.ToString();
        ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess) << what;
        auto bytes = scratch->OutputBytes();
        ASSERT_TRUE(bytes.ok());
        if (repeat == 0) {
          first = *std::move(bytes);
        } else {
          EXPECT_TRUE(first == *bytes) << what << ": two launches gave different bits";
        }
      }
      ++row.launches, ++launched;
      const auto error = scratch->Compare(0, AccumulatorFor(kernel.desc(), scratch->desc()));
      ASSERT_TRUE(error.ok()) << error.status().ToString();
      if (!error->ok() && row.wrong++ < 5) ADD_FAILURE() << what << ": " << error->ToString();
      if (fill == Fill::kNormal) {
        const int fast = desc.accumulate == Accumulate::kFast;
        row.relative_l2[fast] = std::max(row.relative_l2[fast], error->relative_l2);
        row.over_bound[fast] = std::max(row.over_bound[fast], error->max_over_bound);
      }
    }
  }
  EXPECT_GT(launched, 0) << kernel.id() << " offers algorithms for " << ToString(desc)
                         << ", but none can be prepared: " << last_words;
  if (launched > 0 && !last_words.empty() && row.dropped <= 3) {
    std::printf("  %s dropped a variant of %s: %s\n", kernel.id().c_str(), ToString(desc).c_str(),
                last_words.c_str());
  }
}

TEST_F(LtOnGpu, EveryFormatOutputEpilogueOrderAndAlgorithmIsRight) {
  std::map<std::string, Row> rows;
  for (const auto& kernel : kernels) {
    if (const Status& status = kernel->available(); !status.ok()) {
      std::printf("  %s: %s\n", kernel->id().c_str(), status.message().c_str());
      continue;
    }
    const bool fp8 = kernel->desc().type_a == kE4m3;
    for (const Shape& shape : fp8 ? std::span<const Shape>(kEven) : std::span<const Shape>(kOdd)) {
      for (const DataType d : {kBf16, kF16, kF32}) {
        Row& row = rows[kernel->id()];
        const GemmDesc plain = Product(*kernel, shape, d);
        Check(device, *kernel, plain, true, row);
        for (int extras = 1; extras < 4; ++extras) {
          GemmDesc p = plain;
          if (extras & 1) p.c.type = d;
          if (extras & 2) p.type_bias = fp8 && d == kF32 ? kBf16 : d;
          Check(device, *kernel, p, false, row);
        }
        // Orders: all eight where the library takes them, with a bias along D's lines.
        for (int orders = 0; orders < 8; ++orders) {
          GemmDesc p = plain;
          p.a.order = orders & 1 ? Order::kColMajor : Order::kRowMajor;
          p.b.order = orders & 2 ? Order::kRowMajor : Order::kColMajor;
          p.c.order = p.d.order = orders & 4 ? Order::kColMajor : Order::kRowMajor;
          p.type_bias = fp8 && d == kF32 ? kBf16 : d;
          p.bias_axis = orders & 4 ? Bias::Axis::kM : Bias::Axis::kN;
          Check(device, *kernel, p, false, row);
        }
        if (fp8) {
          GemmDesc p = plain;
          p.accumulate = Accumulate::kFast;
          Check(device, *kernel, p, false, row);
          // The scales' other orders, and in place where they can be.
          for (int orders = 0; orders < 4; ++orders) {
            p = plain;
            if (p.a.quant.type == QuantType::kNone) break;
            p.a.scale_order = orders & 1 ? Order::kColMajor : Order::kRowMajor;
            p.b.scale_order = orders & 2 ? Order::kColMajor : Order::kRowMajor;
            Check(device, *kernel, p, false, row);
          }
        } else {
          GemmDesc p = plain;
          const auto size = static_cast<std::uint8_t>(SizeOf(p.a.type));
          p.a.align = p.b.align = size;
          p.d.align = static_cast<std::uint8_t>(SizeOf(p.d.type));
          Check(device, *kernel, p, false, row);
        }
      }
    }
  }
  std::printf("%-22s %8s %8s %8s %8s %8s %6s %10s %10s %10s %10s\n", "kernel", "problems",
              "refused", "variants", "launches", "dropped", "wrong", "L2", "of bound", "L2 fast",
              "of bound");
  for (const auto& [id, row] : rows) {
    std::printf("%-22s %8d %8d %8d %8d %8d %6d %10.2e %10.3f %10.2e %10.3f\n", id.c_str(),
                row.problems, row.refused, row.most_variants, row.launches, row.dropped, row.wrong,
                row.relative_l2[0], row.over_bound[0], row.relative_l2[1], row.over_bound[1]);
    EXPECT_EQ(row.wrong, 0) << id;
    EXPECT_GT(row.launches, 0) << id;
  }
}

TEST_F(LtOnGpu, ACaptureTakesPlansAndLaunches) {
  for (const auto& kernel : kernels) {
    if (!kernel->available().ok()) continue;
    // With copies of scales and of a bias, which is not aligned in a ScratchProblem.
    const DataType d = kernel->desc().type_a == kF32   ? kF32
                       : kernel->desc().type_a == kF16 ? kF16
                                                       : kBf16;
    GemmDesc desc = Product(*kernel, {64, 256, 656}, d);
    desc.type_bias = d;
    auto scratch = ScratchProblem::Create(device, desc);
    ASSERT_TRUE(scratch.ok());
    const auto workspace = scratch->workspace(kernel->workspace_size(desc, 0, 1));
    ASSERT_TRUE(workspace.ok());
    ASSERT_TRUE(scratch->PoisonOutput().ok());
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    cudaStream_t stream = nullptr;
    ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
    // The strictest mode, and nothing was asked of the library for this problem before.
    ASSERT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), cudaSuccess);
    const auto prepared = Prepared(*kernel, *scratch, 0);
    EXPECT_TRUE(prepared.ok()) << kernel->id() << ": " << prepared.status().ToString();
    if (prepared.ok()) {
      const Status launched = LaunchOf(**prepared, *kernel, scratch->args(), **workspace, stream);
      EXPECT_TRUE(launched.ok()) << kernel->id() << ": " << launched.ToString();
    }
    EXPECT_TRUE(LaunchKernel(*kernel, scratch->args(), 0, 1, **workspace, stream).ok());
    cudaGraph_t graph = nullptr;
    ASSERT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess) << kernel->id();
    cudaGraphExec_t executable = nullptr;
    ASSERT_EQ(cudaGraphInstantiate(&executable, graph, 0), cudaSuccess) << kernel->id();
    for (int replay = 0; replay < 3; ++replay) {
      ASSERT_EQ(cudaGraphLaunch(executable, stream), cudaSuccess);
    }
    ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess) << kernel->id();
    const auto error = scratch->Compare(0, AccumulatorFor(kernel->desc(), scratch->desc()));
    ASSERT_TRUE(error.ok());
    EXPECT_TRUE(error->ok()) << kernel->id() << ": " << error->ToString();
    EXPECT_EQ(cudaGraphExecDestroy(executable), cudaSuccess);
    EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
    EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
    EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  }
}

TEST_F(LtOnGpu, ThreadsShareAPlanEachWithItsWorkspace) {
  constexpr int kThreads = 4, kRounds = 100;
  for (const char* id : {"cublaslt/bf16", "cublaslt/fp8_block"}) {
    Kernel& kernel = Find(id);
    if (!kernel.available().ok()) continue;
    const GemmDesc desc = Product(kernel, {64, 2112, 7168}, kBf16);
    ScratchOptions options;
    options.sets = kThreads;
    auto scratch = ScratchProblem::Create(device, desc, options);
    ASSERT_TRUE(scratch.ok());
    const auto prepared = Prepared(kernel, *scratch, 0);
    ASSERT_TRUE(prepared.ok()) << prepared.status().ToString();
    const WorkspaceSize size = kernel.workspace_size(desc, 0, 1);
    std::vector<std::thread> threads;
    std::vector<std::string> failures(kThreads);
    for (int i = 0; i < kThreads; ++i) {
      threads.emplace_back([&, i] {
        cudaStream_t stream = nullptr;
        void* buffer = nullptr;
        if (cudaSetDevice(device.ordinal) != cudaSuccess ||
            cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) != cudaSuccess ||
            cudaMalloc(&buffer, size.total()) != cudaSuccess) {
          failures[i] = "no stream or no memory";
          return;
        }
        auto workspace = InitWorkspace(size, buffer, size.total(), stream);
        for (int round = 0; round < kRounds && workspace.ok(); ++round) {
          const Status status = LaunchOf(**prepared, kernel, scratch->args(i), *workspace, stream);
          if (!status.ok()) failures[i] = status.ToString();
        }
        if (cudaStreamSynchronize(stream) != cudaSuccess) failures[i] = "the stream failed";
        cudaStreamDestroy(stream);
        cudaFree(buffer);
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (int i = 0; i < kThreads; ++i) {
      EXPECT_EQ(failures[i], "") << id;
      const auto error = scratch->Compare(i, AccumulatorFor(kernel.desc(), scratch->desc()));
      ASSERT_TRUE(error.ok());
      EXPECT_TRUE(error->ok()) << id << ": " << error->ToString();
    }
  }
}

}  // namespace
}  // namespace culet::lt
