// GemmPlan::Launch: its refusals, which launch nothing, and what reaches the kernel.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <thread>
#include <vector>

#include "culet/gemm.h"
#include "fake_kernel.h"

namespace culet {
namespace {

using ::testing::HasSubstr;

class PlanTest : public ::testing::Test {
 protected:
  PlanTest() : gemm_(*Gemm::Create()) {
    auto kernel = std::make_unique<FakeKernel>("fake");
    kernel_ = kernel.get();
    EXPECT_TRUE(gemm_.Register(std::move(kernel)).ok());
    args_.A = a_.data();
    args_.Adesc = RowMajor(DataType::kFloat32, 4, 8);
    args_.B = b_.data();
    args_.Bdesc = ColMajor(DataType::kFloat32, 8, 16);
    args_.D = d_.data();
    args_.Ddesc = RowMajor(DataType::kFloat32, 4, 16);
  }

  GemmPlan MakePlan() {
    LaunchSpec spec;
    spec.kernel = kernel_;
    auto plan = gemm_.Plan(args_, spec);
    EXPECT_TRUE(plan.ok()) << plan.status().ToString();
    return *std::move(plan);
  }

  LaunchPointers Pointers() { return {a_.data(), nullptr, nullptr, d_.data(), 1.0f, 0.0f}; }

  // The launch is refused with this code and text, and the kernel never ran.
  void ExpectRefused(const GemmPlan& plan, const LaunchPointers& pointers, StatusCode code,
                     const std::string& text) {
    const int before = kernel_->launches;
    const Status status = plan.Launch(pointers, workspace_);
    EXPECT_EQ(status.code(), code) << status.ToString();
    EXPECT_THAT(status.message(), HasSubstr(text));
    EXPECT_EQ(kernel_->launches, before);
  }

