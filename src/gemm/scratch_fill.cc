#include "gemm/scratch_fill.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "base/float_types.h"
#include "base/made_once.h"
#include "base/matrix_index.h"
#include "base/thread_pool.h"
#include "gemm/stop.h"

namespace culet {
namespace {

// Elements are drawn from a palette of this many values, already in the element type. A draw is a
// table look-up, so that filling runs at the speed of memory.
constexpr int kPaletteBits = 12;
constexpr int kPaletteSize = 1 << kPaletteBits;
constexpr int kDrawsPerWord = 64 / kPaletteBits;
constexpr std::size_t kTaskBytes = std::size_t{1} << 20;

// Sebastiano Vigna's splitmix64: the state is a counter, so every line starts at its own place.
class SplitMix64 {
 public:
  explicit SplitMix64(std::uint64_t seed) noexcept : state_(seed) {}
  std::uint64_t operator()() noexcept {
    std::uint64_t z = state_ += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  /// Uniform in [low, high], whole numbers.
  int Whole(int low, int high) noexcept {
    return low + static_cast<int>((*this)() % static_cast<std::uint64_t>(high - low + 1));
  }
  double Uniform(double low, double high) noexcept {
    return low + (high - low) * std::ldexp(static_cast<double>((*this)() >> 11), -53);
  }

 private:
  std::uint64_t state_;
};

std::uint64_t Mixed(std::uint64_t a, std::uint64_t b) noexcept {
  return SplitMix64(a * 0xd1342543de82ef95u + b)();
}

double StandardNormal(SplitMix64& random) {
  using Table = std::array<double, 1 << 14>;
  static constinit std::atomic<const Table*> made = nullptr;
  const Table& table = MadeOnce(made, [] {
    auto values = std::make_unique<Table>();
    std::mt19937_64 engine(20);
    std::normal_distribution<double> normal;
    for (double& value : *values) value = normal(engine);
    return std::unique_ptr<const Table>(std::move(values));
  });
  return table[random() % table.size()];
}

// One value of each operand. The comments give the range, and why products stay inside FP32.
class Values {
 public:
  Values(const GemmDesc& desc, Fill fill)
      : fill_(fill),
        root_k_(std::sqrt(static_cast<double>(desc.k))),
        weight_(IsGated(desc.epilogue) ? 1 / root_k_ : 1),
        half_(desc.a.type == DataType::kFloat16 || desc.b.type == DataType::kFloat16 ||
              desc.d.type == DataType::kFloat16),
        small_integers_(SmallIntegers(desc)) {}

  static bool SmallIntegers(const GemmDesc& desc) noexcept {
    return desc.k > kLongestWideIntegers ||
           (desc.arch != 0 && desc.accumulate == Accumulate::kFast);
  }

  static constexpr int kLongestWideIntegers = 1 << 16;  // 2 * 2 * 4 * 4 * 2^16 = 2^22

  double Element(SplitMix64& random, DataType type, bool scaled, bool is_a) const {
    const bool e4m3 = type == DataType::kFloat8_e4m3;
    if (IsSubByte(type)) return FourBits(random, type);
    if (type == DataType::kInt8) return EightBits(random);
    switch (fill_) {
      case Fill::kNormal:
        // As a quantiser makes them: the largest of a group is near 448.
        return StandardNormal(random) * (!e4m3    ? (is_a || scaled ? 1.0 : weight_)
                                         : scaled ? kQuantisedDeviation
                                                  : 1.0);
      case Fill::kIntegers: {
        const int magnitude = small_integers_ ? 1 : random.Whole(1, 2);  // no zeros to hide behind
        return random.Whole(0, 1) != 0 ? magnitude : -magnitude;
      }
      case Fill::kExtreme:
        break;
    }
    if (e4m3)
      return Float8E4m3ToFloat(
          static_cast<std::uint8_t>(random.Whole(0, 126) + 128 * random.Whole(0, 1)));
    // Largest product 2^94 (halves: 2^10), smallest far below what FP32 holds.
    const int exponent = half_ ? (is_a ? random.Whole(-5, 5) : random.Whole(-10, 0))
                               : (is_a ? random.Whole(-20, 90) : random.Whole(-110, 0));
    return std::ldexp(StandardNormal(random), exponent);
  }

  double Scale(SplitMix64& random, const OperandDesc& operand, bool is_a) const {
    const bool e4m3 = operand.type == DataType::kFloat8_e4m3;
    switch (fill_) {
      case Fill::kNormal:
        return random.Uniform(0.5, 2.0) * (is_a ? 1.0 : weight_) /
               (e4m3 ? kQuantisedDeviation : 1.0);
      case Fill::kIntegers:
        return small_integers_ ? 1 : 1 << random.Whole(0, 2);
      case Fill::kExtreme:
        break;
    }
    // Halves hold 65504: e4m3 products reach 2^17, and sums of them more. Scales stay finite: an
    // infinite one makes a code of 0 NaN, but a sum of codes infinite.
    const int most = operand.scale_type == DataType::kFloat16 ? 14 : 20;
    const int exponent = half_ ? random.Whole(-14, -6) : random.Whole(-40, most);
    return std::ldexp(random.Uniform(1.0, 2.0), exponent);
  }

