// Fits the constants of the Hopper families' predictions (src/kernels/sm90/times/times.h) to
// measurements and judges them on layers that no fit saw.
//   gunzip -c bench/predictions_h200.csv.gz | fit_predictions [judge | fit [ROUNDS] | cross
//   [FOLDS]] [direct]
// The input has a line a launch and names its columns: layer,m,n,k,pdl,kernel,swizzle,splits,us, or
// those of `culet bench --shapes FILE --kernels all --csv`, with --pdl and without, one behind the
// other (D in BF16). To a fit layers are of kernels that let TMA fill the last tiles with zeros,
// unless their names start with "cut.". What counts is regret: the measured time of the
// launch that is predicted best over that of the best one. `judge` tells it for the constants that
// stand; `fit` prints constants fitted to all lines; `cross` fits to all layers but a fold's, and
// judges each fold. `direct`: the lines are of formats whose sums the tensor core keeps over all of
// K.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <iostream>
#include <map>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "kernels/sm90/times/times.h"

namespace culet::sm90 {
namespace {

struct AllTimes {
  SwapTimes fp8_swap = kFp8Swap;
  SkinnyTimes fp8_skinny[2] = {kFp8SkinnyAlone, kFp8SkinnyDependent};
  BlockTimes fp8_block = kFp8Block;
  AllTimes() {
    if (direct)
      fp8_swap = kDirectSwap, fp8_block = kDirectBlock, fp8_skinny[0] = kDirectSkinnyAlone,
      fp8_skinny[1] = kDirectSkinnyDependent;
  }
  inline static bool direct = false;
  inline static bool fits = false;
  double* begin() { return reinterpret_cast<double*>(this); }
  static constexpr std::size_t kSize =
      (sizeof(SwapTimes) + 2 * sizeof(SkinnyTimes) + sizeof(BlockTimes)) / sizeof(double);
};
static_assert(sizeof(AllTimes) == AllTimes::kSize * sizeof(double));

struct Launch {
  double us;
  std::string name;
  const SwapKernel* fp8_swap = nullptr;
  const SkinnyKernel* skinny = nullptr;
  const BlockKernel* fp8_block = nullptr;
  int swizzle = 0, splits = 1, residency = 1, max_swizzle = 0;
};

struct Row {
  std::string layer;
  Extents p;
  bool pdl;
  bool zeros = false;  // of kernels that let TMA fill the last tiles with zeros
  std::vector<Launch> launches;
  double best_us = 1e30;
};

double Predict(const AllTimes& t, Chip chip, const Row& row, const Launch& l) {
  if (l.fp8_swap != nullptr) {
    SwapTimes swap = t.fp8_swap;
    if (row.zeros) swap.beyond = 2.874;
    return SwapUs(swap, chip, *l.fp8_swap, l.residency, l.splits, row.pdl, row.p);
  }
  if (l.skinny != nullptr)
    return SkinnyUs(t.fp8_skinny[row.pdl], chip, *l.skinny, l.splits, row.pdl, row.p);
  BlockTimes block = t.fp8_block;
  if (row.zeros) block.beyond = 6.028;
  return BlockUs(block, chip, *l.fp8_block, l.swizzle, l.max_swizzle, row.pdl, row.p);
}

// Whether the library has this launch among its candidates (src/kernels/sm90/swap/family.cc).
bool IsCandidate(const Launch& l, int m) {
  return l.fp8_swap == nullptr || (m <= 256 && CeilDiv(m, l.fp8_swap->tokens()) <= 4);
}

bool Resolve(const std::string& kernel, Launch& launch) {
  for (const BlockKernel& k : BlockKernels())
    if (kernel == k.id) return launch.fp8_block = &k, true;
  for (const SkinnyKernel& k : SkinnyKernels())
    if (kernel == k.Id()) return launch.skinny = &k, true;
  for (const SwapKernel& k : SwapKernels()) {
    const int residency = kernel.back() - '0';
    if (kernel == k.Id(residency)) return launch.residency = residency, launch.fp8_swap = &k, true;
  }
  return false;
}

// Where a line has each column, by the names of either kind of file; -1: nowhere.
struct Columns {
  int layer = -1, m = -1, n = -1, k = -1, pdl = -1, kernel = -1, swizzle = -1, splits = -1, us = -1;
  int serial = -1, variant = -1;  // launches in other ways, which have no prediction of their own