  Gemm gemm_;
  FakeKernel* kernel_ = nullptr;
  alignas(64) std::array<float, 64> a_{};
  alignas(64) std::array<float, 160> b_{};
  alignas(64) std::array<float, 80> c_{};
  alignas(64) std::array<float, 80> d_{};
  GemmArgs args_;
  Workspace workspace_;
};

TEST_F(PlanTest, PassesEverythingToTheKernel) {
  args_.beta = 1.0f;
  args_.C = c_.data();
  args_.Cdesc = args_.Ddesc;
  const GemmPlan plan = MakePlan();
  GemmArgs seen;
  kernel_->run = [&](const GemmArgs& args, int, int, Workspace&) {
    seen = args;
    return 0;
  };
  alignas(16) std::array<float, 64> other_a{}, other_d{};
  ASSERT_TRUE(
      plan.Launch({other_a.data(), nullptr, c_.data(), other_d.data(), 2.5f, 0.5f}, workspace_)
          .ok());
  EXPECT_EQ(seen.A, other_a.data());
  EXPECT_EQ(seen.B, b_.data());
  EXPECT_EQ(seen.C, c_.data());
  EXPECT_EQ(seen.D, other_d.data());
  EXPECT_EQ(seen.alpha, 2.5f);
  EXPECT_EQ(seen.beta, 0.5f);
  EXPECT_EQ(seen.Bdesc.cols, 16);
}

TEST_F(PlanTest, NullPointersAreNamed) {
  const GemmPlan plan = MakePlan();
  LaunchPointers p = Pointers();
  p.A = nullptr;
  ExpectRefused(plan, p, StatusCode::kInvalidArgument, "A is null");
  p = Pointers();
  p.D = nullptr;
  ExpectRefused(plan, p, StatusCode::kInvalidArgument, "D is null");
}

TEST_F(PlanTest, FixedPointersMustBeThereWhenPlanning) {
  LaunchSpec spec;
  spec.kernel = kernel_;
  args_.B = nullptr;
  const auto plan = gemm_.Plan(args_, spec);
  ASSERT_FALSE(plan.ok());
  EXPECT_THAT(plan.status().message(), HasSubstr("B is null"));
}

TEST_F(PlanTest, VariablePointersMayComeLater) {
  args_.A = nullptr;
  args_.D = nullptr;
  const GemmPlan plan = MakePlan();
  EXPECT_EQ(plan.desc().a.align, 16);
  EXPECT_TRUE(plan.Launch(Pointers(), workspace_).ok());
}

TEST_F(PlanTest, PointersBelowTheAlignmentClassAreRefused) {
  const GemmPlan plan = MakePlan();
  LaunchPointers p = Pointers();
  p.A = a_.data() + 1;
  ExpectRefused(plan, p, StatusCode::kInvalidArgument, "16 bytes of alignment");
  p = Pointers();
  p.D = d_.data() + 2;
  ExpectRefused(plan, p, StatusCode::kInvalidArgument, "D is ");
}

TEST_F(PlanTest, APlanForALowClassTakesItAndMore) {
  args_.A = a_.data() + 1;
  const GemmPlan plan = MakePlan();
  EXPECT_EQ(plan.desc().a.align, 4);
  LaunchPointers p = Pointers();
  p.A = a_.data() + 3;
  EXPECT_TRUE(plan.Launch(p, workspace_).ok());
  EXPECT_TRUE(plan.Launch(Pointers(), workspace_).ok());
}

TEST_F(PlanTest, BetaMustHaveBeenPlanned) {
  const GemmPlan plan = MakePlan();
  LaunchPointers p = Pointers();
  p.C = c_.data();
  p.beta = 1.0f;
  ExpectRefused(plan, p, StatusCode::kInvalidArgument, "beta is 1");
}

TEST_F(PlanTest, CIsNeededOnlyWhenBetaIsNotZero) {
  args_.beta = 1.0f;
  args_.Cdesc = args_.Ddesc;
  const GemmPlan plan = MakePlan();
  LaunchPointers p = Pointers();
  EXPECT_TRUE(plan.Launch(p, workspace_).ok());
  p.beta = 1.0f;
  ExpectRefused(plan, p, StatusCode::kInvalidArgument, "C is null");
  p.C = c_.data() + 1;
  ExpectRefused(plan, p, StatusCode::kInvalidArgument, "C is ");
  p.C = d_.data();  // in place: same layout
  EXPECT_TRUE(plan.Launch(p, workspace_).ok());
  p.C = d_.data() + 4;
  ExpectRefused(plan, p, StatusCode::kInvalidArgument, "overlaps C");
}

TEST_F(PlanTest, DMustNotOverlapInputs) {
  const GemmPlan plan = MakePlan();
  LaunchPointers p = Pointers();
  p.D = a_.data();
  ExpectRefused(plan, p, StatusCode::kInvalidArgument, "overlaps A");
  p.D = b_.data() + 64;
  ExpectRefused(plan, p, StatusCode::kInvalidArgument, "overlaps B");
}

TEST_F(PlanTest, DMustNotOverlapTheBias) {
  args_.operation.bias = {c_.data(), DataType::kFloat32, Bias::Axis::kN};
  const GemmPlan plan = MakePlan();
  EXPECT_TRUE(plan.Launch(Pointers(), workspace_).ok());
  LaunchPointers p = Pointers();
  p.D = c_.data() + 12;
  ExpectRefused(plan, p, StatusCode::kInvalidArgument, "overlaps the bias");
}

TEST_F(PlanTest, ScalesAreCheckedLikeTheOthers) {
  alignas(16) std::array<std::uint8_t, 1024> a8{}, b8{};
  alignas(16) std::array<float, 16> u{}, v{};
  args_.operation.quant_a = {QuantType::kK, 128};
  args_.operation.quant_b = {QuantType::kB, 128};
  args_.A = a8.data();
  args_.Adesc = RowMajor(DataType::kFloat8_e4m3, 4, 16);
  args_.B = b8.data();
  args_.Bdesc = ColMajor(DataType::kFloat8_e4m3, 16, 16);
  args_.Udesc = RowMajor(DataType::kFloat32, 4, 1);
  args_.V = v.data();
  args_.Vdesc = ColMajor(DataType::kFloat32, 1, 1);
  const GemmPlan plan = MakePlan();
  LaunchPointers p = Pointers();
  p.A = a8.data();
  ExpectRefused(plan, p, StatusCode::kInvalidArgument, "U is null");
  p.U = u.data();
  EXPECT_TRUE(plan.Launch(p, workspace_).ok());
  args_.V = nullptr;
  LaunchSpec spec;
  spec.kernel = kernel_;
  EXPECT_THAT(gemm_.Plan(args_, spec).status().message(), HasSubstr("V is null"));
}

TEST_F(PlanTest, WorkspaceThatIsTooSmallIsRefused) {
  kernel_->workspace = {64, 1000, 0};
  const GemmPlan plan = MakePlan();
  ExpectRefused(plan, Pointers(), StatusCode::kResourceExhausted, "needs 64");
  alignas(256) std::array<std::byte, 4096> memory;
  memory.fill(std::byte{0x5a});
  const WorkspaceSize small{64, 999, 0};
  workspace_ = *InitWorkspace(small, memory.data(), memory.size());
  ExpectRefused(plan, Pointers(), StatusCode::kResourceExhausted, "needs 1000");
  workspace_ = *InitWorkspace(plan.workspace_size(), memory.data(), memory.size());
  EXPECT_TRUE(plan.Launch(Pointers(), workspace_).ok());
  EXPECT_EQ(workspace_bytes(plan), plan.workspace_size().total());
}

TEST_F(PlanTest, AKernelsRefusalBecomesAStatusWithItsName) {
  const GemmPlan plan = MakePlan();
  kernel_->run = [](const GemmArgs&, int, int, Workspace&) {
    return static_cast<int>(StatusCode::kOutOfRange);
  };
  Status status = plan.Launch(Pointers(), workspace_);
  EXPECT_EQ(status.code(), StatusCode::kOutOfRange);
  EXPECT_THAT(status.message(), HasSubstr("fake"));
  kernel_->run = [](const GemmArgs&, int, int, Workspace&) { return -700; };
  status = plan.Launch(Pointers(), workspace_);
  EXPECT_THAT(status.message(), HasSubstr("700"));
}

TEST_F(PlanTest, AnInfeasibleSpecCannotBePlanned) {
  kernel_->refusal = "the moon is full";
  LaunchSpec spec;
  spec.kernel = kernel_;
  const auto plan = gemm_.Plan(args_, spec);
  EXPECT_EQ(plan.status().code(), StatusCode::kUnsupported);
  EXPECT_THAT(plan.status().message(), HasSubstr("the moon is full"));
}

TEST_F(PlanTest, OnePlanServesManyThreads) {
  auto reference = gemm_.registry().Find("cpu_reference");
  ASSERT_NE(reference, nullptr);
  for (float& x : b_) x = 0.5f;
  LaunchSpec spec;
  spec.kernel = reference;
  auto plan = gemm_.Plan(args_, spec);
  ASSERT_TRUE(plan.ok()) << plan.status().ToString();
  std::vector<std::thread> threads;
  std::array<int, 4> wrong{};
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      alignas(64) std::array<float, 32> a;
      alignas(64) std::array<float, 64> d;
      a.fill(static_cast<float>(t + 1));
      std::vector<std::byte> memory(workspace_bytes(*plan) + 256);
      void* start = memory.data();
      std::size_t space = memory.size();
      std::align(256, workspace_bytes(*plan), start, space);
      Workspace workspace = *InitWorkspace(plan->workspace_size(), start, space);
      for (int i = 0; i < 200; ++i) {
        d.fill(-1.0f);
        if (!plan->Launch({a.data(), nullptr, nullptr, d.data()}, workspace).ok()) ++wrong[t];
        for (const float x : d) wrong[t] += x != 4.0f * static_cast<float>(t + 1);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_THAT(wrong, ::testing::Each(0));
}

TEST(InitWorkspaceTest, ZeroesBarriersAndFlagsAndKeepsInsideTheBuffer) {
  constexpr std::size_t kGuard = 256;
  const WorkspaceSize size{100, 300, 10};
  alignas(256) static std::array<std::byte, 4096> memory;
  memory.fill(std::byte{0x77});
  const auto workspace = InitWorkspace(size, memory.data(), size.total());
  ASSERT_TRUE(workspace.ok());
  EXPECT_EQ(*workspace->flags, 0);
  for (std::size_t i = 0; i < 100; ++i) {
    EXPECT_EQ(static_cast<const std::byte*>(workspace->barriers)[i], std::byte{0});
  }
  const auto inside = [&](const void* p, std::size_t bytes) {
    const auto* start = static_cast<const std::byte*>(p);
    return start >= memory.data() && start + bytes <= memory.data() + size.total() &&
           reinterpret_cast<std::uintptr_t>(start) % 256 == 0;
  };
  EXPECT_TRUE(inside(workspace->barriers, 100));
  EXPECT_TRUE(inside(workspace->partials, 300));
  EXPECT_TRUE(inside(workspace->tensormaps, 10));
  for (std::size_t i = size.total(); i < size.total() + kGuard; ++i) {
    EXPECT_EQ(memory[i], std::byte{0x77});
  }
}

TEST(InitWorkspaceTest, RefusesBuffersThatCannotServe) {
  alignas(256) static std::array<std::byte, 2048> memory;
  memory.fill(std::byte{0x77});
  const WorkspaceSize size{16, 16, 0};
  EXPECT_EQ(InitWorkspace(size, nullptr, 4096).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(InitWorkspace(size, memory.data() + 8, 1024).status().code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(InitWorkspace(size, memory.data(), size.total() - 1).status().code(),
            StatusCode::kResourceExhausted);
  EXPECT_EQ(memory[0], std::byte{0x77});
}

}  // namespace
}  // namespace culet
