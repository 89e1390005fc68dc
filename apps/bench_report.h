// What `culet bench` says about its measurements: rows, summary, JSON.
#pragma once

#include <string>
#include <vector>

#include "contenders.h"
#include "culet/device.h"
#include "culet/registry.h"
#include "culet/status.h"
#include "output.h"
#include "problem_args.h"

namespace culet::cli {

/// The time of the untuned choices over the best kernels' times.
class Regret {
 public:
  /// One problem; `contenders` fastest first. Nothing when the choice was not timed.
  void Add(const Problem& problem, const std::vector<Contender>& contenders);
  int problems() const { return problems_; }
  double GeometricMean() const;
  double worst() const { return worst_; }
  const std::string& worst_problem() const { return worst_problem_; }

 private:
  int problems_ = 0;
  double log_sum_ = 0, worst_ = 0;
  std::string worst_problem_;
};

class BenchReport {
 public:
  struct Options {
    bool json = false;
    bool repro = false;  ///< the repeating command below each row
    bool regret = false;
    DataType rate_type = DataType::kFloat32;  ///< what the arithmetic rate is of
  };
  /// `device` and `registry` must outlive the report.
  BenchReport(const DeviceInfo& device, const Registry& registry, const HardwareRates& rates,
              const std::vector<Problem>& problems, const Options& options);

  /// Prints the device, its rates and the table's header, unless JSON is asked for.
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
  double RooflineUs(const GemmDesc& desc) const;
  std::string Repro(const Problem& problem, const Contender& contender) const;
  void PrintRow(const Problem& problem, const Contender& contender) const;
  Json ContenderJson(const Problem& problem, const Contender& contender) const;
  Json Document(bool interrupted) const;

  const DeviceInfo& device_;
  const HardwareRates rates_;
  const Options options_;
  Table table_;
  Json documents_ = Json::array();
  Regret regret_;
  std::size_t left_out_ = 0;
  bool failed_ = false;
};

}  // namespace culet::cli
