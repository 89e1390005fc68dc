// A build without CUDA: there are no accelerators, so nobody calls what needs one.
#include "base/accelerator.h"

namespace culet {
namespace {

Status NoCuda() {
  return Status(StatusCode::kUnsupported,
                "this build has no CUDA parts; configure with -DCULET_CUDA=ON where nvcc is");
}

}  // namespace

bool HasCudaParts() noexcept { return false; }

Status AppendAccelerators(std::vector<DeviceInfo>&) { return NoCuda(); }

Result<HardwareRates> MeasureAcceleratorRates(const DeviceInfo&, DataType) { return NoCuda(); }

Runtime* AcceleratorRuntime(const DeviceInfo&) { return nullptr; }

bool IsAcceleratorMemory(const void*) noexcept { return false; }

Status ZeroAcceleratorMemory(void*, std::size_t, cudaStream_t) { return NoCuda(); }

bool IsCapturing(cudaStream_t) noexcept { return false; }

std::uint64_t CaptureId(cudaStream_t) noexcept { return 0; }

int EnterAccelerator(int) noexcept { return -1; }

void LeaveAccelerator(int) noexcept {}

bool IsStreamOfAccelerator(cudaStream_t, int) noexcept { return true; }

const TraceHooks* AcceleratorTraceHooks() noexcept { return nullptr; }

Status QuantizeRowsE4m3(const QuantizeE4m3Args&, bool, cudaStream_t) {
  return Status(StatusCode::kUnsupported,
                "this build has no CUDA parts; configure with -DCULET_CUDA=ON where nvcc is, or "
                "use QuantizeGroups on the host");
}

}  // namespace culet
