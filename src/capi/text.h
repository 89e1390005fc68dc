// Texts that the caller keeps: as much as fits into its buffer, and how much there is.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string>

#include "capi/guard.h"

namespace culet::capi {

/// Writes at most `capacity` bytes of `whole`, the final 0 included, and its bytes with the 0 to
/// `needed`, which may be null. Errors: INVALID_ARGUMENT for a null text with a capacity.
inline Status WriteText(const std::string& whole, char* text, std::size_t capacity,
                        std::size_t* needed) {
  if (text == nullptr && capacity != 0) return Null("text");
  if (needed != nullptr) *needed = whole.size() + 1;
  if (capacity == 0) return {};
  const std::size_t length = std::min(whole.size(), capacity - 1);
  std::memcpy(text, whole.data(), length);
  text[length] = '\0';
  return {};
}

}  // namespace culet::capi
