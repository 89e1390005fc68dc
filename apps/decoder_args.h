// How the commands that run a model are told which, and on which tokens.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "culet/decoder.h"
#include "culet/dispatch.h"
#include "culet/status.h"
#include "culet/types.h"
#include "session.h"

namespace culet::cli {

/// What a command that runs a model begins with.
struct OpenedDecoder {
  Session session;
  DecoderModel model;
  std::vector<std::int32_t> prompt;
};

/// The options --model --prompt --token-ids --kv --tune, and --dispatch.
class DecoderArgs {
 public:
  void AddTo(CLI::App& command);
  /// Without it, the CPU's kernels compute.
  void AddDispatchTo(CLI::App& command);

  /// What is wrong with the options given, in one sentence; empty when nothing is.
  std::string Misuse() const;

  /// The checkpoint's folder.
  const std::string& model() const { return model_; }
  /// Whether the tokens are the bytes of a text.
  bool bytes() const { return !prompt_.empty(); }
  const std::string& prompt() const { return prompt_; }
  DataType cache_type() const;
  /// "cpu" or "reference".
  const std::string& dispatch() const { return dispatch_; }

  /// Requires: Misuse().empty(). Errors: as OpenSession and DecoderModel::Load; with --tune as
  /// CheckThatResultsCanBeSaved; INVALID_ARGUMENT for a token of the prompt outside the vocabulary
  /// or a prompt of more positions than the model was made for, each with its number.
  Result<OpenedDecoder> Open(const CommonArgs& common, const CacheArgs& cache) const;

  /// `opened` must outlive it.
  std::unique_ptr<KernelDispatch> MakeDispatch(OpenedDecoder& opened) const;

  /// Keeps what --tune measured, whatever became of the run. Errors: as SaveResults.
  Status SaveTuned(OpenedDecoder& opened) const;

 private:
  Result<std::vector<std::int32_t>> Tokens(const DecoderConfig& config) const;

  std::string model_, prompt_, cache_type_ = "f32", dispatch_ = "cpu";
  std::vector<std::int64_t> ids_;
  bool tune_ = false;
};

}  // namespace culet::cli
