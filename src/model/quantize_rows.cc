#include "model/quantize_rows.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/float_types.h"
#include "base/thread_pool.h"

namespace culet {
namespace {

constexpr std::int64_t kGroup = 128;
constexpr double kMostU4 = 7.5, kMostE4m3 = 448;

constexpr std::int64_t CeilDiv(std::int64_t a, std::int64_t b) noexcept { return (a + b - 1) / b; }

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

// The scales of `count` rows from `first` on, which share them where a block does.
bool ScalesOf(RowLoader& rows, const PlainMatrix& matrix, CheckpointFormat format,
              std::int64_t first, std::int64_t count, std::vector<double>& scales) {
  const std::int64_t across = ScaleShapeOf(format, matrix.cols).cols;
  scales.assign(static_cast<std::size_t>(CeilDiv(matrix.cols, across)), 0.0);
  bool finite = true;
  for (std::int64_t row = first; row < first + count; ++row) {
    const std::vector<double>& values = rows.Load(row);
    for (std::size_t i = 0; i < values.size(); ++i) {
      finite &= std::isfinite(values[i]);
      double& most = scales[i / static_cast<std::size_t>(across)];
      most = std::max(most, std::abs(values[i]));
    }
  }
  for (double& scale : scales) {
    if (scale == 0) {
      scale = 1;
      continue;
    }
    scale = RoundTo(matrix.type, scale / (format == CheckpointFormat::kU4 ? kMostU4 : kMostE4m3));
    if (scale == 0) {
      constexpr std::uint32_t kLeast = 1;  // the pattern of the least number above 0
      scale = LoadAsDouble(&kLeast, matrix.type, 0);
    }
    finite &= std::isfinite(scale);
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
      return {1, kGroup};
    case CheckpointFormat::kFp8Row:
      return {1, cols};
    case CheckpointFormat::kFp8Block:
      break;
  }
  return {kGroup, kGroup};
}

bool WriteScales(const PlainMatrix& matrix, CheckpointFormat format, std::span<std::byte> to) {
  const ScaleShape shape = ScaleShapeOf(format, matrix.cols);
  const std::int64_t across = CeilDiv(matrix.cols, shape.cols);
  std::atomic<bool> finite{true};
  ForRows(matrix, format, [&](RowLoader& rows, std::int64_t first, std::int64_t count) {
    std::vector<double> scales;
    if (!ScalesOf(rows, matrix, format, first, count, scales)) finite = false;
    for (std::size_t i = 0; i < scales.size(); ++i) {
      StoreFromDouble(to.data(), matrix.type,
                      first / shape.rows * across + static_cast<std::int64_t>(i), scales[i]);
    }
  });
  return finite;
}

void WriteCodes(const PlainMatrix& matrix, CheckpointFormat format, std::span<std::byte> to) {
  const auto across = static_cast<std::size_t>(ScaleShapeOf(format, matrix.cols).cols);
  ForRows(matrix, format, [&](RowLoader& rows, std::int64_t first, std::int64_t count) {
    std::vector<double> scales;
    ScalesOf(rows, matrix, format, first, count, scales);
    for (std::int64_t row = first; row < first + count; ++row) {
      const std::vector<double>& values = rows.Load(row);
      const std::int64_t begin = row * matrix.cols;
      for (std::size_t i = 0; i < values.size(); ++i) {
        const double quotient = values[i] / scales[i / across];
        const std::int64_t at = begin + static_cast<std::int64_t>(i);
        if (format == CheckpointFormat::kU4) {
          const double code = std::clamp(std::nearbyint(quotient), -8.0, 7.0) + 8;
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
