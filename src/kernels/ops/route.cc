// The experts of each token, and sums over them.
#include <algorithm>
#include <cmath>
#include <limits>

#include "base/thread_pool.h"
#include "kernels/ops/ops.h"

namespace culet::ops {
namespace {

constexpr float kNone = -std::numeric_limits<float>::infinity();

// The index of the largest among those that are not `taken`, the first of equals.
template <class Taken>
int LargestBut(const float* values, int count, Taken taken) {
  int best = -1;
  for (int i = 0; i < count; ++i) {
    if (!taken(i) && (best < 0 || values[i] > values[best])) best = i;
  }
  return best;
}

// What a token's logits are worth. Scores are computed in double: a softmax needs its sum.
class Scores {
 public:
  Scores(const float* logits, int experts, RouterScoring scoring)
      : logits_(logits), scoring_(scoring) {
    if (scoring != RouterScoring::kSoftmax) return;
    most_ = *std::max_element(logits, logits + experts);
    sum_ = 0;
    for (int e = 0; e < experts; ++e) sum_ += std::exp(static_cast<double>(logits[e]) - most_);
  }

  double Of(int e) const {
    const double logit = logits_[e];
    switch (scoring_) {
      case RouterScoring::kSoftmax:
        return std::exp(logit - most_) / sum_;
      case RouterScoring::kSigmoid:
        return 1 / (1 + std::exp(-logit));
      case RouterScoring::kSoftmaxOfChosen:
        break;
    }
    return logit;
  }

  bool is_nan() const { return std::isnan(sum_); }

 private:
  const float* logits_;
  RouterScoring scoring_;
  double most_ = 0, sum_ = 1;
};

float GroupScoreOf(const float* by, int size, GroupScore kind) {
  const int best = LargestBut(by, size, [](int) { return false; });
  if (kind == GroupScore::kMaximum) return by[best];
  return by[best] + by[LargestBut(by, size, [&](int i) { return i == best; })];
}

// Experts of other groups come last. `scores`: a number a group.
void KeepGroups(const RoutingParams& routing, float* by, int experts, float* scores) {
  const int size = experts / routing.groups;
  for (int g = 0; g < routing.groups; ++g) {
    scores[g] = GroupScoreOf(by + g * size, size, routing.group_score);
  }
  // Those that are kept are marked by a NaN.
  const auto kept = [&](int g) { return std::isnan(scores[g]); };
  for (int i = 0; i < routing.kept_groups; ++i) {
    scores[LargestBut(scores, routing.groups, kept)] = std::numeric_limits<float>::quiet_NaN();
  }
  for (int g = 0; g < routing.groups; ++g) {
    if (!kept(g)) std::fill_n(by + g * size, size, kNone);
  }
}

// One token: what its experts are chosen by goes to `by`, their numbers to `ids`.
void Choose(const RouteArgs& args, const float* logits, float* by, float* groups, std::int32_t* ids,
            float* shares) {
  const RoutingParams& routing = args.routing;
  const int experts = args.experts, active = routing.active;
  const Scores scores(logits, experts, routing.scoring);
  const bool sums = routing.groups > 1 && routing.group_score == GroupScore::kBestTwo;
  bool nan = scores.is_nan();
  for (int e = 0; e < experts; ++e) {
    // Logits order as their scores do, and where those are rounded to one number, too.
    by[e] = args.bias == nullptr && !sums ? logits[e] : static_cast<float>(scores.Of(e));
    if (args.bias != nullptr) by[e] += args.bias[e];
    nan |= std::isnan(by[e]);
  }
  if (nan) {
    for (int a = 0; a < active; ++a) {
      ids[a] = a;
      shares[a] = std::numeric_limits<float>::quiet_NaN();
    }
    return;
  }
  if (routing.groups > 1) KeepGroups(routing, by, experts, groups);
  for (int a = 0; a < active; ++a) {
    ids[a] = LargestBut(by, experts, [&](int e) { return std::find(ids, ids + a, e) != ids + a; });
  }
  double sum = 0, most = 0;
  if (routing.scoring == RouterScoring::kSoftmaxOfChosen) most = scores.Of(ids[0]);
  const auto share = [&](int a) {
    const double score = scores.Of(ids[a]);
    return routing.scoring == RouterScoring::kSoftmaxOfChosen ? std::exp(score - most) : score;
  };
  for (int a = 0; a < active; ++a) sum += share(a);
  if (routing.renormalize) sum = std::max(sum, static_cast<double>(routing.least_sum));
  const bool divided = routing.renormalize || routing.scoring == RouterScoring::kSoftmaxOfChosen;
  for (int a = 0; a < active; ++a) {
    shares[a] = static_cast<float>(share(a) / (divided ? sum : 1) * routing.scale);
  }
}

}  // namespace

std::size_t RouteWorkspace(std::int64_t rows, int experts, const RoutingParams& routing) {
  const std::int64_t groups = routing.groups > 1 ? routing.groups : 0;
  return static_cast<std::size_t>(rows * (experts + groups + routing.active)) * sizeof(float);
}

void Route(const RouteArgs& args) {
  const int experts = args.experts, active = args.routing.active;
  const std::int64_t groups = args.routing.groups > 1 ? args.routing.groups : 0;
  float* const by = args.workspace;
  float* const group_scores = by + args.rows * experts;
  auto* const ids = reinterpret_cast<std::int32_t*>(group_scores + args.rows * groups);
  constexpr std::int64_t kRows = 8;  // a task
  HostPool().Run(static_cast<int>((args.rows + kRows - 1) / kRows), [&](int task, int) {
    const std::int64_t end = std::min(args.rows, (task + 1) * kRows);
    for (std::int64_t row = task * kRows; row < end; ++row) {
      Choose(args, args.logits + row * experts, by + row * experts, group_scores + row * groups,
             ids + row * active, args.shares + row * active);
    }
  });
  // In order of experts: first how many each has, then where each begins.
  const std::int64_t routes = args.rows * active;
  std::fill_n(args.starts, experts + 1, 0);
  for (std::int64_t route = 0; route < routes; ++route) ++args.starts[ids[route] + 1];
  for (int e = 0; e < experts; ++e) args.starts[e + 1] += args.starts[e];
  for (std::int64_t route = 0; route < routes; ++route) {
    const std::int32_t place = args.starts[ids[route]]++;
    args.routes[place] = static_cast<std::int32_t>(route);
    args.places[route] = place;
  }
  // Each is now where the next one begins.
  for (int e = experts; e > 0; --e) args.starts[e] = args.starts[e - 1];
  args.starts[0] = 0;
}

void Combine(const CombineArgs& args) {
  HostPool().Run(static_cast<int>(args.rows), [&](int row, int) {
    float* const out = args.out + row * args.cols;
    std::fill_n(out, args.cols, 0.0f);
    for (std::int64_t i = 0; i < args.active; ++i) {
      const std::int64_t route = row * args.active + i;
      if (args.places[route] < args.first || args.places[route] >= args.end) continue;
      const float share = args.shares != nullptr ? args.shares[route] : 1;
      const float* const from = args.x + args.places[route] * args.cols;
      for (std::int64_t c = 0; c < args.cols; ++c) out[c] += share * from[c];
    }
  });
}

}  // namespace culet::ops
