// How the commands that run a model are told which, and on which tokens.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "culet/decoder.h"
#include "culet/status.h"
#include "culet/types.h"

namespace culet::cli {

/// The options --model --prompt --token-ids --rope-frequencies --kv --tune.
class DecoderArgs {
 public:
  void AddTo(CLI::App& command);

  /// What is wrong with the options given, in one sentence; empty when nothing is.
  std::string Misuse() const;

  /// The checkpoint's folder.
  const std::string& model() const { return model_; }
  /// Whether the tokens are the bytes of a text.
  bool bytes() const { return !prompt_.empty(); }
  const std::string& prompt() const { return prompt_; }
  DataType cache_type() const;
  bool tune() const { return tune_; }

  /// Errors: as DecoderModel::Load.
  Result<DecoderModel> Load() const;

  /// The tokens of the prompt. Requires: Misuse().empty().
  /// Errors: INVALID_ARGUMENT for a token outside the vocabulary or a prompt of more positions than
  /// the model was made for, each with its number.
  Result<std::vector<std::int32_t>> Tokens(const DecoderConfig& config) const;

 private:
  std::string model_, prompt_, rope_frequencies_ = "float32", cache_type_ = "f32";
  std::vector<std::int64_t> ids_;
  bool tune_ = false;
};

}  // namespace culet::cli
