#include "culet/printable.h"

#include <cstdint>

#include <fmt/format.h>

namespace culet {
namespace {

struct Character {
  std::uint32_t code = 0;
  std::size_t bytes = 0;  // 0: no UTF-8
};

// The first character of a text that is not empty.
Character First(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  const std::size_t bytes = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || text.size() < bytes) return {};
  std::uint32_t code = lead & (0x7fU >> bytes);
  for (std::size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xc0U) != 0x80) return {};
    code = code << 6 | (byte(i) & 0x3fU);
  }
  constexpr std::uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = code >= 0xd800 && code <= 0xdfff;
  if (code < kLeast[bytes] || code > 0x10ffff || surrogate) return {};
  return {code, bytes};
}

bool Steers(std::uint32_t code) {
  return code < 0x20 || (code >= 0x7f && code < 0xa0) ||  // C0, DEL, C1
         code == 0x61c || code == 0x200e || code == 0x200f || code == 0x2028 || code == 0x2029 ||
         (code >= 0x202a && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069);
}

}  // namespace

std::string Printable(std::string_view text, std::size_t most_bytes) {
  std::string shown;
  while (!text.empty()) {
    const Character character = First(text);
    const std::size_t bytes = character.bytes == 0 ? 1 : character.bytes;
    std::string next(text.substr(0, bytes));
    if (character.bytes == 0) {
      next = fmt::format("\\x{:02x}", static_cast<unsigned char>(text[0]));
    } else if (Steers(character.code)) {
      next = character.code < 0x80 ? fmt::format("\\x{:02x}", character.code)
                                   : fmt::format("\\u{:04x}", character.code);
    }
    if (shown.size() + next.size() > most_bytes) return shown + "...";
    shown += next;
    text.remove_prefix(bytes);
  }
  return shown;
}

}  // namespace culet
