#include "decoder_args.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <optional>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "culet/kernel_dispatch.h"
#include "interrupt.h"
#include "output.h"
#include "progress.h"
#include "text_input.h"

namespace culet::cli {
namespace {

constexpr const char* kGroup = "Model";

Status Invalid(std::string message) {
  return Status(StatusCode::kInvalidArgument, std::move(message));
}

// What some editors write in front of UTF-8: it says how a file is written, and is no text of it.
constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

// The lines of a file or pipe, the empty ones left out.
Result<std::vector<PromptText>> Lines(const std::string& path) {
  constexpr std::size_t kMostBytes = std::size_t{64} << 20;
  const auto text = ReadTextInput(path, kMostBytes);
  if (!text.ok()) return text.status();
  std::vector<PromptText> lines;
  std::string_view rest = *text;
  if (rest.starts_with(kByteOrderMark)) rest.remove_prefix(kByteOrderMark.size());
  for (int number = 1; !rest.empty(); ++number) {
    std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (!line.empty()) {
      lines.push_back({std::string(line), fmt::format("line {} of {}", number, path)});
    }
  }
  if (lines.empty()) return Invalid(fmt::format("{} holds no prompt", path));
  return lines;
}

// "1,2,3", with spaces where one likes.
Result<std::vector<std::int64_t>> Numbers(const PromptText& prompt) {
  constexpr const char* kSpaces = " \t";
  std::vector<std::int64_t> numbers;
  const std::string& text = prompt.text;
  for (std::size_t first = 0; first <= text.size();) {
    const std::size_t comma = std::min(text.find(',', first), text.size());
    std::string word = text.substr(first, comma - first);
    word.erase(0, word.find_first_not_of(kSpaces));
    word.erase(word.find_last_not_of(kSpaces) + 1);
    std::int64_t number = 0;
    const char* const end = word.data() + word.size();
    const auto [at, error] = std::from_chars(word.data(), end, number);
    if (at != end || error != std::errc()) {
      return Invalid(fmt::format("token {} of {} is '{}'; give numbers as 1,2,3", numbers.size(),
                                 prompt.origin, word));
    }
    numbers.push_back(number);
    first = comma + 1;
  }
  return numbers;
}

}  // namespace

NodeGate InterruptGate() {
  return []() -> Status {
    if (InterruptSignal() == 0) return {};
    return Status(StatusCode::kFailedPrecondition, "interrupted");
  };
}

FusionChoice WithoutFusions(const std::string& names) {
  FusionChoice choice;
  choice.none = names == "all";
  for (std::size_t first = 0; !choice.none && first < names.size();) {
    const std::size_t comma = std::min(names.find(',', first), names.size());
    if (comma > first) choice.off.push_back(names.substr(first, comma - first));
    first = comma + 1;
  }
  return choice;
}

DataType ParseValueType(const std::string& name) {
  return name.empty() ? DataType::kNull : name == "f32" ? DataType::kFloat32 : DataType::kBfloat16;
}

DataType ParseCacheType(const std::string& name) {
  return name.empty()     ? DataType::kNull
         : name == "fp8"  ? DataType::kFloat8_e4m3
         : name == "bf16" ? DataType::kBfloat16
         : name == "f16"  ? DataType::kFloat16
                          : DataType::kFloat32;
}

FusionChoice DecoderArgs::fusions() const { return WithoutFusions(no_fusion_); }

void DecoderArgs::AddTo(const Command& command) {
  command
      .Add("--model", model_,
           "A folder with config.json and safetensors, as Hugging Face's, or a "
           "GGUF file")
      .Type("PATH")
      .Required()
      .Group(kGroup);
  prompt_option_ = command.Add("--prompt", prompt_, "A text, of which each byte is a token")
                       .Type("TEXT")
                       .Group(kGroup);
  ids_option_ =
      command.Add("--token-ids", ids_, "The prompt as tokens: 1,2,3").Type("IDS").Group(kGroup);
  command
      .Add("--kv", cache_type_, "Type of the cache of keys and values; default: that of the values")
      .OneOf(kCacheTypes)
      .Group(kGroup);
  command.Add("--values", values_, kValuesHelp).OneOf({"f32", "bf16"}).Group(kGroup);
  command.Add("--no-fusion", no_fusion_, kNoFusionHelp).Type("NAMES").Group(kGroup);
  command.AddFlag("--no-record", no_record_, kNoRecordHelp).Group(kGroup);
  command.AddFlag("--tune", tune_, "Tune the model's products first").Group(kGroup);
  command
      .AddFlag("--exact", exact_,
               "On a GPU: products do not round their inputs to their weights' 16 bits, and add in "
               "24 bits; slow")
      .Group(kGroup);
}

void DecoderArgs::AddDispatchTo(const Command& command) {
  dispatch_option_ =
      command
          .Add("--dispatch", dispatch_,
               "What computes: the CPU's kernels, or the definition in double, slowly")
          .OneOf({"cpu", "reference"})
          .ShowDefault()
          .Group(kGroup);
}

void DecoderArgs::AddFilesTo(const Command& command) {
  takes_files_ = true;
  prompt_file_ = command.Add("--prompt-file", file_, "Texts, one a line, run as one batch")
                     .Type("FILE")
                     .Group(kGroup);
  ids_file_ =
      command.Add("--token-ids-file", file_, "Prompts as tokens, one a line, run as one batch")
          .Type("FILE")
          .Group(kGroup);
}

std::string DecoderArgs::Misuse(const std::string& device) const {
  const bool prompt = given(prompt_option_) && !prompt_.empty();
  const int prompts =
      int{prompt} + int{given(ids_option_)} + int{given(prompt_file_)} + int{given(ids_file_)};
  if (prompts == 0) return "nothing to run on; give --prompt TEXT or --token-ids 1,2,3";
  if (prompts > 1) {
    return !takes_files_
               ? "--prompt and --token-ids exclude each other"
               : "--prompt, --token-ids, --prompt-file and --token-ids-file exclude each other";
  }
  if (given(ids_option_) && ids_.find_first_not_of(" \t") == std::string::npos) {
    return "--token-ids is empty; give tokens as 1,2,3";
  }
  if (device != "cpu" && given(dispatch_option_)) {
    return fmt::format("--dispatch {} computes on the CPU; leave out --device {}", dispatch_,
                       device);
  }
  if (device == "cpu" && exact_) {
    return "--exact is for --device cuda; on the CPU products never round their inputs";
  }
  if (device == "cpu" && dispatch_ == "cpu" && values_ == "bf16") {
    return "--values bf16 is for --device cuda and --dispatch reference; the CPU's kernels compute "
           "on float32";
  }
  if (const std::string misuse = team_.Misuse(device); !misuse.empty()) return misuse;
  if (tune_ && dispatch_ != "cpu") {
    return fmt::format("--tune is for the kernels of --dispatch cpu; {} has none", dispatch_);
  }
  return {};
}

DataType DecoderArgs::cache_type() const { return ParseCacheType(cache_type_); }

Status DecoderArgs::CheckTokenizer() const {
  for (const char* name : {"tokenizer.json", "tokenizer.model", "tekken.json", "vocab.json"}) {
    std::error_code error;
    if (!std::filesystem::exists(std::filesystem::path(model_) / name, error)) continue;
    return Status(
        StatusCode::kUnsupported,
        fmt::format("{} has a tokenizer, {}, which culet does not read, and a text's bytes "
                    "are not its tokens; give {} as the Python package transformers "
                    "makes them: AutoTokenizer.from_pretrained(DIR).encode(TEXT)",
                    model_, name, from_file() ? "--token-ids-file" : "--token-ids"));
  }
  return {};
}

Result<std::vector<PromptText>> DecoderArgs::Texts() const {
  if (from_file()) return Lines(file_);
  return std::vector<PromptText>{{bytes() ? prompt_ : ids_, "the prompt"}};
}

Result<std::vector<std::int32_t>> DecoderArgs::Tokens(const PromptText& prompt,
                                                      const DecoderConfig& config) const {
  std::vector<std::int64_t> ids;
  if (bytes()) {
    for (const char byte : prompt.text) ids.push_back(static_cast<unsigned char>(byte));
  } else {
    auto numbers = Numbers(prompt);
    if (!numbers.ok()) return numbers.status();
    ids = *std::move(numbers);
  }
  std::vector<std::int32_t> tokens;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || ids[i] >= config.vocab) {
      return Invalid(fmt::format("token {} of {} is {}; the vocabulary of {} has 0 to {}", i,
                                 prompt.origin, ids[i], model_, config.vocab - 1));
    }
    tokens.push_back(static_cast<std::int32_t>(ids[i]));
  }
  if (config.max_position > 0 && tokens.size() > static_cast<std::size_t>(config.max_position)) {
    return Invalid(fmt::format("{} has {} tokens; {} was made for at most {} positions",
                               prompt.origin, tokens.size(), model_, config.max_position));
  }
  return tokens;
}

