#include "culet/packing.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string>

namespace culet {
namespace {

// Bytes are moved, whatever they mean.
class Panels64 final : public PackFormat {
 public:
  constexpr Panels64() noexcept : PackFormat(kPackPanels64, "k_major_n64") {}

  const char* why(DataType type) const noexcept override {
    switch (type) {
      case DataType::kFloat32:
      case DataType::kFloat16:
      case DataType::kBfloat16:
      case DataType::kFloat8_e4m3:
        return nullptr;
      default:
        return "takes weights of float32, float16, bfloat16 and float8_e4m3";
    }
  }

  std::int64_t bytes(DataType type, int rows, int cols) const noexcept override {
    const std::int64_t columns =
        (std::int64_t{cols} + kPanelColumns - 1) / kPanelColumns * kPanelColumns;
    std::int64_t bytes = 0;
    if (__builtin_mul_overflow(columns * static_cast<std::int64_t>(SizeOf(type)),
                               std::int64_t{rows}, &bytes)) {
      return -1;
    }
    return bytes;
  }

  void Pack(const void* weight, const MatrixLayout& plain, void* packed) const override {
    std::memset(packed, 0, static_cast<std::size_t>(bytes(plain.type, plain.rows, plain.cols)));
    const auto* const from = static_cast<const std::byte*>(weight);
    auto* const to = static_cast<std::byte*>(packed);
    ForEachElement(plain, [&](std::size_t of_plain, std::size_t of_packed, std::size_t size) {
      std::memcpy(to + of_packed, from + of_plain, size);
    });
  }

  void Unpack(const void* packed, const MatrixLayout& plain, void* weight) const override {
    const auto* const from = static_cast<const std::byte*>(packed);
    auto* const to = static_cast<std::byte*>(weight);
    ForEachElement(plain, [&](std::size_t of_plain, std::size_t of_packed, std::size_t size) {
      std::memcpy(to + of_plain, from + of_packed, size);
    });
  }

 private:
  // copy(offset in the plain weight, offset in the packed one, bytes) for pieces that are
  // contiguous in both: rows of a panel, or single elements of columns.
  template <class Copy>
  static void ForEachElement(const MatrixLayout& plain, Copy copy) {
    const std::size_t size = SizeOf(plain.type);
    const auto rows = static_cast<std::size_t>(plain.rows);
    const auto cols = static_cast<std::size_t>(plain.cols);
    const auto ld = static_cast<std::size_t>(plain.ld);
    const bool by_row = plain.order == Order::kRowMajor;
    for (std::size_t first = 0; first < cols; first += kPanelColumns) {
      const std::size_t count = std::min<std::size_t>(kPanelColumns, cols - first);
      for (std::size_t k = 0; k < rows; ++k) {
        const std::size_t packed = (first * rows + k * kPanelColumns) * size;
        if (by_row) {
          copy((k * ld + first) * size, packed, count * size);
          continue;
        }
        for (std::size_t n = 0; n < count; ++n) {
          copy(((first + n) * ld + k) * size, packed + n * size, size);
        }
      }
    }
  }
};

constinit const Panels64 kPanels64;
constinit const PackFormat* const kFormats[] = {&kPanels64};

}  // namespace

Status PackFormat::PackOnDevice(const void*, const MatrixLayout&, void*, cudaStream_t) const {
  return Status(
      StatusCode::kUnsupported,
      std::string(name()) + " is packed on the host alone; pack there and copy the packed weight");
}

std::span<const PackFormat* const> PackFormats() noexcept { return kFormats; }

const PackFormat* FindPackFormat(int number) noexcept {
  const auto found = std::ranges::find(kFormats, number, &PackFormat::number);
  return found != std::end(kFormats) ? *found : nullptr;
}

const PackFormat* FindPackFormat(std::string_view name) noexcept {
  const auto found = std::ranges::find(kFormats, name, &PackFormat::name);
  return found != std::end(kFormats) ? *found : nullptr;
}

MatrixLayout PackedLayout(const MatrixLayout& plain, const PackFormat& format) noexcept {
  MatrixLayout packed = ColMajor(plain.type, plain.rows, plain.cols);
  packed.pack = format.number();
  return packed;
}

std::int64_t PackedBytes(const MatrixLayout& layout) noexcept {
  const PackFormat* const format = FindPackFormat(layout.pack);
  return format != nullptr ? format->bytes(layout.type, layout.rows, layout.cols) : -1;
}

}  // namespace culet
