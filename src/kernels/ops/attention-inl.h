// Attention of some queries of one sequence: keys pass by in blocks, with a running maximum, so
// that no row of scores is ever stored.
//
// A query's bits depend neither on the queries beside it nor on who works: blocks begin at
// multiples of kKeyBlock, parts at multiples of kKeyPart, parts are added from the first to the
// last, and every sum runs in the same order whatever the tile.
#if defined(CULET_OPS_ATTENTION_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef CULET_OPS_ATTENTION_INL_H_
#undef CULET_OPS_ATTENTION_INL_H_
#else
#define CULET_OPS_ATTENTION_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "kernels/cpu/simd_memory-inl.h"
#include "kernels/ops/attention_math-inl.h"
#include "kernels/ops/gates-inl.h"

HWY_BEFORE_NAMESPACE();
namespace culet {
namespace HWY_NAMESPACE {

using ops::kKeyPart;

inline constexpr float kNoScore = -std::numeric_limits<float>::infinity();

// A query's output, from its sums over all keys. `scale`: of the values.
template <class Decoder>
void StoreOut(const float* HWY_RESTRICT sums, float weight, float scale, std::size_t head_dim,
              float* HWY_RESTRICT out) {
  ForElements<Decoder>(head_dim,
                       [&](std::size_t i, std::size_t at) { out[i] = sums[at] / weight * scale; });
}

// The sum of a query's weights, with that of its head's sink. `most`: the highest score.
inline float WithSink(const ops::AttentionArgs& args, int head, float most, float weight) {
  if (args.sinks == nullptr || most == kNoScore) return weight;
  return weight + std::exp(args.sinks[head] - most);
}

// Of the values of a key-value head; 1 where they have none.
inline float ValueScale(const ops::AttentionArgs& args, int kv_head) {
  return args.v_scales != nullptr ? args.v_scales[kv_head] : 1.0f;
}

// The tile's work. Decoder: of the cache's type. kInPlace: keys and values are read where they lie;
// otherwise they are converted first, which many queries share.
template <class Decoder, bool kInPlace>
class TileAttention {
  using Line = std::conditional_t<kInPlace, Decoder, DecodeF32>;
  using T = typename Line::T;
  using Stored = typename Decoder::T;

  // Lines of all heads that are read together.
  static constexpr std::int64_t kStep = 8;

 public:
  TileAttention(const ops::AttentionArgs& args, const AttentionRows& keys,
                const ops::AttentionTile& tile)
      : args_(args),
        keys_(keys),
        tile_(tile),
        scratch_(args.params, tile.scratch),
        padded_(scratch_.padded_head),
        head_dim_(static_cast<std::size_t>(args.params.head_dim)),
        out_dim_(static_cast<std::size_t>(args.params.out_dim())),
        a_head_(tile.queries_a_kv_head()),
        queries_(tile.kv_heads * a_head_) {}

  void Run() {
    std::int64_t first = std::numeric_limits<std::int64_t>::max(), last = 0;
    for (int q = 0; q < queries_; ++q) {
      ranges_[q] = keys_.Of(tile_.RowOf(q));
      first = std::min(first, ranges_[q].first);
      last = std::max(last, ranges_[q].last);
    }
    first = std::max(first, tile_.first_key);
    last = std::min(last, tile_.last_key);
    if (first >= last) return;  // a piece behind this sequence's end
    for (int q = 0; q < queries_; ++q) {
      float* const query = OfQuery(scratch_.queries, q);
      std::fill_n(query, padded_, 0.0f);
      const float* const from = args_.q + HeadAt(q) * args_.params.head_dim;
      ForElements<Decoder>(head_dim_, [&](std::size_t i, std::size_t at) { query[at] = from[i]; });
      begun_[q] = false;
    }
    for (std::int64_t start = first / kKeyPart * kKeyPart; start < last; start += kKeyPart) {
      RunPart(start, std::max(first, start), std::min(last, start + kKeyPart));
    }
    if (tile_.parts != nullptr) return;
    for (int q = 0; q < queries_; ++q) {
      const float weight =
          WithSink(args_, tile_.HeadOf(q), scratch_.total_most[q], scratch_.total_weights[q]);
      StoreOut<Decoder>(OfQuery(scratch_.totals, q), weight,
                        ValueScale(args_, tile_.HeadOf(q) / tile_.group), out_dim_,
                        args_.out + HeadAt(q) * args_.params.out_dim());
    }
  }