Result<OpenedDecoder> DecoderArgs::Open(const CommonArgs& common, const CacheArgs& cache,
                                        const OptionsOf& options_of) const {
  auto session = OpenSession(common, &cache);
  if (!session.ok()) return session.status();
  if (tune_) CULET_RETURN_IF_ERROR(CheckThatResultsCanBeSaved(*session));
  const auto texts = Texts();
  if (!texts.ok()) return texts.status();
  const auto config = ReadDecoderConfig(model_);
  if (!config.ok()) return config.status();
  if (bytes()) CULET_RETURN_IF_ERROR(CheckTokenizer());
  std::vector<std::vector<std::int32_t>> prompts;
  for (const PromptText& text : *texts) {
    auto tokens = Tokens(text, *config);
    if (!tokens.ok()) return tokens.status();
    prompts.push_back(*std::move(tokens));
  }
  auto options = options_of(*config, prompts);
  if (!options.ok()) return options.status();
  const auto part = ShardOf(*config, 0, team_.size(), team_.experts());
  if (!part.ok()) return part.status();
  const auto cache_bytes = CacheBytes(*part, *options);
  if (!cache_bytes.ok()) return cache_bytes.status();
  DeviceMemory* memory = &HostMemory();
  if (session->gemm.device().ordinal >= 0) {
    const auto device = MakeCudaDispatch(session->gemm);
    if (!device.ok()) return device.status();
    memory = &(*device)->memory();  // which lives as long as the process
  }
  Progress progress;
  bool large = false;
  LoadOptions load;
  load.reserve = *cache_bytes;
  load.on_progress = [&](std::size_t done, std::size_t all) {
    constexpr std::size_t kLarge = std::size_t{1} << 30;
    if (all < kLarge) return;
    if (!std::exchange(large, true)) {
      const std::string free =
          memory->free_bytes() ? ShownBytes(static_cast<double>(*memory->free_bytes())) : "?";
      progress.Clear();
      Note(fmt::format("{} of weights and {}{} of cache go to {}, where {} are free",
                       ShownBytes(static_cast<double>(all)),
                       options->cache_type == DataType::kNull ? "at most " : "",
                       ShownBytes(static_cast<double>(*cache_bytes)), session->gemm.device().name,
                       free));
    }
    progress.Update(static_cast<double>(done) / static_cast<double>(all),
                    fmt::format("loading {}", model_));
  };
  auto team = team_.Start();
  if (!team.ok()) return team.status();
  load.ranks = team_.size();
  load.experts = team_.experts();
  std::optional<DecoderModel> model;
  const auto read = [&]() -> Status {
    auto loaded = DecoderModel::Load(model_, *memory, load);
    if (loaded.ok()) model.emplace(*std::move(loaded));
    return loaded.status();
  };
  const Status loaded =
      *team != nullptr ? (*team)->Open(TeamModelOf(team_, common, &cache, model_), read) : read();
  progress.Clear();
  if (!loaded.ok()) return loaded;
  for (const std::string& warning : model->config().warnings) Note(warning);
  OpenedDecoder opened{
      *std::move(team),  *std::move(session), *std::move(model), *std::move(options), {},
      std::move(prompts)};
  if (bytes()) {
    for (const PromptText& text : *texts) opened.texts.push_back(text.text);
  }
  return opened;
}

