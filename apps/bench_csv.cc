#include "bench_csv.h"

#include <cstddef>
#include <vector>

#include <fmt/format.h>

#include "culet/scratch.h"

namespace culet::cli {
namespace {

constexpr const char* kColumns[] = {"name",           "m",           "n",         "k",
                                    "format",         "out",         "pdl",       "kernel",
                                    "swizzle",        "splits",      "serial",    "variant",
                                    "choice",         "untuned",     "time_us",   "spread_us",
                                    "samples",        "tflops",      "gbps",      "limit_us",
                                    "over_limit",     "relative_l2", "read_gbps", "peak_tflops",
                                    "rates_measured", "error"};

std::string Quoted(const std::string& text) {
  if (text.find_first_of(",\"\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + '"';
}

}  // namespace

std::string CsvHeader() { return fmt::format("{}\n", fmt::join(kColumns, ",")); }

std::string CsvRow(const Problem& problem, const Contender& contender, const HardwareRates& rates,
                   double limit_us) {
  const GemmDesc& desc = problem.desc;
  const LaunchSpec& spec = contender.spec;
  const Json described = ToJson(problem);
  std::vector<std::string> cells = {Quoted(problem.name),
                                    std::to_string(desc.m),
                                    std::to_string(desc.n),
                                    std::to_string(desc.k),
                                    described["format"],
                                    described["out"],
                                    std::to_string(desc.pdl),
                                    Quoted(spec.kernel->id()),
                                    std::to_string(spec.swizzle),
                                    std::to_string(spec.splits),
                                    std::to_string(spec.serial),
                                    std::to_string(spec.variant),
                                    std::to_string(contender.is_choice),
                                    std::to_string(contender.is_untuned)};
  if (contender.timed()) {
    const double time_us = contender.MedianUs();
    cells.push_back(fmt::format("{:.3f}", time_us));
    cells.push_back(fmt::format("{:.3f}", contender.SpreadUs()));
    cells.push_back(std::to_string(contender.samples_us.size()));
    cells.push_back(fmt::format("{:.4g}", Operations(desc) / time_us / 1e6));
    cells.push_back(fmt::format("{:.4g}", MinimumBytes(desc) / time_us / 1e3));
  } else {
    cells.insert(cells.end(), 5, "");
  }
  cells.push_back(fmt::format("{:.3f}", limit_us));
  cells.push_back(contender.timed() ? fmt::format("{:.4f}", contender.MedianUs() / limit_us) : "");
  cells.push_back(contender.timed() ? fmt::format("{:.3e}", contender.error.relative_l2) : "");
  cells.push_back(fmt::format("{:.5g}", rates.read_gbps));
  cells.push_back(fmt::format("{:.5g}", rates.gflops / 1e3));
  cells.push_back(std::to_string(rates.measured));
  cells.push_back(Quoted(contender.status.message()));
  return fmt::format("{}\n", fmt::join(cells, ","));
}

}  // namespace culet::cli
