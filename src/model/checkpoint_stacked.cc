// Weights of experts that a tensor holds all together, transposed.
#include <algorithm>
#include <cstring>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "model/checkpoint.h"
#include "model/plain_types.h"

namespace culet {
namespace {

// Row i of `to` (rows, cols) is column first + i * step of `from` (cols, of).
template <std::size_t kSize>
void Transpose(const std::byte* from, const StackedRequest& request, std::byte* to) {
  constexpr std::int64_t kTile = 64;  // both ways in the cache
  const std::int64_t rows = request.rows, cols = std::max<std::int64_t>(request.cols, 1);
  for (std::int64_t r0 = 0; r0 < rows; r0 += kTile) {
    for (std::int64_t c0 = 0; c0 < cols; c0 += kTile) {
      for (std::int64_t r = r0; r < std::min(rows, r0 + kTile); ++r) {
        for (std::int64_t c = c0; c < std::min(cols, c0 + kTile); ++c) {
          const std::int64_t at = c * request.of + request.first + r * request.step;
          std::memcpy(to + static_cast<std::size_t>(r * cols + c) * kSize,
                      from + static_cast<std::size_t>(at) * kSize, kSize);
        }
      }
    }
  }
}

}  // namespace

DataType Checkpoint::TypeOfStacked(const StackedRequest& request) const {
  const SafetensorsTensor* const tensor = Peek(request.name);
  return tensor != nullptr && IsPlain(tensor->type()) ? tensor->type() : DataType::kNull;
}

Weight Checkpoint::GetStacked(const StackedRequest& request) {
  Weight weight;
  if (!status_.ok()) return weight;
  if (config_->coding.form == WeightCoding::Form::kMxfp4 && request.cols > 0) {
    return GetMxfp4(request);
  }
  const SafetensorsTensor* tensor = Peek(request.name);
  if (tensor == nullptr) tensor = Find(request.name);
  if (tensor == nullptr) return weight;
  Leave(request.name);
  const bool bias = request.cols == 0;
  const std::int64_t cols = request.of_cols > 0 ? request.of_cols : request.cols;
  std::vector<std::int64_t> wanted{request.count, cols, request.of};
  if (bias) wanted.erase(wanted.begin() + 1);
  if (tensor->shape != wanted) {
    Fail(StatusCode::kInvalidArgument,
         fmt::format("tensor {} is [{}]; the config makes it [{}]", tensor->name,
                     fmt::join(tensor->shape, ", "), fmt::join(wanted, ", ")));
    return weight;
  }
  const DataType type = tensor->type();
  if (!IsPlain(type)) {
    Fail(StatusCode::kUnsupported,
         fmt::format("tensor {} is {}; it must be F32, F16 or BF16", request.name, tensor->dtype));
    return weight;
  }
  const std::size_t size = SizeOf(type);
  std::vector<std::byte> rows(
      static_cast<std::size_t>(bias ? request.rows : request.rows * request.cols) * size);
  const auto part = static_cast<std::size_t>(tensor->elements() / request.count) * size;
  const std::byte* const from =
      tensor->data + static_cast<std::size_t>(request.number) * part +
      static_cast<std::size_t>(bias ? 0 : request.first_col * request.of) * size;
  read_bytes_ += rows.size();
  if (size == 2) {
    Transpose<2>(from, request, rows.data());
  } else {
    Transpose<4>(from, request, rows.data());
  }
  weight.name =
      fmt::format("{}[{}][{}::{}]", request.name, request.number, request.first, request.step);
  weight.type = type;
  weight.rows = bias ? 1 : request.rows;
  weight.cols = bias ? request.rows : request.cols;
  weight.data_ptr = Copied(rows.data(), rows.size());
  return status_.ok() ? weight : Weight{};
}

}  // namespace culet
