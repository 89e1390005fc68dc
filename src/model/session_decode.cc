// Session::Decode: steps that follow each other without the host between them.
#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/caught.h"
#include "model/nan_search.h"
#include "model/session_impl.h"
#include "model/session_sizes.h"
#include "model/step_buckets.h"

namespace culet {
namespace {

static_assert(kAhead < StepInputs::kLogRows);

// A sequence that goes on.
struct Living {
  std::size_t part;  // of the batch
  int sequence;
  std::int32_t last;  // the token that it reads next
};

class Decoder {
 public:
  Decoder(Session::Impl& session, const DecodeOptions& options,
          std::span<const SequenceTokens> batch)
      : session_(session), options_(options), results_(batch.size()) {
    for (std::size_t i = 0; i < batch.size(); ++i) {
      living_.push_back({i, batch[i].sequence, batch[i].tokens.front()});
    }
  }

  Result<std::vector<DecodedTokens>> Run() {
    while (!living_.empty() && made_ < options_.steps) {
      DropWithoutRoom();
      if (living_.empty()) break;
      Status status = Segment();
      // In any case nothing may write to blocks that are returned.
      const Status done = session_.dispatch.memory().Synchronize(session_.options.stream);
      for (const int sequence : reserved_) {
        session_.tables.Shrink(sequence, 0);
        if (!status.ok() || !done.ok()) session_.kept.Forget(sequence);
      }
      CULET_RETURN_IF_ERROR(status);
      CULET_RETURN_IF_ERROR(done);
    }
    return std::move(results_);
  }

 private:
  BlockTables& tables() { return session_.tables; }

  std::vector<SequenceTokens> Batch() const {
    std::vector<SequenceTokens> batch;
    for (const Living& one : living_) batch.push_back({one.sequence, {&one.last, 1}});
    return batch;
  }

  // Sequences take blocks in order, so the first ones get them.
  void DropWithoutRoom() {
    reserved_.clear();
    std::erase_if(living_, [&](const Living& one) {
      if (!tables().Reserve(one.sequence, 1).ok()) {
        results_[one.part].end = DecodeEnd::kNoRoom;
        return true;
      }
      reserved_.push_back(one.sequence);
      return false;
    });
  }

  // Steps of the same sequences, one graph, and one upload of inputs.
  Status Segment() {
    int longest = 0;
    for (const Living& one : living_) longest = std::max(longest, tables().length(one.sequence));
    int steps = std::min(options_.steps - made_, tables().RoomTogether(reserved_));
    // Avoids a larger graph than most of the steps need.
    if (session_.buckets) steps = std::min(steps, ContextBucket(longest + 1) - longest);
    steps = session_.StepsWithoutChange(reserved_, steps);
    if (steps == 0) return ByTheHost();
    const auto count = static_cast<int>(living_.size());
    const bool sample = session_.sampling.AnyOf(Batch());
    const auto graph = session_.GraphFor(session_.DecodeKey(count, longest + steps, sample));
    if (!graph) return graph.status();
    StepGraph& step = **graph;
    if (!step.key.advance) return ByTheHost();
    for (const int sequence : reserved_) {
      CULET_RETURN_IF_ERROR(tables().Reserve(sequence, steps));
    }
    CULET_RETURN_IF_ERROR(session_.inputs.Write(Batch(), tables(), step.key.shape,
                                                session_.options.stream, /*reserved=*/true));
    if (sample) CULET_RETURN_IF_ERROR(session_.sampling.Write(Batch(), session_.options.stream));
    columns_.assign(living_.size(), true);
    int launched = 0, taken = 0;
    while (taken < steps) {
      // Without a recording the host needs as long for the launches as the device for the work.
      // States cannot go back to where a sequence ended.
      const bool waits = session_.hook || session_.kept.linear || !step.executor.replays();
      const int ahead = waits ? 0 : kAhead;
      while (launched < std::min(steps, taken + 1 + ahead)) {
        CULET_RETURN_IF_ERROR(session_.Launch(step.executor));
        CULET_RETURN_IF_ERROR(Event(launched++).Record(session_.options.stream));
      }
      CULET_RETURN_IF_ERROR(Event(taken).Wait());
      CULET_RETURN_IF_ERROR(Take(step));
      ++taken;
      ++made_;
      const auto going = static_cast<int>(std::ranges::count(columns_, true));
      if (session_.kept.linear && static_cast<std::size_t>(going) < living_.size()) break;
      if (going == 0 || session_.DecodeKey(going, longest + steps, sample).shape != step.key.shape)
        break;
    }
    std::size_t column = 0;
    std::erase_if(living_, [&](const Living&) { return !columns_[column++]; });
    return {};
  }

