// Prompts read as one batch, then decoded, each to its end.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "culet/decoder.h"
#include "culet/status.h"
#include "node_profile.h"
#include "token_stream.h"

namespace culet::cli {

struct DecodeRunOptions {
  int max_new = 64;
  bool profile = false;
  std::string dump;  ///< the file for the prompt's logits and hidden states; empty for none
};

/// One of the batch's sequences.
struct Continuation {
  std::vector<std::int32_t> prompt;
  SamplingOptions sampling;
  int sequence = -1;
  std::vector<std::int32_t> tokens;  ///< made so far
  std::string end;                   ///< why no more; empty while it goes on
};

struct DecodeRun {
  std::vector<Continuation> continuations;
  bool read = false;      ///< whether the prompts were
  double prefill_us = 0;  ///< of all prompts
  double decode_us = 0;   ///< of all steps
  int steps = 0;
  bool recorded = false;  ///< whether the last steps replayed a recording
  std::string why_not_recorded;
  std::vector<NodeTime> prefill_nodes, decode_nodes;  ///< with `profile`

  std::size_t PromptTokens() const;
  /// Of decoding; 0 without a step.
  double TokensPerSecond() const;
};

/// Runs the continuations of `run`, which have their prompts; what happened before an error stays
/// in it. `stream`: gets the tokens as they come; may be null. Requires: a session with room for
/// all of them; for a dump, one prompt. Errors: as Session, SafetensorsWriter, TokenStream.
Status RunDecode(const DecodeRunOptions& options, culet::Session& session, DecodeRun& run,
                 TokenStream* stream);

}  // namespace culet::cli
