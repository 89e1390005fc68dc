// ExchangeChoice: the usual one, and the best of what was measured.
#include "culet/exchange_choice.h"

#include <algorithm>
#include <limits>

#include <fmt/format.h>

namespace culet {
namespace {

std::string Size(std::int64_t bytes) {
  constexpr std::int64_t kKilo = 1024, kMega = kKilo * kKilo;
  if (bytes >= kMega && bytes % kMega == 0) return fmt::format("{} MiB", bytes / kMega);
  if (bytes >= kKilo && bytes % kKilo == 0) return fmt::format("{} KiB", bytes / kKilo);
  return fmt::format("{} bytes", bytes);
}

// What a size takes with these bounds; infinite where that was not measured.
double TimeOf(const ExchangeTimes& times, const ExchangeChoice& choice) {
  double time = times.nccl >= 0 ? times.nccl : times.two_shots;
  if (times.bytes <= choice.push_bytes) {
    time = times.push;
  } else if (times.bytes <= choice.two_shot_bytes) {
    time = times.two_shots;
  }
  return time >= 0 ? time : std::numeric_limits<double>::infinity();
}

}  // namespace

std::string ToString(const ExchangeChoice& choice) {
  std::string text = fmt::format("{}, ", ToString(choice.wire));
  if (choice.push_bytes > 0) text += fmt::format("a push to {}, ", Size(choice.push_bytes));
  if (choice.two_shot_bytes > choice.push_bytes) {
    text += fmt::format("two shots to {}, ", Size(choice.two_shot_bytes));
  }
  return text + fmt::format("then NCCL ({})", choice.measured ? "measured" : "not measured");
}

ExchangeChoice UsualExchange(int ranks, DataType wire) {
  struct Most {
    int ranks;
    std::int64_t kilobytes;
  };
  constexpr Most kTable[] = {{2, 8192}, {3, 2048}, {4, 1024}, {8, 256}, {16, 64}};
  const auto* const found =
      std::ranges::find_if(kTable, [&](const Most& each) { return ranks <= each.ranks; });
  const std::int64_t kilobytes = found != std::end(kTable) ? found->kilobytes : 16;
  return {.wire = wire, .push_bytes = kilobytes * 1024};
}

ExchangeChoice ChooseExchange(std::span<const ExchangeTimes> times, DataType wire) {
  std::vector<std::int64_t> bounds = {0};
  for (const ExchangeTimes& each : times) bounds.push_back(each.bytes);
  ExchangeChoice best{.wire = wire, .measured = true};
  double least = std::numeric_limits<double>::infinity();
  for (std::size_t push = 0; push < bounds.size(); ++push) {
    for (std::size_t two = push; two < bounds.size(); ++two) {
      const ExchangeChoice choice{wire, bounds[push], two > push ? bounds[two] : 0, true};
      double all = 0;
      for (const ExchangeTimes& each : times) {
        double fastest = std::numeric_limits<double>::infinity();
        for (const double time : {each.push, each.two_shots, each.nccl}) {
          if (time >= 0) fastest = std::min(fastest, time);
        }
        all += TimeOf(each, choice) / fastest;
      }
      if (all < least) {
        least = all;
        best = choice;
      }
    }
  }
  return best;
}

}  // namespace culet
