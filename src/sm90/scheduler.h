// Static persistent tile order: which tile a CTA (cluster) computes at which step. Host and device.
#pragma once

#include <cstdint>

#include "sm90/descriptor.h"

namespace culet::sm90 {

/// A grid of tiles walked in supergroups: `group` rows of tiles are swept together along N, rows
/// fastest, so that a wave of CTAs touches about group rows of A and wave/group columns of B. With
/// `along_n` the roles are exchanged.
struct TileOrder {
  int tiles_m = 0;
  int tiles_n = 0;
  int group = 1;
  bool along_n = false;

  CULET_HOST_DEVICE constexpr int count() const { return tiles_m * tiles_n; }

  /// The tile at position `index` < count().
  CULET_HOST_DEVICE constexpr void At(int index, int& tile_m, int& tile_n) const {
    const int major = along_n ? tiles_n : tiles_m;  // the axis cut into groups
    const int minor = along_n ? tiles_m : tiles_n;
    const int per_group = group * minor;
    const int first = index / per_group * group;
    const int width = major - first < group ? major - first : group;
    const int in_group = index % per_group;
    const int a = first + in_group % width;
    const int b = in_group / width;
    tile_m = along_n ? b : a;
    tile_n = along_n ? a : b;
  }
};

/// The k-blocks of part `part` of `parts`: near-equal shares, the larger ones first.
CULET_HOST_DEVICE constexpr void SplitRange(int blocks, int parts, int part, int& begin, int& end) {
  const int base = blocks / parts, extra = blocks % parts;
  begin = part * base + (part < extra ? part : extra);
  end = begin + base + (part < extra ? 1 : 0);
}

}  // namespace culet::sm90
