// The grid of a large-M launch: every tile has its CTA; under programmatic dependent launch none
// starts where the kernel before has left a place free, unless half of the chip is.
#include <gtest/gtest.h>

#include <set>

#include "kernels/sm90/block/block.h"

namespace culet::sm90 {
namespace {

// The tiles that the launch's clusters compute, as the kernel walks them; false when one has two.
bool Walk(const BlockGrid& grid, int tiles, std::set<int>* walked) {
  for (int cluster = 0; cluster < grid.clusters; ++cluster) {
    const int first = cluster - grid.idle_clusters;
    if (first < 0) continue;
    for (int tile = first; tile < tiles; tile += grid.clusters) {
      if (!walked->insert(tile).second) return false;
    }
  }
  return true;
}

TEST(BlockGrid, EachTileIsComputedOnce) {
  for (const BlockKernel& kernel : BlockKernels()) {
    for (const int sms : {1, 2, 3, 16, 113, 114, 132}) {
      for (const bool pdl : {false, true}) {
        for (int tiles = 1; tiles < 300; ++tiles) {
          const BlockGrid grid = GridOf(kernel, tiles, sms, pdl);
          std::set<int> walked;
          EXPECT_TRUE(Walk(grid, tiles, &walked));
          EXPECT_EQ(walked.size(), static_cast<std::size_t>(tiles))
              << kernel.id << ", " << tiles << " tiles on " << sms << ", pdl " << pdl;
          const int size = grid.in_pairs ? 2 : kernel.cluster_size();
          ASSERT_EQ(grid.clusters * kernel.cluster_size() % size, 0);
          if (kernel.split == 1 && sms >= kernel.cluster_size()) {
            EXPECT_LE(grid.clusters * kernel.cluster_size(), sms);
          }
          // A CTA of a split kernel computes one tile, and no more.
          if (kernel.split > 1) {
            EXPECT_GE(grid.clusters, tiles + grid.idle_clusters);
          }
        }
      }
    }
  }
}

// A cluster lies in one GPC: of fours, 31 run at a time on 132 multiprocessors, and two more would
// begin when those have computed all of their tiles.
TEST(BlockGrid, PersistentClustersAllFindAPlace) {
  int fours = 0;
  for (const BlockKernel& kernel : BlockKernels()) {
    if (kernel.cluster_size() != 4 || kernel.split > 1) continue;
    ++fours;
    EXPECT_EQ(GridOf(kernel, 500, 132, false).clusters, 31) << kernel.id;
    EXPECT_EQ(GridOf(kernel, 500, 132, true).clusters, 31) << kernel.id;
    EXPECT_EQ(GridOf(kernel, 20, 132, false).clusters, 20) << kernel.id;
  }
  EXPECT_GT(fours, 0);
}

TEST(BlockGrid, EveryPlaceIsTakenWhereMoreThanHalfAre) {
  const BlockKernel* single = nullptr;
  for (const BlockKernel& kernel : BlockKernels()) {
    if (kernel.cluster_size() == 1) single = &kernel;
  }
  ASSERT_NE(single, nullptr);
  const auto grid = [&](int tiles, bool pdl) { return GridOf(*single, tiles, 132, pdl); };
  EXPECT_EQ(grid(80, false).clusters, 80);
  EXPECT_FALSE(grid(80, false).in_pairs);
  EXPECT_EQ(grid(80, true).clusters, 132);
  EXPECT_EQ(grid(80, true).idle_clusters, 52);
  EXPECT_TRUE(grid(80, true).in_pairs);
  EXPECT_EQ(grid(66, true).clusters, 66);
  EXPECT_FALSE(grid(66, true).in_pairs);
  EXPECT_EQ(grid(500, true).clusters, 132);
  EXPECT_EQ(grid(500, true).idle_clusters, 0);
  EXPECT_TRUE(grid(500, true).in_pairs);
}

}  // namespace
}  // namespace culet::sm90