 private:
  float* OfQuery(float* part, int q) const { return part + static_cast<std::size_t>(q) * padded_; }
  // The number of the query's head among those of all rows.
  std::int64_t HeadAt(int q) const { return tile_.RowOf(q) * args_.params.heads + tile_.HeadOf(q); }

  // Keys [first, last), all of the part that begins at `start`.
  void RunPart(std::int64_t start, std::int64_t first, std::int64_t last) {
    std::fill_n(scratch_.sums, static_cast<std::size_t>(queries_) * padded_, 0.0f);
    std::fill_n(scratch_.most, queries_, kNoScore);
    std::fill_n(scratch_.weights, queries_, 0.0f);
    for (std::int64_t block = first / kKeyBlock * kKeyBlock; block < last; block += kKeyBlock) {
      RunBlock(block, std::max(first - block, std::int64_t{0}),
               std::min(last - block, std::int64_t{kKeyBlock}), last - block - kKeyBlock);
    }
    for (int q = 0; q < queries_; ++q) {
      if (ranges_[q].first >= start + kKeyPart || ranges_[q].last <= start) continue;
      const Part part{scratch_.most[q], scratch_.weights[q], OfQuery(scratch_.sums, q)};
      if (tile_.parts != nullptr) {
        float* const to = tile_.parts->Of(tile_.RowOf(q), tile_.HeadOf(q), start / kKeyPart);
        to[0] = part.most;
        to[1] = part.weight;
        std::copy_n(part.sums, padded_, to + 2);
        continue;
      }
      Part total{scratch_.total_most[q], scratch_.total_weights[q], OfQuery(scratch_.totals, q)};
      if (begun_[q]) {
        AddPart(total, part, padded_);
      } else {
        total.most = part.most;
        total.weight = part.weight;
        std::copy_n(part.sums, padded_, total.sums);
        begun_[q] = true;
      }
      scratch_.total_most[q] = total.most;
      scratch_.total_weights[q] = total.weight;
    }
  }

  // Keys start + [begin, end); `follows` more are in the part.
  void RunBlock(std::int64_t start, std::int64_t begin, std::int64_t end,
                [[maybe_unused]] std::int64_t follows) {
    std::int64_t places[kKeyBlock];
    for (std::int64_t j = begin; j < end; ++j) {
      places[j] = keys_.KeyRow(ranges_[0].sequence, start + j);
    }
    for (int q = 0; q < queries_; ++q) {
      seen_[q] = {std::clamp<std::int64_t>(ranges_[q].first - start, 0, kKeyBlock),
                  std::clamp<std::int64_t>(ranges_[q].last - start, 0, kKeyBlock)};
    }
    if constexpr (kInPlace) {
      RunBlockInPlace(start, begin, end, follows, places);
    } else {
      const T* lines[kKeyBlock];
      Load(args_.k, places, begin, end, lines);
      for (int head = 0; head < tile_.kv_heads; ++head) Score(head, begin, end, lines, nullptr);
      MakeWeights();
      if (args_.v != args_.k) Load(args_.v, places, begin, end, lines);
      for (int head = 0; head < tile_.kv_heads; ++head) Weigh(head, begin, end, lines, nullptr);
    }
  }