  explicit Columns(const std::vector<std::string>& names) {
    const auto find = [&](std::initializer_list<const char*> either) {
      for (std::size_t i = 0; i < names.size(); ++i)
        for (const char* name : either)
          if (names[i] == name) return static_cast<int>(i);
      return -1;
    };
    layer = find({"layer", "name"}), m = find({"m"}), n = find({"n"}), k = find({"k"});
    pdl = find({"pdl"}), kernel = find({"kernel"}), swizzle = find({"swizzle"});
    splits = find({"splits"}), us = find({"us", "time_us"});
    serial = find({"serial"}), variant = find({"variant"});
  }
  bool complete() const {
    return std::min({layer, m, n, k, pdl, kernel, swizzle, splits, us}) >= 0;
  }
};

// Of a line of CSV; what stands in quotes may hold commas.
std::vector<std::string> Cells(const std::string& line) {
  std::vector<std::string> cells(1);
  bool quoted = false;
  for (const char c : line) {
    if (c == '"') {
      quoted = !quoted;
    } else if (c == ',' && !quoted) {
      cells.emplace_back();
    } else {
      cells.back() += c;
    }
  }
  return cells;
}

std::vector<Row> Read(std::istream& in) {
  std::map<std::tuple<std::string, int, int, int, bool>, Row> rows;
  std::string line;
  int unknown = 0;
  Columns columns({});
  while (std::getline(in, line)) {
    const std::vector<std::string> c = Cells(line);
    if (const Columns named(c); named.complete()) {
      columns = named;
      continue;
    }
    if (!columns.complete() || c.size() <= static_cast<std::size_t>(columns.us)) continue;
    const auto text = [&](int column) { return c[static_cast<std::size_t>(column)]; };
    const auto number = [&](int column) { return std::atoi(text(column).c_str()); };
    if (columns.serial >= 0 && number(columns.serial) != 0) continue;
    if (columns.variant >= 0 && number(columns.variant) != 0) continue;
    const int m = number(columns.m), n = number(columns.n), k = number(columns.k);
    const bool pdl = number(columns.pdl) != 0;
    const std::string layer = text(columns.layer), kernel = text(columns.kernel);
    Launch launch;
    launch.us = std::atof(text(columns.us).c_str());
    if (launch.us <= 0) continue;  // refused
    launch.name = kernel + "@" + text(columns.swizzle) + "@" + text(columns.splits);
    launch.swizzle = number(columns.swizzle), launch.splits = number(columns.splits);
    if (!Resolve(kernel, launch)) {
      ++unknown;
      continue;
    }
    if (!IsCandidate(launch, m)) continue;
    if (launch.fp8_block != nullptr && launch.fp8_block->split == 1)
      while (launch.max_swizzle < 4 &&
             (1 << launch.max_swizzle) < CeilDiv(m, launch.fp8_block->tile_m))
        ++launch.max_swizzle;
    Row& row = rows[{layer, m, n, k, pdl}];
    row.layer = layer, row.p = {m, n, k}, row.pdl = pdl;
    row.zeros = AllTimes::fits && !AllTimes::direct && !row.layer.starts_with("cut.");
    row.best_us = std::min(row.best_us, launch.us);
    row.launches.push_back(launch);
  }
  if (unknown > 0) std::fprintf(stderr, "%d lines of kernels that are no longer there\n", unknown);
  std::vector<Row> all;
  for (auto& [key, row] : rows) all.push_back(std::move(row));
  return all;
}

const Launch& Choice(const AllTimes& t, const Chip& chip, const Row& row) {
  const Launch* best = nullptr;
  double best_us = 1e300;
  for (const Launch& l : row.launches) {
    const double us = Predict(t, chip, row, l);
    if (us < best_us) best_us = us, best = &l;
  }
  return *best;
}

// Which constants a launch's prediction takes.
enum Group { kSwap, kSkinnyAlone, kSkinnyDependent, kBlock, kGroups };
Group GroupOf(const Row& row, const Launch& l) {
  if (l.fp8_swap != nullptr) return kSwap;
  if (l.skinny != nullptr) return row.pdl ? kSkinnyDependent : kSkinnyAlone;
  return kBlock;
}
Group GroupOf(const AllTimes& t, const double* constant) {
  const auto* const at = reinterpret_cast<const char*>(constant);
  const auto is_in = [&](const auto& times) {
    const auto* const begin = reinterpret_cast<const char*>(&times);
    return at >= begin && at < begin + sizeof times;
  };
  if (is_in(t.fp8_swap)) return kSwap;
  if (is_in(t.fp8_skinny[0])) return kSkinnyAlone;
  return is_in(t.fp8_skinny[1]) ? kSkinnyDependent : kBlock;
}

// Smooth in the constants: the expected logarithm of the regret when launches are chosen by chance,
// the likelier the better they are predicted, and a little of the error of predictions near the
// best. What a change of one group of constants leaves alone is not predicted again.
class Loss {
 public:
  Loss(const AllTimes& t, const Chip& chip, const std::vector<const Row*>& rows, double errors)
      : chip_(chip), errors_(errors) {
    for (const Row* row : rows) {
      Part part;
      part.row = row, part.logs.resize(row->launches.size());
      for (const Launch& l : row->launches) part.has[GroupOf(*row, l)] = true;
      parts_.push_back(std::move(part));
    }
    for (int group = 0; group < kGroups; ++group) Try(t, Group(group)), Keep(Group(group));
  }

