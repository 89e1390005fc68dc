// ShardOf: which heads, columns and words a rank holds.
#include <algorithm>
#include <array>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "base/ceil_div.h"
#include "culet/decoder.h"

namespace culet {
namespace {

using Bounds = std::vector<std::int64_t>;

// What shares a scale along rows and columns of a product's weights.
struct Grain {
  std::int64_t rows = 1, cols = 1;
  /// Whether a part of the rows may lie inside of one group instead of ending with groups. Columns
  /// may not: inputs are quantised in the same groups, which are those of one rank.
  bool inside = false;
};

Grain GrainOf(const WeightCoding& coding) {
  const QuantDesc& quant = coding.weights;
  const std::int64_t group = std::max<std::int64_t>(quant.group_size, 1);
  if (coding.form == WeightCoding::Form::kPlain) return {};
  if (quant.type == QuantType::kB) return {group, group, true};
  if (coding.is_e4m3()) return {};
  constexpr std::int64_t kPacked = 8;  // codes of 4 bits in a word
  return {kPacked, std::lcm(quant.type == QuantType::kK ? group : 1, kPacked), false};
}

bool Fits(std::int64_t first, std::int64_t end, std::int64_t all, std::int64_t grain, bool inside) {
  if (first % grain == 0 && (end % grain == 0 || end == all)) return true;
  return inside && first / grain == (end - 1) / grain;
}

// As evenly as whole units go; empty when there are fewer units than ranks.
Bounds CutInUnits(std::int64_t all, int ranks, std::int64_t unit) {
  const std::int64_t units = CeilDiv(all, unit);
  if (units < ranks) return {};
  Bounds bounds;
  for (int r = 0; r <= ranks; ++r) bounds.push_back(std::min(all, units * r / ranks * unit));
  return bounds;
}

// In units that products like, where that costs no more than an eighth of a part.
Bounds CutWidth(std::int64_t all, int ranks, std::int64_t grain) {
  for (const std::int64_t unit : {128, 64, 32, 16, 8}) {
    if (unit % grain != 0) continue;
    const Bounds bounds = CutInUnits(all, ranks, unit);
    std::int64_t most = 0;
    for (std::size_t r = 1; r < bounds.size(); ++r) {
      most = std::max(most, bounds[r] - bounds[r - 1]);
    }
    if (!bounds.empty() && most * ranks * 8 <= all * 9) return bounds;
  }
  return CutInUnits(all, ranks, grain);
}

Status TooMany(const DecoderConfig& whole, int ranks, const std::string& what, std::int64_t most) {
  return Status(
      StatusCode::kInvalidArgument,
      fmt::format("ranks is {}; {} of {} can be cut into at most {} part{}; take that many "
                  "ranks or fewer",
                  ranks, what, whole.architecture, most, most == 1 ? "" : "s"));
}

// The heads of one rank, and those of all: of queries, and of keys and values.
struct HeadCut {
  Bounds queries;
  Bounds first_kv, end_kv;  // one a rank
};

class Cutter {
 public:
  Cutter(const DecoderConfig& whole, int ranks)
      : whole_(whole), ranks_(ranks), grain_(GrainOf(whole.coding)) {}

  // Elements of a head among q's rows and o's columns.
  std::int64_t QueryRows() const {
    const LatentAttention& latent = whole_.latent;
    return latent.present() ? latent.nope_dim + latent.rope_dim : whole_.head_dim;
  }
  std::int64_t OutCols() const {
    return whole_.latent.present() ? whole_.latent.value_dim : whole_.head_dim;
  }

  bool Fit(const HeadCut& cut) const {
    for (int r = 0; r < ranks_; ++r) {
      const auto i = static_cast<std::size_t>(r);
      const std::int64_t first = cut.queries[i], end = cut.queries[i + 1];
      const std::int64_t rows = QueryRows(), cols = OutCols(), heads = whole_.heads;
      if (first >= end) return false;
      if (!Fits(first * rows, end * rows, heads * rows, grain_.rows, grain_.inside)) return false;
      if (!Fits(first * cols, end * cols, heads * cols, grain_.cols, false)) return false;
      if (whole_.latent.present()) continue;
      if (!Fits(cut.first_kv[i] * rows, cut.end_kv[i] * rows, whole_.kv_heads * rows, grain_.rows,
                grain_.inside)) {
        return false;
      }
    }
    return true;
  }

  // Whole groups of heads that share a key, `unit` of them together.
  HeadCut Groups(std::int64_t unit) const {
    HeadCut cut;
    const std::int64_t kv = whole_.latent.present() ? whole_.heads : whole_.kv_heads;
    const Bounds bounds = CutInUnits(kv, ranks_, unit);
    if (bounds.empty()) return cut;
    for (const std::int64_t bound : bounds) cut.queries.push_back(bound * (whole_.heads / kv));
    cut.first_kv.assign(bounds.begin(), bounds.end() - 1);
    cut.end_kv.assign(bounds.begin() + 1, bounds.end());
    return cut;
  }

  // Several ranks have the same head of keys, and share the queries that see it.
  HeadCut SharedKeys() const {
    HeadCut cut;
    cut.queries.push_back(0);
    const std::int64_t kv = whole_.kv_heads, group = whole_.heads / kv;
    for (std::int64_t head = 0; head < kv; ++head) {
      const std::int64_t first = CeilDiv(head * ranks_, kv), end = CeilDiv((head + 1) * ranks_, kv);
      for (std::int64_t r = first; r < end; ++r) {
        cut.queries.push_back(head * group + (r + 1 - first) * group / (end - first));
        cut.first_kv.push_back(head);
        cut.end_kv.push_back(head + 1);
      }
    }
    return cut;
  }