  // Small, so that a - zero is as exact as a; of uint4 as in checkpoints.
  double Zero(SplitMix64& random, const OperandDesc& operand) const {
    if (operand.type == DataType::kUint4 && fill_ == Fill::kNormal) return random.Whole(0, 15);
    return operand.zero_type == DataType::kUint4 ? random.Whole(0, 1) : random.Whole(-1, 1);
  }

  // C and the bias: as large as the product, so that neither hides the other.
  double Addend(SplitMix64& random) const {
    if (fill_ == Fill::kIntegers) return random.Whole(-8, 8);
    return StandardNormal(random) * root_k_ * weight_;
  }

 private:
  double EightBits(SplitMix64& random) const {
    if (fill_ != Fill::kIntegers) return random.Whole(-128, 127);
    const int magnitude = small_integers_ ? 1 : random.Whole(1, 2);
    return random.Whole(0, 1) != 0 ? magnitude : -magnitude;
  }
  double FourBits(SplitMix64& random, DataType type) const {
    if (fill_ != Fill::kIntegers) {
      return type == DataType::kUint4 ? random.Whole(0, 15) : random.Whole(-8, 7);
    }
    const int magnitude = small_integers_ ? 1 : random.Whole(1, 2);
    return type == DataType::kUint4 || random.Whole(0, 1) != 0 ? magnitude : -magnitude;
  }

  static constexpr double kQuantisedDeviation = 128.0;  // 448 is 3.5 standard deviations

