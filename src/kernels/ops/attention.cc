// Attention, task by task.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/ops/attention.cc"
#include "base/simd_targets.h"
// Per target from here on.
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/ops/attention-inl.h"

HWY_BEFORE_NAMESPACE();
namespace culet {
namespace HWY_NAMESPACE {

void Attend(const ops::AttentionArgs& args, const AttentionRows& keys,
            const ops::AttentionTile& tile) {
  AttendTile(args, keys, tile);
}

}  // namespace HWY_NAMESPACE
}  // namespace culet
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "base/thread_pool.h"

namespace culet {
HWY_EXPORT(Attend);

namespace ops {
namespace {

// Rows [first, last), cut where another sequence begins; a row that sees no key is NaN.
void AttendRows(const AttentionArgs& args, const AttentionRows& keys, std::int64_t first,
                std::int64_t last, AttentionTile tile) {
  const auto sees = [](const AttentionRows::Range& range) {
    return range.sequence >= 0 && range.first < range.last;
  };
  while (first < last) {
    const AttentionRows::Range range = keys.Of(first);
    tile.first_row = first++;
    if (!sees(range)) {
      for (int head = tile.first_kv_head; head < tile.first_kv_head + tile.kv_heads; ++head) {
        const std::int64_t first_head = std::int64_t{head} * tile.group + tile.first_head;
        const std::int64_t at = tile.first_row * args.params.heads + first_head;
        std::fill_n(args.out + at * args.params.head_dim,
                    std::int64_t{tile.heads} * args.params.head_dim,
                    std::numeric_limits<float>::quiet_NaN());
      }
      continue;
    }
    for (; first < last; ++first) {
      const AttentionRows::Range next = keys.Of(first);
      if (next.sequence != range.sequence || !sees(next)) break;
    }
    tile.last_row = first;
    HWY_DYNAMIC_DISPATCH(Attend)(args, keys, tile);
  }
}

}  // namespace

std::size_t AttentionWorkspace(const AttentionParams& params) {
  return static_cast<std::size_t>(HostPool().threads()) * AttentionScratch::Floats(params);
}

void Attention(const AttentionArgs& args, const AttentionRows& keys) {
  const AttentionParams& p = args.params;
  const std::size_t own = AttentionScratch::Floats(p);
  const auto threads =
      static_cast<int>(std::min<std::size_t>(args.workspace_floats / own, 1 << 16));
  // A task has some rows, and of a group of query heads all or a part, so that its queries are
  // kTaskQueries; with few rows several key-value heads, as long as each thread has a task.
  const int group = p.heads / p.kv_heads;
  const int parts = (group + kTaskQueries - 1) / kTaskQueries;
  const int part_heads = std::min(group, kTaskQueries);
  const auto rows =
      static_cast<int>(std::clamp<std::int64_t>(args.rows, 1, kTaskQueries / part_heads));
  const auto blocks = static_cast<int>((args.rows + rows - 1) / rows);
  const int wanted = std::max(1, std::min(threads, HostPool().threads()) / (blocks * parts));
  const int kv_heads = std::clamp(p.kv_heads / wanted, 1,
                                  std::min(kTaskKvHeads, kTaskQueries / (rows * part_heads)));
  const int spans = (p.kv_heads + kv_heads - 1) / kv_heads;
  const int strips = spans * parts;
  const auto attend = [&](int task, int thread) {
    const int part = task % strips % parts, span = task % strips / parts;
    AttentionTile tile;
    tile.first_kv_head = span * kv_heads;
    tile.kv_heads = std::min(kv_heads, p.kv_heads - tile.first_kv_head);
    tile.group = group;
    tile.first_head = part * kTaskQueries;
    tile.heads = std::min(kTaskQueries, group - tile.first_head);
    tile.scratch = args.workspace + static_cast<std::size_t>(thread) * own;
    // Later rows see more keys: begun first, they do not keep one thread at the end.
    const std::int64_t first = std::int64_t{blocks - 1 - task / strips} * rows;
    AttendRows(args, keys, first, std::min(args.rows, first + rows), tile);
  };
  HostPool().Run(blocks * strips, attend, threads);
}

}  // namespace ops
}  // namespace culet
#endif  // HWY_ONCE
