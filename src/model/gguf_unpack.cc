#include "model/gguf_unpack.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "base/float_types.h"
#include "base/thread_pool.h"
#include "culet/printable.h"

namespace culet {
namespace {

constexpr int kSmall = 32;     // elements of a block of Q4_0 and Q8_0
constexpr int kLarge = 256;    // of Q4_K and Q6_K
constexpr int kSubs = 8;       // groups of a block of Q4_K, of 32 elements
constexpr int kSixGroup = 16;  // elements of Q6_K that share a scale
constexpr std::int64_t kTaskRows = 8;

const std::uint8_t* BytesAt(const std::byte* data) noexcept {
  return reinterpret_cast<const std::uint8_t*>(data);
}
float HalfAt(const std::uint8_t* data) noexcept {
  std::uint16_t bits = 0;
  std::memcpy(&bits, data, sizeof bits);
  return Float16ToFloat(bits);
}

// Q4_K: two halves, twelve bytes of eight scales and eight minima of 6 bits, codes of which 32
// bytes hold 64 elements, the first 32 in the low halves.
struct BlockQ4K {
  float scales[kSubs], minima[kSubs];
  const std::uint8_t* codes;
  explicit BlockQ4K(const std::uint8_t* block) : codes(block + 16) {
    const float d = HalfAt(block), m = HalfAt(block + 2);
    const std::uint8_t* const s = block + 4;
    for (int j = 0; j < kSubs; ++j) {
      const int scale = j < 4 ? s[j] & 63 : (s[j + 4] & 15) | s[j - 4] >> 6 << 4;
      const int minimum = j < 4 ? s[j + 4] & 63 : s[j + 4] >> 4 | s[j] >> 6 << 4;
      scales[j] = d * static_cast<float>(scale);  // 17 bits: exact
      minima[j] = m * static_cast<float>(minimum);
    }
  }
  int Code(int i) const noexcept {
    const std::uint8_t byte = codes[i / 64 * 32 + i % 32];
    return i % 64 < 32 ? byte & 15 : byte >> 4;
  }
};

// Q6_K: the lower four bits of 256 codes, the upper two, sixteen scales of 8 bits, a half.
struct BlockQ6K {
  const std::uint8_t *low, *high;
  const std::int8_t* factors;
  float d;
  explicit BlockQ6K(const std::uint8_t* block)
      : low(block),
        high(block + 128),
        factors(reinterpret_cast<const std::int8_t*>(block + 192)),
        d(HalfAt(block + 208)) {}
  float Scale(int group) const noexcept { return d * static_cast<float>(factors[group]); }
  int Code(int i) const noexcept {
    const int half = i / 128, in_half = i % 128, quarter = in_half / 32, l = in_half % 32;
    const std::uint8_t byte = low[half * 64 + (quarter % 2) * 32 + l];
    const int four = quarter < 2 ? byte & 15 : byte >> 4;
    return (four | (high[half * 32 + l] >> 2 * quarter & 3) << 4) - 32;
  }
};

template <class T>
void Put(std::vector<std::byte>& to, std::int64_t at, T value) noexcept {
  std::memcpy(to.data() + static_cast<std::size_t>(at) * sizeof value, &value, sizeof value);
}

// Codes of one row, and its scales and zero points from element `first` of their lists on.
class Unpacker {
 public:
  explicit Unpacker(const GgufTensor& tensor) : tensor_(tensor) {
    const bool large = tensor.is(GgufType::kQ4_K) || tensor.is(GgufType::kQ6_K);
    const bool four = tensor.is(GgufType::kQ4_K) || tensor.is(GgufType::kQ4_0);
    made_.type = four ? DataType::kUint4 : DataType::kInt8;
    made_.group = tensor.is(GgufType::kQ6_K) ? kSixGroup : kSmall;
    made_.scales_type = large ? DataType::kFloat32 : DataType::kFloat16;
    if (four) made_.zeros_type = large ? DataType::kFloat32 : DataType::kBfloat16;
  }

  std::size_t Groups() const noexcept {
    return static_cast<std::size_t>(tensor_.rows() * tensor_.cols() / made_.group);
  }
  std::size_t bytes() const noexcept {
    return static_cast<std::size_t>(BytesOf(made_.type, tensor_.rows() * tensor_.cols())) +
           Groups() * (SizeOf(made_.scales_type) + SizeOf(made_.zeros_type));
  }

  Result<GgufCodes> Run() {
    const std::int64_t rows = tensor_.rows();
    made_.codes.resize(static_cast<std::size_t>(BytesOf(made_.type, rows * tensor_.cols())));
    made_.scales.resize(Groups() * SizeOf(made_.scales_type));
    made_.zeros.resize(Groups() * SizeOf(made_.zeros_type));
    std::atomic<std::int64_t> bad{-1};
    HostPool().Run(static_cast<int>((rows + kTaskRows - 1) / kTaskRows), [&](int task, int) {
      const std::int64_t end = std::min(rows, (task + 1) * kTaskRows);
      for (std::int64_t row = task * kTaskRows; row < end; ++row) {
        if (!Row(row)) bad = row;
      }
    });
    if (bad < 0) return std::move(made_);
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("tensor {} is {} with a scale in row {} that is not finite; quantise "
                              "the model again",
                              Printable(tensor_.name), tensor_.type->name, bad.load()));
  }

