#include "kernels/cublaslt/lt_launch.h"

#include <cstddef>

#include "cuda/error.h"
#include "cuda/relaxed_capture.h"

namespace culet::lt {
namespace {

// The return value of a launch that the library refused.
int CodeOf(int status) noexcept {
  switch (status) {
    case kSuccess:
      return 0;
    case kInvalidValue:
      return static_cast<int>(StatusCode::kInvalidArgument);
    case kNotSupported:
      return static_cast<int>(StatusCode::kUnsupported);
    case kAllocFailed:
      return static_cast<int>(StatusCode::kResourceExhausted);
    case kExecutionFailed:
      return -static_cast<int>(cudaErrorLaunchFailure);
    default:
      return static_cast<int>(StatusCode::kInternal);
  }
}

// The place of an operand's scales for the library, and the copy to it, if needed.
const void* Placed(const ScaleMatrix& matrix, const void* data, std::byte* room, ScaleCopy* copy) {
  if (matrix.slow == 0 || matrix.InPlace(data)) return data;
  *copy = {static_cast<const float*>(data), reinterpret_cast<float*>(room), matrix};
  return room;
}

struct Failure {
  int library = kSuccess;
  cudaError_t cuda = cudaSuccess;
};

Failure Run(const LtLaunch& launch, const Operands& operands, const Workspace& workspace,
            cudaStream_t stream) noexcept {
  const Functions& f = launch.library->functions();
  Problem p = launch.problem;
  std::byte* const room = static_cast<std::byte*>(workspace.partials) + kWorkspaceBytes;
  Pointers pointers;
  if (launch.scaled) {
    ScaleCopy copy_a, copy_b;
    pointers.scale_a = Placed(launch.scales.a, operands.u, room, &copy_a);
    pointers.scale_b = Placed(launch.scales.b, launch.v, room + launch.scales.offset_b(), &copy_b);
    const cudaError_t error = CopyScales(copy_a, copy_b, stream);
    if (error != cudaSuccess) return {kSuccess, error};
  }
  if (launch.bias != nullptr) {
    std::byte* const bias = room + launch.scales.bytes();
    const cudaError_t error =
        cudaMemcpyAsync(bias, launch.bias, launch.bias_bytes, cudaMemcpyDeviceToDevice, stream);
    if (error != cudaSuccess) return {kSuccess, error};
    pointers.bias = bias;
  }
  if (const int status = SetPointers(f, p.swapped, pointers, &p.operation); status != kSuccess) {
    return {status, cudaSuccess};
  }
  const void* const left = p.swapped ? launch.b : operands.a;
  const void* const right = p.swapped ? operands.a : launch.b;
  // Without C the library gets D twice, and then wants one layout of it.
  const bool reads_c = operands.beta != 0.0f;
  const void* const c = reads_c ? operands.c : operands.d;
  return {f.Matmul(launch.handle, &p.operation, &operands.alpha, left, &p.left, right, &p.right,
                   &operands.beta, c, reads_c ? &p.c : &p.d, operands.d, &p.d, &launch.algorithm,
                   workspace.partials, kWorkspaceBytes, stream),
          cudaSuccess};
}

// A stream of its own with memory, and what is recorded on it.
class Recording {
 public:
  ~Recording() {
    if (executable_ != nullptr) cudaGraphExecDestroy(executable_);
    if (graph_ != nullptr) cudaGraphDestroy(graph_);
    if (memory_ != nullptr) cudaFreeAsync(memory_, stream_);
    if (stream_ != nullptr) cudaStreamDestroy(stream_);
  }
  cudaError_t Begin(std::size_t bytes) {
    cudaError_t error = cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking);
    if (error == cudaSuccess) error = cudaMallocAsync(&memory_, bytes, stream_);
    if (error == cudaSuccess) error = cudaStreamBeginCapture(stream_, cudaStreamCaptureModeRelaxed);
    return error;
  }
  cudaError_t End() { return cudaStreamEndCapture(stream_, &graph_); }
  cudaError_t Instantiate() { return cudaGraphInstantiate(&executable_, graph_, 0); }
  cudaStream_t stream() const { return stream_; }
  void* memory() const { return memory_; }

 private:
  cudaStream_t stream_ = nullptr;
  void* memory_ = nullptr;
  cudaGraph_t graph_ = nullptr;
  cudaGraphExec_t executable_ = nullptr;
};

}  // namespace

int LtLaunch::Start(const Operands& operands, const Workspace& workspace,
                    cudaStream_t stream) const noexcept {
  if (operands.beta != 0.0f && !has_c) return static_cast<int>(StatusCode::kInvalidArgument);
  const Failure failure = Run(*this, operands, workspace, stream);
  return failure.cuda != cudaSuccess ? -static_cast<int>(failure.cuda) : CodeOf(failure.library);
}

Status LtLaunch::Rehearse() const {
  const RelaxedCapture relaxed;
  const std::size_t bytes = PartialBytes(scales, bias_bytes);
  Recording recording;
  Status status = scaled ? CudaStatus(LoadCopyScales(), "loading the copy of scales") : Status();
  if (status.ok()) {
    status = CudaStatus(recording.Begin(bytes), "recording a launch of cublasLtMatmul");
  }
  if (status.ok()) {
    // The workspace is real, as what is copied or cleared must be; the operands, which may not
    // exist yet, are addresses that nothing looks at.
    Workspace workspace;
    workspace.partials = recording.memory();
    workspace.partials_size = bytes;
    char* const somewhere = reinterpret_cast<char*>(std::uintptr_t{1} << 20);
    const Operands operands{1.0f, has_c ? 1.0f : 0.0f, somewhere, somewhere, somewhere, somewhere};
    const Failure failure = Run(*this, operands, workspace, recording.stream());
    const cudaError_t ended = recording.End();
    status = library->StatusOf(failure.library, "cublasLtMatmul");
    if (status.ok()) status = CudaStatus(failure.cuda, "copying scales or bias");
    if (status.ok()) status = CudaStatus(ended, "cudaStreamEndCapture after cublasLtMatmul");
  }
  if (status.ok()) {
    status = CudaStatus(recording.Instantiate(), "cudaGraphInstantiate after cublasLtMatmul");
  }
  if (!status.ok()) static_cast<void>(cudaGetLastError());  // not for the next launch to find
  return status;
}

std::size_t PartialBytes(const Scales& scales, std::size_t bias_bytes) noexcept {
  return kWorkspaceBytes + scales.bytes() + bias_bytes;
}

}  // namespace culet::lt
