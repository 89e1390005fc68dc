// Decoders: one load of weights becomes a few vectors of FP32 in as few instructions as the target
// has. A decoder may deliver the elements of a group in an order of its own, because the
// activations are laid out in the same order once; a sum over k does not care.
//
// Each decoder has
//   T            the stored type
//   kVectors     FP32 vectors a group fills; a group is kVectors * Lanes(d) consecutive elements
//   Raw          a group in registers, before it is FP32
//   Load(d, p)   a group from memory
//   Get<v>(d, raw)         its vector v
//   Source(vector, lane)   which element of the group stands there
//   Nan()        a code of NaN, of 16 bits and more
//   DecodeWords(d, words, out)   each 32-bit lane's elements: out[j] holds the j-th of all lanes
//   kActivationScale   what activations must be multiplied by for Get's sake (a power of two:
//   exact)
// A decoder whose Get takes NaN for a number also has
//   Seen, SeenNone, See(seen, raw), SeenNan(seen)   whether there was one in the groups seen
//   GetAny<v>(d, raw)      as Get, NaN included
// A decoder that is faster through a buffer in memory also has
//   Stage(raw, to)         a group's elements as binary16, kVectors * Lanes(d) of them
//   FromStage(d, from)     a vector of them
// No include guard in the usual sense: compiled once for each Highway target.
#if defined(CULET_SIMD_DECODE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef CULET_SIMD_DECODE_INL_H_
#undef CULET_SIMD_DECODE_INL_H_
#else
#define CULET_SIMD_DECODE_INL_H_
#endif

#include <hwy/highway.h>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>

HWY_BEFORE_NAMESPACE();
namespace culet {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using F32 = hn::ScalableTag<float>;
using VF32 = hn::Vec<F32>;
inline constexpr std::size_t kLanes = HWY_LANES(float);

#undef CULET_SIMD_F16
// Whether the target converts binary16 in hardware (F16C); Highway's emulation knows no infinities.
#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128
#define CULET_SIMD_F16 0
#else
#define CULET_SIMD_F16 1
#endif

using U32 = hn::RebindToUnsigned<F32>;
using VU32 = hn::Vec<U32>;

// Codes in 32-bit lanes, zero above them, to their values. Exact for every code.
HWY_INLINE VF32 Float16Value(F32 d, VU32 codes) {
#if CULET_SIMD_F16
  const hn::Rebind<std::uint16_t, F32> du16;
  const hn::Rebind<hwy::float16_t, F32> df16;
  return hn::PromoteTo(d, hn::BitCast(df16, hn::TruncateTo(du16, codes)));
#else
  const U32 du32;
  const hn::RebindToSigned<F32> di32;
  const auto magnitude = hn::And(codes, hn::Set(du32, 0x7fffu));
  const auto rebias = hn::Set(du32, (127u - 15u) << 23);
  const auto normal = hn::Add(hn::ShiftLeft<13>(magnitude), rebias);
  const auto subnormal = hn::BitCast(
      du32, hn::Mul(hn::ConvertTo(d, hn::BitCast(di32, magnitude)), hn::Set(d, 0x1p-24f)));
  const auto special = hn::Add(normal, rebias);  // infinities and NaNs
  auto value = hn::IfThenElse(hn::Lt(magnitude, hn::Set(du32, 0x0400u)), subnormal, normal);
  value = hn::IfThenElse(hn::Gt(magnitude, hn::Set(du32, 0x7bffu)), special, value);
  const auto sign = hn::ShiftLeft<16>(hn::AndNot(hn::Set(du32, 0x7fffu), codes));
  return hn::BitCast(d, hn::Or(value, sign));
#endif
}

HWY_INLINE VF32 E4m3Value(F32 d, VU32 codes) {
  const U32 du32;
  const hn::RebindToSigned<F32> di32;
  const auto magnitude = hn::And(codes, hn::Set(du32, 0x7fu));
  const auto normal = hn::Add(hn::ShiftLeft<20>(magnitude), hn::Set(du32, (127u - 7u) << 23));
  const auto subnormal = hn::BitCast(
      du32, hn::Mul(hn::ConvertTo(d, hn::BitCast(di32, magnitude)), hn::Set(d, 0x1p-9f)));
  auto value = hn::IfThenElse(hn::Lt(magnitude, hn::Set(du32, 8u)), subnormal, normal);
  value =
      hn::IfThenElse(hn::Eq(magnitude, hn::Set(du32, 0x7fu)), hn::Set(du32, 0x7fc00000u), value);
  const auto sign = hn::ShiftLeft<24>(hn::And(codes, hn::Set(du32, 0x80u)));
  return hn::BitCast(d, hn::Or(value, sign));
}

// Vectors in natural order, for operands that are converted once.
HWY_INLINE VF32 FromBfloat16(F32 d, const std::uint16_t* HWY_RESTRICT p) {
  const hn::Rebind<std::uint16_t, F32> du16;
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(U32(), hn::LoadU(du16, p))));
}

