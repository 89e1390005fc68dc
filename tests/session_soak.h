// A session as a server uses it: sequences come and go, prompts arrive in pieces, batches mix them
// with single tokens, and steps are cancelled in the middle. What examples/adder answers says
// whether a sequence ever read another's cache, or what a cancelled step left.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "culet/decoder.h"
#include "sums.h"

namespace culet {

struct SoakCounts {
  std::int64_t steps = 0, decodes = 0, cancelled = 0, removed = 0;
  std::int64_t answered = 0, right = 0;
};

class SessionSoak {
 public:
  /// Requires: a session of examples/adder for at least two sequences of 32 positions.
  SessionSoak(Session& session, std::uint64_t seed)
      : session_(session), random_(seed), sums_(FreshSums(500)) {}

  const SoakCounts& counts() const { return counts_; }

  /// One action of a server. Errors: what the session returns but for cancellations, and INTERNAL
  /// for a sequence that has another length than it was given.
  Status Round() {
    const auto most = static_cast<std::size_t>(session_.options().max_sequences);
    const std::uint64_t what = Below(16);
    if (live_.empty() || (what < 4 && live_.size() < most)) return Add();
    if (what == 4) return Forget(Below(live_.size()));
    if (what == 5) return StartAnew(live_[Below(live_.size())]);
    CULET_RETURN_IF_ERROR(what < 11 ? Step() : Decode());
    return RemoveAnswered();
  }

  /// Removes all sequences.
  Status End() {
    while (!live_.empty()) CULET_RETURN_IF_ERROR(Remove(live_.size() - 1));
    return {};
  }

 private:
  struct Live {
    int sequence = 0;
    Sum sum;
    std::vector<std::int32_t> next;  ///< not read yet
    std::string answer;
    int length = 0;  ///< read
  };

  std::uint64_t Below(std::uint64_t bound) { return random_() % bound; }

  Status Add() {
    const auto sequence = session_.AddSequence();
    if (!sequence.ok()) return sequence.status();
    Live live{*sequence, sums_[Below(sums_.size())], {}, {}, 0};
    const std::string prompt = live.sum.Prompt();
    live.next.assign(prompt.begin(), prompt.end());
    live_.push_back(std::move(live));
    return {};
  }

  Status Remove(std::size_t i) {
    CULET_RETURN_IF_ERROR(session_.RemoveSequence(live_[i].sequence));
    live_.erase(live_.begin() + static_cast<std::ptrdiff_t>(i));
    return {};
  }

  // A client that hangs up.
  Status Forget(std::size_t i) {
    ++counts_.removed;
    return Remove(i);
  }

  // Back to some place in the prompt.
  Status StartAnew(Live& live) {
    const std::string prompt = live.sum.Prompt();
    const auto kept = static_cast<int>(Below(
        static_cast<std::uint64_t>(std::min<int>(live.length, static_cast<int>(prompt.size()))) +
        1));
    CULET_RETURN_IF_ERROR(session_.Truncate(live.sequence, kept));
    live.length = kept;
    live.answer.clear();
    live.next.assign(prompt.begin() + kept, prompt.end());
    if (!live.next.empty()) return {};
    // The whole prompt stands: its last token makes the answer's first.
    CULET_RETURN_IF_ERROR(session_.Truncate(live.sequence, --live.length));
    live.next = {static_cast<unsigned char>(prompt.back())};
    return {};
  }

  // Some of them, at random and in random order.
  std::vector<Live*> Some(bool single) {
    std::vector<Live*> some;
    for (Live& live : live_) {
      if ((!single || live.next.size() == 1) && Below(3) != 0) some.push_back(&live);
    }
    std::shuffle(some.begin(), some.end(), random_);
    return some;
  }

  // Cancels every fourth time, before some node.
  void MayCancel() {
    if (Below(4) != 0) return session_.SetGate(nullptr);
    session_.SetGate([left = Below(40)]() mutable -> Status {
      if (left-- > 0) return {};
      return Status(StatusCode::kFailedPrecondition, "cancelled");
    });
  }

  bool WasCancelled(const Status& status) {
    const bool cancelled = status.message().find("cancelled") != std::string::npos;
    counts_.cancelled += cancelled;
    return cancelled;
  }

  Status CheckLengths(const std::vector<Live*>& some) {
    for (const Live* live : some) {
      const auto length = session_.LengthOf(live->sequence);
      if (!length.ok()) return length.status();
      if (*length != live->length) {
        return Status(StatusCode::kInternal, fmt::format("sequence {} has {} positions, not {}",
                                                         live->sequence, *length, live->length));
      }
    }
    return {};
  }

  Status Step() {
    const std::vector<Live*> some = Some(false);
    if (some.empty()) return {};
    std::vector<SequenceTokens> batch;
    for (const Live* live : some) {
      const std::size_t piece = Below(2) == 0 ? live->next.size() : 1 + Below(live->next.size());
      batch.push_back({live->sequence, std::span(live->next).first(piece)});
    }
    MayCancel();
    const auto result = session_.Step(batch);
    ++counts_.steps;
    if (!result.ok() && !WasCancelled(result.status())) return result.status();
    for (std::size_t i = 0; result.ok() && i < some.size(); ++i) {
      Live& live = *some[i];
      const std::size_t piece = batch[i].tokens.size();
      live.length += static_cast<int>(piece);
      live.next.erase(live.next.begin(), live.next.begin() + static_cast<std::ptrdiff_t>(piece));
      if (live.next.empty()) Take(live, result->next[i]);
    }
    return CheckLengths(some);
  }

  Status Decode() {
    const std::vector<Live*> some = Some(true);
    if (some.empty()) return {};
    std::vector<SequenceTokens> batch;
    std::vector<std::int32_t> first;
    for (const Live* live : some) first.push_back(live->next.front());
    for (std::size_t i = 0; i < some.size(); ++i)
      batch.push_back({some[i]->sequence, {&first[i], 1}});
    MayCancel();
    const auto result =
        session_.Decode(batch, {.steps = 1 + static_cast<int>(Below(kMostAnswer)),
                                .end_tokens = {'\n'},
                                .on_token = [&](std::size_t part, std::int32_t token) {
                                  ++some[part]->length;
                                  Take(*some[part], token);
                                  return true;
                                }});
    ++counts_.decodes;
    if (!result.ok() && !WasCancelled(result.status())) return result.status();
    return CheckLengths(some);
  }

  static void Take(Live& live, std::int32_t token) {
    live.next = {token};
    live.answer.push_back(static_cast<char>(token));
  }

  Status RemoveAnswered() {
    for (std::size_t i = live_.size(); i-- > 0;) {
      const Live& live = live_[i];
      if (!live.answer.ends_with('\n') && live.answer.size() < kMostAnswer) continue;
      ++counts_.answered;
      counts_.right += live.answer == live.sum.Answer();
      CULET_RETURN_IF_ERROR(Remove(i));
    }
    return {};
  }

  Session& session_;
  std::mt19937_64 random_;
  const std::vector<Sum> sums_;
  std::vector<Live> live_;
  SoakCounts counts_;
};

}  // namespace culet
