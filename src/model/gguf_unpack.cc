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
#include "model/gguf_blocks.h"

namespace culet {
namespace {

constexpr std::int64_t kTaskRows = 8;

const std::uint8_t* BytesAt(const std::byte* data) noexcept {
  return reinterpret_cast<const std::uint8_t*>(data);
}

// Calls `body` with the blocks of the tensor's type, which has codes.
template <class Body>
decltype(auto) WithBlocks(const GgufTensor& tensor, Body body) {
  switch (static_cast<GgufType>(tensor.type->number)) {
    case GgufType::kQ4_0:
      return body.template operator()<gguf::BlockQ4_0>();
    case GgufType::kQ4_1:
      return body.template operator()<gguf::BlockQ4_1>();
    case GgufType::kQ5_0:
      return body.template operator()<gguf::BlockQ5_0>();
    case GgufType::kQ5_1:
      return body.template operator()<gguf::BlockQ5_1>();
    case GgufType::kQ8_0:
      return body.template operator()<gguf::BlockQ8_0>();
    case GgufType::kQ4_K:
      return body.template operator()<gguf::BlockQ4_K>();
    case GgufType::kQ5_K:
      return body.template operator()<gguf::BlockQ5_K>();
    case GgufType::kIQ4_NL:
      return body.template operator()<gguf::BlockIQ4_NL>();
    case GgufType::kIQ4_XS:
      return body.template operator()<gguf::BlockIQ4_XS>();
    case GgufType::kMxfp4:
      return body.template operator()<gguf::BlockMXFP4>();
    default:
      return body.template operator()<gguf::BlockQ6_K>();
  }
}

template <class T>
void Put(std::vector<std::byte>& to, std::int64_t at, T value) noexcept {
  std::memcpy(to.data() + static_cast<std::size_t>(at) * sizeof value, &value, sizeof value);
}

// Codes of one row, and its scales and zero points from element `first` of their lists on.
class Unpacker {
 public:
  explicit Unpacker(const GgufTensor& tensor) : tensor_(tensor) {
    WithBlocks(tensor, [this]<class Block>() {
      made_.type = Block::kCodes;
      made_.group = Block::kGroup;
      made_.scales_type = Block::kCodes == DataType::kFloat4_e2m1 ? DataType::kFloat8_ue8m0
                          : Block::kHalfScale                     ? DataType::kFloat16
                                                                  : DataType::kFloat32;
      if (Block::kOffsets) made_.zeros_type = DataType::kFloat32;
      if (Block::kMiddle != 0) made_.zeros_type = DataType::kBfloat16;
    });
  }

  DataType type() const noexcept { return made_.type; }
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
        if (!WithBlocks(tensor_, [&]<class Block>() { return Row<Block>(row); })) bad = row;
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
  template <class Block>
  bool Row(std::int64_t row) {
    const std::uint8_t* from = BytesAt(tensor_.data + row * tensor_.row_bytes());
    const std::int64_t first = row * tensor_.cols();
    const int size = tensor_.type->block_elements;
    bool finite = true;
    for (std::int64_t col = 0; col < tensor_.cols();
         col += size, from += tensor_.type->block_bytes) {
      const Block block(from);
      const std::int64_t at = first + col;
      for (int g = 0; g < size / Block::kGroup; ++g) {
        finite &= std::isfinite(block.Scale(g)) && std::isfinite(block.Offset(g));
        const bool constant = Factors(block, from, at / Block::kGroup + g, g);
        Codes(block, at, g, constant);
      }
    }
    return finite;
  }

  // Stores a group's scale and zero point. Returns whether all its elements are the offset.
  template <class Block>
  bool Factors(const Block& block, const std::uint8_t* from, std::int64_t to, int group) {
    if constexpr (Block::kCodes == DataType::kFloat4_e2m1) {
      Put(made_.scales, to, *from);
      return false;
    }
    if constexpr (Block::kHalfScale) {
      Put(made_.scales, to, static_cast<std::uint16_t>(from[0] | from[1] << 8));
      if constexpr (Block::kMiddle != 0) Put(made_.zeros, to, FloatToBfloat16(Block::kMiddle));
      return false;
    }
    float scale = block.Scale(group);
    bool constant = false;
    if constexpr (Block::kOffsets) {
      const float offset = block.Offset(group);
      float zero = -offset / scale;
      // Without a scale: codes of 0, less -1.
      constant = !std::isfinite(zero);
      if (constant) {
        scale = offset;
        zero = offset == 0 ? 0.0f : -1.0f;
      }
      Put(made_.zeros, to, zero);
    }
    Put(made_.scales, to, scale);
    return constant;
  }

  template <class Block>
  void Codes(const Block& block, std::int64_t at, int group, bool constant) {
    const int first = group * Block::kGroup;
    const auto code = [&](int i) {
      if constexpr (Block::kCodes == DataType::kFloat4_e2m1) return block.Bits(first + i);
      return constant ? 0 : block.Code(first + i) + Block::kMiddle;
    };
    const std::int64_t to = at + first;
    if constexpr (Block::kCodes == DataType::kInt8) {
      for (int i = 0; i < Block::kGroup; ++i) {
        made_.codes[static_cast<std::size_t>(to + i)] = static_cast<std::byte>(code(i));
      }
    } else {
      for (int i = 0; i < Block::kGroup; i += 2) {
        made_.codes[static_cast<std::size_t>((to + i) / 2)] =
            static_cast<std::byte>(code(i) | code(i + 1) << 4);
      }
    }
  }

  const GgufTensor& tensor_;
  GgufCodes made_;
};

}  // namespace

bool HasCodes(const GgufTensor& tensor) noexcept { return tensor.type->block_elements > 1; }

DataType CodesOf(const GgufTensor& tensor) noexcept { return Unpacker(tensor).type(); }

std::size_t CodeBytes(const GgufTensor& tensor) noexcept { return Unpacker(tensor).bytes(); }

Result<GgufCodes> UnpackGguf(const GgufTensor& tensor) {
  if (tensor.type->known && HasCodes(tensor)) return Unpacker(tensor).Run();
  return Status(StatusCode::kUnsupported,
                fmt::format("tensor {} is {}; known types are {}", Printable(tensor.name),
                            tensor.type->name, KnownGgufTypes()));
}

void LoadGgufRow(const GgufTensor& tensor, std::int64_t row, std::span<float> to) noexcept {
  const std::uint8_t* from = BytesAt(tensor.data + row * tensor.row_bytes());
  if (!HasCodes(tensor)) {
    for (float& out : to) {
      if (tensor.is(GgufType::kF32)) {
        std::memcpy(&out, from, sizeof out);
      } else if (tensor.is(GgufType::kF16)) {
        out = gguf::HalfAt(from);
      } else {
        out = Bfloat16ToFloat(static_cast<std::uint16_t>(from[0] | from[1] << 8));
      }
      from += tensor.type->block_bytes;
    }
    return;
  }
  WithBlocks(tensor, [&]<class Block>() {
    const int size = tensor.type->block_elements;
    for (std::size_t col = 0; col < to.size();
         col += static_cast<std::size_t>(size), from += tensor.type->block_bytes) {
      const Block block(from);
      for (int i = 0; i < size; ++i) {
        const int group = i / Block::kGroup;
        const float product = block.Scale(group) * static_cast<float>(block.Code(i));
        to[col + static_cast<std::size_t>(i)] =
            Block::kOffsets ? product + block.Offset(group) : product;
      }
    }
  });
}

}  // namespace culet
