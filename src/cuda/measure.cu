#include "cuda/measure.h"

#include <algorithm>

namespace culet {
namespace {

constexpr int kThreads = 512;

__global__ void Pause(unsigned nanoseconds) {
  unsigned long long start = 0, now = 0;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
  do {
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  } while (now - start < nanoseconds);
}

template <class Element>
__global__ void Scan(OutputLines lines, const Element* found, const Element* pristine,
                     unsigned long long* counters) {
  const std::size_t elements = lines.bytes / sizeof(Element);
  const auto poison = static_cast<Element>(lines.poison);
  unsigned unwritten = 0, broken = 0;
  for (std::size_t i = blockIdx.x * std::size_t{blockDim.x} + threadIdx.x; i < elements;
       i += std::size_t{gridDim.x} * blockDim.x) {
    const std::size_t at = i * sizeof(Element);
    const bool behind = at >= lines.data;
    const std::size_t line = behind ? (at - lines.data) / lines.pitch_bytes : 0;
    const bool inside = behind && line < lines.lines &&
                        (at - lines.data) - line * lines.pitch_bytes < lines.line_bytes;
    const Element value = found[i];
    if (inside) {
      unwritten += value == poison;
    } else {
      broken += value != pristine[i];
    }
  }
  if (unwritten != 0) atomicAdd(counters, static_cast<unsigned long long>(unwritten));
  if (broken != 0) atomicAdd(counters + 1, static_cast<unsigned long long>(broken));
}

template <class Element>
__global__ void Gather(const char* base, const std::size_t* offsets, std::size_t count,
                       Element* to) {
  const std::size_t i = blockIdx.x * std::size_t{blockDim.x} + threadIdx.x;
  if (i < count) to[i] = *reinterpret_cast<const Element*>(base + offsets[i]);
}

template <class... Parameters, class... Arguments>
cudaError_t Launch(void (*kernel)(Parameters...), int blocks, int threads, cudaStream_t stream,
                   Arguments... arguments) {
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(blocks));
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.stream = stream;
  return cudaLaunchKernelEx(&config, kernel, Parameters(arguments)...);
}

template <class Element>
cudaError_t ScanAs(const OutputLines& lines, const void* found, const void* pristine,
                   unsigned long long* counters, cudaStream_t stream) {
  const std::size_t elements = lines.bytes / sizeof(Element);
  const auto blocks = static_cast<int>(std::min<std::size_t>(elements / kThreads + 1, 2048));
  return Launch(&Scan<Element>, blocks, kThreads, stream, lines, static_cast<const Element*>(found),
                static_cast<const Element*>(pristine), counters);
}

template <class Element>
cudaError_t GatherAs(const void* base, const std::size_t* offsets, std::size_t count, void* to,
                     cudaStream_t stream) {
  const auto blocks = static_cast<int>((count + kThreads - 1) / kThreads);
  return Launch(&Gather<Element>, blocks, kThreads, stream, static_cast<const char*>(base), offsets,
                count, static_cast<Element*>(to));
}

// Four loads of 16 bytes in flight a thread; neighbouring threads read neighbouring addresses.
__global__ void Read(const uint4* data, std::size_t count, unsigned* sink) {
  constexpr int kInFlight = 4;
  const std::size_t stride = std::size_t{gridDim.x} * blockDim.x;
  unsigned sum = 0;
  std::size_t i = blockIdx.x * std::size_t{blockDim.x} + threadIdx.x;
  for (; i + (kInFlight - 1) * stride < count; i += kInFlight * stride) {
    uint4 loaded[kInFlight];
#pragma unroll
    for (int j = 0; j < kInFlight; ++j) loaded[j] = __ldcs(data + i + j * stride);
#pragma unroll
    for (int j = 0; j < kInFlight; ++j) {
      sum += loaded[j].x ^ loaded[j].y ^ loaded[j].z ^ loaded[j].w;
    }
  }
  for (; i < count; i += stride) sum += __ldcs(data + i).x;
  if (sum == 0x9e3779b9u) *sink = sum;
}

}  // namespace

cudaError_t LaunchPause(unsigned nanoseconds, cudaStream_t stream) {
  return Launch(&Pause, 1, 1, stream, nanoseconds);
}

cudaError_t LaunchScan(const OutputLines& lines, const void* found, const void* pristine,
                       unsigned long long* counters, cudaStream_t stream) {
  if (lines.element_bytes == 4)
    return ScanAs<std::uint32_t>(lines, found, pristine, counters, stream);
  if (lines.element_bytes == 2)
    return ScanAs<std::uint16_t>(lines, found, pristine, counters, stream);
  if (lines.element_bytes == 1)
    return ScanAs<std::uint8_t>(lines, found, pristine, counters, stream);
  return cudaErrorInvalidValue;
}

cudaError_t LaunchGather(const void* base, const std::size_t* offsets, std::size_t count,
                         std::size_t element_bytes, void* to, cudaStream_t stream) {
  if (count == 0) return cudaSuccess;
  if (element_bytes == 4) return GatherAs<std::uint32_t>(base, offsets, count, to, stream);
  if (element_bytes == 2) return GatherAs<std::uint16_t>(base, offsets, count, to, stream);
  if (element_bytes == 1) return GatherAs<std::uint8_t>(base, offsets, count, to, stream);
  return cudaErrorInvalidValue;
}

cudaError_t LaunchRead(const void* data, std::size_t bytes, int multiprocessors, unsigned* sink,
                       cudaStream_t stream) {
  return Launch(&Read, multiprocessors * 4, kThreads, stream, static_cast<const uint4*>(data),
                bytes / 16, sink);
}

}  // namespace culet
