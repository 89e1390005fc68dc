// While a stream records a graph nothing may be measured, whichever call would. The GPU of this
// test is the host under another name: it stands in for src/no_cuda/accelerator.cc, so builds with
// CUDA leave it out (cuda/engine_test asks a real GPU the same).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "base/accelerator.h"
#include "culet/gemm.h"
#include "culet/model.h"
#include "culet/scratch.h"
#include "fake_kernel.h"
#include "gemm/runtime.h"

namespace culet {
namespace {

// Two streams that nobody looks into.
char streams[2];
cudaStream_t const kRecording = reinterpret_cast<cudaStream_t>(&streams[0]);
cudaStream_t const kIdle = reinterpret_cast<cudaStream_t>(&streams[1]);

}  // namespace

bool HasCudaParts() noexcept { return true; }
Status AppendAccelerators(std::vector<DeviceInfo>& devices) {
  DeviceInfo gpu = devices.front();
  gpu.arch = 900;
  gpu.ordinal = 0;
  gpu.name = "a GPU of the test";
  gpu.device_class = "cuda/test";
  devices.push_back(std::move(gpu));
  return {};
}
Result<HardwareRates> MeasureAcceleratorRates(const DeviceInfo& device, DataType type) {
  return TypicalRates(device, type);
}
Runtime* AcceleratorRuntime(const DeviceInfo&) { return &GetRuntime(HostDevice()); }
bool IsAcceleratorMemory(const void*) noexcept { return false; }
Status ZeroAcceleratorMemory(void* pointer, std::size_t bytes, cudaStream_t) {
  std::memset(pointer, 0, bytes);
  return {};
}
bool IsCapturing(cudaStream_t stream) noexcept { return stream == kRecording; }
std::uint64_t CaptureId(cudaStream_t stream) noexcept { return IsCapturing(stream) ? 1 : 0; }
int EnterAccelerator(int) noexcept { return -1; }
void LeaveAccelerator(int) noexcept {}
bool IsStreamOfAccelerator(cudaStream_t, int) noexcept { return true; }
const TraceHooks* AcceleratorTraceHooks() noexcept { return nullptr; }
Status QuantizeRowsE4m3(const QuantizeE4m3Args&, bool, cudaStream_t) { return {}; }

namespace {

class KernelOfTheGpu final : public FakeKernel {
 public:
  KernelOfTheGpu() : FakeKernel("right") {}
  Feasibility why(const GemmDesc&) const noexcept override { return Feasibility::Ok(); }
};

class CaptureGuard : public testing::Test {
 protected:
  CaptureGuard() {
    auto kernel = std::make_unique<KernelOfTheGpu>();
    kernel_ = kernel.get();
    EXPECT_TRUE(gemm_.Register(std::move(kernel)).ok());
    Kernel* const reference = host_.registry().Find("cpu_reference");
    kernel_->run = [reference](const GemmArgs& args, int, int, Workspace& workspace) {
      return LaunchKernel(*reference, args, 0, 1, workspace, nullptr).ok() ? 0 : 1;
    };
    args_ = scratch_.args();
    args_.operation.dispatch = DispatchPolicy::kMeasure;
  }

  // What each call that may measure says.
  std::vector<Status> Ask(cudaStream_t stream) {
    TuneOptions options;
    options.stream = stream;
    Workspace none;
    return {gemm_.Choose(desc_, DispatchPolicy::kMeasure, stream).status(),
            gemm_.Plan(args_, stream).status(), gemm_.Run(args_, none, stream),
            gemm_.RunWorkspaceSize(args_, stream).status(), gemm_.Tune(desc_, options).status()};
  }

  Gemm host_ = *Gemm::Create();
  Gemm gemm_ = *Gemm::Create({.device = "cuda"});
  FakeKernel* kernel_ = nullptr;
  GemmDesc desc_ = *MakeDesc(Format::kF32, 3, 24, 40, /*arch=*/900);
  ScratchProblem scratch_ = *ScratchProblem::Create(gemm_.device(), desc_);
  GemmArgs args_;
};

TEST_F(CaptureGuard, NothingIsMeasuredWhileAStreamRecords) {
  for (const Status& status : Ask(kRecording)) {
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition) << status.ToString();
    EXPECT_THAT(status.message(), testing::HasSubstr("records a graph"));
  }
  EXPECT_EQ(kernel_->launches, 0);
  EXPECT_EQ(gemm_.cache().size(), 0u);
}

TEST_F(CaptureGuard, OtherStreamsMeasure) {
  for (const Status& status : Ask(kIdle)) EXPECT_TRUE(status.ok()) << status.ToString();
  EXPECT_GT(kernel_->launches, 0);
  EXPECT_EQ(gemm_.cache().size(), 1u);
}

TEST_F(CaptureGuard, WhatIsKnownIsChosenWhileAStreamRecords) {
  LaunchSpec spec;
  spec.kernel = kernel_;
  spec.time_us = 1;
  spec.origin = Origin::kMeasured;
  ASSERT_TRUE(gemm_.cache().Insert(desc_, spec));
  for (const Status& status : Ask(kRecording)) EXPECT_TRUE(status.ok()) << status.ToString();
  EXPECT_EQ(kernel_->launches, 1);
}

}  // namespace
}  // namespace culet
