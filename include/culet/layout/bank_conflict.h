// Counts shared-memory bank conflicts of a layout, at compile time.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

namespace culet {

/// Threads of a warp, and its shared memory: 32 banks, each serves one 4-byte word at a time
/// (CUDA C++ Programming Guide, "Shared Memory" of compute capability 5.x and later).
inline constexpr int kWarpThreads = 32;
inline constexpr int kBanks = 32;
inline constexpr int kWordBytes = 4;
/// What one thread touches with ldmatrix, ld.shared.v4 or st.shared.v4.
inline constexpr int kChunkBytes = 16;
/// All banks together serve 128 bytes, so 16-byte accesses run in phases of 8 consecutive threads.
inline constexpr int kPhaseThreads = kBanks * kWordBytes / kChunkBytes;

/// How many times over the busiest bank is asked for in the worst phase of a warp's access:
/// 1 is free of conflicts, 8 the worst. Threads that ask for the same word share one answer.
/// `chunks` holds the byte address that each thread's 16 bytes start at, in order of threads; fewer
/// than 32 are a warp with idle threads. Returns 0 for an address that is not a multiple of 16,
/// which no such instruction takes.
constexpr int ConflictDegree(std::span<const std::int64_t> chunks) noexcept {
  int worst = 0;
  while (!chunks.empty()) {
    const auto phase = chunks.first(std::min<std::size_t>(chunks.size(), kPhaseThreads));
    chunks = chunks.subspan(phase.size());
    // Aligned chunks share all four of their banks or none: the eight groups of four are counted.
    int asked[kPhaseThreads] = {};
    for (auto chunk = phase.begin(); chunk != phase.end(); ++chunk) {
      if (*chunk < 0 || *chunk % kChunkBytes != 0) return 0;
      if (std::find(phase.begin(), chunk, *chunk) != chunk) continue;
      worst = std::max(worst, ++asked[*chunk / kChunkBytes % kPhaseThreads]);
    }
  }
  return worst;
}

/// An element of a tile.
struct TileIndex {
  int s = 0;
  int c = 0;
};

/// The conflict degree of a warp whose thread t touches the 16 bytes that start at element
/// pattern(t) of a tile in `Layout` with elements of 1, 2, 4, 8 or 16 bytes. Returns 0 when some
/// thread's 16 bytes are not one aligned chunk of memory: the layout does not keep them together.
template <class Layout, class Pattern>
constexpr int ConflictDegree(int element_bytes, Pattern pattern) noexcept {
  std::int64_t chunks[kWarpThreads] = {};
  for (int thread = 0; thread < kWarpThreads; ++thread) {
    const TileIndex start = pattern(thread);
    const auto offset = Layout::template apply<std::int64_t>(start.s, start.c);
    for (int i = 1; i < kChunkBytes / element_bytes; ++i) {
      if (Layout::template apply<std::int64_t>(start.s, start.c + i) != offset + i) return 0;
    }
    chunks[thread] = offset * element_bytes;
  }
  return ConflictDegree(chunks);
}

/// The worst degree over all columns of chunks when a warp reads 32 consecutive rows, one chunk of
/// the column each, as ldmatrix and wgmma do 8 rows at a time. 0 as above.
template <class Layout>
constexpr int ColumnConflictDegree(int element_bytes) noexcept {
  static_assert(Layout::S % kWarpThreads == 0, "a warp reads 32 rows: S must be a multiple of 32");
  int worst = 0;
  for (int s = 0; s < Layout::S; s += kWarpThreads) {
    for (int c = 0; c < Layout::C; c += kChunkBytes / element_bytes) {
      const int degree = ConflictDegree<Layout>(element_bytes, [s, c](int thread) {
        return TileIndex{s + thread, c};
      });
      if (degree == 0) return 0;
      worst = std::max(worst, degree);
    }
  }
  return worst;
}

/// Whether the layout gives every element of the tile an offset of its own in [0, kSize).
template <class Layout>
constexpr bool IsBijective() noexcept {
  bool taken[Layout::kSize] = {};
  for (int s = 0; s < Layout::S; ++s) {
    for (int c = 0; c < Layout::C; ++c) {
      const int offset = Layout::apply(s, c);
      if (offset < 0 || offset >= Layout::kSize || taken[offset]) return false;
      taken[offset] = true;
    }
  }
  return true;
}

}  // namespace culet
