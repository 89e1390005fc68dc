// A decoder of random weights timed as a whole: what `culet bench --decode` measures.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "culet/device.h"
#include "culet/fusion.h"
#include "culet/gemm.h"
#include "culet/model.h"
#include "culet/rank_team.h"
#include "culet/status.h"
#include "culet/types.h"

namespace culet::cli {

struct DecodeBenchOptions {
  std::string config;  ///< a config.json, or the folder that holds it
  Format format = Format::kBf16;
  int batch = 1;      ///< sequences that decode together
  int context = 512;  ///< positions that each of them has when decoding starts
  int prefill = 256;  ///< tokens of the timed prompt, and of a piece of the context's
  int steps = 20;     ///< timed steps of decoding; a fifth of them prompts
  DataType cache_type = DataType::kBfloat16;
  DataType value_type = DataType::kNull;  ///< as SessionOptions
  FusionChoice fusions;                   ///< which of the dispatch's fusions are used
  bool record = true;                     ///< as SessionOptions
  bool tune = false;                      ///< products are tuned before they are planned
  bool profile = false;      ///< each launch among the others, where steps are recorded
  RankTeam* team = nullptr;  ///< the ranks that share the model; null for one
  TeamModel team_model;      ///< what they open, but for the weights
  /// Asked often, also while weights are made; true ends it. May be null.
  std::function<bool()> stop;
};

/// All nodes of a step that are the same operation on the same kernel.
struct NodeGroup {
  std::string op;  ///< "mul_mat"
  std::string kernel;
  bool is_product = false;
  int nodes = 0;
  double time_us = 0;  ///< of all nodes in one step
};

/// All products of a step that are the same problem.
struct ProductGroup {
  GemmDesc desc;
  int nodes = 0;
  double graph_us = 0;  ///< of one, in the graph, quantising its input included
  double alone_us = 0;  ///< of one, as `culet bench` times it
};

/// Medians over the runs.
struct StepTimes {
  int tokens = 0;
  double step_us = 0;     ///< from tokens to next tokens
  double nodes_us = 0;    ///< of all nodes, timed one by one, or
  bool among = false;     ///< ... each among the others of a recorded step
  double product_us = 0;  ///< of the products among them, routed experts included
  std::vector<NodeGroup> groups;
  std::vector<ProductGroup> products;

  /// Time of the products alone over that in the graph: 1 when the graph costs them nothing.
  double ProductSpeed() const;
};

struct DecodeMeasurement {
  HardwareRates rates;  ///< medians
  /// Weights and cache that a step reads over its time, over the read rate measured just before and
  /// after: the median of some rounds.
  double read_share = 0;
  double weight_bytes = 0;
  double bytes_a_token = 0;
  double cache_bytes = 0;
  double cache_read_bytes = 0;  ///< keys and values that a step of all sequences reads
  double peak_bytes = 0;  ///< most memory that the process held; 0 where the system does not tell,
                          ///< and on a GPU
  std::string not_recorded;  ///< why the steps replayed no recording; empty when they did
  StepTimes decode, prefill;
};

/// Of the weights of a format. Errors: INVALID_ARGUMENT for one that no decoder has.
Result<DataType> WeightsOf(Format format);

/// What was measured before an error, or before options.stop ended it, is in `result`; the rest of
/// it is 0.
/// Errors: as ReadDecoderConfig, DecoderModel::Random, Session, MeasureRates; INVALID_ARGUMENT for
/// a format that no decoder has; RESOURCE_EXHAUSTED, with the bytes, before weights are made that
/// the memory has no room for, with their cache; FAILED_PRECONDITION when it was stopped.
Status MeasureDecode(Gemm& gemm, const DecodeBenchOptions& options, DecodeMeasurement& result);

}  // namespace culet::cli
