#include "gemm/cache_text.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/json_text.h"
#include "culet/dispatch_cache.h"

namespace culet {
namespace {

constexpr std::string_view kHeaderStart = R"({"format":"culet-dispatch-cache")";

bool IsBlank(std::string_view text) noexcept {
  return text.find_first_not_of(" \t\r\n") == std::string_view::npos;
}

std::string_view FirstLine(std::string_view text) noexcept {
  return text.substr(0, text.find('\n'));
}

bool IsDigit(char c) noexcept { return c >= '0' && c <= '9'; }

std::size_t DigitsAt(std::string_view text, std::size_t begin) noexcept {
  std::size_t end = begin;
  while (end < text.size() && IsDigit(text[end])) ++end;
  return end - begin;
}

// Runs of digits compare as numbers, so that m = 16 stands before m = 128.
bool NaturalLess(std::string_view a, std::string_view b) noexcept {
  const auto [in_a, in_b] = std::ranges::mismatch(a, b);
  std::size_t at = static_cast<std::size_t>(in_a - a.begin());
  if (at == a.size() || at == b.size()) return a.size() < b.size();
  while (at > 0 && IsDigit(a[at - 1])) --at;
  const std::size_t digits_a = DigitsAt(a, at), digits_b = DigitsAt(b, at);
  // Records are written without leading zeros: more digits are the larger number.
  if (digits_a > 0 && digits_b > 0 && digits_a != digits_b) return digits_a < digits_b;
  return a < b;
}

}  // namespace

Status CheckCacheHeader(std::string_view text) {
  if (IsBlank(text)) return {};
  const std::string_view line = FirstLine(text);
  const auto header = line.size() <= CacheFile::kMaxLineBytes ? ParseJson(line) : nlohmann::json();
  if (!line.starts_with(kHeaderStart) || !header.is_object()) {
    return Status(StatusCode::kDataLoss,
                  "the first line is not the header of a culet dispatch cache; name another file "
                  "or move this one away");
  }
  const auto version = header.find("version");
  if (version == header.end() || !version->is_number_unsigned() || *version < 1u) {
    return Status(StatusCode::kDataLoss,
                  "the header has no format version; name another file or move this one away");
  }
  if (*version > kCacheFormatVersion) {
    return Status(StatusCode::kUnsupported, "the cache has format version " + JsonText(*version) +
                                                ", this library reads versions up to " +
                                                std::to_string(kCacheFormatVersion) +
                                                "; update culet or name another file");
  }
  return {};
}

void ForEachCacheLine(std::string_view text,
                      const std::function<void(int, std::string_view)>& visit) {
  for (int line = 1; !text.empty(); ++line) {
    std::string_view current = FirstLine(text);
    text.remove_prefix(std::min(text.size(), current.size() + 1));
    if (IsBlank(current)) continue;
    // Headers also stand between concatenated caches; one of a newer version counts as damaged.
    if (current.starts_with(kHeaderStart) && CheckCacheHeader(current).ok()) continue;
    if (current.ends_with('\r')) current.remove_suffix(1);
    visit(line, current);
  }
}

CacheText ComposeCacheText(std::vector<std::string_view> records) {
  std::ranges::sort(records, NaturalLess);
  const auto repeated = std::ranges::unique(records);
  records.erase(repeated.begin(), repeated.end());
  std::string text(kHeaderStart);
  text += ",\"version\":" + std::to_string(kCacheFormatVersion) + "}\n";
  for (const std::string_view line : records) {
    text += line;
    text += '\n';
  }
  return {std::move(text), static_cast<int>(records.size())};
}

}  // namespace culet
