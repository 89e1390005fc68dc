// What the GPU programs launch: every CUDA kernel of the registry on small problems, and the
// quantiser, each with the output that it must leave, bit for bit.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "culet/gemm.h"
#include "culet/scratch.h"
#include "culet/status.h"

namespace culet {

/// Device memory that is freed with its owner. Errors end the program: these are test programs.
class DeviceMemory {
 public:
  explicit DeviceMemory(std::size_t bytes);
  ~DeviceMemory();
  DeviceMemory(DeviceMemory&& other) noexcept : data_(other.data_), bytes_(other.bytes_) {
    other.data_ = nullptr;
  }
  DeviceMemory(const DeviceMemory&) = delete;

  std::byte* data() const noexcept { return data_; }
  std::size_t bytes() const noexcept { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

/// Says what failed and exits with 2.
[[noreturn]] void Die(const std::string& what);
void Check(const Status& status, const std::string& what);
void CheckCuda(int error, const std::string& what);

/// Bytes before and after an output that must stay poison.
inline constexpr std::size_t kGuardBytes = 256;

/// One launch. `launch` writes into an image of `image_bytes` whose first kGuardBytes are guard;
/// it may be called from several threads at a time.
struct Job {
  std::string name;    ///< kernel, problem and parameters
  std::string family;  ///< what stands before the first slash
  WorkspaceSize workspace;
  std::size_t image_bytes = 0;  ///< a multiple of 16
  std::function<Status(std::byte* image, Workspace& workspace, cudaStream_t stream)> launch;
  std::shared_ptr<DeviceMemory> expected;   ///< the image after a right launch
  std::shared_ptr<ScratchProblem> scratch;  ///< its operands; none for the quantiser
};

struct JobOptions {
  std::string prefix;      ///< only kernels whose id starts with it
  bool pdl_only = false;   ///< else every other job is a programmatic dependent launch
  bool tiny = false;       ///< a few small shapes, for the sanitizers
  bool unwrapped = false;  ///< of these only the ones that go around no ring
};

/// The jobs on the current device. A kernel's first output is compared with the double-precision
/// product, and the image made of it; a wrong one ends the program.
std::vector<Job> MakeJobs(Gemm& gemm, const JobOptions& options);

/// The quantiser's, aligned and not.
std::vector<Job> MakeQuantiserJobs(bool tiny);

/// The parts that serve every job.
WorkspaceSize LargestWorkspace(const std::vector<Job>& jobs);

}  // namespace culet
