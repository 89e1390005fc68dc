// Products with weights that are codes of 4 or 8 bits, E4M3 among them: a code becomes (code -
// zero) * scale in a register, exactly, and meets all rows of its tile. Lanes run along k.
#if defined(CULET_SIMD_U4_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef CULET_SIMD_U4_INL_H_
#undef CULET_SIMD_U4_INL_H_
#else
#define CULET_SIMD_U4_INL_H_
#endif

#include <algorithm>
#include <cstring>

#include "base/float_types.h"
#include "base/thread_pool.h"
#include "kernels/cpu/simd_decode-inl.h"
#include "kernels/cpu/simd_exact.h"
#include "kernels/cpu/simd_memory-inl.h"
#include "kernels/cpu/simd_store-inl.h"
#include "kernels/cpu/simd_u4.h"

HWY_BEFORE_NAMESPACE();
namespace culet {
namespace HWY_NAMESPACE {

// Elements of k that a step decodes: two vectors. The even ones are in the first, so that the two
// codes of a byte (of a word) go to one lane.
inline constexpr std::size_t kU4Elements = 2 * kLanes;

// Whether a step covers two groups of 16.
inline constexpr bool kU4Pairs = kU4Elements == 2 * kU4SmallGroup;

// What a group's codes are multiplied by, and what is added: of one group, or of two, one for each
// half of the lanes.
struct U4Factors {
  VF32 scale, offset;
  HWY_INLINE U4Factors(F32 d, const float* scales, const float* offsets)
      : scale(hn::Set(d, *scales)), offset(hn::Set(d, *offsets)) {}
  HWY_INLINE U4Factors(F32 d, const float* scales, const float* offsets, std::size_t second)
      : scale(Halves(d, scales[0], scales[second])),
        offset(Halves(d, offsets[0], offsets[second])) {}

