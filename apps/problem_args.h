// How the commands are told which problems: sizes, a shapes file, or a model's config.json.
#pragma once

#include <string>
#include <vector>

#include "culet/desc.h"
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
  std::string arguments;  ///< "--m 1 --n 4096 --k 4096 --format bf16 --out bf16 --pdl", e.g.
};

/// Name, sizes, format, output type, pdl, accumulation and B's alignment as fields of a JSON object.
Json ToJson(const Problem& problem);

/// "qkv m=16", or the sizes where there is no name.
std::string Label(const Problem& problem);

/// The columns that name a problem in a table, and their cells.
std::vector<Table::Column> ProblemColumns(const std::vector<Problem>& problems);
std::vector<std::string> ProblemCells(const Problem& problem);

/// The options --m --n --k --format --out --shapes --model --pdl --fast --aligned-weights.
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
  };
  Result<std::vector<Named>> LoadShapes() const;
  Result<std::vector<Named>> LoadModel(Format* format) const;

  std::vector<int> m_;
  int n_ = 0, k_ = 0;
  std::string format_, out_, shapes_, model_;
  bool pdl_ = false, fast_ = false, aligned_weights_ = false;
  Option m_option_, n_option_, k_option_;
};

}  // namespace culet::cli
