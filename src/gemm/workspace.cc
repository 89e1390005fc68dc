#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "culet/problem.h"
#ifdef CULET_WITH_CUDA
#include "cuda/memory.h"
#endif

namespace culet {
namespace {

constexpr std::size_t kPartAlignment = 256;  // the alignment that cudaMalloc gives
constexpr std::size_t kFlagBytes = 256;

constexpr std::size_t Padded(std::size_t bytes) noexcept {
  return (bytes + kPartAlignment - 1) / kPartAlignment * kPartAlignment;
}

Status Zero(void* pointer, std::size_t bytes, [[maybe_unused]] cudaStream_t stream) {
#ifdef CULET_WITH_CUDA
  if (IsCudaMemory(pointer)) {
    if (IsCapturing(stream)) {
      return Status(StatusCode::kFailedPrecondition,
                    "the stream records a graph, so a workspace would be zeroed at each replay "
                    "instead of now; make it before");
    }
    return ZeroCudaMemory(pointer, bytes, stream);
  }
#endif
  std::memset(pointer, 0, bytes);
  return {};
}

}  // namespace

std::size_t WorkspaceSize::total() const noexcept {
  return kFlagBytes + Padded(barriers) + Padded(partials) + Padded(tensormaps);
}

Result<Workspace> InitWorkspace(const WorkspaceSize& size, void* buffer, std::size_t bytes,
                                cudaStream_t stream) {
  if (buffer == nullptr) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("buffer is null; give {} bytes", size.total()));
  }
  if (reinterpret_cast<std::uintptr_t>(buffer) % kPartAlignment != 0) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("buffer is {}; align it to {} bytes", buffer, kPartAlignment));
  }
  if (bytes < size.total()) {
    return Status(StatusCode::kResourceExhausted,
                  fmt::format("bytes is {}, but this workspace takes {}", bytes, size.total()));
  }
  // Flags and barriers come first, so that one memset zeroes both.
  auto* next = static_cast<std::byte*>(buffer);
  CULET_RETURN_IF_ERROR(Zero(buffer, kFlagBytes + Padded(size.barriers), stream));
  const auto take = [&next](std::size_t part) -> void* {
    void* start = part != 0 ? next : nullptr;
    next += Padded(part);
    return start;
  };
  Workspace workspace;
  workspace.flags = static_cast<int*>(take(kFlagBytes));
  workspace.barriers = take(size.barriers);
  workspace.barriers_size = size.barriers;
  workspace.partials = take(size.partials);
  workspace.partials_size = size.partials;
  workspace.tensormaps = take(size.tensormaps);
  workspace.tensormaps_size = size.tensormaps;
  return workspace;
}

}  // namespace culet
