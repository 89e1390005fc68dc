#include "model/packed_weight.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/ceil_div.h"
#include "base/float_types.h"
#include "base/thread_pool.h"

namespace culet {
namespace {

using Form = WeightCoding::Form;

constexpr std::int64_t kOfWord = 8;  // codes of 32 bits
constexpr int kMiddle = 8;           // the zero point of symmetric weights

std::uint32_t WordAt(const SafetensorsTensor& tensor, std::int64_t at) noexcept {
  std::uint32_t word = 0;
  std::memcpy(&word, tensor.data + at * 4, sizeof word);
  return word;
}

Status Impossible(const SafetensorsTensor& tensor, const std::string& sentence) {
  return Status(StatusCode::kInvalidArgument, fmt::format("tensor {} {}", tensor.name, sentence));
}

class Unpacker {
 public:
  Unpacker(const PackedTensors& tensors, const WeightCoding& coding, std::int64_t rows,
           std::int64_t cols)
      : tensors_(tensors),
        coding_(coding),
        rows_(rows),
        cols_(cols),
        group_(coding.weights.type == QuantType::kRow ? cols : coding.weights.group_size),
        groups_(CeilDiv(cols, group_)),
        by_k_(coding.form != Form::kPackQuantized) {}

  Result<UnpackedWeight> Run() {
    CULET_RETURN_IF_ERROR(CheckSizes());
    CULET_RETURN_IF_ERROR(CheckShapes());
    CULET_RETURN_IF_ERROR(ReadOrder());
    CULET_RETURN_IF_ERROR(ReadScales());
    ReadZeros();
    ReadCodes();
    return std::move(made_);
  }

 private:
  Status CheckSizes() const {
    const SafetensorsTensor& codes = *tensors_.codes;
    if (cols_ % group_ != 0) {
      return Impossible(codes, fmt::format("is of {} input features, no multiple of group_size {}; "
                                           "quantise it with a group_size that divides them, or "
                                           "leave it in 16 bits",
                                           cols_, group_));
    }
    const bool along_rows = coding_.form == Form::kAwq;
    const std::int64_t packed = along_rows ? rows_ : cols_;
    if (packed % kOfWord == 0 && cols_ % 2 == 0) return {};
    return Impossible(codes, fmt::format("is of {} {} features; 8 of them share 32 bits, so their "
                                         "number must be a multiple of 8 ({} input features: even)",
                                         packed, along_rows ? "output" : "input", cols_));
  }

  Status HasForm(const SafetensorsTensor* tensor, const char* dtype,
                 std::vector<std::int64_t> shape) const {
    if (tensor == nullptr) return {};
    if (dtype != nullptr && tensor->dtype != dtype) {
      return Status(StatusCode::kUnsupported, fmt::format("tensor {} is {}; it must be {}",
                                                          tensor->name, tensor->dtype, dtype));
    }
    if (tensor->shape == shape) return {};
    return Impossible(*tensor, fmt::format("is [{}]; the config makes it [{}]",
                                           fmt::join(tensor->shape, ", "), fmt::join(shape, ", ")));
  }

  Status CheckShapes() const {
    const std::int64_t n = rows_, k = cols_;
    const auto words = [](std::int64_t codes) { return CeilDiv(codes, kOfWord); };
    std::vector<std::int64_t> codes{n, words(k)}, zeros{words(n), groups_}, scales{n, groups_};
    if (by_k_) {
      codes = coding_.form == Form::kAwq ? std::vector{k, words(n)} : std::vector{words(k), n};
      zeros = {groups_, words(n)};
      scales = {groups_, n};
    }
    CULET_RETURN_IF_ERROR(HasForm(tensors_.codes, "I32", codes));
    CULET_RETURN_IF_ERROR(HasForm(tensors_.scales, nullptr, scales));
    if (coding_.zeros) CULET_RETURN_IF_ERROR(HasForm(tensors_.zeros, "I32", zeros));
    CULET_RETURN_IF_ERROR(HasForm(tensors_.order, "I32", {k}));
    const DataType type = tensors_.scales->type();
    if (type != DataType::kFloat32 && type != DataType::kFloat16 && type != DataType::kBfloat16) {
      return Status(StatusCode::kUnsupported,
                    fmt::format("tensor {} is {}; scales are F32, F16 or BF16",
                                tensors_.scales->name, tensors_.scales->dtype));
    }
    return CheckStatedShape();
  }