  // Some keys of all heads, then the next ones, so that memory is read in long pieces. It is asked
  // for kStep lines before they are read: keys, values, the next block's keys.
  void RunBlockInPlace(std::int64_t start, std::int64_t begin, std::int64_t end,
                       std::int64_t follows, const std::int64_t* places) {
    const T* keys[kKeyBlock];
    const T* values[kKeyBlock];
    const T* after_keys[kKeyBlock];
    const T* after_values[kKeyBlock];
    Load(args_.k, places, begin, end, keys);
    Load(args_.v, places, begin, end, values);
    for (std::int64_t j = begin; j < end; ++j) {
      const std::int64_t next = j + kStep;
      after_keys[j] = next < end ? keys[next] : values[std::min(begin + next - end, end - 1)];
      after_values[j] = values[std::min(next, end - 1)];
    }
    for (std::int64_t j = std::max(begin, end - kStep); follows > 0 && j < end; ++j) {
      const std::int64_t behind = std::min(j + kStep - end, follows - 1);
      const std::int64_t place = keys_.KeyRow(ranges_[0].sequence, start + kKeyBlock + behind);
      if (place >= 0) after_values[j] = RowAt(args_.k, place);
    }
    for (std::int64_t j = begin; j < end; j += kStep) {
      for (int head = 0; head < tile_.kv_heads; ++head) {
        Score(head, j, std::min(end, j + kStep), keys, after_keys);
      }
    }
    MakeWeights();
    for (std::int64_t j = begin; j < end; j += kStep) {
      for (int head = 0; head < tile_.kv_heads; ++head) {
        Weigh(head, j, std::min(end, j + kStep), values, after_values);
      }
    }
  }

  // Of the keys that the query sees.
  void CapScores(int q) {
    const F32 d;
    float* const scores = scratch_.scores + q * kKeyBlock;
    const auto end = static_cast<std::size_t>(seen_[q].end);
    for (auto j = static_cast<std::size_t>(seen_[q].begin); j < end; j += kLanes) {
      const VF32 score = LoadRow(d, DataType::kFloat32, scores + j, end - j);
      StoreRow(d, SoftCapOf(d, score, args_.params.softcap), DataType::kFloat32, scores + j,
               end - j);
    }
  }

  void MakeWeights() {
    for (int q = 0; q < queries_; ++q) {
      if (args_.params.softcap > 0) CapScores(q);
      SoftmaxStep(scratch_.scores + q * kKeyBlock, seen_[q], padded_, scratch_.most[q],
                  scratch_.weights[q], OfQuery(scratch_.sums, q));
    }
  }

  // The tile's heads of a row of K or V.
  const Stored* RowAt(const void* from, std::int64_t place) const {
    const std::int64_t cols = std::int64_t{args_.params.kv_heads} * args_.params.head_dim;
    const std::int64_t col = std::int64_t{tile_.first_kv_head} * args_.params.head_dim;
    return static_cast<const Stored*>(from) + place * cols + col;
  }

  // Lets `lines` be the rows of K or V at `places`. A row outside the cache is NaN, and so is what
  // sees it.
  void Load(const void* from, const std::int64_t* places, std::int64_t begin, std::int64_t end,
            const T** lines) {
    const std::size_t length = static_cast<std::size_t>(tile_.kv_heads) * padded_;
    for (std::int64_t j = begin; j < end; ++j) {
      T* const line = reinterpret_cast<T*>(scratch_.lines +
                                           (kInPlace ? 0 : static_cast<std::size_t>(j) * length));
      lines[j] = line;
      if (places[j] < 0) {
        const T nan = Line::Nan();
        std::fill_n(line, length, nan);
        continue;
      }
      const Stored* const row = RowAt(from, places[j]);
      if constexpr (kInPlace) {
        lines[j] = row;
      } else {
        for (int h = 0; h < tile_.kv_heads; ++h) {
          const auto head = static_cast<std::size_t>(h);
          ConvertLine<Decoder>(row + head * head_dim_, head_dim_, padded_, line + head * padded_);
        }
      }
    }
  }

  // A head's part of lines, and of those ahead unless they are null.
  class HeadLines {
   public:
    HeadLines(const T* const* lines, const T* const* ahead, std::int64_t begin, std::int64_t end,
              std::size_t at)
        : ahead_given_(ahead != nullptr) {
      for (std::int64_t j = begin; j < end; ++j) {
        lines_[j] = lines[j] + at;
        if (ahead_given_) ahead_[j] = ahead[j] + at;
      }
    }
    Lines<T> get() const { return {lines_, ahead_given_ ? ahead_ : nullptr}; }

   private:
    const T* lines_[kKeyBlock];
    const T* ahead_[kKeyBlock];
    bool ahead_given_;
  };

