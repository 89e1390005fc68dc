#include "culet/tuner.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <climits>
#include <cmath>
#include <cstddef>
#include <deque>
#include <random>
#include <string>
#include <utility>

#include "base/stats.h"
#include "gemm/cluster.h"
#include "gemm/contest.h"
#include "gemm/cost_model.h"

namespace culet {
namespace {

// One sample of a leader that met an interrupt would cost its whole group.
constexpr std::size_t kLeaderSamples = 2;

// While the comparison is undecided there are at most so many times the rounds, or pairs of a duel.
constexpr double kMostRounds = 8;

// After so many rounds the drop limit is tighter, given enough samples: at a GPU's power limit the
// first sustained samples of equal candidates were up to a fifth apart.
constexpr int kLooseRounds = 5;
constexpr std::size_t kTightSamples = 3;

double SteadySeconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Clamps options to sensible values; comparisons with NaN are false.
TunerOptions Sane(TunerOptions options) {
  options = ForDevice(std::move(options), DeviceInfo{});
  if (!options.clock_s) options.clock_s = SteadySeconds;
  options.rounds = std::max(1, *options.rounds);
  options.quick_rounds = std::max(0, *options.quick_rounds);
  // If all rounds are quick, later ones are quick too.
  if (*options.quick_rounds >= *options.rounds) options.quick_rounds = INT_MAX - 1;
  options.clusters = std::max(1, *options.clusters);
  if (!(*options.settle_s >= 0)) options.settle_s = 0;
  if (!(*options.drop_ratio >= 1)) options.drop_ratio = 1;
  if (!(*options.noise >= 0)) options.noise = 0;
  return options;
}

}  // namespace

// A turn is a queue of candidates; when it is empty, Refill makes the next one. Unless the stage is
// kDone, a candidate is pending or the queue holds one.
struct Tuner::Impl {
  enum class Stage { kLeaders, kRounds, kDuels, kDone };

  Impl(const std::vector<LaunchSpec>& specs, TunerOptions given)
      : options(Sane(std::move(given))),
        start_s(options.clock_s()),
        contest(specs, *options.noise, *options.drop_ratio),
        groups(ClusterIndices(specs)),
        duel_pairs(std::max(Contest::kMinSamples, static_cast<std::size_t>(*options.rounds))) {
    if (groups.size() > static_cast<std::size_t>(*options.clusters)) stage = Stage::kLeaders;
    Refill();
    UpdateProgress();
  }

  const LaunchSpec* Next();
  void Answered();

  void Refill();
  void QueueLeaders();
  void KeepBestGroups();
  void QueueRound();
  void DropSlow();
  void QueueDuel();
  bool DuelIsOn() const;
  bool MayGoOn(int times) const;

  int LeaderOf(const std::vector<int>& group) const;
  int Verdict() const;
  double SamplesLeft() const;
  void UpdateProgress();

