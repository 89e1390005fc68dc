// The CUDA dispatch's latent attention on tensor cores, on the CPU (tests/host_cuda).
#include "cuda/latent_mma_cases.h"
#include "host_cuda/host_cuda.h"
#include "host_cuda/test_dispatch.h"
#include "kernels/cuda_ops/ops.h"

namespace culet {

// One row, with the stages that Hopper has room for and with those of others; the query and the
// row's own key may appear only when the preceding kernel ends. They appear once in a launch: where
// there are two splits, one of them is late.
TEST_F(CudaAttentionMma, LatentStagesAndEarlyReads) {
  const AttentionCase& c = kLatentMmaCases[0];
  constexpr int kCols = 90, kBlock = 8;
  for (const std::int32_t length : {1, 32, 33, 64, 96, 160, 700}) {
    Build(c, {.lengths = {length}, .tokens = {1}, .table_cols = kCols, .block = kBlock});
    const Matrix all_q = q_, all_k = k_;
    for (const bool many : {false, true}) {
      for (const bool early : {false, true}) {
        cuda_ops::AttentionArgs args;
        args.params = params_.attention;
        args.params.single_rows = true;
        args.early = early;
        args.q_type = args.out_type = c.value;
        args.kv_type = c.cache;
        const auto indices = [](const Matrix& matrix) {
          return reinterpret_cast<const std::int32_t*>(matrix.bytes.data());
        };
        args.starts = indices(starts_), args.positions = indices(positions_);
        args.lengths = indices(lengths_), args.table = indices(table_);
        args.rows = 1, args.sequences = 1, args.table_cols = kCols, args.key_rows = k_.rows;
        const cuda_ops::AttentionShape shape{args.params, c.cache, 1, 1, kCols * kBlock};
        args.plan = cuda_ops::PlanAttention(shape, false, 1, true, many);
        ASSERT_FALSE(args.plan.wgmma);
        ASSERT_EQ(args.plan.tiles.stages > 2, many);
        ASSERT_EQ(args.plan.tiles.most, many ? 1 : 2);
        ASSERT_EQ(cuda_ops::PrepareAttention(shape, args.plan), cudaSuccess);
        std::vector<std::byte> workspace(args.plan.workspace_bytes);
        std::vector<std::byte> out(static_cast<std::size_t>(c.heads * c.value_dim) *
                                   SizeOf(c.value));
        if (early) {
          for (std::int64_t i = 0; i < q_.rows * q_.cols; ++i) q_.Set(i, kNaN);
          const std::int64_t slot =
              indices(table_)[(length - 1) / kBlock] * kBlock + (length - 1) % kBlock;
          for (int i = 0; i < c.head_dim; ++i) k_.Set(slot * c.head_dim + i, kNaN);
          host_cuda::OnWait([&] {
            std::ranges::copy(all_q.bytes, q_.bytes.begin());
            std::ranges::copy(all_k.bytes, k_.bytes.begin());
          });
        }
        args.q = q_.bytes.data();
        args.k = args.v = k_.bytes.data();
        args.workspace = workspace.data();
        args.out = out.data();
        const cudaError_t error = cuda_ops::Attention(args, cuda_ops::LaunchStream(nullptr, true));
        host_cuda::OnWait(nullptr);
        ASSERT_EQ(error, cudaSuccess) << host_cuda::Fault();
        Compare(out, Graph(), std::to_string(length) + " keys", BoundOf(c));
      }
    }
  }
}

}  // namespace culet