 private:
  // Whether the scales are finite.
  bool Row(std::int64_t row) {
    const std::uint8_t* block = BytesAt(tensor_.data + row * tensor_.row_bytes());
    const std::int64_t first = row * tensor_.cols();
    const int size = tensor_.type->block_elements;
    bool finite = true;
    for (std::int64_t col = 0; col < tensor_.cols();
         col += size, block += tensor_.type->block_bytes) {
      finite &= Block(block, first + col);
    }
    return finite;
  }

  bool Block(const std::uint8_t* block, std::int64_t at) {
    switch (static_cast<GgufType>(tensor_.type->number)) {
      case GgufType::kQ4_0:
        Put(made_.scales, at / kSmall, static_cast<std::uint16_t>(block[0] | block[1] << 8));
        Put(made_.zeros, at / kSmall, FloatToBfloat16(8));
        Halves(at, kSmall, [&](int i) { return i < 16 ? block[2 + i] & 15 : block[i - 14] >> 4; });
        return std::isfinite(HalfAt(block));
      case GgufType::kQ8_0:
        Put(made_.scales, at / kSmall, static_cast<std::uint16_t>(block[0] | block[1] << 8));
        std::memcpy(made_.codes.data() + at, block + 2, kSmall);
        return std::isfinite(HalfAt(block));
      case GgufType::kQ4_K:
        return LargeFour(BlockQ4K(block), at);
      default:
        return LargeSix(BlockQ6K(block), at);
    }
  }

  bool LargeFour(const BlockQ4K& block, std::int64_t at) {
    bool finite = true;
    bool constant[kSubs] = {};
    for (int j = 0; j < kSubs; ++j) {
      float scale = block.scales[j];
      const float minimum = block.minima[j];
      finite &= std::isfinite(scale) && std::isfinite(minimum);
      float zero = minimum / scale;
      // Without a scale all elements are the minimum: codes of 0 less one.
      constant[j] = !std::isfinite(zero);
      if (constant[j]) {
        scale = minimum;
        zero = minimum == 0 ? 0.0f : 1.0f;
      }
      Put(made_.scales, at / kSmall + j, scale);
      Put(made_.zeros, at / kSmall + j, zero);
    }
    Halves(at, kLarge, [&](int i) { return constant[i / kSmall] ? 0 : block.Code(i); });
    return finite;
  }

  bool LargeSix(const BlockQ6K& block, std::int64_t at) {
    for (int g = 0; g < kLarge / kSixGroup; ++g) {
      Put(made_.scales, at / kSixGroup + g, block.Scale(g));
    }
    for (int i = 0; i < kLarge; ++i) {
      made_.codes[static_cast<std::size_t>(at + i)] = static_cast<std::byte>(block.Code(i));
    }
    return std::isfinite(block.d);
  }

  template <class Code>
  void Halves(std::int64_t at, int count, Code code) {
    for (int i = 0; i < count; i += 2) {
      made_.codes[static_cast<std::size_t>((at + i) / 2)] =
          static_cast<std::byte>(code(i) | code(i + 1) << 4);
    }
  }

  const GgufTensor& tensor_;
  GgufCodes made_;
};

}  // namespace

bool HasCodes(const GgufTensor& tensor) noexcept { return tensor.type->block_elements > 1; }

std::size_t CodeBytes(const GgufTensor& tensor) noexcept { return Unpacker(tensor).bytes(); }

Result<GgufCodes> UnpackGguf(const GgufTensor& tensor) {
  if (tensor.type->known && HasCodes(tensor)) return Unpacker(tensor).Run();
  return Status(StatusCode::kUnsupported,
                fmt::format("tensor {} is {}; known types are {}", Printable(tensor.name),
                            tensor.type->name, KnownGgufTypes()));
}

void LoadGgufRow(const GgufTensor& tensor, std::int64_t row, std::span<float> to) noexcept {
  const std::uint8_t* block = BytesAt(tensor.data + row * tensor.row_bytes());
  const int size = tensor.type->block_elements;
  for (std::size_t col = 0; col < to.size();
       col += static_cast<std::size_t>(size), block += tensor.type->block_bytes) {
    float* const out = to.data() + col;
    switch (static_cast<GgufType>(tensor.type->number)) {
      case GgufType::kF32:
        std::memcpy(out, block, sizeof *out);
        break;
      case GgufType::kF16:
        *out = HalfAt(block);
        break;
      case GgufType::kBf16:
        *out = Bfloat16ToFloat(static_cast<std::uint16_t>(block[0] | block[1] << 8));
        break;
      case GgufType::kQ4_0:
        for (int i = 0; i < size; ++i) {
          const int code = i < 16 ? block[2 + i] & 15 : block[i - 14] >> 4;
          out[i] = HalfAt(block) * static_cast<float>(code - 8);
        }
        break;
      case GgufType::kQ8_0:
        for (int i = 0; i < size; ++i) {
          out[i] = HalfAt(block) * static_cast<float>(static_cast<std::int8_t>(block[2 + i]));
        }
        break;
      case GgufType::kQ4_K: {
        const BlockQ4K of(block);
        for (int i = 0; i < size; ++i) {
          out[i] = of.scales[i / kSmall] * static_cast<float>(of.Code(i)) - of.minima[i / kSmall];
        }
        break;
      }
      case GgufType::kQ6_K: {
        const BlockQ6K of(block);
        for (int i = 0; i < size; ++i) {
          out[i] = of.Scale(i / kSixGroup) * static_cast<float>(of.Code(i));
        }
        break;
      }
    }
  }
}

}  // namespace culet