  double Try(const AllTimes& t, Group group) {
    double sum = 0;
    for (Part& part : parts_) {
      if (part.has[group]) {
        part.new_logs = part.logs;
        for (std::size_t i = 0; i < part.logs.size(); ++i) {
          const Launch& l = part.row->launches[i];
          if (GroupOf(*part.row, l) == group)
            part.new_logs[i] = std::log(Predict(t, chip_, *part.row, l));
        }
        part.new_loss = Of(*part.row, part.new_logs);
      }
      sum += part.has[group] ? part.new_loss : part.loss;
    }
    return sum / double(parts_.size());
  }

  void Keep(Group group) {
    for (Part& part : parts_)
      if (part.has[group]) part.logs.swap(part.new_logs), part.loss = part.new_loss;
  }

 private:
  struct Part {
    const Row* row = nullptr;
    std::vector<double> logs, new_logs;
    double loss = 0, new_loss = 0;
    bool has[kGroups] = {};
  };

  double Of(const Row& row, const std::vector<double>& logs) const {
    constexpr double kSharp = 60;
    const double least = *std::ranges::min_element(logs);
    if (!std::isfinite(least)) return 1e300;
    double weights = 0, regret = 0, off_sum = 0, off_squares = 0, near = 0;
    for (std::size_t i = 0; i < logs.size(); ++i) {
      const double over = std::log(row.launches[i].us / row.best_us);
      const double w = std::exp(-kSharp * (logs[i] - least));
      weights += w;
      regret += w * (over + 2 * over * over);
      if (over < 0.4) {
        const double off = logs[i] - std::log(row.launches[i].us);
        off_sum += off, off_squares += off * off, near += 1;
      }
    }
    const double mean = off_sum / near;
    return regret / weights +
           errors_ *
               (std::sqrt(std::max(0.0, off_squares / near - mean * mean)) + 0.5 * std::abs(mean));
  }