  // A dispatch without Advance.
  Status ByTheHost() {
    const auto made = session_.Step(Batch(), {});
    if (!made) return made.status();
    columns_.assign(living_.size(), true);
    for (std::size_t i = 0; i < living_.size(); ++i) {
      CULET_RETURN_IF_ERROR(Deliver(i, made->next[i]));
    }
    ++made_;
    std::size_t column = 0;
    std::erase_if(living_, [&](const Living&) { return !columns_[column++]; });
    return {};
  }

  // The tokens of the next step that is complete.
  Status Take(StepGraph& step) {
    const auto log = session_.inputs.Log(step.key.shape, session_.options.stream);
    if (!log) return log.status();
    for (std::size_t i = 0; i < living_.size(); ++i) {
      if (!columns_[i]) continue;
      if (log->At(tables().length(living_[i].sequence), i) < 0) return FindNaN(step, i);
    }
    for (std::size_t i = 0; i < living_.size(); ++i) {
      if (!columns_[i]) continue;
      const std::int32_t token = log->At(tables().length(living_[i].sequence), i);
      const int before = tables().length(living_[i].sequence);
      CULET_RETURN_IF_ERROR(tables().Extend(living_[i].sequence, 1));  // its block is there
      session_.kept.Remember(living_[i].sequence, before, {&living_[i].last, 1});
      CULET_RETURN_IF_ERROR(Deliver(i, token));
    }
    return {};
  }

  Status Deliver(std::size_t column, std::int32_t token) {
    Living& one = living_[column];
    DecodedTokens& result = results_[one.part];
    one.last = token;
    result.tokens.push_back(token);
    bool more = true;
    if (options_.on_token) {
      CULET_RETURN_IF_ERROR(CaughtAs("on_token", [&]() -> Status {
        more = options_.on_token(one.part, token);
        return {};
      }));
    }
    if (std::ranges::find(options_.end_tokens, token) != options_.end_tokens.end()) {
      result.end = DecodeEnd::kEndToken;
      more = false;
    } else if (!more) {
      result.end = DecodeEnd::kStopped;
    }
    columns_[column] = more;
    return {};
  }

  // The step runs once more, of those that still go on.
  Status FindNaN(StepGraph& step, std::size_t column) {
    CULET_RETURN_IF_ERROR(session_.dispatch.memory().Synchronize(session_.options.stream));
    CULET_RETURN_IF_ERROR(session_.inputs.Write(Batch(), tables(), step.key.shape,
                                                session_.options.stream, /*reserved=*/true));
    return NaNFrom(step.executor,
                   fmt::format("logits of sequence {} are NaN", living_[column].sequence),
                   session_.options.stream);
  }

  DeviceEvent& Event(int step) {
    return *session_.decoded[static_cast<std::size_t>(step) % session_.decoded.size()];
  }

  Session::Impl& session_;
  const DecodeOptions& options_;
  std::vector<DecodedTokens> results_;
  std::vector<Living> living_;
  std::vector<bool> columns_;  // of the segment's sequences, whether it goes on
  std::vector<int> reserved_;  // sequences with blocks for steps to come
  int made_ = 0;               // steps
};

}  // namespace

Result<std::vector<DecodedTokens>> Session::Decode(std::span<const SequenceTokens> batch,
                                                   const DecodeOptions& options) {
  Impl& impl = *impl_;
  CULET_RETURN_IF_ERROR(impl.TellDecode(batch, options));
  CULET_RETURN_IF_ERROR(
      impl.CheckBatch(batch, static_cast<std::size_t>(impl.options.max_step_tokens)));
  for (const SequenceTokens& part : batch) {
    if (part.tokens.size() == 1) continue;
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("sequence {} gets {} tokens; decoding begins with one, use Prefill "
                              "for those before",
                              part.sequence, part.tokens.size()));
  }
  if (options.steps < 1) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("options.steps is {}; it must be 1 or more", options.steps));
  }
  while (impl.decoded.size() <= kAhead) {
    auto event = impl.dispatch.memory().MakeEvent();
    if (!event) return event.status();
    impl.decoded.push_back(*std::move(event));
  }
  const DecodeOptions told = impl.ToldOptions(options);
  return Decoder(impl, told, batch).Run();
}

}  // namespace culet
