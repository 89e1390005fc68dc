#include "bench_report.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <utility>

#include <fmt/format.h>

#include "bench_csv.h"

namespace culet::cli {
namespace {

std::vector<Table::Column> Columns(const Registry& registry, const std::vector<Problem>& problems) {
  std::vector<Table::Column> columns = ProblemColumns(problems);
  std::size_t widest = 0;
  for (const Kernel* kernel : registry.kernels()) widest = std::max(widest, kernel->id().size());
  const std::size_t parameters = std::string("  @swizzle=8@splits=16").size();
  columns.push_back({"kernel", Table::Align::kLeft, widest + parameters});
  columns.push_back({"median", Table::Align::kRight, 7});
  columns.push_back({"spread", Table::Align::kRight, 7});
  columns.push_back({"GFLOP/s", Table::Align::kRight, 7});
  columns.push_back({"GB/s", Table::Align::kRight, 6});
  columns.push_back({"/limit", Table::Align::kRight, 6});
  columns.push_back({"error", Table::Align::kRight, 7});
  return columns;
}

const Contender* Find(const std::vector<Contender>& contenders, bool Contender::*flag) {
  const auto found = std::find_if(
      contenders.begin(), contenders.end(),
      [&](const Contender& contender) { return contender.*flag && contender.timed(); });
  return found != contenders.end() ? &*found : nullptr;
}

}  // namespace

void TimeRatio::Add(const Problem& problem, double time_us, double base_us) {
  const double ratio = time_us / base_us;
  ++problems_;
  log_sum_ += std::log(ratio);
  if (ratio > worst_) {
    worst_ = ratio;
    worst_problem_ = Label(problem);
  }
}

double TimeRatio::GeometricMean() const { return std::exp(log_sum_ / std::max(problems_, 1)); }

Json TimeRatio::ToJson() const {
  return {{"geometric_mean", Number(GeometricMean())},
          {"problems", problems_},
          {"worst", Number(worst_)},
          {"worst_problem", worst_problem_}};
}

BenchReport::BenchReport(const DeviceInfo& device, const Registry& registry,
                         const HardwareRates& rates, const std::vector<Problem>& problems,
                         const Options& options)
    : device_(device), rates_(rates), options_(options), table_(Columns(registry, problems)) {}

void BenchReport::Begin() const {
  if (options_.format == Options::Format::kCsv) PrintText(CsvHeader());
  if (options_.format != Options::Format::kTable) return;
  Print("{}, {} {}; reads {:.1f} GB/s, computes {:.0f} GFLOP/s in {} ({})\n{}", device_.name,
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
  document["roofline_us"] = Number(RooflineUs(problem));
  document["bytes"] = MinimumBytes(problem);
  document["operations"] = Operations(problem);
  if (IsGrouped(problem.desc)) {
    document["grouped"]["routing"] = options_.routing ? ToString(*options_.routing) : "all";
  }
  document["kernels"] = Json::array();
  for (const Contender& contender : contenders) {
    if (contender.status.ok() && contender.samples_us.empty()) {  // no time was left
      ++left_out_launches_;
      continue;
    }
    document["kernels"].push_back(ContenderJson(problem, contender));
    const bool matters =
        &contender == &contenders.front() || contender.is_choice ||
        (!contender.timed() && contender.status.code() != StatusCode::kUnsupported);
    if (matters || !options_.regret) PrintRow(problem, contender);
    // A refusal is an answer; anything else that kept a kernel from being timed is a failure.
    failed_ =
        failed_ || (!contender.status.ok() && contender.status.code() != StatusCode::kUnsupported);
  }
  failed_ =
      failed_ || contenders.empty() || contenders.front().status.code() == StatusCode::kUnsupported;
  CountTimes(problem, contenders);
  documents_.push_back(std::move(document));
  std::fflush(stdout);
}

void BenchReport::CountTimes(const Problem& problem, const std::vector<Contender>& contenders) {
  const Contender* const choice = Find(contenders, &Contender::is_choice);
  const Contender* const untuned = Find(contenders, &Contender::is_untuned);
  if (choice == nullptr) return;
  over_limit_.Add(problem, choice->MedianUs(), RooflineUs(problem));
  if (options_.regret) regret_.Add(problem, choice->MedianUs(), contenders.front().MedianUs());
  if (untuned != nullptr) untuned_.Add(problem, untuned->MedianUs(), choice->MedianUs());
}

void BenchReport::AddFailure(const Problem& problem, const Status& status) {
  failed_ = true;
  documents_.push_back(ToJson(problem));
  documents_.back()["error"] = status.message();
  Note(fmt::format("{}: {}", Label(problem), status.message()));
}

void BenchReport::End(bool interrupted) const {
  if (options_.format == Options::Format::kJson) return PrintJson(Document(interrupted));
  if (options_.format == Options::Format::kTable) PrintSummary();
}

void BenchReport::PrintSummary() const {
  Print("* what the engine launches\n");
  if (left_out_ > 0) Print("{} left out by the budget\n", Counted(left_out_, "problem"));
  if (left_out_launches_ > 0) {
    Print("{} of measured problems left out by the budget\n",
          left_out_launches_ == 1 ? "1 launch" : fmt::format("{} launches", left_out_launches_));
  }
  const auto print = [](const TimeRatio& ratio, const char* name, const char* what) {
    Print("{} {:.3f}: {}, geometric mean of {}; worst {:.2f} at {}\n", name, ratio.GeometricMean(),
          what, Counted(static_cast<std::size_t>(ratio.problems()), "problem"), ratio.worst(),
          ratio.worst_problem());
  };
  if (over_limit_.problems() > 1) print(over_limit_, "over the limit", "the choice's time over it");
  if (regret_.problems() > 0) {
    print(regret_, "regret", "the untuned choice's time over the best kernel's");
  }
  if (untuned_.problems() > 0) {
    print(untuned_, "untuned", "the untuned choice's time over the choice's");
  }
}

double BenchReport::RooflineUs(const Problem& problem) const {
  return std::max(MinimumBytes(problem) / (rates_.read_gbps * 1e3),
                  Operations(problem) / (rates_.gflops * 1e3));
}

std::string BenchReport::Repro(const Problem& problem, const Contender& contender) const {
  const std::string where = device_.arch == 0 ? fmt::format("--threads {}", device_.units)
                                              : fmt::format("--device cuda:{}", device_.ordinal);
  const std::string routing = IsGrouped(problem.desc) && options_.routing
                                  ? fmt::format(" --routing {}", ToString(*options_.routing))
                                  : std::string();
  return fmt::format("culet bench {}{} --kernels {} {}", problem.arguments, routing,
                     LaunchName(contender.spec), where);
}

void BenchReport::PrintRow(const Problem& problem, const Contender& contender) const {
  if (options_.format == Options::Format::kJson) return;
  if (options_.format == Options::Format::kCsv) {
    Print("{}", CsvRow(problem, contender, rates_, RooflineUs(problem)));
    return;
  }
  std::vector<std::string> cells = ProblemCells(problem);
  const bool plain = contender.spec.swizzle == 0 && contender.spec.splits == 1 &&
                     !contender.spec.serial && contender.spec.variant == 0;
  cells.push_back((contender.is_choice ? "* " : "  ") +
                  (plain ? contender.spec.kernel->id() : LaunchName(contender.spec)));
  if (contender.timed()) {
    const double time_us = contender.MedianUs();
    cells.push_back(ShownTime(time_us));
    cells.push_back(fmt::format("{:.1f} %", 100 * contender.SpreadUs() / time_us));
    cells.push_back(fmt::format("{:.1f}", Operations(problem) / time_us / 1e3));
    cells.push_back(fmt::format("{:.1f}", MinimumBytes(problem) / time_us / 1e3));
    cells.push_back(fmt::format("{:.2f}", time_us / RooflineUs(problem)));
    cells.push_back(fmt::format("{:.1e}", contender.error.relative_l2));
  } else {
    cells.insert(cells.end(), 6, "-");
  }
  PrintText(table_.Row(cells));
  if (!contender.status.ok()) {
    Print("    {}: {}\n", ToString(contender.status.code()), contender.status.message());
  }
  if (options_.repro) Print("    {}\n", Repro(problem, contender));
}

Json BenchReport::ContenderJson(const Problem& problem, const Contender& contender) const {
  Json json = {{"kernel", contender.spec.kernel->id()}, {"swizzle", contender.spec.swizzle},
               {"splits", contender.spec.splits},       {"serial", contender.spec.serial},
               {"variant", contender.spec.variant},     {"choice", contender.is_choice},
               {"untuned", contender.is_untuned}};
  if (contender.timed()) {
    const double time_us = contender.MedianUs();
    json["time_us"] = Number(time_us);
    json["spread_us"] = Number(contender.SpreadUs());
    json["samples"] = contender.samples_us.size();
    json["gflops"] = Number(Operations(problem) / time_us / 1e3);
    json["gbps"] = Number(MinimumBytes(problem) / time_us / 1e3);
    json["roofline_share"] = Number(RooflineUs(problem) / time_us);
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
  document["left_out_launches"] = left_out_launches_;
  if (over_limit_.problems() > 0) document["over_limit"] = over_limit_.ToJson();
  if (regret_.problems() > 0) document["regret"] = regret_.ToJson();
  if (untuned_.problems() > 0) document["untuned"] = untuned_.ToJson();
  return document;
}

}  // namespace culet::cli
