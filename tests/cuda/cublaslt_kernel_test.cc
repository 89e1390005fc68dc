// cuBLASLt's products as kernels, over a fake library: what they offer, what they launch, what they
// say when the library is absent, too old or refuses.
#include "kernels/cublaslt/lt_kernel.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "culet/model.h"
#include "culet/registry.h"
#include "fake_cublaslt.h"
#include "gemm/cost_model.h"
#include "gpu_info.h"

namespace culet::lt {
namespace {

using testing::HasSubstr;

constexpr DataType kF32 = DataType::kFloat32, kBf16 = DataType::kBfloat16,
                   kE4m3 = DataType::kFloat8_e4m3;

const void* At(std::uintptr_t address) { return reinterpret_cast<const void*>(address); }
void* Out(std::uintptr_t address) { return reinterpret_cast<void*>(address); }

FakeState& Fake() {
  using Get = FakeState* (*)();
  static const auto get =
      reinterpret_cast<Get>(dlsym(dlopen(CULET_FAKE_CUBLASLT, RTLD_NOW), "culet_fake_cublaslt"));
  return *get();
}

Result<Library*> FakeLibrary() {
  static const auto library = [] {
    const std::vector<Place> places = {{CULET_FAKE_CUBLASLT, "a fake", false}};
    return Library::Open(places);
  }();
  if (!library.ok()) return library.status();
  return library->get();
}

Result<Library*> NoLibrary() { return Status(StatusCode::kNotFound, "no cuBLASLt here"); }

// The version is read when a library is opened.
Result<Library*> OldLibrary() {
  static const auto library = [] {
    Fake().version = 120401;
    const std::vector<Place> places = {{CULET_FAKE_CUBLASLT, "a fake", false}};
    auto opened = Library::Open(places);
    Fake().version = 130100;
    return opened;
  }();
  if (!library.ok()) return library.status();
  return library->get();
}

class LtKernelTest : public testing::Test {
 protected:
  void SetUp() override { Fake() = FakeState{}; }
  void TearDown() override { Fake() = FakeState{}; }
};

std::unique_ptr<LtKernel> Make(std::string_view id, LibrarySource source = &FakeLibrary) {
  for (auto& kernel : LtKernels(GpuInfo(900), source)) {
    if (kernel->id() == id) {
      return std::unique_ptr<LtKernel>(static_cast<LtKernel*>(kernel.release()));
    }
  }
  ADD_FAILURE() << id;
  return nullptr;
}

GemmArgs Bf16(int m = 48, int n = 64, int k = 256) {
  GemmArgs args;
  args.A = At(0x10000), args.Adesc = RowMajor(kBf16, m, k);
  args.B = At(0x200000), args.Bdesc = ColMajor(kBf16, k, n);
  args.D = Out(0x300000), args.Ddesc = RowMajor(kBf16, m, n);
  return args;
}

// Scales where the library reads them.
GemmArgs Block(int m = 48, int n = 64, int k = 512) {
  GemmArgs args = Bf16(m, n, k);
  args.Adesc.type = args.Bdesc.type = kE4m3;
  args.operation.quant_a = {QuantType::kK, 128};
  args.operation.quant_b = {QuantType::kB, 128};
  args.U = At(0x400000), args.Udesc = ColMajor(kF32, m, k / 128);
  args.V = At(0x500000), args.Vdesc = ColMajor(kF32, k / 128, (n + 127) / 128);
  return args;
}

GemmDesc DescOf(const GemmArgs& args) {
  const auto desc = Describe(args, 900);
  EXPECT_TRUE(desc.ok()) << desc.status().ToString();
  return *desc;
}

Workspace SomeWorkspace() {
  Workspace workspace;
  workspace.partials = Out(0x8000000);
  workspace.partials_size = std::size_t{64} << 20;
  return workspace;
}

TEST_F(LtKernelTest, EveryGpuHasTheFormatsOfItsGeneration) {
  const auto ids = [](int arch) {
    std::vector<std::string> found;
    for (const auto& kernel : LtKernels(GpuInfo(arch), &NoLibrary)) {
      EXPECT_EQ(kernel->desc().backend, Backend::kLibrary);
      EXPECT_EQ(kernel->desc().provider, "cublaslt");
      found.push_back(kernel->id());
    }
    return found;
  };
  using testing::ElementsAre;
  EXPECT_THAT(ids(750), ElementsAre());
  EXPECT_THAT(ids(800), ElementsAre("cublaslt/bf16", "cublaslt/f16", "cublaslt/f32"));
  EXPECT_THAT(ids(1000), ElementsAre("cublaslt/bf16", "cublaslt/f16", "cublaslt/f32",
                                     "cublaslt/fp8", "cublaslt/fp8_tensor"));
  EXPECT_THAT(ids(900),
              ElementsAre("cublaslt/bf16", "cublaslt/f16", "cublaslt/f32", "cublaslt/fp8",
                          "cublaslt/fp8_tensor", "cublaslt/fp8_row", "cublaslt/fp8_block"));
}

TEST_F(LtKernelTest, AnAbsentLibraryIsAReason) {
  const auto kernel = Make("cublaslt/bf16", &NoLibrary);
  const GemmDesc desc = DescOf(Bf16());
  EXPECT_TRUE(kernel->why(desc).ok()) << "what it can do does not depend on the machine";
  EXPECT_FALSE(Takes(*kernel, desc));
  EXPECT_THAT(WhyNot(*kernel, desc), HasSubstr("no cuBLASLt here"));
}

TEST_F(LtKernelTest, AnOldLibraryServesWhatItKnows) {
  EXPECT_TRUE(Make("cublaslt/fp8_tensor", &OldLibrary)->available().ok());
  const auto block = Make("cublaslt/fp8_block", &OldLibrary);
  EXPECT_EQ(block->available().code(), StatusCode::kUnsupported);
  EXPECT_THAT(block->available().message(), HasSubstr("cuBLASLt 12.4.1 (" CULET_FAKE_CUBLASLT
                                                      ") is too old for these scales; 12.9.0"));
}

TEST_F(LtKernelTest, TellsTheVersion) {
  const auto kernel = Make("cublaslt/bf16");
  ASSERT_TRUE(kernel->available().ok());
  EXPECT_STREQ(kernel->provider_version(), "13.1.0");
}

TEST_F(LtKernelTest, VariantsAreTheUsableAlgorithmsInOrder) {
  Fake().algorithms = 6, Fake().unusable = 0, Fake().greedy = 2;
  const auto kernel = Make("cublaslt/bf16");
  const auto variants = kernel->GetVariants(DescOf(Bf16()));
  ASSERT_TRUE(variants.ok()) << variants.status().ToString();
  EXPECT_EQ(*variants, 4);
  std::vector<std::uint64_t> algorithms;
  for (int variant = 0; variant < 4; ++variant) {
    GemmArgs args = Bf16();
    args.operation.variant = variant;
    const auto launch = kernel->MakeLaunch(args);
    ASSERT_TRUE(launch.ok()) << launch.status().ToString();
    algorithms.push_back(launch->algorithm.data[0]);
  }
  EXPECT_THAT(algorithms, testing::ElementsAre(101u, 103u, 104u, 105u));
  GemmArgs args = Bf16();
  args.operation.variant = 4;
  EXPECT_THAT(kernel->MakeLaunch(args).status().message(),
              HasSubstr("variant is 4, but the library offers 4 algorithms"));
  Fake().algorithms = 1000, Fake().unusable = Fake().greedy = -1;
  EXPECT_EQ(*kernel->GetVariants(DescOf(Bf16(64))), kMostAlgorithms);
}

TEST_F(LtKernelTest, SearchesOnceAProblemWhateverItsPitches) {
  const auto kernel = Make("cublaslt/bf16");
  GemmArgs args = Bf16();
  EXPECT_TRUE(kernel->GetVariants(DescOf(args)).ok());
  args.Adesc.ld += 8;
  args.operation.pdl = true;
  args.operation.determinism = Determinism::kRepeatable;
  EXPECT_TRUE(kernel->MakeLaunch(args).ok());
  EXPECT_EQ(Fake().searches.size(), 1u);
  EXPECT_EQ(Fake().searches[0].right.data[3], 256u) << "packed";
  EXPECT_EQ(Fake().searches[0].requested, kMostAlgorithms);
  EXPECT_TRUE(kernel->GetVariants(DescOf(Bf16(49))).ok());
  EXPECT_EQ(Fake().searches.size(), 2u);
}

TEST_F(LtKernelTest, ARefusingHeuristicIsAReason) {
  const auto kernel = Make("cublaslt/bf16");
  Fake().search_status = kNotSupported;
  auto variants = kernel->GetVariants(DescOf(Bf16()));
  EXPECT_EQ(variants.status().code(), StatusCode::kUnsupported);
  EXPECT_THAT(variants.status().message(),
              HasSubstr("cublasLtMatmulAlgoGetHeuristic: status 15, the fake does not support it "
                        "(cuBLASLt 13.1.0)"));
  Fake().search_status = kInvalidValue;
  variants = kernel->GetVariants(DescOf(Bf16()));
  EXPECT_EQ(variants.status().code(), StatusCode::kUnsupported) << "not the caller's fault";
  Fake().search_status = kSuccess;
  Fake().algorithms = 0;
  variants = kernel->GetVariants(DescOf(Bf16()));
  EXPECT_THAT(variants.status().message(), HasSubstr("offers no algorithm (cuBLASLt 13.1.0)"));
  Fake().algorithms = 1;
  EXPECT_TRUE(kernel->GetVariants(DescOf(Bf16())).ok()) << "a refusal is not remembered";
}

TEST_F(LtKernelTest, AnAlgorithmIsCheckedAgainstTheRealOperands) {
  const auto kernel = Make("cublaslt/bf16");
  Fake().check_status = kNotSupported;
  const auto launch = kernel->MakeLaunch(Bf16());
  EXPECT_EQ(launch.status().code(), StatusCode::kUnsupported);
  EXPECT_THAT(launch.status().message(), HasSubstr("cublasLtMatmulAlgoCheck: status 15"));
}

TEST_F(LtKernelTest, ABiasThatIsNotAlignedIsCopiedToWhereItIs) {
  const auto kernel = Make("cublaslt/bf16");
  GemmArgs args = Bf16();
  args.operation.bias = {At(0x600002), kBf16, Bias::Axis::kN};
  auto launch = kernel->MakeLaunch(args);
  ASSERT_TRUE(launch.ok());
  EXPECT_EQ(launch->bias, At(0x600002));
  EXPECT_EQ(launch->bias_bytes, 128u);
  EXPECT_NE(launch->problem.operation.data[kBiasPointer], 0x600002u);
  EXPECT_EQ(kernel->workspace_size(DescOf(args), 0, 1).partials, kWorkspaceBytes + 128);
  args.operation.bias.data = At(0x600010);
  launch = kernel->MakeLaunch(args);
  ASSERT_TRUE(launch.ok());
  EXPECT_EQ(launch->bias, nullptr);
  EXPECT_EQ(launch->problem.operation.data[kBiasPointer], 0x600010u);
}

TEST_F(LtKernelTest, ALaunchCarriesItsOwnPointers) {
  const auto kernel = Make("cublaslt/bf16");
  GemmArgs args = Bf16();
  args.beta = 1;
  args.C = At(0x700000), args.Cdesc = RowMajor(kBf16, 48, 64, 80);
  args.operation.bias = {At(0x600000), kBf16, Bias::Axis::kN};
  const auto launch = kernel->MakeLaunch(args);
  ASSERT_TRUE(launch.ok()) << launch.status().ToString();
  const Workspace workspace = SomeWorkspace();
  const auto stream = reinterpret_cast<cudaStream_t>(0x77);
  EXPECT_EQ(launch->Start({2.0f, 0.5f, At(0x11000), nullptr, At(0x12000), Out(0x13000)}, workspace,
                          stream),
            0);
  ASSERT_EQ(Fake().matmuls.size(), 1u);
  const FakeMatmul& call = Fake().matmuls[0];
  EXPECT_EQ(call.alpha, 2.0f);
  EXPECT_EQ(call.beta, 0.5f);
  EXPECT_EQ(call.left_data, At(0x200000));
  EXPECT_EQ(call.right_data, At(0x11000));
  EXPECT_EQ(call.c_data, At(0x12000));
  EXPECT_EQ(call.d_data, At(0x13000));
  EXPECT_EQ(call.c.data[3], 80u);
  EXPECT_EQ(call.workspace, workspace.partials);
  EXPECT_EQ(call.workspace_bytes, kWorkspaceBytes);
  EXPECT_EQ(call.stream, stream);
  EXPECT_EQ(call.algorithm.data[0], 100u);
  EXPECT_EQ(call.operation.data[kBiasPointer], 0x600000u);
  EXPECT_EQ(call.operation.data[kEpilogue], kEpilogueBias);
}

TEST_F(LtKernelTest, WithoutCItGivesDAndRefusesABeta) {
  const auto kernel = Make("cublaslt/bf16");
  const auto launch = kernel->MakeLaunch(Bf16());
  ASSERT_TRUE(launch.ok());
  EXPECT_EQ(launch->Start({1, 1, At(0x11000), nullptr, At(0x12000), Out(0x13000)}, SomeWorkspace(),
                          nullptr),
            static_cast<int>(StatusCode::kInvalidArgument));
  EXPECT_TRUE(Fake().matmuls.empty());
  EXPECT_EQ(
      launch->Start({1, 0, At(0x11000), nullptr, nullptr, Out(0x13000)}, SomeWorkspace(), nullptr),
      0);
  ASSERT_EQ(Fake().matmuls.size(), 1u);
  EXPECT_EQ(Fake().matmuls[0].c_data, At(0x13000));
}

TEST_F(LtKernelTest, ABetaOfZeroGivesDInItsOwnLayout) {
  const auto kernel = Make("cublaslt/bf16");
  GemmArgs args = Bf16();
  args.beta = 1;
  args.C = At(0x700000), args.Cdesc = RowMajor(kBf16, 48, 64, 80);
  const auto launch = kernel->MakeLaunch(args);
  ASSERT_TRUE(launch.ok());
  EXPECT_EQ(
      launch->Start({1, 0, At(0x11000), nullptr, nullptr, Out(0x13000)}, SomeWorkspace(), nullptr),
      0);
  ASSERT_EQ(Fake().matmuls.size(), 1u);
  EXPECT_EQ(Fake().matmuls[0].c_data, At(0x13000));
  EXPECT_EQ(Fake().matmuls[0].c.data[3], 64u);
}

TEST_F(LtKernelTest, ScalesInPlaceArePointedAt) {
  const auto kernel = Make("cublaslt/fp8_block");
  const GemmArgs args = Block();
  const auto launch = kernel->MakeLaunch(args);
  ASSERT_TRUE(launch.ok()) << launch.status().ToString();
  const LtLaunch before = *launch;
  EXPECT_EQ(launch->Start({1, 0, At(0x11000), At(0x410000), nullptr, Out(0x13000)}, SomeWorkspace(),
                          nullptr),
            0);
  ASSERT_EQ(Fake().matmuls.size(), 1u);
  const FakeMatmul& call = Fake().matmuls[0];
  EXPECT_EQ(call.operation.data[FakeWord(kAScaleMode)], kBlk128x128_32F);
  EXPECT_EQ(call.operation.data[FakeWord(kBScaleMode)], kVec128_32F);
  EXPECT_EQ(call.operation.data[kAScalePointer], 0x500000u) << "V, the plan's";
  EXPECT_EQ(call.operation.data[kBScalePointer], 0x410000u) << "U, the launch's";
  EXPECT_EQ(std::memcmp(&before.problem, &launch->problem, sizeof before.problem), 0)
      << "a launch is shared between threads";
}

TEST_F(LtKernelTest, WorkspaceIsTheLibrarysAndRoomForScales) {
  EXPECT_EQ(Make("cublaslt/bf16")->workspace_size(DescOf(Bf16()), 0, 1).partials, kWorkspaceBytes);
  // U: 4 columns of 48; V: one line of 4.
  EXPECT_EQ(Make("cublaslt/fp8_block")->workspace_size(DescOf(Block()), 0, 1).partials,
            kWorkspaceBytes + 768 + 256);
}

TEST_F(LtKernelTest, WhatTheLibraryAnswersAtALaunchIsItsCode) {
  const auto kernel = Make("cublaslt/bf16");
  const auto launch = kernel->MakeLaunch(Bf16());
  ASSERT_TRUE(launch.ok());
  const auto code = [&](int status) {
    Fake().matmul_status = status;
    return launch->Start({1, 0, At(0x11000), nullptr, nullptr, Out(0x13000)}, SomeWorkspace(),
                         nullptr);
  };
  EXPECT_EQ(code(kNotSupported), static_cast<int>(StatusCode::kUnsupported));
  EXPECT_EQ(code(kInvalidValue), static_cast<int>(StatusCode::kInvalidArgument));
  EXPECT_EQ(code(kAllocFailed), static_cast<int>(StatusCode::kResourceExhausted));
  EXPECT_EQ(code(14), static_cast<int>(StatusCode::kInternal));
  EXPECT_LT(code(kExecutionFailed), 0) << "a negated cudaError_t";
}

// The whole catalog, with the library that the process finds.
class LtCatalog : public LtKernelTest {
 protected:
  void SetUp() override {
    LtKernelTest::SetUp();
    ASSERT_EQ(setenv("CULET_CUBLASLT", CULET_FAKE_CUBLASLT, 1), 0);
    registry.emplace(Registry::Builtin(device));
  }
  std::vector<LaunchSpec> Candidates(const GemmDesc& desc) const {
    return EnumerateCandidates(registry->kernels(), desc, device,
                               TypicalRates(device, desc.a.type));
  }
  DeviceInfo device = GpuInfo(900);
  std::optional<Registry> registry;
};

TEST_F(LtCatalog, TheChoiceForWhatOwnKernelsDoSlowlyIsTheLibrary) {
  for (const int m : {1, 64, 512, 4096}) {
    const auto desc = MakeDesc(culet::Format::kF16, m, 4096, 4096, 900);
    ASSERT_TRUE(desc.ok());
    double library = std::numeric_limits<double>::infinity(), any_shape = library;
    int variants = 0;
    for (const LaunchSpec& spec : Candidates(*desc)) {
      if (spec.kernel->id() == "cublaslt/f16") {
        library = std::min(library, spec.time_us);
        EXPECT_EQ(spec.variant, variants++) << "the library's order";
      } else if (spec.kernel->id().starts_with("cuda_any/")) {
        any_shape = std::min(any_shape, spec.time_us);
      }
    }
    EXPECT_EQ(variants, 3);
    EXPECT_LT(library, any_shape) << m;
  }
}

TEST_F(LtCatalog, OwnKernelsComeFirstWhereTheyAreFaster) {
  struct Shape {
    int n, k;
  };
  // The layers of bench/llm_shapes.txt, on all of which the library's blocks measured slower.
  for (const auto& [n, k] : {Shape{2112, 7168},
                             {24576, 1536},
                             {32768, 512},
                             {7168, 16384},
                             {4096, 7168},
                             {7168, 2048},
                             {6144, 4096},
                             {4096, 4096},
                             {28672, 4096},
                             {4096, 14336},
                             {8192, 8192},
                             {8192, 28672}}) {
    for (const int m : {8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192}) {
      const auto desc = MakeDesc(culet::Format::kFp8Block, m, n, k, 900);
      ASSERT_TRUE(desc.ok());
      const auto candidates = Candidates(*desc);
      ASSERT_FALSE(candidates.empty());
      EXPECT_NE(candidates.front().kernel->desc().provider, "cublaslt")
          << m << " " << n << " " << k << " " << candidates.front().time_us;
    }
  }
}

TEST_F(LtCatalog, ARefusalLeavesTheNextCandidateAndItsReason) {
  Fake().search_status = kNotSupported;
  const auto desc = MakeDesc(culet::Format::kBf16, 63, 4095, 4097, 900);
  ASSERT_TRUE(desc.ok());
  const auto candidates = Candidates(*desc);
  ASSERT_FALSE(candidates.empty());
  EXPECT_NE(candidates.front().kernel->desc().provider, "cublaslt");
  Kernel* const kernel = registry->Find("cublaslt/bf16");
  ASSERT_NE(kernel, nullptr);
  EXPECT_THAT(WhyNoCandidate(*kernel, *desc), HasSubstr("the fake does not support it"));
}

// Times of PyTorch's calls on one H200 (2026-11-20 and 22).
TEST_F(LtCatalog, PredictsRoughlyWhatWasMeasured) {
  struct Measured {
    const char* kernel;
    int m, n, k;
    double us;
  };
  constexpr Measured kMeasured[] = {
      {"cublaslt/bf16", 16, 2112, 7168, 13.9},
      {"cublaslt/bf16", 16, 4096, 14336, 32.9},
      {"cublaslt/bf16", 16, 7168, 16384, 65.3},
      {"cublaslt/bf16", 512, 2112, 7168, 24.0},
      {"cublaslt/bf16", 512, 4096, 14336, 93.3},
      {"cublaslt/bf16", 512, 7168, 16384, 177.6},
      {"cublaslt/bf16", 8192, 2112, 7168, 358.6},
      {"cublaslt/bf16", 8192, 4096, 14336, 1406.8},
      {"cublaslt/bf16", 8192, 7168, 16384, 2854.5},
      {"cublaslt/fp8_block", 16, 2112, 7168, 16.0},
      {"cublaslt/fp8_block", 16, 4096, 14336, 25.3},
      {"cublaslt/fp8_block", 16, 7168, 16384, 38.6},
      {"cublaslt/fp8_block", 512, 2112, 7168, 24.7},
      {"cublaslt/fp8_block", 512, 4096, 14336, 46.3},
      {"cublaslt/fp8_block", 512, 7168, 16384, 102.2},
      {"cublaslt/fp8_block", 8192, 2112, 7168, 204.2},
      {"cublaslt/fp8_block", 8192, 4096, 14336, 785.2},
      {"cublaslt/fp8_block", 8192, 7168, 16384, 1612.8},
      {"cublaslt/fp8_row", 16, 2112, 7168, 20.1},
      {"cublaslt/fp8_row", 16, 4096, 14336, 36.9},
      {"cublaslt/fp8_row", 16, 7168, 16384, 53.6},
      {"cublaslt/fp8_row", 512, 2112, 7168, 23.4},
      {"cublaslt/fp8_row", 512, 4096, 14336, 50.4},
      {"cublaslt/fp8_row", 512, 7168, 16384, 107.9},
      {"cublaslt/fp8_row", 8192, 2112, 7168, 206.1},
      {"cublaslt/fp8_row", 8192, 4096, 14336, 712.6},
      {"cublaslt/fp8_row", 8192, 7168, 16384, 1428.9},
      {"cublaslt/fp8_tensor", 16, 2112, 7168, 9.6},
      {"cublaslt/fp8_tensor", 16, 4096, 14336, 20.2},
      {"cublaslt/fp8_tensor", 16, 7168, 16384, 34.8},
      {"cublaslt/fp8_tensor", 512, 2112, 7168, 16.1},
      {"cublaslt/fp8_tensor", 512, 4096, 14336, 50.9},
      {"cublaslt/fp8_tensor", 512, 7168, 16384, 96.6},
      {"cublaslt/fp8_tensor", 8192, 2112, 7168, 208.9},
      {"cublaslt/fp8_tensor", 8192, 4096, 14336, 739.1},
      {"cublaslt/fp8_tensor", 8192, 7168, 16384, 1476.5},
  };
  for (const Measured& at : kMeasured) {
    Kernel* const kernel = registry->Find(at.kernel);
    ASSERT_NE(kernel, nullptr);
    GemmDesc desc;
    desc.arch = 900;
    desc.a.type = kernel->desc().type_a, desc.b.type = kernel->desc().type_b, desc.d.type = kBf16;
    desc.m = at.m, desc.n = at.n, desc.k = at.k;
    const double us = kernel->PredictUs(desc, device, TypicalRates(device, desc.a.type), 0, 1);
    EXPECT_LT(us, 1.5 * at.us) << at.kernel << " m " << at.m;
    EXPECT_GT(us, at.us / 1.5) << at.kernel << " m " << at.m;
  }
}

}  // namespace
}  // namespace culet::lt
