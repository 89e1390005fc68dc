#include "gemm/output_scan.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace culet {
namespace {

// Whether every byte that is in no line still holds what it did.
bool GuardsIntact(const OutputLines& lines, const std::byte* found,
                  const std::byte* pristine) noexcept {
  const auto same = [&](std::size_t begin, std::size_t end) {
    return std::memcmp(found + begin, pristine + begin, end - begin) == 0;
  };
  if (!same(0, lines.data)) return false;
  for (std::size_t line = 0; line < lines.lines; ++line) {
    const std::size_t gap = lines.data + line * lines.pitch_bytes + lines.line_bytes;
    const std::size_t next =
        line + 1 < lines.lines ? gap + lines.pitch_bytes - lines.line_bytes : lines.bytes;
    if (!same(gap, next)) return false;
  }
  return true;
}

template <class Element>
std::size_t CountPoison(const OutputLines& lines, const std::byte* found) noexcept {
  const auto poison = static_cast<Element>(lines.poison);
  const std::size_t elements = lines.line_bytes / sizeof(Element);
  std::size_t count = 0;
  for (std::size_t line = 0; line < lines.lines; ++line) {
    const auto* element =
        reinterpret_cast<const Element*>(found + lines.data + line * lines.pitch_bytes);
    count += static_cast<std::size_t>(std::count(element, element + elements, poison));
  }
  return count;
}

}  // namespace

OutputScan ScanOutput(const OutputLines& lines, const std::byte* found,
                      const std::byte* pristine) noexcept {
  OutputScan scan;
  scan.guards_intact = GuardsIntact(lines, found, pristine);
  scan.unwritten = lines.element_bytes == 4   ? CountPoison<std::uint32_t>(lines, found)
                   : lines.element_bytes == 2 ? CountPoison<std::uint16_t>(lines, found)
                                              : CountPoison<std::uint8_t>(lines, found);
  return scan;
}

}  // namespace culet