  TunerOptions options;
  double start_s;
  Contest contest;
  std::vector<std::vector<int>> groups;
  std::size_t duel_pairs;
  Stage stage = Stage::kRounds;
  std::deque<int> queue;
  std::mt19937 random{1};  // of a turn's order
  int pending = -1;
  int round = 0;           // samples that everyone alive has, when the queue is empty
  double settling_us = 0;  // of samples beyond the rounds
  int challenger = -1;     // of the duel under way ...
  int duel_default = -1;   // ... and whom it meets
  double samples_taken = 0;
  double progress = 0;
  bool out_of_budget = false;
};

const LaunchSpec* Tuner::Impl::Next() {
  if (pending >= 0) return &contest[pending].spec;
  if (stage == Stage::kDone) return nullptr;
  if (options.budget_s != 0 && !(options.clock_s() - start_s < options.budget_s)) {
    out_of_budget = true;
    stage = Stage::kDone;
    UpdateProgress();
    return nullptr;
  }
  pending = queue.front();
  queue.pop_front();
  return &contest[pending].spec;
}

void Tuner::Impl::Answered() {
  pending = -1;
  if (queue.empty()) Refill();
  UpdateProgress();
}

void Tuner::Impl::Refill() {
  if (stage == Stage::kLeaders) {
    QueueLeaders();
    if (!queue.empty()) return;
    KeepBestGroups();
    stage = Stage::kRounds;
  }
  while (stage == Stage::kRounds && queue.empty()) {
    if (round > 0) DropSlow();
    const bool enough = round >= *options.rounds && !(MayGoOn(round) && contest.RoundsOpen());
    if (enough || contest.alive() == 0) {
      stage = Stage::kDuels;
    } else {
      ++round;
      QueueRound();
    }
  }
  if (stage == Stage::kDuels) QueueDuel();
}

// Whether a candidate sampled so many times may be sampled again to decide who is ahead. Rounds
// leave half of the time to duels, which decide.
bool Tuner::Impl::MayGoOn(int times) const {
  const double share = stage == Stage::kDuels ? 1.0 : 0.5;
  return times < kMostRounds * *options.rounds && settling_us < share * 1e6 * *options.settle_s;
}

// The first of the group that did not fail.
int Tuner::Impl::LeaderOf(const std::vector<int>& group) const {
  const auto leader = std::ranges::find_if(group, [&](int i) { return !contest[i].gone; });
  return leader != group.end() ? *leader : -1;
}

void Tuner::Impl::QueueLeaders() {
  for (std::size_t turn = 1; turn <= kLeaderSamples && queue.empty(); ++turn) {
    for (const auto& group : groups) {
      const int leader = LeaderOf(group);
      if (leader >= 0 && contest[leader].samples.size() < turn) queue.push_back(leader);
    }
  }
}

void Tuner::Impl::KeepBestGroups() {
  std::vector<std::pair<double, std::size_t>> ranking;  // leader's best time, group
  for (std::size_t g = 0; g < groups.size(); ++g) {
    const int leader = LeaderOf(groups[g]);
    if (leader >= 0) ranking.emplace_back(std::ranges::min(contest[leader].samples), g);
  }
  std::ranges::sort(ranking);
  const int standard = contest.Default();
  for (auto place = static_cast<std::size_t>(*options.clusters); place < ranking.size(); ++place) {
    const auto& group = groups[ranking[place].second];
    if (std::ranges::find(group, standard) != group.end()) continue;
    const std::string why = fmt::format(
        "{}, first of its group, took {:.4g} us; {} groups were faster, one {:.4g} us",
        NameOf(contest[LeaderOf(group)].spec), ranking[place].first, place, ranking[0].first);
    for (const int i : group) {
      if (!contest[i].gone) contest.RemoveSlow(i, why);
    }
  }
}

// Leaders start again with the others: a GPU is cooler, and its clock higher, in the first stage.
// So does everybody with the first sustained round. A turn has an order of its own, as a GPU's
// clock depends on what ran before; the first has that of the candidates, for a budget may end in
// it.
void Tuner::Impl::QueueRound() {
  for (int i = 0; i < contest.size(); ++i) {
    if (contest[i].gone) continue;
    const auto& samples = contest[i].samples;
    contest[i].scouted = (round == 1 || round == *options.quick_rounds + 1) && !samples.empty();
    if (contest[i].scouted || samples.size() < static_cast<std::size_t>(round)) queue.push_back(i);
  }
  if (round > 1) std::ranges::shuffle(queue, random);
}

void Tuner::Impl::DropSlow() {
  double best_us = INFINITY;
  for (int i = 0; i < contest.size(); ++i) {
    if (!contest[i].gone) best_us = std::min(best_us, Median(contest[i].samples));
  }
  const int standard = contest.Default();
  for (int i = 0; i < contest.size(); ++i) {
    if (contest[i].gone || i == standard) continue;
    const auto& samples = contest[i].samples;
    // Quick samples see a clock that the power limit has not lowered yet: what leads there by 5 %
    // may be behind in sustained samples, of which a few tell small differences.
    const double ratio = *options.drop_ratio;
    const bool is_tight = round > kLooseRounds && samples.size() >= kTightSamples;
    const double limit = is_tight              ? 1 + 0.4 * (ratio - 1)
                         : samples.size() == 1 ? ratio * ratio
                                               : ratio;
    // The least, since disturbances only ever add time.
    const double time_us = std::ranges::min(samples);
    if (time_us <= limit * best_us) continue;
    contest.RemoveSlow(
        i, fmt::format("took {:.4g} us at best in {} samples, {:.2f} times the leading {:.4g} us",
                       time_us, samples.size(), time_us / best_us, best_us));
  }
}

// A default that failed in the middle was not the one to beat.
bool Tuner::Impl::DuelIsOn() const {
  return challenger >= 0 && !contest[challenger].gone && contest.Default() == duel_default;
}

// One pair a turn. A duel that is over ends the tuning or puts up the next challenger.
void Tuner::Impl::QueueDuel() {
  const auto is_settled = [this] {
    const auto pairs = static_cast<int>(contest[challenger].duel.size());
    return contest.Fought(challenger, duel_pairs) &&
           !(MayGoOn(pairs) && contest.DuelOpen(challenger));
  };
  if (DuelIsOn() && is_settled()) {
    if (contest.WinsDuel(challenger)) {
      stage = Stage::kDone;
      return;
    }
    contest[challenger].beaten = true;
    challenger = -1;
  }
  if (!DuelIsOn()) {
    duel_default = contest.Default();
    challenger = contest.Challenger(/*surely=*/false);
    if (challenger == duel_default) {
      challenger = -1;
      stage = Stage::kDone;
      return;
    }
    contest[duel_default].duel.clear();
    contest[challenger].duel.clear();
  }
  queue = {duel_default, challenger};
  std::ranges::shuffle(queue, random);
}

int Tuner::Impl::Verdict() const {
  if (DuelIsOn() && contest.Fought(challenger, Contest::kMinSamples)) {
    return contest.WinsDuel(challenger) ? challenger : duel_default;
  }
  return contest.Challenger(/*surely=*/true);
}

// If nobody else is dropped.
double Tuner::Impl::SamplesLeft() const {
  if (stage == Stage::kDone) return 0;
  const double queued = static_cast<double>(queue.size()) + (pending >= 0 ? 1 : 0);
  const double duel = 2.0 * static_cast<double>(duel_pairs);
  if (stage == Stage::kDuels) {
    return std::max(1.0, duel - 2.0 * static_cast<double>(contest[challenger].duel.size()));
  }
  double alive = contest.alive();
  if (stage == Stage::kLeaders) {
    alive *= static_cast<double>(*options.clusters) / static_cast<double>(groups.size());
  }
  return queued + alive * std::max(0, *options.rounds - round) + duel;
}

void Tuner::Impl::UpdateProgress() {
  const double left = SamplesLeft();
  double share = left > 0 ? samples_taken / (samples_taken + left) : 1.0;
  if (options.budget_s > 0) {
    share = std::max(share, (options.clock_s() - start_s) / options.budget_s);
  }
  progress = std::clamp(share, progress, 1.0);
}

TunerOptions ForDevice(TunerOptions options, const DeviceInfo& device) {
  const bool single = device.arch == 0;
  options.rounds = options.rounds.value_or(9);
  options.quick_rounds = options.quick_rounds.value_or(single ? *options.rounds : 5);
  options.settle_s = options.settle_s.value_or(single ? 0.5 : 0);
  options.max_candidates = options.max_candidates.value_or(single ? 24 : 160);
  options.clusters = options.clusters.value_or(single ? 5 : 12);
  options.drop_ratio = options.drop_ratio.value_or(single ? 1.25 : 1.1);
  options.noise = options.noise.value_or(single ? 0.01 : 0.005);
  return options;
}

Tuner::Tuner(std::vector<LaunchSpec> candidates, TunerOptions options)
    : impl_(std::make_unique<Impl>(
          WorthMeasuring(candidates, *ForDevice(options, DeviceInfo{}).max_candidates), options)) {}
Tuner::~Tuner() = default;

const LaunchSpec* Tuner::Next() { return impl_->Next(); }

void Tuner::Report(double time_us) {
  if (!(std::isfinite(time_us) && time_us > 0)) {
    Drop(Status(StatusCode::kInternal, fmt::format("the time measured was {} us", time_us)));
    return;
  }
  if (impl_->pending < 0) return;
  auto& candidate = impl_->contest[impl_->pending];
  const bool duel = impl_->stage == Impl::Stage::kDuels;
  if (std::exchange(candidate.scouted, false)) candidate.samples.clear();
  auto& samples = duel ? candidate.duel : candidate.samples;
  samples.push_back(time_us);
  if (samples.size() > static_cast<std::size_t>(*impl_->options.rounds)) {
    impl_->settling_us += time_us;
  }
  ++impl_->samples_taken;
  impl_->Answered();
}

void Tuner::Drop(Status reason) {
  if (impl_->pending < 0) return;
  if (reason.ok()) reason = Status(StatusCode::kInternal, "dropped by the caller");
  impl_->contest.Remove(impl_->pending, std::move(reason));
  impl_->Answered();
}

bool Tuner::sustained() const noexcept { return impl_->round > *impl_->options.quick_rounds; }
double Tuner::progress() const noexcept { return impl_->progress; }
bool Tuner::out_of_budget() const noexcept { return impl_->out_of_budget; }

Result<LaunchSpec> Tuner::Winner() const {
  const Contest& contest = impl_->contest;
  if (contest.alive() == 0) {
    if (contest.size() == 0) return Status(StatusCode::kUnsupported, "there are no candidates");
    std::string reasons;
    for (const Dropped& d : contest.dropped()) {
      reasons += fmt::format("\n  {}: {}", NameOf(d.spec), d.reason.ToString());
    }
    return Status(StatusCode::kUnsupported, "all candidates were dropped:" + reasons);
  }
  const int winner = impl_->Verdict();
  if (winner < 0) {
    return impl_->out_of_budget
               ? Status(StatusCode::kResourceExhausted,
                        fmt::format("the budget of {:.4g} s ended before any sample; allow more",
                                    impl_->options.budget_s))
               : Status(StatusCode::kFailedPrecondition,
                        "nothing was measured yet; call Next and Report until Next gives null");
  }
  const auto standing = contest.Standing(winner);
  const int standard = contest.Default();
  LaunchSpec spec = contest[winner].spec;
  spec.time_us = standing.time_us;
  spec.spread_us = standing.spread_us;
  // A default that has no samples followed one that failed just before the end.
  spec.baseline_us = contest[standard].samples.empty() ? 0.0 : contest.Standing(standard).time_us;
  spec.origin = Origin::kMeasured;
  spec.when = 0;
  return spec;
}

std::vector<LaunchSpec> Tuner::Standings() const {
  const Contest& contest = impl_->contest;
  std::vector<LaunchSpec> standings;
  for (int i = 0; i < contest.size(); ++i) {
    if (contest[i].gone || contest[i].samples.empty()) continue;
    const auto standing = contest.Standing(i);
    LaunchSpec& spec = standings.emplace_back(contest[i].spec);
    spec.time_us = standing.time_us;
    spec.spread_us = standing.spread_us;
    spec.origin = Origin::kMeasured;
  }
  std::ranges::stable_sort(standings, {}, &LaunchSpec::time_us);
  return standings;
}

const std::vector<Dropped>& Tuner::dropped() const noexcept { return impl_->contest.dropped(); }

}  // namespace culet
