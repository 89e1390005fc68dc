// The layouts against models written without bit tricks, over all offsets.
#include <gtest/gtest.h>

#include <bitset>
#include <cstdint>
#include <map>
#include <random>
#include <set>
#include <type_traits>
#include <utility>
#include <vector>

#include "culet/layout/bank_conflict.h"
#include "culet/layout/smem_layout.h"
#include "culet/layout/stride.h"
#include "culet/layout/swizzle.h"
#include "culet/layout/tma_swizzle.h"

namespace culet {
namespace {

// Bit Base + i of the result is the XOR of bits Base + i and Base + Shift + i of the offset.
std::int64_t ModelSwizzle(int bits, int base, int shift, std::int64_t offset) {
  const std::bitset<64> in(static_cast<std::uint64_t>(offset));
  std::bitset<64> out = in;
  for (int i = 0; i < bits; ++i) out[base + i] = in[base + i] != in[base + shift + i];
  return static_cast<std::int64_t>(out.to_ullong());
}

template <int Bits, int Base, int Shift>
void CheckSwizzle() {
  SCOPED_TRACE(testing::Message() << "Swizzle<" << Bits << ", " << Base << ", " << Shift << ">");
  using Swizzled = Swizzle<Bits, Base, Shift>;
  constexpr std::int64_t kEnd = std::int64_t{2} << (Base + Bits + Shift);
  std::vector<bool> taken(kEnd);
  for (std::int64_t x = 0; x < kEnd; ++x) {
    const std::int64_t y = Swizzled::apply(x);
    ASSERT_EQ(y, ModelSwizzle(Bits, Base, Shift, x)) << x;
    ASSERT_EQ(x / Swizzled::kBlock, y / Swizzled::kBlock) << x << " leaves its block";
    ASSERT_EQ(x % (1 << Base), y % (1 << Base)) << x << " leaves its run";
    ASSERT_FALSE(taken[y]) << x << " lands where another offset did";
    taken[y] = true;
    ASSERT_EQ(Swizzled::apply(y), x) << "the swizzle is not its own inverse";
    // The offset's type changes nothing, nor do bits above those that are read.
    ASSERT_EQ(Swizzled::apply(static_cast<int>(x)), y);
    ASSERT_EQ(Swizzled::apply(static_cast<std::uint64_t>(x)), static_cast<std::uint64_t>(y));
    constexpr std::int64_t kHigh = std::int64_t{5} << 40;
    ASSERT_EQ(Swizzled::apply(x + kHigh), y + kHigh);
  }
}

template <int Bits, int Base, int... Extra>
void CheckShifts(std::integer_sequence<int, Extra...>) {
  (CheckSwizzle<Bits, Base, Bits + Extra>(), ...);
}
template <int Bits, int... Base>
void CheckBases(std::integer_sequence<int, Base...>) {
  (CheckShifts<Bits, Base>(std::make_integer_sequence<int, 3>()), ...);
}
template <int... Bits>
void CheckBits(std::integer_sequence<int, Bits...>) {
  (CheckBases<Bits>(std::make_integer_sequence<int, 6>()), ...);
}

TEST(Swizzle, IsTheModelsPermutationForEveryOffset) {
  CheckBits(std::make_integer_sequence<int, 5>());
}

TEST(Swizzle, IdentityKeepsOffsetsAndTypes) {
  EXPECT_EQ(Identity::apply(17), 17);
  static_assert(std::is_same_v<decltype(Identity::apply(std::uint8_t{1})), std::uint8_t>);
  static_assert(std::is_same_v<decltype(Swizzle<1, 0, 1>::apply(std::int64_t{1})), std::int64_t>);
}

// Walks the tile in memory order: sub-tiles row by row, their elements row by row.
template <int S, int C, int S0, int C0, int Bits = 0, int Base = 0, int Shift = 0>
void CheckLayout() {
  SCOPED_TRACE(testing::Message() << S << "x" << C << " in " << S0 << "x" << C0 << ", Swizzle<"
                                  << Bits << ", " << Base << ", " << Shift << ">");
  using Layout = SmemLayoutV2<S, C, S0, C0, Swizzle<Bits, Base, Shift>>;
  static_assert(Layout::kSize == S * C);
  std::set<int> offsets;
  int start = 0;
  for (int tile_s = 0; tile_s < S; tile_s += Layout::S0) {
    for (int tile_c = 0; tile_c < C; tile_c += Layout::C0) {
      int inside = 0;
      for (int s = tile_s; s < tile_s + Layout::S0; ++s) {
        for (int c = tile_c; c < tile_c + Layout::C0; ++c, ++inside) {
          const int offset = Layout::apply(s, c);
          ASSERT_EQ(offset, start + ModelSwizzle(Bits, Base, Shift, inside)) << s << ", " << c;
          ASSERT_EQ(Layout::apply(s, c, 1000), 1000 + offset);
          ASSERT_EQ(Layout::apply(s, c, std::int64_t{7} << 32), (std::int64_t{7} << 32) + offset);
          offsets.insert(offset);
        }
      }
      start += inside;
    }
  }
  EXPECT_EQ(static_cast<int>(offsets.size()), Layout::kSize);
  EXPECT_EQ(*offsets.begin(), 0);
  EXPECT_EQ(*offsets.rbegin(), Layout::kSize - 1);
  EXPECT_TRUE(IsBijective<Layout>());
}

TEST(SmemLayoutV2, IsTheModelsBijection) {
  CheckLayout<1, 1, -1, -1>();
  CheckLayout<1, 7, -1, -1>();
  CheckLayout<7, 1, 1, 1>();
  CheckLayout<5, 3, -1, -1>();
  CheckLayout<6, 10, 3, -1>();
  CheckLayout<6, 10, -1, 5>();
  CheckLayout<6, 10, 2, 5>();
  CheckLayout<64, 64, 8, 64, 3, 3, 3>();
  CheckLayout<64, 64, -1, -1, 3, 3, 3>();
  CheckLayout<16, 256, 8, 64, 3, 3, 3>();
  CheckLayout<24, 96, 8, 32, 2, 3, 3>();
  CheckLayout<24, 48, 12, 16, 1, 3, 3>();
  CheckLayout<64, 128, 8, 128, 3, 4, 3>();
  CheckLayout<10, 8, 5, 8, 2, 1, 4>();
  CheckLayout<256, 256, 8, 128, 4, 3, 5>();
}

TEST(SmemLayoutV2, SubTileExtentsDefaultToTheWhole) {
  using Layout = SmemLayoutV2<12, 20>;
  static_assert(Layout::S0 == 12 && Layout::C0 == 20);
  static_assert(std::is_same_v<Layout::Swizzle, Identity>);
  EXPECT_EQ(Layout::apply(3, 4), 64);
}

// Two elements in one place: what IsBijective is there to catch.
struct Folded {
  static constexpr int S = 4, C = 4, kSize = 16;
  static constexpr int apply(int s, int c) { return s * C + c / 2 * 2; }
};
struct Outside {
  static constexpr int S = 4, C = 4, kSize = 16;
  static constexpr int apply(int s, int c) { return s * C + c + 1; }
};

TEST(IsBijective, FindsCollisionsAndEscapes) {
  static_assert(!IsBijective<Folded>());
  static_assert(!IsBijective<Outside>());
}

TEST(SmemAccessor, ReadsAndWritesWhereTheLayoutSays) {
  using Layout = SmemLayoutV2<16, 64, 8, 64, Swizzle<3, 3, 3>>;
  std::vector<int> memory(Layout::kSize, -1);
  const SmemAccessor<int, Layout> accessor(memory.data());
  for (int s = 0; s < Layout::S; ++s) {
    for (int c = 0; c < Layout::C; ++c) accessor(s, c) = s * 1000 + c;
  }
  const SmemAccessor<const int, Layout> reader(memory.data());
  for (int s = 0; s < Layout::S; ++s) {
    for (int c = 0; c < Layout::C; ++c) {
      EXPECT_EQ(memory[Layout::apply(s, c)], s * 1000 + c);
      EXPECT_EQ(reader(s, c), s * 1000 + c);
    }
  }
}

TEST(Stride, IsADotProductOfStaticAndDynamicStrides) {
  using One = std::integral_constant<int, 1>;
  constexpr Stride both_static{std::integral_constant<int, 64>{}, One{}};
  static_assert(both_static(3, 5) == 197);
  static_assert(std::is_empty_v<Stride<std::integral_constant<int, 64>, One>>);
  int ld = 100;
  const Stride mixed{ld, One{}};
  static_assert(sizeof(mixed) == sizeof(int));
  EXPECT_EQ(mixed(3, 5), 305);
  const Stride dynamic{std::int64_t{-7}, ld};
  EXPECT_EQ(dynamic(3, 5), 479);
}

TEST(Stride, IsSixtyFourBitsWideWhateverTheStrides) {
  const Stride narrow{1 << 20, std::integral_constant<int, 1>{}};
  EXPECT_EQ(narrow(1 << 20, 3), (std::int64_t{1} << 40) + 3);
  const Stride unsigned_stride{4'000'000'000u, 1};
  EXPECT_EQ(unsigned_stride(4, -1), 15'999'999'999);
}

// Asks bank by bank which words are wanted.
int ModelConflictDegree(const std::vector<std::int64_t>& chunks) {
  int worst = 0;
  for (std::size_t first = 0; first < chunks.size(); first += 8) {
    std::map<std::int64_t, std::set<std::int64_t>> words_of_bank;
    for (std::size_t thread = first; thread < std::min(first + 8, chunks.size()); ++thread) {
      for (std::int64_t byte = chunks[thread]; byte < chunks[thread] + 16; byte += 4) {
        words_of_bank[byte / 4 % 32].insert(byte / 4);
      }
    }
    for (const auto& [bank, words] : words_of_bank) {
      worst = std::max(worst, static_cast<int>(words.size()));
    }
  }
  return worst;
}

TEST(ConflictDegree, AgreesWithCountingWordsOfBanks) {
  std::mt19937 random(20260101);
  std::map<int, int> seen;
  for (int round = 0; round < 20000; ++round) {
    // Few lines give repeated chunks, many give conflicts.
    const std::int64_t chunk_count = std::int64_t{1} << (random() % 10);
    std::vector<std::int64_t> chunks(random() % 33);
    for (auto& chunk : chunks) chunk = random() % chunk_count * 16;
    const int degree = ConflictDegree(chunks);
    ASSERT_EQ(degree, ModelConflictDegree(chunks)) << testing::PrintToString(chunks);
    ++seen[degree];
  }
  for (int degree = 0; degree <= 6; ++degree) EXPECT_GT(seen[degree], 0) << degree;
}

TEST(ConflictDegree, KnowsTheExtremes) {
  const auto warp = [](auto address_of) {
    std::vector<std::int64_t> chunks;
    for (int thread = 0; thread < 32; ++thread) chunks.push_back(address_of(thread));
    return ConflictDegree(chunks);
  };
  EXPECT_EQ(warp([](int) { return 0; }), 1) << "one chunk for all is a broadcast";
  EXPECT_EQ(warp([](int t) { return t * 16; }), 1) << "consecutive chunks";
  EXPECT_EQ(warp([](int t) { return t * 128; }), 8) << "one column of 128-byte rows";
  EXPECT_EQ(warp([](int t) { return t * 144; }), 1) << "rows padded by a chunk";
  EXPECT_EQ(warp([](int t) { return t / 8 * 128; }), 1) << "phases do not meet";
  EXPECT_EQ(warp([](int t) { return t == 9 ? 1024 + 128 : t == 10 ? 128 : t * 16; }), 2);
  EXPECT_EQ(warp([](int t) { return t * 16 + (t == 31 ? 8 : 0); }), 0) << "misaligned";
  EXPECT_EQ(warp([](int t) { return t * 16 - 16; }), 0) << "before the tile";
}

TEST(ConflictDegree, RefusesLayoutsThatBreakChunksApart) {
  const auto column = [](int thread) { return TileIndex{thread, 0}; };
  using WholeChunks = SmemLayoutV2<32, 64, 8, 64, Swizzle<3, 3, 3>>;
  EXPECT_EQ(ConflictDegree<WholeChunks>(2, column), 1);
  // Of 4-byte elements a chunk holds four, which Base = 1 tears apart.
  using BrokenChunks = SmemLayoutV2<32, 64, 8, 64, Swizzle<3, 1, 6>>;
  EXPECT_EQ(ConflictDegree<BrokenChunks>(4, column), 0);
  EXPECT_EQ(ColumnConflictDegree<BrokenChunks>(4), 0);
  // A chunk that starts in the middle of another.
  EXPECT_EQ(ConflictDegree<WholeChunks>(2, [](int thread) { return TileIndex{thread, 4}; }), 0);
}

// Columns are read 8 rows at a time; rows are written by 8 threads of 16 bytes. Both directions
// must be free of conflicts, at every row and column.
template <class Tile>
void ExpectFreeOfConflicts() {
  for (int s = 0; s < Tile::S; s += 8) {
    for (int c = 0; c < Tile::C; c += 16) {
      const auto column = [=](int thread) { return TileIndex{s + thread % 8, c}; };
      EXPECT_EQ(ConflictDegree<Tile>(1, column), 1) << s << ", " << c;
    }
  }
  constexpr int kChunksPerRow = Tile::C / 16;
  for (int first = 0; first + 32 <= Tile::S * kChunksPerRow; first += 32) {
    const auto rows = [=](int thread) {
      const int chunk = first + thread;
      return TileIndex{chunk / kChunksPerRow, chunk % kChunksPerRow * 16};
    };
    EXPECT_EQ(ConflictDegree<Tile>(1, rows), 1) << first;
  }
}

TEST(TmaSwizzle, IsFreeOfConflictsInBothDirections) {
  ExpectFreeOfConflicts<TmaTile128<64>>();
  ExpectFreeOfConflicts<TmaTile64<64>>();
  ExpectFreeOfConflicts<TmaTile32<64>>();
}

TEST(TmaSwizzle, PlainLayoutsConflictAsOftenAsRowsShareALine) {
  EXPECT_EQ((ColumnConflictDegree<SmemLayoutV2<64, 128>>(1)), 8);
  EXPECT_EQ((ColumnConflictDegree<SmemLayoutV2<64, 64>>(2)), 8);
  EXPECT_EQ((ColumnConflictDegree<SmemLayoutV2<64, 64>>(1)), 4);
  EXPECT_EQ((ColumnConflictDegree<SmemLayoutV2<64, 32>>(1)), 2);
  EXPECT_EQ((ColumnConflictDegree<SmemLayoutV2<64, 16>>(1)), 1);
}

// CUDA's definition of the three modes.
template <class Tile>
void ExpectMode(int rows_per_step) {
  for (int row = 0; row < Tile::S; ++row) {
    for (int column = 0; column < Tile::C; ++column) {
      const int chunks = Tile::C / 16;
      const int chunk = column / 16 ^ (row / rows_per_step % chunks);
      const int expected = row * Tile::C + chunk * 16 + column % 16;
      ASSERT_EQ(Tile::apply(row, column), expected) << row << ", " << column;
      if (Tile::C != 128) continue;
      ASSERT_EQ(TmaOffset128(static_cast<unsigned>(row), static_cast<unsigned>(column)),
                static_cast<unsigned>(expected));
    }
  }
}

TEST(TmaSwizzle, IsCudasDefinition) {
  ExpectMode<TmaTile128<64>>(1);
  ExpectMode<TmaTile64<64>>(2);
  ExpectMode<TmaTile32<64>>(4);
}

}  // namespace
}  // namespace culet
