// The registry of architectures and of models that contain one.
#include "model/decoder_architecture.h"

#include <algorithm>
#include <string>

#include "model/decoders/all.h"

namespace culet {
namespace {

constexpr const DecoderArchitecture* kAll[] = {
#define CULET_DECODER(name) &name,
#include "model/decoders/all.def"
#undef CULET_DECODER
};

constexpr const char* kMistralTexts[] = {"mistral", "ministral3"};
constexpr const char* kGemma3Texts[] = {"gemma3_text"};
constexpr const char* kLlama4Texts[] = {"llama4_text"};
constexpr DecoderContainer kContainers[] = {
    {"Mistral3ForConditionalGeneration", "mistral3", kMistralTexts},
    {"Gemma3ForConditionalGeneration", "gemma3", kGemma3Texts},
    {"Llama4ForConditionalGeneration", "llama4", kLlama4Texts},
};

constexpr std::string_view kModel = "model.";
constexpr std::string_view kOthers[] = {"vision_tower.", "vision_model.", "multi_modal_projector."};

}  // namespace

std::span<const DecoderArchitecture* const> DecoderArchitectures() { return kAll; }

const DecoderArchitecture& DecoderArchitectureOf(std::string_view name) {
  const auto named = [&](const DecoderArchitecture* each) { return name == each->name; };
  return **std::ranges::find_if(kAll, named);
}

std::span<const DecoderContainer> DecoderContainers() { return kContainers; }

// Files of before transformers 5 have language_model.model.X, later ones model.language_model.X.
std::vector<std::string> NamesInContainer(const std::string& name) {
  std::vector<std::string> names{"language_model." + name};
  if (name.starts_with(kModel)) {
    names.push_back("model.language_model." + name.substr(kModel.size()));
  }
  return names;
}

bool IsOfOtherPart(std::string_view name) {
  if (name.starts_with(kModel)) name.remove_prefix(kModel.size());
  return std::ranges::any_of(kOthers,
                             [&](std::string_view part) { return name.starts_with(part); });
}

}  // namespace culet
