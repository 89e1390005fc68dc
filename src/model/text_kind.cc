#include "model/text_kind.h"

#include <algorithm>
#include <cctype>

namespace culet {
namespace {

constexpr std::size_t kLooked = 512;

bool BeginsWith(std::string_view text, std::string_view lower_case) {
  return text.size() >= lower_case.size() &&
         std::equal(lower_case.begin(), lower_case.end(), text.begin(), [](char lower, char c) {
           return lower == static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
         });
}

}  // namespace

bool IsText(std::string_view bytes) noexcept {
  const std::string_view first = bytes.substr(0, kLooked);
  return !first.empty() && std::ranges::all_of(first, [](char c) {
    return static_cast<unsigned char>(c) >= 0x20 ? c != 0x7f : c >= '\t' && c <= '\r';
  });
}

std::string ReplacedBy(std::string_view text) {
  if (text.starts_with("version https://git-lfs.github.com/spec/")) {
    return "; it is a Git LFS pointer: fetch the file itself with git lfs pull";
  }
  constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  text.remove_prefix(std::min(text.find_first_not_of(" \t\r\n\f\v"), text.size()));
  if (BeginsWith(text, "<!doctype html") || BeginsWith(text, "<html")) {
    return "; it is an HTML page: download the file itself";
  }
  return {};
}

}  // namespace culet
