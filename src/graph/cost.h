// What a launch must move and compute at least, and what the rows of operations.cc say of it.
#pragma once

#include <cstddef>

#include "culet/graph.h"
#include "graph/schedule.h"

namespace culet {

/// Values that never leave the step count nothing, those that several of its nodes read once.
NodeCost CostOf(const ComputeGraph& graph, const GraphStep& step) noexcept;

// Bytes read of an input.
double ReadNothing(const ComputeGraph& graph, const TensorNode& node, std::size_t input);
double ReadAsWritten(const ComputeGraph& graph, const TensorNode& node, std::size_t input);
double ReadByKvWrite(const ComputeGraph& graph, const TensorNode& node, std::size_t input);
double ReadByAdvance(const ComputeGraph& graph, const TensorNode& node, std::size_t input);
double ReadByGatherRows(const ComputeGraph& graph, const TensorNode& node, std::size_t input);
double ReadByAttention(const ComputeGraph& graph, const TensorNode& node, std::size_t input);

// Bytes written.
double WrittenByKvWrite(const ComputeGraph& graph, const TensorNode& node);
double WrittenByAdvance(const ComputeGraph& graph, const TensorNode& node);

/// Of a weight (n, k) for each row of the value.
double OperationsOfProduct(const ComputeGraph& graph, const TensorNode& node);
double OperationsOfExperts(const ComputeGraph& graph, const TensorNode& node);
double OperationsOfAttention(const ComputeGraph& graph, const TensorNode& node);
double OperationsOfDelta(const ComputeGraph& graph, const TensorNode& node);

}  // namespace culet