HWY_INLINE VF32 FromFloat16(F32 d, const std::uint16_t* HWY_RESTRICT p) {
  const hn::Rebind<std::uint16_t, F32> du16;
#if CULET_SIMD_F16
  const hn::Rebind<hwy::float16_t, F32> df16;
  return hn::PromoteTo(d, hn::BitCast(df16, hn::LoadU(du16, p)));
#else
  return Float16Value(d, hn::PromoteTo(U32(), hn::LoadU(du16, p)));
#endif
}

HWY_INLINE VF32 FromE4m3(F32 d, const std::uint8_t* HWY_RESTRICT p) {
  const hn::Rebind<std::uint8_t, F32> du8;
  return E4m3Value(d, hn::PromoteTo(U32(), hn::LoadU(du8, p)));
}

// The two bfloat16 of each 32-bit lane.
HWY_INLINE VF32 LowerBfloat16(F32 d, VU32 bits) { return hn::BitCast(d, hn::ShiftLeft<16>(bits)); }
HWY_INLINE VF32 UpperBfloat16(F32 d, VU32 bits) {
  return hn::BitCast(d, hn::And(bits, hn::Set(U32(), 0xffff0000u)));
}

HWY_INLINE void Bfloat16Words(F32 d, VF32 words, VF32 (&out)[2]) {
  const VU32 bits = hn::BitCast(U32(), words);
  out[0] = LowerBfloat16(d, bits);
  out[1] = UpperBfloat16(d, bits);
}

// Byte kByte of each 32-bit lane.
template <int kByte>
HWY_INLINE VF32 E4m3Byte(F32 d, VU32 bits) {
  VU32 codes = hn::ShiftRight<8 * kByte>(bits);
  if constexpr (kByte != 3) codes = hn::And(codes, hn::Set(U32(), 0xffu));
  return E4m3Value(d, codes);
}

HWY_INLINE void E4m3Words(F32 d, VF32 words, VF32 (&out)[4]) {
  const VU32 bits = hn::BitCast(U32(), words);
  out[0] = E4m3Byte<0>(d, bits);
  out[1] = E4m3Byte<1>(d, bits);
  out[2] = E4m3Byte<2>(d, bits);
  out[3] = E4m3Byte<3>(d, bits);
}

struct DecodeF32 {
  using T = float;
  using Raw = VF32;
  static constexpr std::size_t kVectors = 1;
  static constexpr float kActivationScale = 1.0f;
  static HWY_INLINE Raw Load(F32 d, const T* HWY_RESTRICT p) { return hn::LoadU(d, p); }
  template <int kVector>
  static HWY_INLINE VF32 Get(F32, const Raw& raw) {
    return raw;
  }
  static HWY_INLINE void DecodeWords(F32, VF32 words, VF32 (&out)[1]) { out[0] = words; }
  static constexpr std::size_t Source(std::size_t, std::size_t lane) { return lane; }
  static constexpr T Nan() { return std::numeric_limits<T>::quiet_NaN(); }
};

