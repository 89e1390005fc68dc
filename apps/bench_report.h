// What `culet bench` says about its measurements: rows, summary, JSON.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "contenders.h"
#include "culet/device.h"
#include "culet/registry.h"
#include "culet/status.h"
#include "output.h"
#include "problem_args.h"

namespace culet::cli {

/// How much longer some launches take than others, over several problems.
class TimeRatio {
 public:
  void Add(const Problem& problem, double time_us, double base_us);
  int problems() const { return problems_; }
  double GeometricMean() const;
  double worst() const { return worst_; }
  const std::string& worst_problem() const { return worst_problem_; }
  Json ToJson() const;

 private:
  int problems_ = 0;
  double log_sum_ = 0, worst_ = 0;
  std::string worst_problem_;
};

class BenchReport {
 public:
  struct Options {
    enum class Format { kTable, kCsv, kJson } format = Format::kTable;
    bool repro = false;   ///< the repeating command below each row
    bool regret = false;  ///< of all launches only the best and the choice are printed
    std::optional<GroupedRouting> routing = {};  ///< of grouped products; none: all
    DataType rate_type = DataType::kFloat32;     ///< what the arithmetic rate is of
  };
  /// `device` and `registry` must outlive the report.
  BenchReport(const DeviceInfo& device, const Registry& registry, const HardwareRates& rates,
              const std::vector<Problem>& problems, const Options& options);

  /// Prints the device and its rates, and the table's or the CSV's header.
  void Begin() const;
  /// One problem's contenders: printed now, kept for the summary and the document.
  void Add(const Problem& problem, std::vector<Contender> contenders);
  /// A problem that could not be measured at all.
  void AddFailure(const Problem& problem, const Status& status);
  void AddLeftOut() { ++left_out_; }
  /// Prints the summary, or the document.
  void End(bool interrupted) const;

  /// A wrong result, or a problem without any time.
  bool failed() const { return failed_; }

 private:
  double RooflineUs(const Problem& problem) const;
  std::string Repro(const Problem& problem, const Contender& contender) const;
  void CountTimes(const Problem& problem, const std::vector<Contender>& contenders);
  void PrintRow(const Problem& problem, const Contender& contender) const;
  void PrintSummary() const;
  Json ContenderJson(const Problem& problem, const Contender& contender) const;
  Json Document(bool interrupted) const;

  const DeviceInfo& device_;
  const HardwareRates rates_;
  const Options options_;
  Table table_;
  Json documents_ = Json::array();
  TimeRatio regret_;          // of the choice to the best
  TimeRatio untuned_;         // of the untuned choice to the choice
  TimeRatio over_limit_;      // of the choice to the limit
  std::size_t left_out_ = 0;  // problems ...
  std::size_t left_out_launches_ =
      0;  // ... and launches of others, that the budget had no time for
  bool failed_ = false;
};

}  // namespace culet::cli
