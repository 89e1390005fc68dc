#include "decode_run.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "culet/safetensors.h"
#include "elapsed.h"
#include "interrupt.h"

namespace culet::cli {
namespace {

class Runner {
 public:
  Runner(const DecodeRunOptions& options, culet::Session& session, DecodeRun& run,
         TokenStream* stream)
      : options_(options),
        config_(session.model().config()),
        session_(session),
        run_(run),
        stream_(stream) {}

  Status Run() {
    if (!options_.dump.empty()) {
      auto file = SafetensorsWriter::Open(options_.dump, [] { return InterruptSignal() != 0; });
      if (!file.ok()) return file.status();
      dump_ = *std::move(file);
    }
    if (options_.profile) {
      CULET_RETURN_IF_ERROR(ProfilePrompts());
      CULET_RETURN_IF_ERROR(ProfileRecorded());
    }
    CULET_RETURN_IF_ERROR(Prefill());
    return Decode();
  }

 private:
  Status AddSequences() {
    for (Continuation& c : run_.continuations) {
      const auto sequence = session_.AddSequence();
      if (!sequence.ok()) return sequence.status();
      c.sequence = *sequence;
      CULET_RETURN_IF_ERROR(session_.SetSampling(c.sequence, c.sampling));
    }
    return {};
  }

  Status RemoveSequences() {
    for (const Continuation& c : run_.continuations) {
      CULET_RETURN_IF_ERROR(session_.RemoveSequence(c.sequence));
    }
    return {};
  }

  std::vector<SequenceTokens> Prompts() const {
    std::vector<SequenceTokens> batch;
    for (const Continuation& c : run_.continuations) batch.push_back({c.sequence, c.prompt});
    return batch;
  }

  // Before the run itself, so that the prompts' own time has no profile in it. Of long prompts,
  // which run in pieces, the first.
  Status ProfilePrompts() {
    NodeProfile profile;
    for (const bool warm : {false, true}) {
      CULET_RETURN_IF_ERROR(AddSequences());
      auto room = static_cast<std::size_t>(session_.options().max_step_tokens);
      std::vector<SequenceTokens> piece;
      for (const SequenceTokens& part : Prompts()) {
        if (room == 0) break;
        piece.push_back({part.sequence, part.tokens.first(std::min(room, part.tokens.size()))});
        room -= piece.back().tokens.size();
      }
      if (warm) session_.SetHook(profile.Hook());
      const Status status = session_.Step(piece).status();
      session_.SetHook(nullptr);
      CULET_RETURN_IF_ERROR(status);
      if (warm) {
        run_.prefill_nodes = profile.Nodes(*session_.last_executor());
      } else {
        // One launch by itself with the host's clock around it takes longer than in a replay.
        auto timed = TimeLastStep(session_);
        if (!timed.ok()) return timed.status();
        run_.prefill_nodes = *std::move(timed);
      }
      CULET_RETURN_IF_ERROR(RemoveSequences());
      if (!run_.prefill_nodes.empty()) break;
    }
    return {};
  }

  // A step that reads a token of each sequence.
  Status ProfileRecorded() {
    std::vector<SequenceTokens> step;
    std::size_t longest = 0;
    for (const Continuation& c : run_.continuations) longest = std::max(longest, c.prompt.size());
    const bool room = longest < static_cast<std::size_t>(session_.options().max_context);
    if (options_.max_new == 0 || !room) return {};
    CULET_RETURN_IF_ERROR(AddSequences());
    CULET_RETURN_IF_ERROR(session_.Prefill(Prompts()).status());
    for (const Continuation& c : run_.continuations) {
      step.push_back({c.sequence, std::span(c.prompt).last(1)});
    }
    CULET_RETURN_IF_ERROR(session_.Step(step).status());
    auto timed = TimeLastStep(session_);
    if (!timed.ok()) return timed.status();
    run_.decode_nodes = *std::move(timed);
    return RemoveSequences();
  }

  Status Prefill() {
    CULET_RETURN_IF_ERROR(AddSequences());
    const bool dump = dump_.has_value();
    const Clock::time_point start = Clock::now();
    const auto read = session_.Prefill(Prompts(), {.all_logits = dump, .hidden = dump});
    run_.prefill_us = MicrosecondsSince(start);
    if (!read.ok()) return read.status();
    run_.read = true;
    if (dump) CULET_RETURN_IF_ERROR(Dump(*read));
    for (std::size_t i = 0; i < run_.continuations.size(); ++i) {
      CULET_RETURN_IF_ERROR(Take(i, read->next[i]));
    }
    return {};
  }

