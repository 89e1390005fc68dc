// How the commands are told which problems: sizes, a shapes file, or a model's config.json.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "culet/desc.h"
#include "culet/grouped_class.h"
#include "culet/model.h"
#include "culet/status.h"
#include "options.h"
#include "output.h"

namespace culet::cli {

/// One distinct problem.
struct Problem {
  std::string name;  ///< of all that are this problem, joined by commas; empty when unnamed
  Format format = Format::kBf16;
  GemmDesc desc;
  std::optional<GroupedRows> rows;  ///< of a grouped product: what measured routings left
  std::string arguments;  ///< "--m 1 --n 4096 --k 4096 --format bf16 --out bf16 --pdl", e.g.
};

/// Bytes that must move and operations, of the rows if they are known.
double MinimumBytes(const Problem& problem);
double Operations(const Problem& problem);

/// Name, sizes, format, output type, pdl, accumulation and B's alignment as fields of a JSON
/// object.
Json ToJson(const Problem& problem);

/// "qkv m=16", or the sizes where there is no name.
std::string Label(const Problem& problem);

/// The columns that name a problem in a table, and their cells.
std::vector<Table::Column> ProblemColumns(const std::vector<Problem>& problems);
std::vector<std::string> ProblemCells(const Problem& problem);

/// The options --m --n --k --format --out --shapes --model --pdl --fast --aligned-weights, and
/// --experts --top-k --local --gathered --gated of grouped products.
class ProblemArgs {
 public:
  void AddTo(const Command& command);

  /// Whether any problem was named.
  bool given() const;
  /// Whether sizes, a shapes file, an output type, pdl, fast sums or
  /// aligned weights were given.
  bool given_beside_model() const;
  /// What --model and --format say; empty when they were not given.
  const std::string& model() const { return model_; }
  const std::string& format() const { return format_; }

  /// What is wrong with the options given, in one sentence; empty when nothing is.
  std::string Misuse() const;

  /// The problems, each distinct one once, in the order given. Requires: Misuse().empty().
  Result<std::vector<Problem>> Load(int arch) const;

 private:
  struct Named {
    std::string name;
    int m, n, k;
    int experts = 0, active = 0;  // of a grouped product; m counts tokens
    bool gathered = false, gated = false;
  };
  Result<GemmDesc> DescOf(const Named& named, Format format, DataType output, int arch) const;
  std::string ArgumentsOf(const Named& named, Format format, const GemmDesc& desc) const;
  Result<std::vector<Named>> LoadShapes() const;
  Result<std::vector<Named>> LoadModel(Format* format, int arch) const;

  std::vector<int> m_;
  int n_ = 0, k_ = 0;
  std::string format_, out_, shapes_, model_;
  int experts_ = 0, active_ = 0, local_ = 0;
  bool gathered_ = false, gated_ = false;
  bool pdl_ = false, fast_ = false, aligned_weights_ = false;
  Option m_option_, n_option_, k_option_, experts_option_;
};

}  // namespace culet::cli
