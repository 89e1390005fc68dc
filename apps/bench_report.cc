#include "bench_report.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <utility>

#include <fmt/format.h>

#include "culet/scratch.h"

namespace culet::cli {
namespace {

std::vector<Table::Column> Columns(const Registry& registry, const std::vector<Problem>& problems) {
  std::vector<Table::Column> columns = ProblemColumns(problems);
  std::size_t widest = 0;
  for (const Kernel* kernel : registry.kernels()) widest = std::max(widest, kernel->id().size());
  columns.push_back({"kernel", Table::Align::kLeft, widest + 2});
  columns.push_back({"median", Table::Align::kRight, 7});
  columns.push_back({"spread", Table::Align::kRight, 7});
  columns.push_back({"GFLOP/s", Table::Align::kRight, 7});
  columns.push_back({"GB/s", Table::Align::kRight, 6});
  columns.push_back({"roofline", Table::Align::kRight, 8});
  columns.push_back({"error", Table::Align::kRight, 7});
  return columns;
}

}  // namespace

void Regret::Add(const Problem& problem, const std::vector<Contender>& contenders) {
  const auto choice = std::find_if(contenders.begin(), contenders.end(),
                                   [](const Contender& c) { return c.is_choice && c.timed(); });
  if (choice == contenders.end()) return;
  const double ratio = choice->MedianUs() / contenders.front().MedianUs();
  ++problems_;
  log_sum_ += std::log(ratio);
  if (ratio > worst_) {
    worst_ = ratio;
    worst_problem_ = Label(problem);
  }
}

double Regret::GeometricMean() const { return std::exp(log_sum_ / std::max(problems_, 1)); }

BenchReport::BenchReport(const DeviceInfo& device, const Registry& registry,
                         const HardwareRates& rates, const std::vector<Problem>& problems,
                         const Options& options)
    : device_(device), rates_(rates), options_(options), table_(Columns(registry, problems)) {}

void BenchReport::Begin() const {
  if (options_.json) return;
  fmt::print("{}, {} {}; reads {:.1f} GB/s, computes {:.0f} GFLOP/s in {} ({})\n{}", device_.name,
             device_.units, device_.arch == 0 ? "threads" : "SMs", rates_.read_gbps, rates_.gflops,
             ToString(options_.rate_type), rates_.measured ? "measured in this run" : "typical",
             table_.Header());
}

void BenchReport::Add(const Problem& problem, std::vector<Contender> contenders) {
  // Fastest first, what was not timed last.
  std::stable_sort(contenders.begin(), contenders.end(),
                   [](const Contender& a, const Contender& b) {
                     if (a.timed() != b.timed()) return a.timed();
                     return a.timed() && a.MedianUs() < b.MedianUs();
                   });
  Json document = ToJson(problem);
  document["roofline_us"] = Number(RooflineUs(problem.desc));
  document["bytes"] = MinimumBytes(problem.desc);
  document["operations"] = Operations(problem.desc);
  document["kernels"] = Json::array();
  for (const Contender& contender : contenders) {
    if (contender.status.ok() && contender.samples_us.empty()) continue;  // interrupted before
    document["kernels"].push_back(ContenderJson(problem, contender));
    if (!options_.json) PrintRow(problem, contender);
    // A refusal is an answer; anything else that kept a kernel from being timed is a failure.
    failed_ =
        failed_ || (!contender.status.ok() && contender.status.code() != StatusCode::kUnsupported);
  }
  failed_ =
      failed_ || contenders.empty() || contenders.front().status.code() == StatusCode::kUnsupported;
  if (options_.regret) regret_.Add(problem, contenders);
  documents_.push_back(std::move(document));
  std::fflush(stdout);
}

void BenchReport::AddFailure(const Problem& problem, const Status& status) {
  failed_ = true;
  documents_.push_back(ToJson(problem));
  documents_.back()["error"] = status.message();
  Note(fmt::format("{}: {}", Label(problem), status.message()));
}

void BenchReport::End(bool interrupted) const {
  if (options_.json) return PrintJson(Document(interrupted));
  fmt::print("* what the engine launches\n");
  if (left_out_ > 0) fmt::print("{} left out by the budget\n", Counted(left_out_, "problem"));
  if (regret_.problems() > 0) {
    fmt::print(
        "regret {:.3f}: the untuned choice's time over the best kernel's, geometric mean "
        "of {} problems; worst {:.2f} at {}\n",
        regret_.GeometricMean(), regret_.problems(), regret_.worst(), regret_.worst_problem());
  }
}

double BenchReport::RooflineUs(const GemmDesc& desc) const {
  return std::max(MinimumBytes(desc) / (rates_.read_gbps * 1e3),
                  Operations(desc) / (rates_.gflops * 1e3));
}

std::string BenchReport::Repro(const Problem& problem, const Contender& contender) const {
  const std::string where = device_.arch == 0 ? fmt::format("--threads {}", device_.units)
                                              : fmt::format("--device cuda:{}", device_.ordinal);
  return fmt::format("culet bench {} --kernels {} {}", problem.arguments,
                     contender.spec.kernel->id(), where);
}

void BenchReport::PrintRow(const Problem& problem, const Contender& contender) const {
  std::vector<std::string> cells = ProblemCells(problem);
  cells.push_back((contender.is_choice ? "* " : "  ") + contender.spec.kernel->id());
  if (contender.timed()) {
    const double time_us = contender.MedianUs();
    cells.push_back(ShownTime(time_us));
    cells.push_back(fmt::format("{:.1f} %", 100 * contender.SpreadUs() / time_us));
    cells.push_back(fmt::format("{:.1f}", Operations(problem.desc) / time_us / 1e3));
    cells.push_back(fmt::format("{:.1f}", MinimumBytes(problem.desc) / time_us / 1e3));
    cells.push_back(fmt::format("{:.0f} %", 100 * RooflineUs(problem.desc) / time_us));
    cells.push_back(fmt::format("{:.1e}", contender.error.relative_l2));
  } else {
    cells.insert(cells.end(), 6, "-");
  }
  fmt::print("{}", table_.Row(cells));
  if (!contender.status.ok()) {
    fmt::print("    {}: {}\n", ToString(contender.status.code()), contender.status.message());
  }
  if (options_.repro) fmt::print("    {}\n", Repro(problem, contender));
}

Json BenchReport::ContenderJson(const Problem& problem, const Contender& contender) const {
  Json json = {{"kernel", contender.spec.kernel->id()},
               {"swizzle", contender.spec.swizzle},
               {"splits", contender.spec.splits},
               {"choice", contender.is_choice}};
  if (contender.timed()) {
    const double time_us = contender.MedianUs();
    json["time_us"] = Number(time_us);
    json["spread_us"] = Number(contender.SpreadUs());
    json["samples"] = contender.samples_us.size();
    json["gflops"] = Number(Operations(problem.desc) / time_us / 1e3);
    json["gbps"] = Number(MinimumBytes(problem.desc) / time_us / 1e3);
    json["roofline_share"] = Number(RooflineUs(problem.desc) / time_us);
    json["relative_l2"] = Number(contender.error.relative_l2);
    json["max_over_bound"] = Number(contender.error.max_over_bound);
  }
  if (!contender.status.ok()) {
    json["error"] = {{"code", ToString(contender.status.code())},
                     {"message", contender.status.message()}};
  }
  json["repro"] = Repro(problem, contender);
  return json;
}

Json BenchReport::Document(bool interrupted) const {
  Json document = {{"device", device_.device_class},
                   {"name", device_.name},
                   {"units", device_.units},
                   {"rates",
                    {{"read_gbps", Number(rates_.read_gbps)},
                     {"gflops", Number(rates_.gflops)},
                     {"type", ToString(options_.rate_type)},
                     {"measured", rates_.measured}}},
                   {"left_out", left_out_},
                   {"interrupted", interrupted},
                   {"problems", documents_}};
  if (regret_.problems() > 0) {
    document["regret"] = {{"geometric_mean", Number(regret_.GeometricMean())},
                          {"problems", regret_.problems()},
                          {"worst", Number(regret_.worst())},
                          {"worst_problem", regret_.worst_problem()}};
  }
  return document;
}

}  // namespace culet::cli