  // weight_shape, which says it once more.
  Status CheckStatedShape() const {
    const SafetensorsTensor* shape = tensors_.shape;
    if (shape == nullptr) return {};
    const bool wide = shape->dtype == "I64";
    if ((!wide && shape->dtype != "I32") || shape->elements() != 2) {
      return Impossible(*shape, fmt::format("is {} [{}]; it must be two of I64 or I32",
                                            shape->dtype, fmt::join(shape->shape, ", ")));
    }
    std::int64_t stated[2] = {};
    for (int i = 0; i < 2; ++i) {
      if (wide) {
        std::memcpy(&stated[i], shape->data + 8 * i, 8);
      } else {
        stated[i] = static_cast<std::int32_t>(WordAt(*shape, i));
      }
    }
    if (stated[0] == rows_ && stated[1] == cols_) return {};
    return Impossible(*shape, fmt::format("holds ({}, {}); the config makes it ({}, {})", stated[0],
                                          stated[1], rows_, cols_));
  }

  // Sorts columns by their groups; without an order they are sorted.
  Status ReadOrder() {
    const SafetensorsTensor* of = tensors_.order;
    if (of == nullptr) return {};
    const auto count = static_cast<std::size_t>(cols_);
    std::vector<std::int32_t> group(count);
    bool sorted = true, none = true;
    for (std::size_t i = 0; i < count; ++i) {
      group[i] = static_cast<std::int32_t>(WordAt(*of, static_cast<std::int64_t>(i)));
      none &= group[i] == -1;
      sorted &= group[i] == static_cast<std::int64_t>(i) / group_;
    }
    if (sorted || none) return {};
    std::vector<std::int64_t> sizes(static_cast<std::size_t>(groups_));
    for (std::size_t i = 0; i < count; ++i) {
      if (group[i] < 0 || group[i] >= groups_) {
        return Impossible(*of,
                          fmt::format("puts input feature {} into group {}; there are groups 0 "
                                      "to {}",
                                      i, group[i], groups_ - 1));
      }
      ++sizes[static_cast<std::size_t>(group[i])];
    }
    for (std::size_t g = 0; g < sizes.size(); ++g) {
      if (sizes[g] != group_) {
        return Impossible(*of, fmt::format("puts {} input features into group {}; group_size is {}",
                                           sizes[g], g, group_));
      }
    }
    made_.order.resize(count);
    std::vector<std::int64_t> next(sizes.size());
    for (std::size_t i = 0; i < count; ++i) {
      const auto g = static_cast<std::size_t>(group[i]);
      const std::int64_t at = static_cast<std::int64_t>(g) * group_ + next[g]++;
      made_.order[static_cast<std::size_t>(at)] = static_cast<std::int32_t>(i);
    }
    return {};
  }

  // Where (row, group) is in a tensor of scales.
  std::int64_t ScaleAt(std::int64_t row, std::int64_t group) const noexcept {
    return by_k_ ? group * rows_ + row : row * groups_ + group;
  }

  Status ReadScales() {
    const SafetensorsTensor& from = *tensors_.scales;
    const DataType type = from.type();
    const std::size_t size = SizeOf(type);
    made_.scales_type = type;
    made_.scales.resize(static_cast<std::size_t>(rows_ * groups_) * size);
    std::byte* to = made_.scales.data();
    for (std::int64_t row = 0; row < rows_; ++row) {
      for (std::int64_t g = 0; g < groups_; ++g, to += size) {
        std::memcpy(to, from.data + static_cast<std::size_t>(ScaleAt(row, g)) * size, size);
        const double scale = LoadAsDouble(to, type, 0);
        if (std::isfinite(scale) && scale != 0) continue;
        return Impossible(from, fmt::format("holds the scale {} for output feature {}, group {}; "
                                            "scales must be finite and other than 0; quantise the "
                                            "model again",
                                            scale, row, g));
      }
    }
    return {};
  }

