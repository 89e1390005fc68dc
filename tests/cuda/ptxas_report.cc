#include "ptxas_report.h"

#include <regex>
#include <sstream>

namespace culet {

Result<PtxasReport> ParsePtxasReport(const std::string& text) {
  static const std::regex entry_line(R"(Compiling entry function '([^']+)' for '([^']+)')");
  static const std::regex stack_line(
      R"((\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads)");
  static const std::regex used_line(R"(Used (\d+) registers)");
  static const std::regex smem(R"((\d+) bytes smem)");
  static const std::regex advisory(R"(\(C\d+\))");

  PtxasReport report;
  bool has_stack = true, has_registers = true;
  const auto complete = [&]() -> Status {
    if (has_stack && has_registers) return {};
    return Status(StatusCode::kDataLoss,
                  "no registers or stack frame reported of " + report.kernels.back().entry);
  };
  std::istringstream lines(text);
  std::smatch match;
  for (std::string line; std::getline(lines, line);) {
    if (std::regex_search(line, advisory)) report.advisories.push_back(line);
    if (std::regex_search(line, match, entry_line)) {
      CULET_RETURN_IF_ERROR(complete());
      report.kernels.push_back({match[1], match[2]});
      has_stack = has_registers = false;
    } else if (report.kernels.empty()) {
      continue;
    } else if (KernelResources& kernel = report.kernels.back();
               std::regex_search(line, match, stack_line)) {
      // Functions that an entry calls have lines of their own: they count as its.
      kernel.stack_bytes += std::stoi(match[1]);
      kernel.spill_bytes += std::stoi(match[2]) + std::stoi(match[3]);
      has_stack = true;
    } else if (std::regex_search(line, match, used_line)) {
      kernel.registers = std::stoi(match[1]);
      if (std::regex_search(line, match, smem)) kernel.static_smem_bytes = std::stoi(match[1]);
      has_registers = true;
    }
  }
  CULET_RETURN_IF_ERROR(complete());
  return report;
}

}  // namespace culet
