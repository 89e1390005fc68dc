// Steps of a model whose cache may have to be computed again: with longrope the frequencies by
// which a sequence turns depend on its length, and a state of linear attention cannot go back.
#include <algorithm>
#include <utility>

#include "model/session_impl.h"
#include "model/session_sizes.h"

namespace culet {

void KeptTokens::Remember(int sequence, int before, std::span<const std::int32_t> tokens) {
  if (!is_used()) return;
  std::vector<std::int32_t>& all = sequences[static_cast<std::size_t>(sequence)].tokens;
  all.resize(static_cast<std::size_t>(before));
  all.insert(all.end(), tokens.begin(), tokens.end());
  int& written = sequences[static_cast<std::size_t>(sequence)].written;
  written = std::max(before == 0 ? 0 : written, static_cast<int>(all.size()));
}

bool KeptTokens::Loses(int sequence, int now, int length) const {
  if (length >= now) return false;
  if (linear) return true;
  if (ring == 0) return false;
  // With what Decode launched ahead.
  const int written = sequences[static_cast<std::size_t>(sequence)].written + kAhead;
  return written - ring > std::max(0, length - reach + 1);
}

void KeptTokens::Forget(std::span<const SequenceTokens> batch) {
  for (const SequenceTokens& part : batch) Forget(part.sequence);
}

void KeptTokens::Forget(int sequence) {
  if (!linear && ring == 0) return;
  sequences[static_cast<std::size_t>(sequence)].state = State::kUnknown;
}

int Session::Impl::StepsWithoutChange(std::span<const int> of, int steps) const {
  if (!kept.is_used()) return steps;
  const KeptTokens::State state = kept.sequences[static_cast<std::size_t>(of.front())].state;
  for (const int sequence : of) {
    const int length = tables.length(sequence);
    const bool alike = kept.sequences[static_cast<std::size_t>(sequence)].state == state;
    if (!alike || kept.StateFor(length + 1) != state) return 0;
    if (state == KeptTokens::State::kShort) {
      steps = std::min(steps, static_cast<int>(kept.original) - length);
    }
  }
  return steps;
}

// The keys and values of all its positions, and its states.
Status Session::Impl::ComputeAgain(int sequence, KeptTokens::State state) {
  KeptTokens::Sequence& one = kept.sequences[static_cast<std::size_t>(sequence)];
  const std::vector<std::int32_t> tokens = one.tokens;
  const int length = tables.length(sequence);
  tables.Shrink(sequence, length);
  one.state = state;
  const auto most = static_cast<std::size_t>(options.max_step_tokens);
  Status status;
  for (std::size_t done = 0; done < tokens.size() && status.ok();) {
    const std::size_t size = std::min(most, tokens.size() - done);
    const SequenceTokens piece{sequence, {tokens.data() + done, size}};
    status = StepAlike({&piece, 1}, {}).status();
    if (status.ok()) done += size;
  }
  if (status.ok()) {
    one.written = length;
    return {};
  }
  // As long as before; the next step computes them anew.
  one.state = KeptTokens::State::kUnknown;
  static_cast<void>(tables.Extend(sequence, length - tables.length(sequence)));
  return status;
}

Result<StepResult> Session::Impl::StepTurning(std::span<const SequenceTokens> batch,
                                              const StepOutputs& outputs,
                                              std::span<const int> ends) {
  // Lack of room is reported before anything is computed.
  CULET_RETURN_IF_ERROR(Extend(batch));
  for (const SequenceTokens& part : batch) {
    tables.Shrink(part.sequence, static_cast<int>(part.tokens.size()));
  }
  std::vector<SequenceTokens> groups[2];
  std::vector<std::size_t> parts[2];  // of the batch
  for (std::size_t i = 0; i < batch.size(); ++i) {
    const int length = tables.length(batch[i].sequence);
    const int end = ends.empty() ? length + static_cast<int>(batch[i].tokens.size()) : ends[i];
    const KeptTokens::State state = kept.StateFor(end);
    KeptTokens::Sequence& one = kept.sequences[static_cast<std::size_t>(batch[i].sequence)];
    one.tokens.resize(static_cast<std::size_t>(length));  // it may have been truncated
    if (length > 0 && one.state != state) {
      CULET_RETURN_IF_ERROR(ComputeAgain(batch[i].sequence, state));
    }
    one.state = state;
    const std::size_t group = state == KeptTokens::State::kLong ? 1 : 0;
    groups[group].push_back(batch[i]);
    parts[group].push_back(i);
  }
  const auto remember = [&] {
    for (const SequenceTokens& part : batch) {
      const int before = tables.length(part.sequence) - static_cast<int>(part.tokens.size());
      kept.Remember(part.sequence, before, part.tokens);
    }
  };
  if (groups[0].empty() || groups[1].empty()) {
    auto result = StepAlike(batch, outputs);
    result ? remember() : kept.Forget(batch);
    return result;
  }
  StepResult results[2];
  for (std::size_t g = 0; g < 2; ++g) {
    auto result = StepAlike(groups[g], outputs);
    if (!result) {
      kept.Forget(batch);
      for (const SequenceTokens& part : groups[0]) {
        if (g == 1) tables.Shrink(part.sequence, static_cast<int>(part.tokens.size()));
      }
      return result;
    }
    results[g] = *std::move(result);
  }
  remember();
  return Merged(batch, outputs, groups, results);
}

StepResult Session::Impl::Merged(std::span<const SequenceTokens> batch, const StepOutputs& outputs,
                                 const std::vector<SequenceTokens> (&groups)[2],
                                 const StepResult (&results)[2]) const {
  const auto hidden = static_cast<std::size_t>(model.config().hidden);
  const auto vocab = static_cast<std::size_t>(model.config().vocab);
  const auto states = static_cast<std::size_t>(model.config().layers) + 1;
  std::size_t tokens = 0, of_group[2] = {};
  for (std::size_t g = 0; g < 2; ++g) {
    for (const SequenceTokens& part : groups[g]) of_group[g] += part.tokens.size();
    tokens += of_group[g];
  }
  StepResult merged;
  if (outputs.hidden) merged.hidden.resize(states * tokens * hidden);
  std::size_t part_at[2] = {}, token_at[2] = {}, before = 0;
  for (const SequenceTokens& part : batch) {
    const bool first =
        part_at[0] < groups[0].size() && groups[0][part_at[0]].sequence == part.sequence;
    const std::size_t g = first ? 0 : 1, size = part.tokens.size();
    merged.next.push_back(results[g].next[part_at[g]]);
    const std::size_t row = outputs.all_logits ? token_at[g] : part_at[g];
    const std::size_t rows = outputs.all_logits ? size : outputs.logits ? 1 : 0;
    const float* const logits = results[g].logits.data() + row * vocab;
    if (rows > 0) merged.logits.insert(merged.logits.end(), logits, logits + rows * vocab);
    for (std::size_t state = 0; outputs.hidden && state < states; ++state) {
      std::copy_n(results[g].hidden.data() + (state * of_group[g] + token_at[g]) * hidden,
                  size * hidden, merged.hidden.data() + (state * tokens + before) * hidden);
    }
    ++part_at[g];
    token_at[g] += size;
    before += size;
  }
  return merged;
}

}  // namespace culet
