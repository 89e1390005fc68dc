// What the graph knows of each operation: one row of a table (operations.cc), from which its name,
// its rule in Verify, its place in memory, its cost and its reference follow.
#pragma once

#include <cstddef>
#include <string>

#include "culet/graph.h"
#include "graph/node_rules.h"

namespace culet {

struct OperationInfo {
  TensorOp op = TensorOp::kNone;
  const char* name = nullptr;
  int inputs = 0;  ///< how many; 0: the rule says
  std::string (NodeRules::*rule)() const = nullptr;
  /// The definition, in double. Null for leaves and for what the node before makes.
  void (*reference)(const NodeLaunch& launch) = nullptr;

  int in_place = 0;            ///< so many first inputs may give the value their place
  bool changes_first = false;  ///< the value is the first input, changed in place
  int state = -1;  ///< the input with states of sequences, a leaf, changed in place; -1: none

  /// Bytes that it reads of an input; null: all of it.
  double (*reads)(const ComputeGraph& graph, const TensorNode& node, std::size_t input) = nullptr;
  /// Bytes that it writes; null: its value.
  double (*writes)(const ComputeGraph& graph, const TensorNode& node) = nullptr;
  bool picks_rows = false;  ///< it reads as many bytes of its weight as its value has, not all
  /// Multiplies and adds of products and attention; null: none.
  double (*operations)(const ComputeGraph& graph, const TensorNode& node) = nullptr;
};

/// The row of an operation. For a number that is none: a leaf's, named "invalid".
const OperationInfo& InfoOf(TensorOp op) noexcept;

/// Whether the operation's value is its first input, changed in place.
inline bool ChangesFirstInput(TensorOp op) noexcept { return InfoOf(op).changes_first; }

/// The input that holds states of sequences, a leaf, changed in place; -1 for none.
inline int StateInputOf(TensorOp op) noexcept { return InfoOf(op).state; }

}  // namespace culet