  Fill fill_;
  double root_k_;
  // For normal data behind a gate: values then lie where silu bends, as a model's do. With a
  // deviation of sqrt(k) nearly all would lie where silu is zero or its argument.
  double weight_;
  bool half_;
  bool small_integers_;
};

template <class Draw>
std::vector<std::byte> MakePalette(DataType type, std::uint64_t seed, Draw draw) {
  std::vector<std::byte> palette(kPaletteSize * SizeOf(type));
  SplitMix64 random(seed);
  // Elements of 4 bits are drawn in pairs.
  const int elements = IsSubByte(type) ? 2 * kPaletteSize : kPaletteSize;
  for (int i = 0; i < elements; ++i) {
    StoreFromDouble(palette.data(), type, i, draw(random));
  }
  return palette;
}

template <class Element, class Ended>
void FillLine(const std::byte* palette, std::byte* line, std::size_t elements, std::uint64_t seed,
              Ended ended) noexcept {
  constexpr std::size_t kAskEvery = std::size_t{kDrawsPerWord} << 18;
  const auto* values = reinterpret_cast<const Element*>(palette);
  auto* out = reinterpret_cast<Element*>(line);
  SplitMix64 random(seed);
  for (std::size_t i = 0; i < elements;) {
    if (i % kAskEvery == 0 && ended()) return;
    const std::size_t piece = std::min(elements, i + kAskEvery);
    while (i < piece) {
      std::uint64_t word = random();
      const std::size_t end = std::min(piece, i + kDrawsPerWord);
      for (; i < end; ++i, word >>= kPaletteBits) out[i] = values[word & (kPaletteSize - 1)];
    }
  }
}

template <class Draw>
void FillRegion(const Region& region, std::uint64_t seed, std::byte* block, Stop& stop, Draw draw) {
  if (!region.present()) return;
  const std::vector<std::byte> palette = MakePalette(region.layout.type, seed, draw);
  const std::size_t size = SizeOf(region.layout.type);
  const std::size_t elements = region.line_bytes / size;
  const std::size_t lines_a_task = std::max<std::size_t>(1, kTaskBytes / region.pitch_bytes);
  const std::size_t tasks = (region.lines + lines_a_task - 1) / lines_a_task;
  HostPool().Run(static_cast<int>(tasks), [&](int task, int thread) {
    if (stop(thread)) return;
    const auto ended = [&] { return stop(thread); };
    const std::size_t begin = static_cast<std::size_t>(task) * lines_a_task;
    const std::size_t end = std::min(region.lines, begin + lines_a_task);
    for (std::size_t i = begin; i < end; ++i) {
      std::byte* line = block + region.data + i * region.pitch_bytes;
      const std::uint64_t line_seed = Mixed(seed, i);
      if (size == 4) FillLine<std::uint32_t>(palette.data(), line, elements, line_seed, ended);
      if (size == 2) FillLine<std::uint16_t>(palette.data(), line, elements, line_seed, ended);
      if (size == 1) FillLine<std::uint8_t>(palette.data(), line, elements, line_seed, ended);
    }
  });
}

void Put(const Region& region, int row, int col, double value, std::byte* block) {
  StoreFromDouble(block + region.data, region.layout.type, IndexOf(region.layout, row, col), value);
}

// One row of A and one column of B with a NaN, at the end of k where tails are handled, and one of
// each with an infinity. The other rows and columns must not notice.
void PutSpecials(const GemmDesc& desc, const Arrangement& at, std::byte* block) {
  constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (desc.m >= 3) Put(at.a, desc.m / 2, desc.k - 1, kNaN, block);
  if (desc.n >= 3) Put(at.b, desc.k - 1, desc.n / 2, kNaN, block);
  // The gated epilogues make a NaN or a zero of an infinite gate, as their arithmetic is written.
  if (IsGated(desc.epilogue)) return;
  // E4M3 has no infinity: 448 is put there instead.
  if (desc.m >= 4) Put(at.a, desc.m - 1, desc.k / 2, kInfinity, block);
  if (desc.n >= 4) Put(at.b, desc.k / 2, desc.n - 1, -kInfinity, block);
}

// Calls `fill(begin, end)` for pieces of [begin, end), each but the last of kTaskBytes.
template <class FillPiece>
void InPieces(std::size_t begin, std::size_t end, Stop& stop, FillPiece fill) {
  const std::size_t pieces = (end - begin + kTaskBytes - 1) / kTaskBytes;
  HostPool().Run(static_cast<int>(pieces), [&](int piece, int thread) {
    if (stop(thread)) return;
    const std::size_t from = begin + static_cast<std::size_t>(piece) * kTaskBytes;
    fill(from, std::min(end, from + kTaskBytes));
  });
}

void FillPoison(const Region& d, std::byte* block, Stop& stop) {
  const std::uint32_t poison = PoisonWord(d.layout.type);
  if (!d.present()) return;
  InPieces(d.begin, d.end, stop, [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; i += sizeof(poison)) {
      std::memcpy(block + i, &poison, sizeof(poison));
    }
  });
}

}  // namespace

Status FillBlock(const GemmDesc& desc, const Arrangement& at, const ScratchOptions& options,
                 std::byte* block) {
  Stop stop(options.stop);
  if (stop()) return stop.status();  // other threads may take all the work
  // All ones is a NaN in every format.
  InPieces(0, at.bytes, stop, [&](std::size_t begin, std::size_t end) {
    std::memset(block + begin, 0xff, end - begin);
  });

  const Values values(desc, options.fill);
  const auto seed = [&](std::uint64_t operand) { return Mixed(options.seed, operand); };
  FillRegion(at.a, seed(1), block, stop, [&](SplitMix64& random) {
    return values.Element(random, desc.a.type, at.u.present(), true);
  });
  FillRegion(at.u, seed(2), block, stop,
             [&](SplitMix64& random) { return values.Scale(random, desc.a, true); });
  FillRegion(at.zero_a, seed(7), block, stop,
             [&](SplitMix64& random) { return values.Zero(random, desc.a); });
  FillRegion(at.zero_b, seed(8), block, stop,
             [&](SplitMix64& random) { return values.Zero(random, desc.b); });
  FillRegion(at.b, seed(3), block, stop, [&](SplitMix64& random) {
    return values.Element(random, desc.b.type, at.v.present(), false);
  });
  FillRegion(at.v, seed(4), block, stop,
             [&](SplitMix64& random) { return values.Scale(random, desc.b, false); });
  const auto addend = [&](SplitMix64& random) { return values.Addend(random); };
  FillRegion(at.c, seed(5), block, stop, addend);
  FillRegion(at.bias, seed(6), block, stop, addend);
  if (options.fill == Fill::kExtreme) PutSpecials(desc, at, block);
  FillPoison(at.d, block, stop);
  FillPoison(at.w, block, stop);
  return stop.status();
}

bool IntegersAreExact(const GemmDesc& desc, const Accumulator& accumulator) noexcept {
  if (accumulator.bits >= 24) return desc.k <= 1 << 22;
  const int interval =
      accumulator.promotion_k > 0 ? std::min(accumulator.promotion_k, desc.k) : desc.k;
  // With few accumulator bits the products are at most 4, or 1 with small integers.
  const bool small = Values::SmallIntegers(desc);
  return desc.k <= 1 << 22 && interval <= (1 << (accumulator.bits - 1)) / (small ? 1 : 4);
}

std::uint32_t PoisonWord(DataType type) noexcept {
  switch (type) {
    case DataType::kFloat32:
      return 0x7fa5a5a5u;
    case DataType::kFloat16:
      return 0x7da57da5u;
    case DataType::kBfloat16:
      return 0x7fa57fa5u;
    case DataType::kFloat8_e4m3:
    case DataType::kFloat8_ue8m0:
    case DataType::kInt32:
    case DataType::kInt4:
    case DataType::kUint4:
    case DataType::kFloat4_e2m1:
    case DataType::kInt8:
    case DataType::kNull:
      break;
  }
  return 0xffffffffu;
}

}  // namespace culet