  // function(std::integral_constant<int, n>(), q) for tiles of n queries from q on, all of a head.
  template <class F>
  void ForQueryTiles(int head, F function) const {
    int q = head * a_head_;
    const int last = q + a_head_;
    for (; q + kTileQueries <= last; q += kTileQueries) {
      function(std::integral_constant<int, kTileQueries>(), q);
    }
    for (; q + 2 <= last; q += 2) function(std::integral_constant<int, 2>(), q);
    for (; q < last; ++q) function(std::integral_constant<int, 1>(), q);
  }

  // The queries of a head score keys [begin, end) of the block.
  void Score(int head, std::int64_t begin, std::int64_t end, const T* const* keys,
             const T* const* ahead) {
    const HeadLines lines(keys, ahead, begin, end, static_cast<std::size_t>(head) * padded_);
    float scale = args_.params.scale;
    if (args_.k_scales != nullptr) scale *= args_.k_scales[tile_.first_kv_head + head];
    ForQueryTiles(head, [&](auto count, int q) {
      ScoreQueries<Line, count>(OfQuery(scratch_.queries, q), lines.get(), begin, end, padded_,
                                scale, scratch_.scores + q * kKeyBlock);
    });
  }

  // The same queries add the values of keys [begin, end).
  void Weigh(int head, std::int64_t begin, std::int64_t end, const T* const* values,
             const T* const* ahead) {
    const HeadLines lines(values, ahead, begin, end, static_cast<std::size_t>(head) * padded_);
    ForQueryTiles(head, [&](auto count, int q) {
      WeighSome<Line, count>(scratch_.scores + q * kKeyBlock, lines.get(), seen_ + q, begin, end,
                             padded_, OfQuery(scratch_.sums, q));
    });
  }

  const ops::AttentionArgs& args_;
  const AttentionRows& keys_;
  const ops::AttentionTile& tile_;
  const ops::AttentionScratch scratch_;
  const std::size_t padded_, head_dim_, out_dim_;
  const int a_head_, queries_;
  AttentionRows::Range ranges_[ops::kTaskQueries];
  bool begun_[ops::kTaskQueries];  // whether the totals hold a part
  Seen seen_[ops::kTaskQueries];   // of the block
};

template <class Decoder>
void AttendWith(const ops::AttentionArgs& args, const AttentionRows& keys,
                const ops::AttentionTile& tile) {
  const bool fits = args.params.head_dim % static_cast<int>(ops::kHeadPad) == 0;
  // Up to so many queries a conversion in registers costs less than one stored and read again.
  constexpr int kFewQueries = 4;
  if constexpr (!std::is_same_v<Decoder, DecodeCodes>) {
    if (fits && (std::is_same_v<Decoder, DecodeF32> || tile.queries_a_kv_head() <= kFewQueries)) {
      return TileAttention<Decoder, true>(args, keys, tile).Run();
    }
  }
  TileAttention<Decoder, false>(args, keys, tile).Run();
}

// The outputs of a row's query heads from the parts that tiles have left.
template <class Decoder>
void AddPartsOf(const ops::AttentionArgs& args, const ops::AttentionParts& parts, std::int64_t row,
                AttentionRows::Range range) {
  const std::size_t padded = ops::AttentionScratch::PaddedHead(args.params);
  const auto part_at = [&](int head, std::int64_t part) {
    float* const from = parts.Of(row, head, part);
    return Part{from[0], from[1], from + 2};
  };
  for (int head = 0; head < args.params.heads; ++head) {
    std::int64_t part = range.first / kKeyPart;
    Part total = part_at(head, part);
    while (++part * kKeyPart < range.last) AddPart(total, part_at(head, part), padded);
    StoreOut<Decoder>(total.sums, WithSink(args, head, total.most, total.weight),
                      ValueScale(args, head / (args.params.heads / args.params.kv_heads)),
                      static_cast<std::size_t>(args.params.out_dim()),
                      args.out + (row * args.params.heads + head) * args.params.out_dim());
  }
}

// function(the decoder of `type`).
template <class F>
void WithDecoder(DataType type, F function) {
  switch (type) {
    case DataType::kFloat16:
      return function(DecodeF16());
    case DataType::kBfloat16:
      return function(DecodeBf16());
    case DataType::kFloat8_e4m3:
      return function(DecodeCodes());
    default:
      return function(DecodeF32());
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace culet
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