 private:
  static HWY_INLINE VF32 Halves(F32 d, float lower, float upper) {
    return hn::IfThenElse(hn::FirstN(d, kLanes / 2), hn::Set(d, lower), hn::Set(d, upper));
  }
};

// Each coding has
//   kBytes             bytes of a step's codes
//   Group(d, factors)  a group's weights, or what makes them
//   Load(p)            a step's codes: in each lane an even element's, and kShift bits above it
//                      the odd one's
//   Get(d, codes)      the weights of the lower codes
struct U4Nibbles {
  static constexpr std::size_t kBytes = kLanes;
  static constexpr int kShift = 4;
  static HWY_INLINE VU32 Load(const std::uint8_t* p) {
    const hn::Rebind<std::uint8_t, F32> du8;
    return hn::PromoteTo(U32(), hn::LoadU(du8, p));
  }
};

#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
// By a look-up, which reads the lower four bits of a lane alone.
template <class Table>
struct U4LookUp : U4Nibbles {
  VF32 weights;
  HWY_INLINE U4LookUp(F32 d, const U4Factors& of)
      : weights(hn::MulAdd(Table::Values(d), of.scale, of.offset)) {}
  HWY_INLINE VF32 Get(F32, VU32 codes) const {
    return VF32{_mm512_permutexvar_ps(codes.raw, weights.raw)};
  }
};
// The same where the lanes have two groups.
template <class Table>
struct U4LookUpOfPair : U4Nibbles {
  U4Factors factors;
  HWY_INLINE U4LookUpOfPair(F32, const U4Factors& of) : factors(of) {}
  HWY_INLINE VF32 Get(F32 d, VU32 codes) const {
    const VF32 code{_mm512_permutexvar_ps(codes.raw, Table::Values(d).raw)};
    return hn::MulAdd(code, factors.scale, factors.offset);
  }
};
struct U4Table {
  static HWY_INLINE VF32 Values(F32 d) { return hn::Iota(d, 0.0f); }
};
struct E2m1Table {
  static HWY_INLINE VF32 Values(F32 d) {
    alignas(64) static constexpr float kValues[16] = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,
                                                      4.0f,  6.0f,  -0.0f, -0.5f, -1.0f, -1.5f,
                                                      -2.0f, -3.0f, -4.0f, -6.0f};
    return hn::Load(d, kValues);
  }
};
struct U4Coding {
  using Group = U4LookUp<U4Table>;
  using PairGroup = U4LookUpOfPair<U4Table>;
};
struct E2m1Coding {
  using Group = U4LookUp<E2m1Table>;
  using PairGroup = U4LookUpOfPair<E2m1Table>;
};
#else
struct U4Group : U4Nibbles {
  U4Factors factors;
  HWY_INLINE U4Group(F32, const U4Factors& of) : factors(of) {}
  HWY_INLINE VF32 Get(F32 d, VU32 codes) const {
    const hn::RebindToSigned<F32> di32;
    const VU32 code = hn::And(codes, hn::Set(U32(), 15u));
    return hn::MulAdd(hn::ConvertTo(d, hn::BitCast(di32, code)), factors.scale, factors.offset);
  }
};
struct E2m1Group : U4Nibbles {
  U4Factors factors;
  HWY_INLINE E2m1Group(F32 d, const U4Factors& of) : factors(of) {
    factors.scale = hn::Mul(of.scale, hn::Set(d, 0.5f));  // the table is doubled
  }
  HWY_INLINE VF32 Get(F32 d, VU32 codes) const {
    const U32 du32;
    const hn::RebindToSigned<F32> di32;
    // Four bits each: 12 8 6 4 3 2 1 0.
    const VU32 table = hn::Set(du32, 0xc8643210u);
    const VU32 places = hn::ShiftLeft<2>(hn::And(codes, hn::Set(du32, 7u)));
    const VU32 doubled = hn::And(table >> places, hn::Set(du32, 15u));
    const VU32 sign = hn::ShiftLeft<31>(hn::ShiftRight<3>(codes));
    const VF32 value = hn::ConvertTo(d, hn::BitCast(di32, doubled));
    return hn::MulAdd(hn::Xor(value, hn::BitCast(d, sign)), factors.scale, factors.offset);
  }
};
struct U4Coding {
  using Group = U4Group;
  using PairGroup = U4Group;
};
struct E2m1Coding {
  using Group = E2m1Group;
  using PairGroup = E2m1Group;
};
#endif

struct U4Bytes {
  static constexpr std::size_t kBytes = 2 * kLanes;
  static constexpr int kShift = 8;
  static HWY_INLINE VU32 Load(const std::uint8_t* p) {
    const hn::Rebind<std::uint16_t, F32> du16;
    return hn::PromoteTo(U32(), hn::LoadU(du16, reinterpret_cast<const std::uint16_t*>(p)));
  }
};
struct Int8Group : U4Bytes {
  U4Factors factors;
  HWY_INLINE Int8Group(F32, const U4Factors& of) : factors(of) {}
  HWY_INLINE VF32 Get(F32 d, VU32 codes) const {
    const hn::RebindToSigned<F32> di32;
    const auto number = hn::ShiftRight<24>(hn::BitCast(di32, hn::ShiftLeft<24>(codes)));
    return hn::MulAdd(hn::ConvertTo(d, number), factors.scale, factors.offset);
  }
};
struct Int8Coding {
  using Group = Int8Group;
  using PairGroup = Int8Group;
};
struct E4m3Group : U4Bytes {
  U4Factors factors;
  HWY_INLINE E4m3Group(F32, const U4Factors& of) : factors(of) {}
  HWY_INLINE VF32 Get(F32 d, VU32 codes) const {
    const VF32 value = E4m3Value(d, hn::And(codes, hn::Set(U32(), 255u)));
    return hn::MulAdd(value, factors.scale, factors.offset);
  }
};
struct E4m3Coding {
  using Group = E4m3Group;
  using PairGroup = E4m3Group;
};

// One tile's columns: codes, and scales and offsets by groups.
struct U4Columns {
  const std::uint8_t* codes[kU4Cols];
  const float* scales[kU4Cols];
  const float* offsets[kU4Cols];
};

// acc[r][c] += row r times column c over elements [k, k + kU4Elements).
template <int kRows, class Group>
HWY_INLINE void U4Step(F32 d, const float* HWY_RESTRICT a, std::size_t stride,
                       const std::uint8_t* const (&codes)[kU4Cols], std::size_t at,
                       const Group* HWY_RESTRICT groups, VF32 (&acc)[kRows][kU4Cols]) {
  HWY_UNROLL(4)
  for (int c = 0; c < kU4Cols; ++c) {
    const VU32 bits = Group::Load(codes[c] + at);
    const VF32 even = groups[c].Get(d, bits);
    const VF32 odd = groups[c].Get(d, hn::ShiftRight<Group::kShift>(bits));
    HWY_UNROLL(8)
    for (int r = 0; r < kRows; ++r) {
      const float* const row = a + static_cast<std::size_t>(r) * stride;
      acc[r][c] = hn::MulAdd(hn::LoadU(d, row), even, acc[r][c]);
      acc[r][c] = hn::MulAdd(hn::LoadU(d, row + kLanes), odd, acc[r][c]);
    }
  }
}

// sums[r * kU4Strip + c] (+)= rows times columns over elements [begin, end) of k; begin is the
// start of a group. kPairs: groups are of 16 elements, and a step covers two.
template <int kRows, class Group, bool kPairs>
HWY_NOINLINE void U4Tile(const float* HWY_RESTRICT a, std::size_t stride, const U4Columns& columns,
                         std::size_t begin, std::size_t end, std::size_t group, bool add,
                         float* HWY_RESTRICT sums) {
  const F32 d;
  VF32 acc[kRows][kU4Cols];
  HWY_UNROLL(8)
  for (int r = 0; r < kRows; ++r) {
    HWY_UNROLL(4)
    for (int c = 0; c < kU4Cols; ++c) acc[r][c] = hn::Zero(d);
  }
  const std::size_t together = kPairs ? kU4Elements : group;
  const auto factors = [&](int c, std::size_t first) HWY_ATTR {
    const float* const scales = columns.scales[c] + first / group;
    const float* const offsets = columns.offsets[c] + first / group;
    if constexpr (kPairs) {
      const std::size_t second = first + group < end ? 1 : 0;  // without one its codes are 0
      return U4Factors(d, scales, offsets, second);
    } else {
      return U4Factors(d, scales, offsets);
    }
  };
  for (std::size_t first = begin; first < end; first += together) {
    const std::size_t last = std::min(end, first + together);
    const Group groups[kU4Cols] = {{d, factors(0, first)},
                                   {d, factors(1, first)},
                                   {d, factors(2, first)},
                                   {d, factors(3, first)}};
    std::size_t k = first;
    for (; k + kU4Elements <= last; k += kU4Elements) {
      U4Step<kRows>(d, a + k, stride, columns.codes, k * Group::kBytes / kU4Elements, groups, acc);
    }
    if (k < last) {  // nothing is read behind a column's end
      std::uint8_t rest[kU4Cols][Group::kBytes] = {};
      const std::uint8_t* rests[kU4Cols];
      const std::size_t at = k * Group::kBytes / kU4Elements;
      const std::size_t bytes = ((last - k) * Group::kBytes + kU4Elements - 1) / kU4Elements;
      for (int c = 0; c < kU4Cols; ++c) {
        std::memcpy(rest[c], columns.codes[c] + at, bytes);
        rests[c] = rest[c];
      }
      U4Step<kRows>(d, a + k, stride, rests, 0, groups, acc);
    }
  }
  HWY_UNROLL(8)
  for (int r = 0; r < kRows; ++r) {
    HWY_UNROLL(4)
    for (int c = 0; c < kU4Cols; ++c) {
      float& sum = sums[r * kU4Strip + c];
      const float all = hn::GetLane(hn::SumOfLanes(d, acc[r][c]));
      sum = add ? sum + all : all;
    }
  }
}

template <int kMost, class Group, bool kPairs>
void U4TileOf(int rows, const float* a, std::size_t stride, const U4Columns& columns,
              std::size_t begin, std::size_t end, std::size_t group, bool add, float* sums) {
  if constexpr (kMost > 1) {
    if (rows < kMost) {
      return U4TileOf<kMost - 1, Group, kPairs>(rows, a, stride, columns, begin, end, group, add,
                                                sums);
    }
  }
  U4Tile<kMost, Group, kPairs>(a, stride, columns, begin, end, group, add, sums);
}

// Row `row` of A: of each kU4Elements the even ones, then the odd ones, zeros behind k.
inline void U4Activations(const GemmArgs& args, std::int64_t row, float* HWY_RESTRICT out) {
  const auto k = static_cast<std::size_t>(args.Adesc.cols);
  const std::size_t padded = RoundUpTo(k, kU4Step);
  alignas(64) float part[kU4Step];
  for (std::size_t first = 0; first < padded; first += kU4Step) {
    const std::size_t count = std::min<std::size_t>(kU4Step, k - first);
    std::fill(part + count, part + kU4Step, 0.0f);
    LoadActivations(args, row, static_cast<std::int64_t>(first), count, part);
    for (std::size_t at = 0; at < kU4Step; at += kU4Elements) {
      for (std::size_t i = 0; i < kLanes; ++i) {
        out[first + at + i] = part[at + 2 * i];
        out[first + at + kLanes + i] = part[at + 2 * i + 1];
      }
    }
  }
}

// What a column's scales and zero points are: `step` elements lie between those of two groups.
struct U4Scales {
  const void* scales;
  DataType type;
  const void* zeros;
  DataType zeros_type;
  std::int64_t column_step, step;
};

// The scales of a column as FP32, and minus zero times scale, both exact for scales of 16 bits.
inline void U4ColumnScales(const U4Scales& from, std::int64_t column, std::size_t groups,
                           float* HWY_RESTRICT scales, float* HWY_RESTRICT offsets) {
  const F32 d;
  const std::int64_t first = column * from.column_step;
  const auto at = [](const void* data, DataType type, std::int64_t element) {
    return static_cast<const std::byte*>(data) + element * static_cast<std::int64_t>(SizeOf(type));
  };
  if (from.step != 1 || !IsSimdFloat(from.type) ||
      (from.zeros != nullptr && !IsSimdFloat(from.zeros_type))) {
    for (std::size_t g = 0; g < groups; ++g) {
      const std::int64_t element = first + static_cast<std::int64_t>(g) * from.step;
      scales[g] = static_cast<float>(LoadAsDouble(from.scales, from.type, element));
      const double zero =
          from.zeros == nullptr ? 0 : LoadAsDouble(from.zeros, from.zeros_type, element);
      offsets[g] = -static_cast<float>(zero) * scales[g];
    }
    return;
  }
  for (std::size_t g = 0; g < groups; g += kLanes) {
    const std::size_t left = groups - g;
    const auto element = first + static_cast<std::int64_t>(g);
    const VF32 scale = LoadRow(d, from.type, at(from.scales, from.type, element), left);
    VF32 zero = hn::Zero(d);
    if (from.zeros != nullptr) {
      zero = LoadRow(d, from.zeros_type, at(from.zeros, from.zeros_type, element), left);
    }
    hn::StoreU(scale, d, scales + g);
    hn::StoreU(hn::Neg(hn::Mul(zero, scale)), d, offsets + g);
  }
}

template <int kMostRows, class Group, bool kPairs>
void RunU4Of(const GemmArgs& args, const U4Buffers& buffers) {
  const MatrixLayout &b = args.Bdesc, &v = args.Vdesc;
  const auto m = static_cast<std::size_t>(args.Adesc.rows);
  const auto k = static_cast<std::size_t>(b.rows);
  const std::size_t stride = RoundUpTo(k, kU4Step);
  const ScaleGroup shared = ScaleGroupOf(args.operation.quant_b, b.cols, b.rows);
  const auto group = static_cast<std::size_t>(shared.k);
  const std::size_t groups = (k + group - 1) / group, of_column = U4GroupFloats(groups);
  const bool by_column = v.order == Order::kColMajor;
  const U4Scales scales{args.V,
                        v.type,
                        args.operation.zero_b.data,
                        args.operation.zero_b.type,
                        by_column ? v.ld : 1,
                        by_column ? 1 : v.ld};
  ThreadPool& pool = HostPool();
  pool.Run(static_cast<int>(m), [&](int row, int) {
    U4Activations(args, row, buffers.shared + static_cast<std::size_t>(row) * stride);
  });
  // Tiles of equal rows, and whole groups of which a tile's activations stay in the first cache.
  const std::size_t tiles = (m + kMostRows - 1) / kMostRows, rows = (m + tiles - 1) / tiles;
  const std::size_t unit = group < k && !kPairs ? group : kU4Step;  // one group may end anywhere
  const std::size_t depth = std::max<std::size_t>(1, kU4TileFloats / rows / unit) * unit;
  const int strips = (b.cols + kU4Strip - 1) / kU4Strip;
  const int parts = std::min(strips, buffers.threads);
  pool.Run(parts, [&](int part, int) {
    float* const own = buffers.own + static_cast<std::size_t>(part) * U4ThreadFloats(m, groups);
    float* const decoded = own + m * kU4Strip;
    ExactElements exact(args);
    for (int strip = part; strip < strips; strip += parts) {
      const int first = strip * kU4Strip, count = std::min(kU4Strip, b.cols - first);
      // Columns behind the last are computed as the last, and dropped.
      const auto column = [&](int c) { return std::int64_t{first} + std::min(c, count - 1); };
      for (int c = 0; c < count; ++c) {
        float* const to = decoded + static_cast<std::size_t>(2 * c) * of_column;
        U4ColumnScales(scales, column(c) / shared.outer, groups, to, to + of_column);
      }
      for (std::size_t begin = 0; begin < k; begin += depth) {
        const std::size_t end = std::min(k, begin + depth);
        for (std::size_t row = 0; row < m; row += rows) {
          for (int c = 0; c < count; c += kU4Cols) {
            U4Columns columns;
            for (int i = 0; i < kU4Cols; ++i) {
              const auto at = static_cast<std::size_t>(2 * std::min(c + i, count - 1)) * of_column;
              columns.codes[i] =
                  static_cast<const std::uint8_t*>(args.B) + BytesOf(b.type, column(c + i) * b.ld);
              columns.scales[i] = decoded + at;
              columns.offsets[i] = decoded + at + of_column;
            }
            U4TileOf<kMostRows, Group, kPairs>(static_cast<int>(std::min(rows, m - row)),
                                               buffers.shared + row * stride, stride, columns,
                                               begin, end, group, begin > 0,
                                               own + row * kU4Strip + static_cast<std::size_t>(c));
          }
        }
      }
      for (std::size_t row = 0; row < m; ++row) {
        StoreSums(args, static_cast<std::int64_t>(row), first, static_cast<std::size_t>(count),
                  own + row * kU4Strip, exact);
      }
    }
  });
}

// Groups of one size, and of one coding.
template <int kMostRows, class Coding>
void RunU4(const GemmArgs& args, const U4Buffers& buffers) {
  if constexpr (kU4Pairs) {
    if (args.operation.quant_b == QuantDesc{QuantType::kK, kU4SmallGroup}) {
      return RunU4Of<kMostRows, typename Coding::PairGroup, true>(args, buffers);
    }
  }
  RunU4Of<kMostRows, typename Coding::Group, false>(args, buffers);
}

}  // namespace HWY_NAMESPACE
}  // namespace culet
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