  // Empty when heads cannot be cut into so many parts.
  HeadCut Heads() const {
    const std::int64_t kv = whole_.latent.present() ? whole_.heads : whole_.kv_heads;
    for (std::int64_t unit = 1; unit * ranks_ <= kv; ++unit) {
      HeadCut cut = Groups(unit);
      if (!cut.queries.empty() && Fit(cut)) return cut;
    }
    if (whole_.latent.present() || ranks_ <= kv) return {};
    HeadCut cut = SharedKeys();
    return Fit(cut) ? cut : HeadCut{};
  }

  Bounds Width(std::int64_t all) const {
    return CutWidth(all, ranks_, std::lcm(grain_.rows, grain_.cols));
  }
  Bounds Experts() const { return CutInUnits(whole_.experts, ranks_, 1); }
  Bounds Vocabulary() const {
    constexpr std::int64_t kBlock = 128;
    const bool blocks = whole_.vocab / kBlock >= ranks_;
    const std::int64_t grain = whole_.coding.form == WeightCoding::Form::kPlain ? 1 : grain_.rows;
    return CutInUnits(whole_.vocab, ranks_, blocks ? kBlock : grain);
  }

 private:
  const DecoderConfig& whole_;
  int ranks_;
  Grain grain_;
};

Status Unsupported(const DecoderConfig& whole, const char* what) {
  return Status(
      StatusCode::kUnsupported,
      fmt::format("{} {}, which ranks cannot share yet; run it on one", whole.architecture, what));
}

// The most ranks below `ranks` that `cut` works for.
template <class Cut>
int MostRanks(const DecoderConfig& whole, int ranks, Cut cut) {
  int most = ranks - 1;
  while (most > 1 && !cut(Cutter(whole, most))) --most;
  return std::max(most, 1);
}

}  // namespace

Result<DecoderConfig> ShardOf(const DecoderConfig& whole, int rank, int ranks, ExpertsBy experts) {
  if (ranks < 1 || rank < 0 || rank >= ranks) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("rank is {} and ranks {}; ranks go from 0 to their number less 1",
                              rank, ranks));
  }
  if (experts != ExpertsBy::kRule && whole.experts == 0) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("experts is given, and {} has no routed experts; leave it out",
                              whole.architecture));
  }
  DecoderConfig part = whole;
  if (ranks == 1) return part;
  if (whole.linear.present()) return Unsupported(whole, "has layers of linear attention");
  if (whole.qk_norm_whole) return Unsupported(whole, "has norms over all heads of a row");
  const Cutter cutter(whole, ranks);
  const HeadCut heads = cutter.Heads();
  if (heads.queries.empty()) {
    return TooMany(whole, ranks, "attention", MostRanks(whole, ranks, [](const Cutter& fewer) {
                     return !fewer.Heads().queries.empty();
                   }));
  }
  DecoderShard& shard = part.shard;
  shard.rank = rank;
  shard.ranks = ranks;
  const auto r = static_cast<std::size_t>(rank);
  shard.heads = {heads.queries[r], whole.heads};
  part.heads = static_cast<int>(heads.queries[r + 1] - heads.queries[r]);
  if (!whole.latent.present()) {
    shard.kv_heads = {heads.first_kv[r], whole.kv_heads};
    part.kv_heads = static_cast<int>(heads.end_kv[r] - heads.first_kv[r]);
  }
  const bool whole_experts =
      experts == ExpertsBy::kExpert || (experts == ExpertsBy::kRule && whole.experts > 0 &&
                                        cutter.Width(whole.moe_intermediate).empty());
  if (whole_experts) {
    shard.experts = {rank, cutter.Experts()};
    if (!shard.experts.present()) {
      return TooMany(whole, ranks, "the experts", MostRanks(whole, ranks, [](const Cutter& fewer) {
                       return !fewer.Experts().empty();
                     }));
    }
  }
  struct Width {
    const char* what;
    int DecoderConfig::*size;
    ShardRange DecoderShard::*range;
  };
  constexpr std::array kWidths = {
      Width{"intermediate_size", &DecoderConfig::intermediate, &DecoderShard::intermediate},
      Width{"moe_intermediate_size", &DecoderConfig::moe_intermediate,
            &DecoderShard::moe_intermediate},
      Width{"the shared expert", &DecoderConfig::shared_intermediate,
            &DecoderShard::shared_intermediate}};
  for (const Width& width : kWidths) {
    const std::int64_t all = whole.*width.size;
    if (all == 0 || (width.size == &DecoderConfig::moe_intermediate && whole_experts)) continue;
    const Bounds bounds = cutter.Width(all);
    if (bounds.empty()) {
      return TooMany(whole, ranks, width.what, MostRanks(whole, ranks, [&](const Cutter& fewer) {
                       return !fewer.Width(all).empty();
                     }));
    }
    shard.*width.range = {bounds[r], all};
    part.*width.size = static_cast<int>(bounds[r + 1] - bounds[r]);
  }
  shard.vocab = {rank, cutter.Vocabulary()};
  if (!shard.vocab.present()) {
    return TooMany(whole, ranks, "vocab_size", MostRanks(whole, ranks, [](const Cutter& fewer) {
                     return !fewer.Vocabulary().empty();
                   }));
  }
  return part;
}

}  // namespace culet