  void ReadZeros() {
    made_.zeros.assign(static_cast<std::size_t>(rows_ * groups_), Bfloat16Of(kMiddle));
    if (!coding_.zeros) return;
    const std::uint32_t added = AddedToZeros();
    const std::int64_t across = CeilDiv(rows_, kOfWord);
    for (std::int64_t row = 0; row < rows_; ++row) {
      for (std::int64_t g = 0; g < groups_; ++g) {
        const std::int64_t at = by_k_ ? g * across + row / kOfWord : row / kOfWord * groups_ + g;
        const std::uint32_t word = WordAt(*tensors_.zeros, at) + added;
        made_.zeros[static_cast<std::size_t>(row * groups_ + g)] =
            Bfloat16Of(static_cast<int>(word >> Shift(row) & 15));
      }
    }
  }

  // GPTQ's writers store zero points less one, the whole word less 0x11111111. Some files say so
  // that do not: with symmetric weights all zero points are 8.
  std::uint32_t AddedToZeros() const noexcept {
    if (coding_.form != Form::kGptq) return 0;
    bool all_eights = true, all_sevens = true;
    for (std::int64_t i = 0; i < tensors_.zeros->elements(); ++i) {
      const std::uint32_t word = WordAt(*tensors_.zeros, i);
      all_eights &= word == 0x88888888u;
      all_sevens &= word == 0x77777777u;
    }
    if (coding_.symmetric && (all_eights || all_sevens)) return all_sevens ? 0x11111111u : 0;
    return coding_.zeros_less_one ? 0x11111111u : 0;
  }

  // Where the code of a row is in a word that packs rows; GPTQ and compressed-tensors pack columns
  // of codes in this order, too.
  int Shift(std::int64_t row) const noexcept {
    constexpr int kAwqPlaces[] = {0, 4, 1, 5, 2, 6, 3, 7};
    const auto at = static_cast<int>(row % kOfWord);
    return 4 * (coding_.form == Form::kAwq ? kAwqPlaces[at] : at);
  }

  void ReadCodes() {
    made_.codes.resize(static_cast<std::size_t>(rows_ * cols_ / 2));
    constexpr std::int64_t kTaskRows = 8;
    HostPool().Run(static_cast<int>(CeilDiv(rows_, kTaskRows)), [&](int task, int) {
      const std::int64_t end = std::min(rows_, (task + 1) * kTaskRows);
      for (std::int64_t row = task * kTaskRows; row < end; ++row) {
        std::uint8_t* const to = made_.codes.data() + row * cols_ / 2;
        for (std::int64_t col = 0; col < cols_; col += 2) {
          to[col / 2] =
              static_cast<std::uint8_t>(CodeAt(row, From(col)) | CodeAt(row, From(col + 1)) << 4);
        }
      }
    });
  }

  std::int64_t From(std::int64_t col) const noexcept {
    return made_.order.empty() ? col : made_.order[static_cast<std::size_t>(col)];
  }

  unsigned CodeAt(std::int64_t row, std::int64_t k) const noexcept {
    const SafetensorsTensor& from = *tensors_.codes;
    switch (coding_.form) {
      case Form::kAwq:
        return WordAt(from, k * (rows_ / kOfWord) + row / kOfWord) >> Shift(row) & 15;
      case Form::kGptq:
        return WordAt(from, k / kOfWord * rows_ + row) >> 4 * (k % kOfWord) & 15;
      default:
        return WordAt(from, row * (cols_ / kOfWord) + k / kOfWord) >> 4 * (k % kOfWord) & 15;
    }
  }

  static std::uint16_t Bfloat16Of(int number) noexcept {
    std::uint16_t bits = 0;
    StoreFromDouble(&bits, DataType::kBfloat16, 0, number);
    return bits;
  }

  const PackedTensors& tensors_;
  const WeightCoding& coding_;
  const std::int64_t rows_, cols_, group_, groups_;
  const bool by_k_;  // scales and zero points are (groups, rows)
  UnpackedWeight made_;
};

}  // namespace

Result<UnpackedWeight> Unpack(const PackedTensors& tensors, const WeightCoding& coding,
                              std::int64_t rows, std::int64_t cols) {
  return Unpacker(tensors, coding, rows, cols).Run();
}

}  // namespace culet