struct DecodeF16 {
  using T = std::uint16_t;
  using Raw = VF32;
  static constexpr std::size_t kVectors = 1;
  static constexpr float kActivationScale = 1.0f;
  static HWY_INLINE Raw Load(F32 d, const T* HWY_RESTRICT p) { return FromFloat16(d, p); }
  template <int kVector>
  static HWY_INLINE VF32 Get(F32, const Raw& raw) {
    return raw;
  }
  static HWY_INLINE void DecodeWords(F32 d, VF32 words, VF32 (&out)[2]) {
    const VU32 bits = hn::BitCast(U32(), words);
    out[0] = Float16Value(d, hn::And(bits, hn::Set(U32(), 0xffffu)));
    out[1] = Float16Value(d, hn::ShiftRight<16>(bits));
  }
  static constexpr std::size_t Source(std::size_t, std::size_t lane) { return lane; }
  static constexpr T Nan() { return 0x7e00; }
};

// A 32-bit lane holds two bfloat16: the even element shifted up, the odd one masked, two
// instructions for a whole vector of them.
struct DecodeBf16 {
  using T = std::uint16_t;
  using Raw = VU32;
  static constexpr std::size_t kVectors = 2;
  static constexpr float kActivationScale = 1.0f;
  static HWY_INLINE Raw Load(F32, const T* HWY_RESTRICT p) {
#if HWY_TARGET == HWY_SCALAR
    return hn::Set(U32(), p[0] | static_cast<std::uint32_t>(p[1]) << 16);
#else
    const hn::Repartition<std::uint16_t, F32> du16;
    return hn::BitCast(U32(), hn::LoadU(du16, p));
#endif
  }
  template <int kVector>
  static HWY_INLINE VF32 Get(F32 d, const Raw& raw) {
    return kVector == 0 ? LowerBfloat16(d, raw) : UpperBfloat16(d, raw);
  }
  static HWY_INLINE void DecodeWords(F32 d, VF32 words, VF32 (&out)[2]) {
    Bfloat16Words(d, words, out);
  }
  static constexpr std::size_t Source(std::size_t vector, std::size_t lane) {
    return 2 * lane + vector;
  }
  static constexpr T Nan() { return 0x7fc0; }
};

#if HWY_TARGET == HWY_AVX3_DL

// The bytes of the bfloat16 with the value of E4M3 code `index` (sign apart), for all 128 codes:
// bfloat16 holds every E4M3 value exactly, so two byte look-ups decode a whole vector.
struct E4m3Tables {
  alignas(64) std::uint8_t high[128];
  alignas(64) std::uint8_t low[128];

  constexpr E4m3Tables() : high(), low() {
    for (unsigned code = 0; code < 128; ++code) {
      float value = static_cast<float>(code & 7) * 0x1p-9f;
      if (code >= 8) value = static_cast<float>((8 + (code & 7)) << ((code >> 3) - 1)) * 0x1p-9f;
      std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
      if (code == 0x7f) bits = 0x7fc00000u;
      high[code] = static_cast<std::uint8_t>(bits >> 24);
      low[code] = static_cast<std::uint8_t>(bits >> 16);
    }
  }
};
inline constexpr E4m3Tables kE4m3Tables;

// For each 32-bit lane, where its first element's low and high byte lie when the vectors of low
// and of high bytes stand behind each other.
struct FirstBytes {
  alignas(64) std::uint8_t index[64];
  constexpr FirstBytes() : index() {
    for (unsigned lane = 0; lane < 16; ++lane) {
      index[4 * lane + 2] = static_cast<std::uint8_t>(4 * lane);
      index[4 * lane + 3] = static_cast<std::uint8_t>(64 + 4 * lane);
    }
  }
};
inline constexpr FirstBytes kFirstBytes;

