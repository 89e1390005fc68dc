#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>

#include "base/accelerator.h"
#include "culet/problem.h"

namespace culet {
namespace {

constexpr std::size_t kPartAlignment = 256;  // the alignment that cudaMalloc gives
constexpr std::size_t kFlagBytes = 256;

// More than any buffer holds. Sums saturate here instead of wrapping.
constexpr std::size_t kTooLarge = std::numeric_limits<std::size_t>::max();

constexpr std::size_t Padded(std::size_t bytes) noexcept {
  if (bytes > kTooLarge - kPartAlignment) return kTooLarge;
  return (bytes + kPartAlignment - 1) / kPartAlignment * kPartAlignment;
}

constexpr std::size_t Sum(std::size_t a, std::size_t b) noexcept {
  return a > kTooLarge - b ? kTooLarge : a + b;
}

Status Zero(void* pointer, std::size_t bytes, cudaStream_t stream) {
  if (IsAcceleratorMemory(pointer)) {
    if (IsCapturing(stream)) {
      return Status(StatusCode::kFailedPrecondition,
                    "the stream records a graph, so a workspace would be zeroed at each replay "
                    "instead of now; make it before");
    }
    return ZeroAcceleratorMemory(pointer, bytes, stream);
  }
  std::memset(pointer, 0, bytes);
  return {};
}

}  // namespace

std::size_t WorkspaceSize::total() const noexcept {
  return Sum(Sum(kFlagBytes, Padded(barriers)), Sum(Padded(partials), Padded(tensormaps)));
}

Result<Workspace> InitWorkspace(const WorkspaceSize& size, void* buffer, std::size_t bytes,
                                cudaStream_t stream) {
  if (size.total() == kTooLarge) {
    return Status(StatusCode::kResourceExhausted,
                  fmt::format("the workspace (barriers {}, partials {} and tensormaps {} bytes) is "
                              "larger than the address space",
                              size.barriers, size.partials, size.tensormaps));
  }
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
