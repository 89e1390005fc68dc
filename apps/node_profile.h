// Where a step's time goes, node by node: what `culet run --profile` prints.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "culet/decoder.h"
#include "culet/device.h"
#include "culet/graph.h"
#include "culet/model.h"
#include "culet/status.h"
#include "output.h"

namespace culet::cli {

/// One node or fusion, its times over all recorded steps.
struct NodeTime {
  int id = -1;         ///< of a fusion its last node
  std::string name;    ///< of that node: "layers.0.q"
  std::string op;      ///< "mul_mat", or the fusion's name
  std::string kernel;  ///< "cpu_simd/skinny/m6n4"
  NodeCost cost;
  double time_us = 0;  ///< median
  bool among = false;  ///< measured within the recorded step, not by itself
};

/// Times the nodes of a session's steps, of one size of batch.
class NodeProfile {
 public:
  /// The hook that records; the profile must outlive it.
  NodeHook Hook();
  /// The nodes in their order, of the last step's graph. Requires: only steps of that graph's size
  /// were recorded.
  std::vector<NodeTime> Nodes(const GraphExecutor& executor) const;

 private:
  std::map<int, std::vector<double>> samples_us_;
};

/// The same of an executor whose launches are recorded, each among the others: what a replay takes
/// longer with it than with the launches before it alone, the median of `samples`. Launches them some
/// hundred times, so the graph must bear repeating. Errors: as GraphExecutor::RecordFirst, and what
/// a replay returns.
Result<std::vector<NodeTime>> TimeRecorded(const GraphExecutor& executor, cudaStream_t stream,
                                           int samples = 7);

/// The same of the session's last step, where its dispatch replays such steps; else none. Errors: as
/// TimeRecorded.
Result<std::vector<NodeTime>> TimeLastStep(const culet::Session& session, int samples = 7);

/// The upper one of two in the middle; 0 of none.
double Median(std::vector<double> values);

/// How long the machine needs at least for what the node moves and computes.
double RooflineUs(const NodeCost& cost, const HardwareRates& rates);

/// A table with its title, or an array.
void PrintNodes(const std::string& title, const std::vector<NodeTime>& nodes,
                const HardwareRates& rates);
Json ToJson(const std::vector<NodeTime>& nodes, const HardwareRates& rates);

}  // namespace culet::cli