struct DecodeE4m3 {
  using T = std::uint8_t;
  struct Raw {
    VU32 lower, upper;
  };
  static constexpr std::size_t kVectors = 4;
  static constexpr float kActivationScale = 1.0f;
  static HWY_INLINE Raw Load(F32, const T* HWY_RESTRICT p) {
    const hn::Repartition<std::uint8_t, F32> du8;
    hn::Vec<decltype(du8)> high, low;
    LookUp(hn::LoadU(du8, p), high, low);
    return {hn::BitCast(U32(), hn::InterleaveLower(du8, low, high)),
            hn::BitCast(U32(), hn::InterleaveUpper(du8, low, high))};
  }
  template <int kVector>
  static HWY_INLINE VF32 Get(F32 d, const Raw& raw) {
    const VU32 bits = kVector < 2 ? raw.lower : raw.upper;
    return kVector % 2 == 0 ? LowerBfloat16(d, bits) : UpperBfloat16(d, bits);
  }
  // Interleaving works within 16 bytes: vectors 0 and 1 hold the even and odd ones of the first
  // eight, vectors 2 and 3 those of the last eight.
  static constexpr std::size_t Source(std::size_t vector, std::size_t lane) {
    return lane / 4 * 16 + vector / 2 * 8 + lane % 4 * 2 + vector % 2;
  }
  static HWY_INLINE void DecodeWords(F32 d, VF32 words, VF32 (&out)[4]) {
    const hn::Repartition<std::uint8_t, F32> du8;
    hn::Vec<decltype(du8)> high, low;
    LookUp(hn::BitCast(du8, words), high, low);
    // Byte 4 i + 2 and 4 i + 3 of out[j]: the low and the high byte of element j of lane i.
    const VU32 lane_bytes = hn::BitCast(U32(), hn::Load(du8, kFirstBytes.index));
    for (int j = 0; j < 4; ++j) {
      const VU32 index =
          hn::Add(lane_bytes, hn::Set(U32(), 0x01010000u * static_cast<unsigned>(j)));
      out[j] = VF32{_mm512_castsi512_ps(_mm512_maskz_permutex2var_epi8(
          0xccccccccccccccccu, low.raw, hn::BitCast(du8, index).raw, high.raw))};
    }
  }

 private:
  // The two bytes of each code's bfloat16.
  template <class V8>
  static HWY_INLINE void LookUp(V8 codes, V8& high, V8& low) {
    const hn::Repartition<std::uint8_t, F32> du8;
    const V8 high0 = hn::Load(du8, kE4m3Tables.high);
    const V8 high1 = hn::Load(du8, kE4m3Tables.high + 64);
    const V8 low0 = hn::Load(du8, kE4m3Tables.low);
    const V8 low1 = hn::Load(du8, kE4m3Tables.low + 64);
    // Highway 1.0.3 has no look-up across 128 bytes. The instruction ignores bit 7, the sign.
    const V8 magnitude{_mm512_permutex2var_epi8(high0.raw, codes.raw, high1.raw)};
    low = V8{_mm512_permutex2var_epi8(low0.raw, codes.raw, low1.raw)};
    high = hn::Or(magnitude, hn::And(codes, hn::Set(du8, std::uint8_t{0x80})));
  }
};

#elif HWY_TARGET == HWY_SCALAR

// Without vectors nothing is faster than to look a code's value up.
struct E4m3Values {
  float of[256];
  constexpr E4m3Values() : of() {
    for (unsigned code = 0; code < 256; ++code) {
      const unsigned exponent = code >> 3 & 15, fraction = code & 7;
      float value = static_cast<float>(fraction) * 0x1p-9f;
      if (exponent > 0) value = static_cast<float>((8 + fraction) << (exponent - 1)) * 0x1p-9f;
      if ((code & 0x7f) == 0x7f) value = std::bit_cast<float>(0x7fc00000u);
      of[code] = code < 128 ? value : -value;
    }
  }
};
inline constexpr E4m3Values kE4m3Values;

struct DecodeE4m3 {
  using T = std::uint8_t;
  using Raw = std::uint32_t;
  static constexpr std::size_t kVectors = 4;
  static constexpr float kActivationScale = 1.0f;
  static HWY_INLINE Raw Load(F32, const T* HWY_RESTRICT p) {
    return p[0] | p[1] << 8 | p[2] << 16 | static_cast<Raw>(p[3]) << 24;
  }
  template <int kVector>
  static HWY_INLINE VF32 Get(F32 d, const Raw& raw) {
    return hn::Set(d, kE4m3Values.of[raw >> 8 * kVector & 0xff]);
  }
  static HWY_INLINE void DecodeWords(F32 d, VF32 words, VF32 (&out)[4]) {
    const auto raw = std::bit_cast<Raw>(hn::GetLane(words));
    out[0] = Get<0>(d, raw);
    out[1] = Get<1>(d, raw);
    out[2] = Get<2>(d, raw);
    out[3] = Get<3>(d, raw);
  }
  static constexpr std::size_t Source(std::size_t vector, std::size_t) { return vector; }
};

