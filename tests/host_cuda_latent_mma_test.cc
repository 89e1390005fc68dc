// The CUDA dispatch's latent attention on tensor cores, on the CPU (tests/host_cuda).
#include "cuda/latent_mma_cases.h"
#include "host_cuda/test_dispatch.h"
#include "kernels/cuda_ops/ops.h"

namespace culet {

// With Hopper's shared memory the ring has more stages than some splits have tiles.
TEST_F(CudaAttentionMma, LatentManyStages) {
  const AttentionCase& c = kLatentMmaCases[0];
  for (const std::int32_t length : {1, 100, 700}) {
    Build(c, {.lengths = {length, 3}, .tokens = {1, 1}, .table_cols = 90});
    cuda_ops::AttentionArgs args;
    args.params = params_.attention;
    args.q = q_.bytes.data();
    args.k = args.v = k_.bytes.data();
    args.q_type = args.out_type = c.value;
    args.kv_type = c.cache;
    const auto indices = [](const Matrix& matrix) {
      return reinterpret_cast<const std::int32_t*>(matrix.bytes.data());
    };
    args.starts = indices(starts_), args.positions = indices(positions_);
    args.lengths = indices(lengths_), args.table = indices(table_);
    args.rows = 2, args.sequences = 2, args.table_cols = 90, args.key_rows = k_.rows;
    const cuda_ops::AttentionShape shape{args.params, c.cache, 2, 2, 720};
    // Few multiprocessors, so that a split has many tiles.
    args.plan = cuda_ops::PlanAttention(shape, false, 4, true, true);
    ASSERT_FALSE(args.plan.wgmma);
    ASSERT_GT(args.plan.tiles.stages, 2);
    ASSERT_EQ(args.plan.tiles.most, 2);
    ASSERT_EQ(cuda_ops::PrepareAttention(shape, args.plan), cudaSuccess);
    std::vector<std::byte> workspace(args.plan.workspace_bytes);
    std::vector<std::byte> out(static_cast<std::size_t>(2 * c.heads * c.value_dim) *
                               SizeOf(c.value));
    args.workspace = workspace.data();
    args.out = out.data();
    ASSERT_EQ(cuda_ops::Attention(args, nullptr), cudaSuccess);
    Compare(out, Graph(), std::to_string(length) + " keys", BoundOf(c));
  }
}

}  // namespace culet
