// Advance: a step's inputs become the next one's.
#include "kernels/cuda_ops/launch.cuh"
#include "kernels/cuda_ops/ops.h"
#include "kernels/cuda_ops/values.cuh"

namespace culet::cuda_ops {
namespace {

constexpr int kThreads = 64;

// The slot of a position of a sequence, whose row of a block table this is.
__device__ __forceinline__ std::int32_t SlotOf(const std::int32_t* row, std::int64_t blocks,
                                               int block_size, std::int64_t position) {
  const std::int64_t block = position / block_size;
  const int at = block < blocks ? row[block] : -1;
  return at < 0 ? -1
                : static_cast<std::int32_t>(std::int64_t{at} * block_size + position % block_size);
}

// A thread a sequence.
template <class T>
__global__ void __launch_bounds__(kThreads) AdvanceKernel(const AdvanceArgs args) {
  WaitForPrevious();
  const int s = static_cast<int>(blockIdx.x * kThreads + threadIdx.x);
  if (s >= args.sequences || args.slots[s] < 0 || args.positions[s] < 0) return;
  const int token = args.tokens[s], position = args.positions[s];
  bool bad = token < 0 || token >= args.vocab;
  if (!bad && args.logits != nullptr) {
    float logit[1];
    Load(static_cast<const T*>(args.logits) + s * args.vocab + token, logit);
    bad = logit[0] != logit[0];
  }
  args.log[position % args.log_rows * args.sequences + s] = bad ? -1 : token;
  const std::int64_t next = std::int64_t{position} + 1;
  args.ids[s] = token;
  args.positions[s] = static_cast<std::int32_t>(next);
  ++args.lengths[s];
  args.slots[s] = SlotOf(args.table + s * args.blocks, args.blocks, args.block_size, next);
  if (args.other_slots == nullptr) return;
  args.other_slots[s] =
      SlotOf(args.other_table + s * args.other_blocks, args.other_blocks, args.block_size, next);
}

}  // namespace

cudaError_t Advance(const AdvanceArgs& args, LaunchStream stream) {
  return WithValue(args.logits_type, [&]<class T>(T) {
    return Launch(&AdvanceKernel<T>, Blocks(CeilDiv(args.sequences, kThreads)), kThreads, stream,
                  args);
  });
}

}  // namespace culet::cuda_ops