#else

// Shifted into place, a code is the binary16 with 2^-8 of the value, subnormals included, of which
// hardware makes FP32 without delay. Only NaN needs care: 480.
struct DecodeE4m3 {
  using T = std::uint8_t;
  using U8 = hn::Repartition<std::uint8_t, F32>;
  using I16 = hn::Repartition<std::int16_t, F32>;
  using Seen = hn::Vec<U8>;
  struct Raw {
    hn::Vec<U8> codes;
    hn::Vec<I16> even, odd;
  };
  static constexpr std::size_t kVectors = 4;
  static constexpr float kActivationScale = 256.0f;

  static HWY_INLINE Raw Load(F32, const T* HWY_RESTRICT p) {
    const I16 di16;
    const auto codes = hn::LoadU(U8(), p);
    const auto words = hn::BitCast(di16, codes);
    const auto fields = hn::Set(di16, std::int16_t(-0x4080));  // sign, and the low 14 bits but 7
    return {codes, hn::And(hn::ShiftRight<1>(hn::ShiftLeft<8>(words)), fields),
            hn::And(hn::ShiftRight<1>(words), fields)};
  }
  template <int kVector>
  static HWY_INLINE VF32 Get(F32 d, const Raw& raw) {
    return Half<kVector % 2>(d, kVector < 2 ? raw.even : raw.odd);
  }
  static constexpr std::size_t Source(std::size_t vector, std::size_t lane) {
    return 2 * (vector % 2 * kLanes + lane) + vector / 2;
  }

  static HWY_INLINE Seen SeenNone() { return hn::Zero(U8()); }
  static HWY_INLINE Seen See(Seen seen, const Raw& raw) {
    return hn::Max(seen, hn::And(raw.codes, hn::Set(U8(), kNan)));
  }
  static HWY_INLINE bool SeenNan(Seen seen) {
    return !hn::AllFalse(U8(), hn::Eq(seen, hn::Set(U8(), kNan)));
  }
  template <int kVector>
  static HWY_INLINE VF32 GetAny(F32 d, const Raw& raw) {
    const I16 di16;
    const auto bits = kVector < 2 ? raw.even : raw.odd;
    const auto nan = hn::Set(di16, std::int16_t(-0x4080));
    const auto is_nan = hn::Eq(hn::Or(bits, hn::Set(di16, std::int16_t(-0x8000))), nan);
    return Half<kVector % 2>(d, hn::Or(bits, hn::VecFromMask(di16, is_nan)));
  }
  static HWY_INLINE void DecodeWords(F32 d, VF32 words, VF32 (&out)[4]) {
    E4m3Words(d, words, out);
  }

#if HWY_TARGET == HWY_AVX2
  // `vcvtph2ps` of a register takes two instructions more, to move the halves and the words, than
  // of memory; and while one block is converted from there, the next one's loads have begun.
  static HWY_INLINE void Stage(const Raw& raw, std::uint16_t* HWY_RESTRICT to) {
    const hn::RebindToUnsigned<I16> du16;
    hn::Store(hn::BitCast(du16, raw.even), du16, to);
    hn::Store(hn::BitCast(du16, raw.odd), du16, to + 2 * kLanes);
  }
  static HWY_INLINE VF32 FromStage(F32 d, const std::uint16_t* HWY_RESTRICT from) {
    return FromFloat16(d, from);
  }
#endif

 private:
  static constexpr std::uint8_t kNan = 0x7f;

  template <int kHalf>
  static HWY_INLINE VF32 Half(F32 d, hn::Vec<I16> bits) {
    const hn::Half<I16> half;
    const hn::Rebind<hwy::float16_t, F32> df16;
    return hn::PromoteTo(
        d, hn::BitCast(df16, kHalf == 0 ? hn::LowerHalf(half, bits) : hn::UpperHalf(half, bits)));
  }
};

#endif

}  // namespace HWY_NAMESPACE
}  // namespace culet
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
