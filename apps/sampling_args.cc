#include "sampling_args.h"

#include <algorithm>
#include <cstdint>
#include <random>

#include <fmt/format.h>

namespace culet::cli {

void SamplingArgs::AddTo(const Command& command) {
  constexpr const char* kGroup = "Sampling";
  const auto add = [&](const char* name, auto& value, const char* help, const char* type) {
    const Option option = command.Add(name, value, help);
    option.Type(type).Group(kGroup);
    return option;
  };
  add("--temperature", options_.temperature,
      "Draw tokens, of logits divided by this; 0 takes the likeliest token", "T")
      .ShowDefault();
  given_ = {
      add("--top-k", options_.top_k, "Draw of so many of the likeliest tokens; 0: of all", "K"),
      add("--top-p", options_.top_p,
          "Draw of the likeliest tokens that have this probability together", "P"),
      add("--min-p", options_.min_p,
          "Draw of tokens with at least this share of the likeliest one's probability", "P"),
      add("--seed", options_.seed,
          "The same seed draws the same tokens; prompt i of several has seed + i", "N")};
  seed_option_ = given_.back();
  seed_option_.Check([](const std::string& text) {
    return std::string(text.starts_with('-') ? "give a whole number of at least 0" : "");
  });
}

std::string SamplingArgs::Misuse() const {
  if (const Status status = CheckSampling(options_); !status.ok()) {
    // "top_p is 2; ..." of the library.
    std::string message = "--" + status.message();
    std::ranges::replace(message.begin(), message.begin() + static_cast<long>(message.find(' ')),
                         '_', '-');
    return message;
  }
  if (draws()) return {};
  for (const Option& option : given_) {
    if (option.count() > 0) {
      return fmt::format("{} is for tokens that are drawn; give --temperature 1, say",
                         option.name());
    }
  }
  return {};
}

std::uint64_t SamplingArgs::Seed() {
  if (seed_option_.count() == 0 && !seeded_) {
    std::random_device device;
    options_.seed = device();  // 32 bits: to be typed again
    seeded_ = true;
  }
  return options_.seed;
}

SamplingOptions SamplingArgs::OptionsOf(std::size_t index) {
  SamplingOptions options = options_;
  if (draws()) options.seed = Seed() + index;
  return options;
}

std::string SamplingArgs::Describe() {
  std::string text = fmt::format("temperature {}", options_.temperature);
  if (options_.top_k > 0) text += fmt::format(", top-k {}", options_.top_k);
  if (options_.top_p < 1) text += fmt::format(", top-p {}", options_.top_p);
  if (options_.min_p > 0) text += fmt::format(", min-p {}", options_.min_p);
  return text + fmt::format(", seed {}", Seed());
}

Json SamplingArgs::ToJson() {
  return {{"temperature", Number(options_.temperature)},
          {"top_k", options_.top_k},
          {"top_p", Number(options_.top_p)},
          {"min_p", Number(options_.min_p)},
          {"seed", Seed()}};
}

}  // namespace culet::cli
