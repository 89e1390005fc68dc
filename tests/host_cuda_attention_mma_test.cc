// The CUDA dispatch's attention on tensor cores, on the CPU (tests/host_cuda).
#include "cuda/attention_mma_cases.h"

#include <gtest/gtest.h>

#include <set>

#include "culet/layout/tma_swizzle.h"
#include "host_cuda/test_dispatch.h"
#include "kernels/cuda_ops/shared_rows.cuh"

namespace culet::cuda_ops {
namespace {

// All rows' pieces have places of their own; the same piece of eight neighbouring rows lies in
// eight banks of 16 bytes; Behind and Below end where Offset says.
template <int kBytes>
void ExpectRows() {
  using Rows = SharedRows<kBytes>;
  constexpr int kPieces = kBytes / 16;
  std::set<int> places;
  for (int row = 0; row < 32; ++row) {
    for (int piece = 0; piece < kPieces; ++piece) {
      const int at = Rows::Offset(row, piece);
      EXPECT_EQ(at / kBytes, row) << kBytes;
      places.insert(at);
      EXPECT_EQ(Rows::Behind(Rows::Offset(row, piece % 2), piece / 2 * 32), at) << kBytes;
      EXPECT_EQ(Rows::Below(Rows::Offset(row % 16, piece), row / 16 * 16), at) << kBytes;
      std::set<int> banks;
      for (int i = 0; i < 8; ++i) banks.insert(Rows::Offset(row + i, piece) / 16 % 8);
      EXPECT_EQ(banks.size(), 8u) << kBytes << ", row " << row << ", piece " << piece;
    }
  }
  EXPECT_EQ(places.size(), 32u * kPieces);
}

TEST(SharedRows, SpreadOverBanks) {
  ExpectRows<32>();
  ExpectRows<64>();
  ExpectRows<96>();
  ExpectRows<128>();
  ExpectRows<192>();
  ExpectRows<256>();
  ExpectRows<512>();
}

TEST(SharedRows, AreInTheOrderOfTma) {
  for (int row = 0; row < 32; ++row) {
    for (int piece = 0; piece < 8; ++piece) {
      EXPECT_EQ(SharedRows<128>::Offset(row, piece), TmaSwizzle128::apply(row * 128 + piece * 16));
      if (piece < 4) {
        EXPECT_EQ(SharedRows<64>::Offset(row, piece), TmaSwizzle64::apply(row * 64 + piece * 16));
      }
      if (piece < 2) {
        EXPECT_EQ(SharedRows<32>::Offset(row, piece), TmaSwizzle32::apply(row * 32 + piece * 16));
      }
    }
  }
}

}  // namespace
}  // namespace culet::cuda_ops
