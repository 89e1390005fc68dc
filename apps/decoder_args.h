// How the commands that run a model are told which, and on which tokens.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "culet/decoder.h"
#include "culet/dispatch.h"
#include "culet/status.h"
#include "culet/types.h"
#include "options.h"
#include "session.h"
#include "team_args.h"

namespace culet::cli {

/// Text, or tokens as "1,2,3", with where it comes from.
struct PromptText {
  std::string text;
  std::string origin;  ///< "the prompt", "line 3 of FILE"
};

inline constexpr const char* kNoFusionHelp =
    "Nodes that are fused otherwise run one by one: names with commas between them, or all";
inline constexpr const char* kNoRecordHelp =
    "On a GPU: steps are launched node by node, not recorded and replayed as one CUDA graph";
/// The value of --no-fusion.
FusionChoice WithoutFusions(const std::string& names);

/// Ends a step once a signal was noted (interrupt.h).
NodeGate InterruptGate();

/// What a command that runs a model has opened.
struct OpenedDecoder {
  std::unique_ptr<RankTeam> team;  ///< null without --tp
  Session session;
  DecoderModel model;
  SessionOptions options;                          ///< as the command's OptionsOf made them
  std::vector<std::string> texts;                  ///< of --prompt or --prompt-file; else empty
  std::vector<std::vector<std::int32_t>> prompts;  ///< at least one, none of them empty
};

/// The session that a command makes for a model's prompts.
using OptionsOf = std::function<Result<SessionOptions>(
    const DecoderConfig& config, const std::vector<std::vector<std::int32_t>>& prompts)>;

/// "f32" or "bf16" of --values; kNull for nothing.
DataType ParseValueType(const std::string& name);
/// What --kv takes, and the type that it names.
inline const std::vector<std::string> kCacheTypes = {"f32", "f16", "bf16", "fp8"};
DataType ParseCacheType(const std::string& name);
inline constexpr const char* kValuesHelp =
    "Type of the values between products: bf16 (a GPU's for models of BF16) or f32";

/// The options --model --prompt --token-ids --kv --no-fusion --no-record --tune, and more for
/// `culet run`.
class DecoderArgs {
 public:
  void AddTo(const Command& command);
  /// --dispatch; without it, the CPU's kernels compute.
  void AddDispatchTo(const Command& command);
  /// --tp.
  void AddTeamTo(const Command& command) { team_.AddTo(command); }
  /// As TeamArgs::Serve.
  std::optional<int> Serve(const CommonArgs& common, const CacheArgs& cache) const;
  bool shares() const { return team_.given(); }
  /// The session of opened.options.
  Result<culet::Session> CreateSession(OpenedDecoder& opened,
                                       std::unique_ptr<KernelDispatch>& dispatch) const;
  /// --prompt-file and --token-ids-file.
  void AddFilesTo(const Command& command);

  /// What is wrong with the options given, in one sentence; empty when nothing is.
  /// `device`: of --device.
  std::string Misuse(const std::string& device) const;

  /// The checkpoint's folder.
  const std::string& model() const { return model_; }
  /// Whether the prompts come from a file.
  bool from_file() const { return given(prompt_file_) || given(ids_file_); }
  DataType cache_type() const;
  /// Of --values; kNull without it.
  DataType value_type() const { return ParseValueType(values_); }
  /// Without those of --no-fusion.
  FusionChoice fusions() const;
  /// False with --no-record.
  bool records() const { return !no_record_; }
  /// "cpu", "reference" or "cuda".
  std::string dispatch(const std::string& device) const {
    return device == "cpu" ? dispatch_ : "cuda";
  }
  /// Whether products on a GPU take their inputs unrounded.
  bool exact() const { return exact_; }

  /// Requires: Misuse().empty(). Errors: as OpenSession and DecoderModel::Load; with --tune as
  /// CheckThatResultsCanBeSaved; UNSUPPORTED for a text on a model with a tokenizer;
  /// INVALID_ARGUMENT for what is no token, a token outside the vocabulary, no tokens, or more than
  /// the positions that the model was made for, each named.
  /// RESOURCE_EXHAUSTED, before weights are copied, where a device has no room for them and for the
  /// cache of a session of `options`.
  Result<OpenedDecoder> Open(const CommonArgs& common, const CacheArgs& cache,
                             const OptionsOf& options) const;

  /// `opened` must outlive it. Errors: as MakeCudaDispatch.
  Result<std::unique_ptr<KernelDispatch>> MakeDispatch(OpenedDecoder& opened) const;

  /// Keeps what --tune measured, whatever became of the run. Errors: as SaveResults.
  Status SaveTuned(OpenedDecoder& opened) const;

 private:
  static bool given(const Option& option) { return option.count() > 0; }
  bool bytes() const { return given(prompt_option_) || given(prompt_file_); }
  Status CheckTokenizer() const;
  Result<std::vector<PromptText>> Texts() const;
  Result<std::vector<std::int32_t>> Tokens(const PromptText& prompt,
                                           const DecoderConfig& config) const;

  std::string model_, prompt_, ids_, file_, cache_type_, dispatch_ = "cpu";
  Option prompt_option_, ids_option_, dispatch_option_;
  Option prompt_file_, ids_file_;  // of commands that take them
  bool takes_files_ = false;
  std::string no_fusion_, values_;
  bool tune_ = false, exact_ = false, no_record_ = false;
  TeamArgs team_;
};

}  // namespace culet::cli
