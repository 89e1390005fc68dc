// Places for the values of a graph: first fit over their lives.
#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "culet/graph.h"
#include "graph/liveness.h"
#include "graph/operations.h"
#include "graph/schedule.h"

namespace culet {
namespace {

constexpr std::int64_t kAlignment = 256;

constexpr std::int64_t Padded(std::int64_t bytes) noexcept {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

// Pieces of the arena that are in use, in the order of their offsets.
class Arena {
 public:
  std::int64_t Take(std::int64_t bytes, int last) {
    std::int64_t offset = 0;
    auto before = pieces_.begin();
    for (; before != pieces_.end(); ++before) {
      if (before->offset - offset >= bytes) break;
      offset = before->offset + before->bytes;
    }
    pieces_.insert(before, {offset, bytes, last});
    size_ = std::max(size_, offset + bytes);
    return offset;
  }

  /// Frees what no node from `id` on reads.
  void FreeBefore(int id) {
    std::erase_if(pieces_, [&](const Piece& piece) { return piece.last < id; });
  }

  std::int64_t size() const noexcept { return size_; }

 private:
  struct Piece {
    std::int64_t offset, bytes;
    int last;
  };
  std::vector<Piece> pieces_;
  std::int64_t size_ = 0;
};

const char* PlaceName(Placement::Kind kind) noexcept {
  switch (kind) {
    case Placement::Kind::kExternal:
      return "caller's";
    case Placement::Kind::kArena:
      return "arena";
    case Placement::Kind::kAlias:
      return "in place";
    case Placement::Kind::kInside:
      return "none";
  }
  return "invalid";
}

}  // namespace

Result<MemoryPlan> PlanMemory(const ComputeGraph& graph, std::span<const Fusion> fusions) {
  CULET_RETURN_IF_ERROR(graph.Verify());
  const Schedule schedule(graph, fusions);
  const Liveness liveness(graph, schedule);
  MemoryPlan plan;
  for (int id = 0; id < graph.size(); ++id) {
    const TensorNode& node = graph.node(id);
    Placement place;
    place.bytes = BytesOf(node);
    place.first = schedule.RunAt(id);
    place.last = liveness.LastReader(id);
    if (schedule.Inside(id)) place.kind = Placement::Kind::kInside;
    plan.placements.push_back(place);
    const bool planned = node.data_ptr == 0 && !ChangesFirstInput(node.op);
    if (planned) plan.unshared_bytes += Padded(place.bytes);
  }
  Arena arena;
  for (const GraphStep& step : schedule.steps()) {
    arena.FreeBefore(step.id);
    for (const int id : step.outputs) {
      Placement& place = plan.placements[static_cast<std::size_t>(id)];
      if (liveness.AliasOf(id) >= 0) {
        place.kind = Placement::Kind::kAlias;
        place.alias_of = liveness.AliasOf(id);
      } else if (graph.node(id).data_ptr == 0) {
        place.kind = Placement::Kind::kArena;
        place.last = liveness.LastUse(id);
        place.offset = arena.Take(Padded(place.bytes), place.last);
      }
    }
  }
  plan.arena_bytes = arena.size();
  return plan;
}

std::string MemoryPlan::ToString(const ComputeGraph& graph) const {
  std::string text = fmt::format("{:>5}  {:<12} {:<28} {:>16} {:>12}  {:<10} {:>12}  {}\n", "node",
                                 "operation", "name", "shape", "bytes", "place", "offset", "life");
  for (int id = 0; id < graph.size(); ++id) {
    const TensorNode& node = graph.node(id);
    const Placement& place = placements[static_cast<std::size_t>(id)];
    const std::string where =
        place.kind == Placement::Kind::kArena    ? fmt::to_string(place.offset)
        : place.kind == Placement::Kind::kAlias  ? fmt::format("of {}", place.alias_of)
        : place.kind == Placement::Kind::kInside ? fmt::format("in {}", place.first)
                                                 : fmt::format("{:#x}", node.data_ptr);
    const std::string life = place.last >= graph.size()
                                 ? fmt::format("{} to the end", place.first)
                                 : fmt::format("{} to {}", place.first, place.last);
    text += fmt::format("{:>5}  {:<12} {:<28} {:>16} {:>12}  {:<10} {:>12}  {}\n", id,
                        culet::ToString(node.op), node.name,
                        fmt::format("[{}, {}]", node.shape.rows, node.shape.cols), place.bytes,
                        PlaceName(place.kind), where, life);
  }
  text += fmt::format("arena {} bytes; without reuse {}\n", arena_bytes, unshared_bytes);
  return text;
}

}  // namespace culet