  const Chip chip_;
  const double errors_;
  std::vector<Part> parts_;
};

// Walks along each constant by turns, with steps that grow on success and shrink on failure.
AllTimes Walk(AllTimes t, const Chip& chip, const std::vector<const Row*>& rows, int rounds,
              unsigned seed, double errors) {
  std::mt19937 random(seed);
  std::vector<double> step(AllTimes::kSize, 0.08);
  std::vector<std::size_t> order(AllTimes::kSize);
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  Loss loss(t, chip, rows, errors);
  double best = loss.Try(t, kBlock);
  for (int round = 0; round < rounds; ++round) {
    std::shuffle(order.begin(), order.end(), random);
    for (const std::size_t i : order) {
      double& constant = t.begin()[i];
      // The measurements are too short for the power limit to show: these were fitted to long ones.
      // And `alone` is what pairs of launches, with and without the attribute, say.
      const BlockTimes& block = t.fp8_block;
      const bool power = &constant == &block.joule_operation || &constant == &block.joule_byte;
      // Nor were the large tiles timed with few rows, where two of these decide, and the small-M
      // family with many, where its products do.
      const bool few_rows = &constant == &block.launch || &constant == &block.stream ||
                            &constant == &t.fp8_swap.product;
      if ((power && !AllTimes::direct) || (few_rows && AllTimes::direct) ||
          &constant == &block.alone || &constant == &block.beyond ||
          &constant == &t.fp8_swap.beyond)
        continue;
      const double before = constant;
      const Group group = GroupOf(t, &constant);
      bool better = false;
      for (const double sign : {1.0, -1.0}) {
        constant = std::abs(before) > 1e-3 ? before * std::exp(sign * step[i])
                                           : std::max(0.0, before + sign * step[i] * 0.1);
        const double now = loss.Try(t, group);
        if (now < best) {
          best = now, better = true;
          loss.Keep(group);
          break;
        }
      }
      if (!better) constant = before;
      step[i] = better ? std::min(0.5, step[i] * 1.5) : std::max(0.002, step[i] * 0.6);
    }
  }
  return t;
}

// First what predicts all times well, from where the choices are then made better.
AllTimes Fit(const Chip& chip, const std::vector<const Row*>& rows, int rounds) {
  AllTimes t = Walk(AllTimes{}, chip, rows, rounds, 1, 1.0);
  t = Walk(t, chip, rows, rounds, 2, 0.5);
  return Walk(t, chip, rows, rounds, 3, 0.2);
}

struct Score {
  double log_sum = 0, worst = 1, off_squares = 0;
  int count = 0;
  std::string worst_row;
  void Add(double regret, double predicted_over_measured, const std::string& row) {
    log_sum += std::log(regret), ++count;
    off_squares += std::pow(std::log(predicted_over_measured), 2);
    if (regret > worst) worst = regret, worst_row = row;
  }
};

void Judge(const AllTimes& t, const Chip& chip, const std::vector<const Row*>& rows,
           std::map<std::string, Score>& scores) {
  for (const Row* row : rows) {
    const Launch& choice = Choice(t, chip, *row);
    const double regret = choice.us / row->best_us;
    const Launch* best = &row->launches.front();
    for (const Launch& l : row->launches)
      if (l.us < best->us) best = &l;
    char text[300];
    std::snprintf(text, sizeof text, "%s %d x %d x %d %s instead of %s", row->layer.c_str(),
                  row->p.m, row->p.n, row->p.k, choice.name.c_str(), best->name.c_str());
    const std::string mode = row->pdl ? "pdl" : "plain";
    const int m = row->p.m;
    const char* const band = m <= 8      ? "m <= 8"
                             : m <= 64   ? "m <= 64"
                             : m <= 256  ? "m <= 256"
                             : m <= 1024 ? "m <= 1024"
                                         : "m > 1024";
    const double off = Predict(t, chip, *row, choice) / choice.us;
    scores[mode + " " + band].Add(regret, off, text);
    scores[mode].Add(regret, off, text);
    if (regret > 1.2 && std::getenv("SHOW") != nullptr) std::printf("  %.3f %s\n", regret, text);
  }
}

void Print(const std::map<std::string, Score>& scores) {
  for (const auto& [name, s] : scores)
    std::printf("%-16s %4d rows  regret %.4f  worst %.3f  off by %.3f  %s\n", name.c_str(), s.count,
                std::exp(s.log_sum / s.count), s.worst,
                std::exp(std::sqrt(s.off_squares / s.count)), s.worst_row.c_str());
}

void PrintConstants(const AllTimes& t) {
  AllTimes copy = t;
  const double* at = copy.begin();
  const auto print = [&](const char* name, std::size_t count) {
    std::printf("%s = {", name);
    for (std::size_t i = 0; i < count; ++i) std::printf("%s%.4g", i ? ", " : "", at[i]);
    std::printf("};\n");
    at += count;
  };
  print(AllTimes::direct ? "kDirectSwap" : "kFp8Swap", sizeof(SwapTimes) / 8);
  print(AllTimes::direct ? "kDirectSkinnyAlone" : "kFp8SkinnyAlone", sizeof(SkinnyTimes) / 8);
  print(AllTimes::direct ? "kDirectSkinnyDependent" : "kFp8SkinnyDependent",
        sizeof(SkinnyTimes) / 8);
  print(AllTimes::direct ? "kDirectBlock" : "kFp8Block", sizeof(BlockTimes) / 8);
}

// Where predictions near the best are off, by kernel and m.
void Errors(const AllTimes& t, const Chip& chip, const std::vector<const Row*>& rows) {
  struct Sum {
    double sum = 0, squares = 0;
    int count = 0;
  };
  std::map<std::string, Sum> sums;
  for (const Row* row : rows) {
    for (const Launch& l : row->launches) {
      if (l.us > 1.4 * row->best_us) continue;
      const double off = std::log(Predict(t, chip, *row, l) / l.us);
      const int m = row->p.m;
      const char* const band = m <= 8     ? "m <= 8"
                               : m <= 64  ? "m <= 64"
                               : m <= 256 ? "m <= 256"
                                          : "m > 256";
      Sum& s = sums[std::string(row->pdl ? "pdl " : "plain ") + l.name.substr(0, l.name.find('@')) +
                    "  " + band];
      s.sum += off, s.squares += off * off, ++s.count;
    }
  }
  for (const auto& [name, s] : sums)
    std::printf("%-60s %5d  mean %+.3f  rms %.3f\n", name.c_str(), s.count, s.sum / s.count,
                std::sqrt(s.squares / s.count));
}

int Main(int argc, char** argv) {
  if (argc > 1 && std::strcmp(argv[argc - 1], "direct") == 0) AllTimes::direct = true, --argc;
  const std::string mode = argc > 1 ? argv[1] : "judge";
  AllTimes::fits = mode != "judge";
  const int number = argc > 2 ? std::atoi(argv[2]) : 0;
  Chip chip;
  if (const char* gbps = std::getenv("READ_GBPS")) chip.read_gbps = std::atof(gbps);
  const std::vector<Row> rows = Read(std::cin);
  std::vector<const Row*> all;
  std::vector<std::string> layers;
  for (const Row& row : rows) {
    all.push_back(&row);
    if (std::ranges::find(layers, row.layer) == layers.end()) layers.push_back(row.layer);
  }
  std::printf("%zu rows of %zu layers\n", all.size(), layers.size());
  std::map<std::string, Score> scores;
  if (mode == "judge") {
    Judge(AllTimes{}, chip, all, scores);
  } else if (mode == "errors") {
    Errors(AllTimes{}, chip, all);
  } else if (mode == "fit") {
    const AllTimes t = Fit(chip, all, number > 0 ? number : 25);
    Judge(t, chip, all, scores);
    PrintConstants(t);
  } else if (mode == "polish") {
    const AllTimes t = Walk(AllTimes{}, chip, all, number > 0 ? number : 25, 3, 0.2);
    Judge(t, chip, all, scores);
    PrintConstants(t);
  } else if (mode == "cross") {
    const int folds = number > 1 ? number : 7;
    std::shuffle(layers.begin(), layers.end(), std::mt19937(7));
    for (int fold = 0; fold < folds; ++fold) {
      std::set<std::string> out;
      for (std::size_t i = 0; i < layers.size(); ++i)
        if (int(i) % folds == fold) out.insert(layers[i]);
      std::vector<const Row*> fitted, judged;
      for (const Row* row : all) (out.contains(row->layer) ? judged : fitted).push_back(row);
      Judge(Fit(chip, fitted, 20), chip, judged, scores);
    }
  } else {
    std::fprintf(stderr,
                 "usage: fit_predictions [judge | errors | fit [ROUNDS] | polish [ROUNDS] | cross "
                 "[FOLDS]] < CSV\n");
    return 2;
  }
  Print(scores);
  return 0;
}

}  // namespace
}  // namespace culet::sm90

int main(int argc, char** argv) { return culet::sm90::Main(argc, argv); }
