// Places weights in pieces of memory, contiguously if one product serves several.
#include "model/weight_source.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/caught.h"
#include "base/scales.h"

namespace culet {
namespace {

constexpr std::size_t kAlignment = 256;  // of what lies apart
constexpr std::size_t kAligned = 16;     // of what is joined, for tensor maps
constexpr std::int64_t kBlock = 128;     // of E4M3 weights

constexpr std::size_t Padded(std::size_t bytes) noexcept {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}
constexpr std::int64_t Blocks(std::int64_t elements) noexcept {
  return (elements + kBlock - 1) / kBlock;
}

std::size_t BytesOf(const WeightRequest& request, DataType type) noexcept {
  return static_cast<std::size_t>(request.rows * request.cols) * SizeOf(type);
}
std::size_t ScaleBytesOf(const WeightRequest& request, DataType type, bool blocks) noexcept {
  if (type != DataType::kFloat8_e4m3) return 0;
  if (!blocks) return static_cast<std::size_t>(request.rows) * sizeof(float);
  return static_cast<std::size_t>(Blocks(request.rows) * Blocks(request.cols)) * sizeof(float);
}

}  // namespace

Weight WeightSource::GetStacked(const StackedRequest& request) {
  const bool bias = request.cols == 0;
  return Get(request.name, bias ? 1 : request.rows, bias ? request.rows : request.cols,
             bias ? WeightRole::kVector : WeightRole::kPlain);
}

Result<Weight> WeightSource::Ones(std::int64_t cols) {
  const std::vector<float> ones(static_cast<std::size_t>(cols), 1.0f);
  const auto at = memory().Copy(ones.data(), ones.size() * sizeof(float));
  if (!at) return at.status();
  Weight weight;
  weight.name = "ones";
  weight.data_ptr = *at;
  weight.type = DataType::kFloat32;
  weight.rows = 1;
  weight.cols = cols;
  return weight;
}

std::vector<Weight> WeightSource::GetJoined(const std::vector<WeightRequest>& requests) {
  const DataType type = TypeOf(requests.front().name, requests.front().role);
  const bool blocks = QuantOfE4m3().type == QuantType::kB;
  const bool in_blocks = type == DataType::kFloat8_e4m3 && blocks;
  bool joined = !memory().memory().reads_host_memory() && type != DataType::kNull;
  PartBytes bytes;
  for (const WeightRequest& request : requests) {
    const bool last = &request == &requests.back();
    joined &= TypeOf(request.name, request.role) == type;
    joined &= !in_blocks || last || request.rows % kBlock == 0;
    const PartBytes own = IsCode(type) && joined ? BytesOfCodes(request).value_or(PartBytes{})
                                                 : PartBytes{BytesOf(request, type),
                                                             ScaleBytesOf(request, type, blocks)};
    joined &= own.values > 0;
    bytes.values += own.values;
    bytes.scales += own.scales;
    bytes.zeros += own.zeros;
    joined &= last || (bytes.values % kAligned == 0 && bytes.scales % kAligned == 0 &&
                       bytes.zeros % kAligned == 0);
  }
  // Without room for all in one piece there may be room for each; if not, Get reports it.
  joined = joined && memory().BeginJoin(bytes).ok();
  std::vector<Weight> weights;
  for (const WeightRequest& request : requests) {
    weights.push_back(GetPart(request));
  }
  if (joined) memory().EndJoin();
  return weights;
}

std::vector<std::vector<Weight>> WeightSource::GetJoined(
    const std::vector<StackedRequest>& requests, int first, int end) {
  const StackedRequest& one = requests.front();
  const DataType type = TypeOfStacked(one);
  bool joined = !memory().memory().reads_host_memory() && type != DataType::kNull;
  for (const StackedRequest& request : requests) joined &= TypeOfStacked(request) == type;
  if (joined) {
    const std::size_t each = static_cast<std::size_t>(one.rows * one.cols) * SizeOf(type);
    const std::size_t count = requests.size() * static_cast<std::size_t>(std::max(end - first, 0));
    joined = count > 0 && each % kAligned == 0 && memory().BeginJoin({count * each, 0, 0}).ok();
  }
  std::vector<std::vector<Weight>> weights(requests.size());
  for (std::size_t i = 0; i < requests.size(); ++i) {
    StackedRequest request = requests[i];
    for (request.number = first; request.number < end; ++request.number) {
      weights[i].push_back(GetStacked(request));
    }
  }
  if (joined) memory().EndJoin();
  return weights;
}

Result<DevicePtr> WeightMemory::Take(std::size_t bytes) {
  constexpr std::size_t kPiece = std::size_t{64} << 20;
  const std::size_t padded = Padded(bytes);
  if (padded > left_) {
    auto buffer = DeviceBuffer::Create(memory_, std::max(padded, kPiece));
    if (!buffer) return buffer.status();
    if (padded >= kPiece) {
      // Itself a large piece; the last one still has room.
      buffers_.push_back(*std::move(buffer));
      return buffers_.back().get();
    }
    next_ = buffer->get();
    left_ = buffer->bytes();
    buffers_.push_back(*std::move(buffer));
  }
  left_ -= padded;
  return std::exchange(next_, next_ + padded);
}

Status WeightMemory::BeginJoin(const PartBytes& bytes) {
  const auto values = Take(Padded(bytes.values) + Padded(bytes.scales) + bytes.zeros);
  if (!values) return values.status();
  next_values_ = *values;
  next_scales_ = next_values_ + Padded(bytes.values);
  next_zeros_ = next_scales_ + Padded(bytes.scales);
  joining_ = true;
  return {};
}

Result<DevicePtr> WeightMemory::Place(std::size_t bytes, WeightPart part) {
  if (!joining_ || part == WeightPart::kApart) return Take(bytes);
  DevicePtr& next = part == WeightPart::kValues   ? next_values_
                    : part == WeightPart::kScales ? next_scales_
                                                  : next_zeros_;
  return std::exchange(next, next + bytes);
}

Status WeightMemory::Put(DevicePtr to, const void* data, std::size_t bytes) {
  if (stop_ && !CaughtNo([&] { return !stop_(); })) {
    return Status(StatusCode::kFailedPrecondition,
                  fmt::format("stopped when {} bytes of weights were there", copied_));
  }
  CULET_RETURN_IF_ERROR(memory_.Upload(to, data, bytes, nullptr));
  copied_ += bytes;
  if (on_copy_) on_copy_(copied_);
  return {};
}

Result<DevicePtr> WeightMemory::Copy(const void* data, std::size_t bytes, WeightPart part) {
  const auto to = Place(bytes, part);
  if (to) CULET_RETURN_IF_ERROR(Put(*to, data, bytes));
  return to;
}

}  // namespace culet
