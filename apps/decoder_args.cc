#include "decoder_args.h"

#include <fmt/format.h>

#include "culet/kernel_dispatch.h"

namespace culet::cli {
namespace {

constexpr const char* kGroup = "Model";

}  // namespace

void DecoderArgs::AddTo(CLI::App& command) {
  command
      .add_option("--model", model_, "A folder with config.json and safetensors, as Hugging Face's")
      ->type_name("DIR")
      ->required()
      ->group(kGroup);
  command.add_option("--prompt", prompt_, "A text, of which each byte is a token")
      ->type_name("TEXT")
      ->group(kGroup);
  command.add_option("--token-ids", ids_, "The prompt as tokens: 1,2,3")
      ->type_name("IDS")
      ->delimiter(',')
      ->group(kGroup);
  command.add_option("--kv", cache_type_, "Type of the cache of keys and values")
      ->check(CLI::IsMember({"f32", "f16", "bf16"}))
      ->capture_default_str()
      ->group(kGroup);
  command.add_flag("--tune", tune_, "Tune the model's products first")->group(kGroup);
}

void DecoderArgs::AddDispatchTo(CLI::App& command) {
  command
      .add_option("--dispatch", dispatch_,
                  "What computes: the CPU's kernels, or the definition in double, slowly")
      ->check(CLI::IsMember({"cpu", "reference"}))
      ->capture_default_str()
      ->group(kGroup);
}

std::string DecoderArgs::Misuse() const {
  if (prompt_.empty() && ids_.empty()) {
    return "nothing to run on; give --prompt TEXT or --token-ids 1,2,3";
  }
  if (!prompt_.empty() && !ids_.empty()) return "--prompt and --token-ids exclude each other";
  if (tune_ && dispatch_ != "cpu") {
    return fmt::format("--tune is for the kernels of --dispatch cpu; {} has none", dispatch_);
  }
  return {};
}

DataType DecoderArgs::cache_type() const {
  return cache_type_ == "f16"    ? DataType::kFloat16
         : cache_type_ == "bf16" ? DataType::kBfloat16
                                 : DataType::kFloat32;
}

Result<std::vector<std::int32_t>> DecoderArgs::Tokens(const DecoderConfig& config) const {
  std::vector<std::int64_t> ids = ids_;
  for (const char byte : prompt_) ids.push_back(static_cast<unsigned char>(byte));
  std::vector<std::int32_t> tokens;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || ids[i] >= config.vocab) {
      return Status(StatusCode::kInvalidArgument,
                    fmt::format("token {} of the prompt is {}; the vocabulary of {} has 0 to {}", i,
                                ids[i], model_, config.vocab - 1));
    }
    tokens.push_back(static_cast<std::int32_t>(ids[i]));
  }
  if (config.max_position > 0 && tokens.size() > static_cast<std::size_t>(config.max_position)) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("the prompt has {} tokens; {} was made for at most {} positions",
                              tokens.size(), model_, config.max_position));
  }
  return tokens;
}

Result<OpenedDecoder> DecoderArgs::Open(const CommonArgs& common, const CacheArgs& cache) const {
  auto session = OpenSession(common, &cache);
  if (!session.ok()) return session.status();
  if (tune_) CULET_RETURN_IF_ERROR(CheckThatResultsCanBeSaved(*session));
  auto model = DecoderModel::Load(model_, HostMemory());
  if (!model.ok()) return model.status();
  auto prompt = Tokens(model->config());
  if (!prompt.ok()) return prompt.status();
  return OpenedDecoder{*std::move(session), *std::move(model), *std::move(prompt)};
}

std::unique_ptr<KernelDispatch> DecoderArgs::MakeDispatch(OpenedDecoder& opened) const {
  if (dispatch_ != "cpu") return MakeReferenceDispatch();
  return MakeCpuDispatch(opened.session.gemm,
                         {.policy = tune_ ? DispatchPolicy::kMeasure : DispatchPolicy::kDefault});
}

Status DecoderArgs::SaveTuned(OpenedDecoder& opened) const {
  return tune_ ? SaveResults(opened.session) : Status();
}

}  // namespace culet::cli
