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
  WithDecoder(args.kv_type, [&](auto decoder) { AttendWith<decltype(decoder)>(args, keys, tile); });
}

void AddParts(const ops::AttentionArgs& args, const ops::AttentionParts& parts, std::int64_t row,
              AttentionRows::Range range) {
  WithDecoder(args.kv_type,
              [&](auto decoder) { AddPartsOf<decltype(decoder)>(args, parts, row, range); });
}

}  // namespace HWY_NAMESPACE
}  // namespace culet
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "base/thread_pool.h"

namespace culet {
HWY_EXPORT(Attend);
HWY_EXPORT(AddParts);

namespace ops {
namespace {

// With so many rows or fewer, keys are split among the threads.
constexpr std::int64_t kSplitRows = 8;
// Floats for their parts at most: 64 MB.
constexpr std::size_t kMostPartFloats = std::size_t{1} << 24;

std::size_t PartFloats(const AttentionParams& p) { return AttentionScratch::PaddedHead(p) + 2; }

constexpr std::int64_t CeilDiv(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

bool Sees(const AttentionRows::Range& range) {
  return range.sequence >= 0 && range.first < range.last;
}

void FillNan(const AttentionArgs& args, std::int64_t row, std::int64_t head, std::int64_t heads) {
  const std::int64_t size = args.params.out_dim();
  std::fill_n(args.out + (row * args.params.heads + head) * size, heads * size,
              std::numeric_limits<float>::quiet_NaN());
}

// Rows [first, last), cut where another sequence begins; a row that sees no key is NaN.
void AttendRows(const AttentionArgs& args, const AttentionRows& keys, std::int64_t first,
                std::int64_t last, AttentionTile tile) {
  while (first < last) {
    const AttentionRows::Range range = keys.Of(first);
    tile.first_row = first++;
    if (!Sees(range)) {
      if (tile.first_key > 0) continue;
      for (int head = tile.first_kv_head; head < tile.first_kv_head + tile.kv_heads; ++head) {
        FillNan(args, tile.first_row, std::int64_t{head} * tile.group + tile.first_head,
                tile.heads);
      }
      continue;
    }
    for (; first < last; ++first) {
      const AttentionRows::Range next = keys.Of(first);
      if (next.sequence != range.sequence || !Sees(next)) break;
    }
    tile.last_row = first;
    HWY_DYNAMIC_DISPATCH(Attend)(args, keys, tile);
  }
}

// What the rows have in common.
struct RowsSeen {
  std::int64_t together = 1;  // rows of one sequence in a row, at most
  std::int64_t last_key = 0;  // of all
};

RowsSeen Look(const AttentionArgs& args, const AttentionRows& keys) {
  RowsSeen seen;
  std::int64_t sequence = -1, begin = 0;
  for (std::int64_t row = 0; row < args.rows; ++row) {
    const AttentionRows::Range range = keys.Of(row);
    if (range.sequence != sequence) begin = row;
    sequence = range.sequence;
    seen.together = std::max(seen.together, row + 1 - begin);
    seen.last_key = std::max(seen.last_key, range.last);
  }
  return seen;
}

}  // namespace

std::size_t AttentionParts::Floats(const AttentionParams& params, std::int64_t rows,
                                   std::int64_t keys) noexcept {
  if (rows > kSplitRows) return 0;
  return static_cast<std::size_t>(rows * params.heads * CeilDiv(keys, kKeyPart)) *
         PartFloats(params);
}

std::size_t AttentionWorkspace(const AttentionParams& params, std::int64_t rows,
                               std::int64_t keys) {
  // Fewer keys than there may be are split, though all of them are not.
  return std::min(AttentionParts::Floats(params, rows, keys), kMostPartFloats) +
         static_cast<std::size_t>(HostPool().threads()) * AttentionScratch::Floats(params);
}

void Attention(const AttentionArgs& args, const AttentionRows& keys) {
  const AttentionParams& p = args.params;
  const std::size_t own = AttentionScratch::Floats(p);
  const RowsSeen seen = Look(args, keys);
  AttentionParts parts{args.workspace, p.heads, CeilDiv(seen.last_key, kKeyPart), PartFloats(p)};
  std::size_t part_floats = AttentionParts::Floats(p, args.rows, seen.last_key);
  const bool split = parts.parts > 1 && HostPool().threads() > 1 && part_floats > 0 &&
                     part_floats <= kMostPartFloats && part_floats + own <= args.workspace_floats;
  if (!split) part_floats = 0;
  const auto threads =
      static_cast<int>(std::min<std::size_t>((args.workspace_floats - part_floats) / own, 1 << 16));
  // A task has some rows, and of a group of query heads all or a part, so that its queries are
  // kTaskQueries; with few rows several key-value heads, as long as each thread has a task.
  const int group = p.heads / p.kv_heads;
  const int strips_a_group = static_cast<int>(CeilDiv(group, kTaskQueries));
  const int strip_heads = std::min(group, kTaskQueries);
  const auto rows =
      static_cast<int>(std::clamp<std::int64_t>(seen.together, 1, kTaskQueries / strip_heads));
  const auto blocks = static_cast<int>(CeilDiv(args.rows, rows));
  const auto pieces = static_cast<int>(split ? parts.parts : 1);
  const auto alone = static_cast<int>(
      std::min<std::int64_t>(std::int64_t{blocks} * strips_a_group * pieces, 1 << 16));
  const int wanted = std::max(1, std::min(threads, HostPool().threads()) / std::max(1, alone));
  const int kv_heads = std::clamp(p.kv_heads / wanted, 1,
                                  std::min(kTaskKvHeads, kTaskQueries / (rows * strip_heads)));
  const int spans = (p.kv_heads + kv_heads - 1) / kv_heads;
  const int strips = spans * strips_a_group;
  const auto attend = [&](int task, int thread) {
    const int strip = task % strips, piece = task / strips % pieces;
    AttentionTile tile;
    tile.first_kv_head = strip / strips_a_group * kv_heads;
    tile.kv_heads = std::min(kv_heads, p.kv_heads - tile.first_kv_head);
    tile.group = group;
    tile.first_head = strip % strips_a_group * kTaskQueries;
    tile.heads = std::min(kTaskQueries, group - tile.first_head);
    tile.scratch = args.workspace + part_floats + static_cast<std::size_t>(thread) * own;
    if (split) {
      tile.first_key = std::int64_t{piece} * kKeyPart;
      tile.last_key = tile.first_key + kKeyPart;
      tile.parts = &parts;
    }
    // Later rows see more keys: begun first, they do not keep one thread at the end.
    const std::int64_t first = std::int64_t{blocks - 1 - task / strips / pieces} * rows;
    AttendRows(args, keys, first, std::min(args.rows, first + rows), tile);
  };
  HostPool().Run(blocks * strips * pieces, attend, threads);
  if (!split) return;
  HostPool().Run(
      static_cast<int>(args.rows),
      [&](int row, int) {
        const AttentionRows::Range range = keys.Of(row);
        if (Sees(range)) HWY_DYNAMIC_DISPATCH(AddParts)(args, parts, row, range);
      },
      threads);
}

}  // namespace ops
}  // namespace culet
#endif  // HWY_ONCE
