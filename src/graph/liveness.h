// Which values share memory, and how long each is needed.
#pragma once

#include <string>
#include <vector>

#include "culet/graph.h"
#include "graph/schedule.h"

namespace culet {

/// Values of a graph whose inputs all exist and come first. A node runs where the schedule says.
class Liveness {
 public:
  Liveness(const ComputeGraph& graph, const Schedule& schedule);

  /// The last node that reads the value; the node itself if nobody does; size() for an output.
  int LastReader(int id) const noexcept { return last_reader_[static_cast<std::size_t>(id)]; }

  /// The input whose memory the node overwrites: the cache of a KvWrite; for Rope and element-wise
  /// operations an input that is not read again. -1: memory of its own.
  int AliasOf(int id) const noexcept { return alias_[static_cast<std::size_t>(id)]; }

  /// The first value in the chain of aliases.
  int Root(int id) const noexcept { return root_[static_cast<std::size_t>(id)]; }

  /// The last read of anything in the root's memory; size() for an output. Requires: a root.
  int LastUse(int root) const noexcept { return last_use_[static_cast<std::size_t>(root)]; }

  /// Why the node must not write where it does; empty if nothing there is read later.
  std::string OverwriteBy(int id) const;

 private:
  int FindAlias(int id) const;
  int FindAliasInFusion(int id, const Fusion& fusion) const;
  bool MayTakePlaceOf(int input, int id) const;
  bool MayWriteOver(int input, int id) const;

  const ComputeGraph& graph_;
  const Schedule& schedule_;
  std::vector<int> last_reader_, alias_, root_, last_use_;
};

}  // namespace culet