  // All at once, each to its end.
  Status Decode() {
    std::vector<std::size_t> active;
    std::vector<SequenceTokens> batch;
    for (std::size_t i = 0; i < run_.continuations.size(); ++i) {
      const Continuation& c = run_.continuations[i];
      if (!c.end.empty()) continue;
      active.push_back(i);
      batch.push_back({c.sequence, {&c.tokens.back(), 1}});
    }
    if (active.empty()) return {};
    std::vector<std::int32_t> first;  // Take moves the tokens
    for (const SequenceTokens& part : batch) first.push_back(part.tokens.front());
    for (std::size_t i = 0; i < batch.size(); ++i) batch[i].tokens = {&first[i], 1};
    // Profiled are the steps of all sequences, which have one graph.
    NodeProfile profile;
    bool all = true;
    const bool by_node = options_.profile && run_.decode_nodes.empty();
    if (by_node) {
      session_.SetHook([&, record = profile.Hook()](KernelDispatch& to, const NodeLaunch& launch) {
        return all ? record(to, launch) : to.launch(launch);
      });
    }
    Status taken;
    std::vector<int> steps(active.size());
    const Clock::time_point start = Clock::now();
    const auto made = session_.Decode(
        batch, {.steps = options_.max_new, .on_token = [&](std::size_t part, std::int32_t token) {
                  run_.steps = std::max(run_.steps, ++steps[part]);
                  run_.decode_us = MicrosecondsSince(start);
                  if (by_node && all && part == 0) {
                    run_.decode_nodes = profile.Nodes(*session_.last_executor());
                  }
                  taken = Take(active[part], token);
                  const bool more = taken.ok() && run_.continuations[active[part]].end.empty();
                  all = all && more;
                  return more;
                }});
    session_.SetHook(nullptr);
    CULET_RETURN_IF_ERROR(taken);
    if (!made.ok()) return made.status();
    const GraphExecutor& executor = *session_.last_executor();
    run_.recorded = executor.replays();
    run_.why_not_recorded = executor.why_not_recorded();
    // Where the model's positions end, Take has said so.
    for (std::size_t i = 0; i < active.size(); ++i) {
      std::string& end = run_.continuations[active[i]].end;
      if (end.empty() && (*made)[i].end == DecodeEnd::kNoRoom) {
        return Status(StatusCode::kResourceExhausted, "the cache is full");
      }
    }
    return {};
  }

  // The next token of a sequence, or its end.
  Status Take(std::size_t index, std::int32_t token) {
    Continuation& c = run_.continuations[index];
    if (options_.max_new > 0) {
      c.tokens.push_back(token);
      const std::size_t length = c.prompt.size() + c.tokens.size();
      if (std::ranges::find(config_.eos_ids, token) != config_.eos_ids.end()) {
        c.end = "eos";
      } else if (static_cast<int>(c.tokens.size()) >= options_.max_new) {
        c.end = "max_new";
      } else if (config_.max_position > 0 &&
                 length > static_cast<std::size_t>(config_.max_position)) {
        c.end = "max_position";
      }
    } else {
      c.end = "max_new";
    }
    if (stream_ == nullptr) return {};
    if (options_.max_new > 0) CULET_RETURN_IF_ERROR(stream_->Add(index, token, c.end == "eos"));
    return c.end.empty() ? Status() : stream_->End(index);
  }

  Status Dump(const StepResult& read) {
    const auto tokens = static_cast<std::int64_t>(run_.PromptTokens());
    return dump_->Write(
        {{"hidden",
          DataType::kFloat32,
          {config_.layers + 1, tokens, config_.hidden},
          read.hidden.data()},
         {"logits", DataType::kFloat32, {tokens, config_.vocab}, read.logits.data()}});
  }

  const DecodeRunOptions& options_;
  const DecoderConfig& config_;
  culet::Session& session_;
  DecodeRun& run_;
  TokenStream* stream_;
  std::optional<SafetensorsWriter> dump_;
};

}  // namespace

std::size_t DecodeRun::PromptTokens() const {
  std::size_t tokens = 0;
  for (const Continuation& c : continuations) tokens += c.prompt.size();
  return tokens;
}

double DecodeRun::TokensPerSecond() const {
  std::size_t made = 0;
  // The first ones came with the prompts.
  for (const Continuation& c : continuations) made += c.tokens.empty() ? 0 : c.tokens.size() - 1;
  return made == 0 ? 0 : static_cast<double>(made) / (decode_us * 1e-6);
}

Status RunDecode(const DecodeRunOptions& options, culet::Session& session, DecodeRun& run,
                 TokenStream* stream) {
  return Runner(options, session, run, stream).Run();
}

}  // namespace culet::cli