Result<std::unique_ptr<KernelDispatch>> DecoderArgs::MakeDispatch(OpenedDecoder& opened) const {
  if (dispatch_ != "cpu") return MakeReferenceDispatch();
  opened.session.gemm.SetStop([] { return InterruptSignal() != 0; });
  const DispatchPolicy policy = tune_ ? DispatchPolicy::kMeasure : DispatchPolicy::kDefault;
  if (opened.session.gemm.device().ordinal >= 0) {
    return MakeCudaDispatch(opened.session.gemm,
                            {.policy = policy, .round_product_inputs = !exact_});
  }
  return MakeCpuDispatch(opened.session.gemm, {.policy = policy});
}

Result<culet::Session> DecoderArgs::CreateSession(OpenedDecoder& opened,
                                                  std::unique_ptr<KernelDispatch>& dispatch) const {
  TeamSession session;
  session.options = opened.options;
  session.reference = dispatch_ != "cpu";
  session.policy = tune_ ? DispatchPolicy::kMeasure : DispatchPolicy::kDefault;
  session.exact = exact_;
  return cli::CreateSession(opened.team.get(), opened.model, dispatch, session);
}

std::optional<int> DecoderArgs::Serve(const CommonArgs& common, const CacheArgs& cache) const {
  return team_.Serve(TeamModelOf(team_, common, &cache, model_), common.json);
}

Status DecoderArgs::SaveTuned(OpenedDecoder& opened) const {
  return tune_ ? SaveResults(opened.session) : Status();
}

}  // namespace culet::cli
