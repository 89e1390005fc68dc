#include "kernels/cublaslt/lt_algorithms.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace culet::lt {
namespace {

// The library reports some unsupported combinations as an invalid value.
Status Refusal(const Library& library, int status, const char* call) {
  const Status said = library.StatusOf(status, call);
  return status == kInvalidValue ? Status(StatusCode::kUnsupported, said.message()) : said;
}

}  // namespace

Result<std::vector<Algorithm>> FindAlgorithms(const Library& library, Handle handle, Problem p,
                                              Preference preference) {
  constexpr const char* kCall = "cublasLtMatmulAlgoGetHeuristic";
  std::array<HeuristicResult, kMostAlgorithms> found{};
  int count = 0;
  const int status = library.functions().MatmulAlgoGetHeuristic(
      handle, &p.operation, &p.left, &p.right, &p.c, &p.d, &preference, kMostAlgorithms,
      found.data(), &count);
  CULET_RETURN_IF_ERROR(Refusal(library, status, kCall));
  std::vector<Algorithm> usable;
  for (int i = 0; i < std::clamp(count, 0, kMostAlgorithms); ++i) {
    const HeuristicResult& result = found[static_cast<std::size_t>(i)];
    if (result.status == kSuccess && result.workspace_bytes <= kWorkspaceBytes) {
      usable.push_back(result.algorithm);
    }
  }
  if (usable.empty()) {
    return Status(StatusCode::kUnsupported, fmt::format("{} offers no algorithm (cuBLASLt {})",
                                                        kCall, library.version_text()));
  }
  return usable;
}

Status CheckAlgorithm(const Library& library, Handle handle, Problem p,
                      const Algorithm& algorithm) {
  constexpr const char* kCall = "cublasLtMatmulAlgoCheck";
  HeuristicResult result{};
  const int status = library.functions().MatmulAlgoCheck(handle, &p.operation, &p.left, &p.right,
                                                         &p.c, &p.d, &algorithm, &result);
  CULET_RETURN_IF_ERROR(Refusal(library, status, kCall));
  CULET_RETURN_IF_ERROR(Refusal(library, result.status, kCall));
  if (result.workspace_bytes > kWorkspaceBytes) {
    return Status(StatusCode::kUnsupported,
                  fmt::format("{}: the algorithm takes {} bytes of workspace, it gets {}", kCall,
                              result.workspace_bytes, kWorkspaceBytes));
  }
  return {};
}

}  // namespace culet::lt
