#include "model/quantize_rows.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/ceil_div.h"
#include "base/float_types.h"
#include "base/thread_pool.h"

namespace culet {
namespace {

constexpr double kMostCode = 15, kMostE4m3 = 448;
constexpr double kMiddle = 8;  // the zero point of symmetric codes

// One row as doubles, through aligned memory.
class RowLoader {
 public:
  explicit RowLoader(const PlainMatrix& matrix)
      : matrix_(matrix),
        bytes_(static_cast<std::size_t>(matrix.cols) * SizeOf(matrix.type)),
        stored_((bytes_ + sizeof(double) - 1) / sizeof(double)),
        row_(static_cast<std::size_t>(matrix.cols)) {}

  const std::vector<double>& Load(std::int64_t row) {
    std::memcpy(stored_.data(), matrix_.data + static_cast<std::size_t>(row) * bytes_, bytes_);
    LoadLine(stored_.data(), matrix_.type, 0, 1, static_cast<int>(matrix_.cols), row_.data());
    return row_;
  }

 private:
  const PlainMatrix& matrix_;
  std::size_t bytes_;
  std::vector<double> stored_, row_;
};

struct Group {
  double least = 0, most = 0;  // of its elements and 0
  double scale = 1, zero = 0;
};

// What a group's scale is, before it is rounded.
double ScaleOf(const Group& group, CheckpointFormat format) noexcept {
  if (format == CheckpointFormat::kU4Asymmetric) return (group.most - group.least) / kMostCode;
  const double most = std::max(group.most, -group.least);
  return most / (format == CheckpointFormat::kU4 ? kMostCode / 2 : kMostE4m3);
}

// The groups of `count` rows from `first` on, which share them where a block does. False where an
// element or a scale is not finite.
bool GroupsOf(RowLoader& rows, const PlainMatrix& matrix, CheckpointFormat format,
              std::int64_t first, std::int64_t count, std::vector<Group>& groups) {
  const std::int64_t across = ScaleShapeOf(format, matrix.cols).cols;
  groups.assign(static_cast<std::size_t>(CeilDiv(matrix.cols, across)), Group());
  bool finite = true;
  for (std::int64_t row = first; row < first + count; ++row) {
    const std::vector<double>& values = rows.Load(row);
    for (std::size_t i = 0; i < values.size(); ++i) {
      finite &= std::isfinite(values[i]);
      Group& group = groups[i / static_cast<std::size_t>(across)];
      group.most = std::max(group.most, values[i]);
      group.least = std::min(group.least, values[i]);
    }
  }
  for (Group& group : groups) {
    const bool zeros = group.most == group.least;
    group.scale = zeros ? 1 : RoundTo(matrix.type, ScaleOf(group, format));
    if (group.scale == 0) {
      constexpr std::uint32_t kLeast = 1;  // the pattern of the least number above 0
      group.scale = LoadAsDouble(&kLeast, matrix.type, 0);
    }
    if (format == CheckpointFormat::kU4) group.zero = kMiddle;
    if (format == CheckpointFormat::kU4Asymmetric) {
      group.zero = std::clamp(std::nearbyint(-group.least / group.scale), 0.0, kMostCode);
    }
    finite &= std::isfinite(group.scale);
  }
  return finite;
}

// Calls body(loader, first, count) for the rows that share scales, in parallel.
template <class Body>
void ForRows(const PlainMatrix& matrix, CheckpointFormat format, Body body) {
  const std::int64_t step = ScaleShapeOf(format, matrix.cols).rows;
  HostPool().Run(static_cast<int>(CeilDiv(matrix.rows, step)), [&](int task, int) {
    RowLoader rows(matrix);
    const std::int64_t first = task * step;
    body(rows, first, std::min(step, matrix.rows - first));
  });
}

}  // namespace

ScaleShape ScaleShapeOf(CheckpointFormat format, std::int64_t cols) noexcept {
  switch (format) {
    case CheckpointFormat::kU4:
    case CheckpointFormat::kU4Asymmetric:
      return {1, kCheckpointGroup};
    case CheckpointFormat::kFp8Row:
      return {1, cols};
    case CheckpointFormat::kFp8Block:
      break;
  }
  return {kCheckpointGroup, kCheckpointGroup};
}

bool WriteScales(const PlainMatrix& matrix, CheckpointFormat format, std::span<std::byte> to) {
  const ScaleShape shape = ScaleShapeOf(format, matrix.cols);
  const std::int64_t across = CeilDiv(matrix.cols, shape.cols);
  std::atomic<bool> finite{true};
  ForRows(matrix, format, [&](RowLoader& rows, std::int64_t first, std::int64_t count) {
    std::vector<Group> groups;
    if (!GroupsOf(rows, matrix, format, first, count, groups)) finite = false;
    for (std::size_t i = 0; i < groups.size(); ++i) {
      StoreFromDouble(to.data(), matrix.type,
                      first / shape.rows * across + static_cast<std::int64_t>(i), groups[i].scale);
    }
  });
  return finite;
}

void WriteZeros(const PlainMatrix& matrix, std::span<std::byte> to) {
  constexpr CheckpointFormat kFormat = CheckpointFormat::kU4Asymmetric;
  const auto across =
      static_cast<std::size_t>(CeilDiv(matrix.cols, ScaleShapeOf(kFormat, matrix.cols).cols));
  HostPool().Run(static_cast<int>(CeilDiv(matrix.rows, kZerosOfWord)), [&](int task, int) {
    RowLoader rows(matrix);
    std::vector<Group> groups;
    std::vector<std::uint32_t> words(across);
    const std::int64_t first = task * kZerosOfWord;
    for (std::int64_t row = first; row < std::min(matrix.rows, first + kZerosOfWord); ++row) {
      GroupsOf(rows, matrix, kFormat, row, 1, groups);
      for (std::size_t g = 0; g < across; ++g) {
        words[g] |= static_cast<std::uint32_t>(groups[g].zero) << 4 * (row - first);
      }
    }
    const std::size_t bytes = across * sizeof(std::uint32_t);
    std::memcpy(to.data() + static_cast<std::size_t>(task) * bytes, words.data(), bytes);
  });
}

void WriteCodes(const PlainMatrix& matrix, CheckpointFormat format, std::span<std::byte> to) {
  const auto across = static_cast<std::size_t>(ScaleShapeOf(format, matrix.cols).cols);
  ForRows(matrix, format, [&](RowLoader& rows, std::int64_t first, std::int64_t count) {
    std::vector<Group> groups;
    GroupsOf(rows, matrix, format, first, count, groups);
    for (std::int64_t row = first; row < first + count; ++row) {
      const std::vector<double>& values = rows.Load(row);
      const std::int64_t begin = row * matrix.cols;
      for (std::size_t i = 0; i < values.size(); ++i) {
        const Group& group = groups[i / across];
        const double quotient = values[i] / group.scale;
        const std::int64_t at = begin + static_cast<std::int64_t>(i);
        if (IsU4(format)) {
          const double code = std::clamp(std::nearbyint(quotient) + group.zero, 0.0, kMostCode);
          StoreFromDouble(to.data(), DataType::kUint4, at, code);
        } else {
          StoreFromDouble(to.data(), DataType::kFloat8_e4m3, at,
                          std::clamp(quotient, -kMostE4m3, kMostE4m3));
        }
      }
    }
  });
}

}  // namespace culet
