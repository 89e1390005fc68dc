// Communicator::Agree: ranks compare what they are about to do.
#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "culet/printable.h"
#include "culet/ranks.h"

namespace culet {
namespace {

// The first line in which the texts differ, of each.
std::pair<std::string, std::string> FirstDifference(const std::string& a, const std::string& b) {
  const auto [at, other] = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
  const auto line = [](const std::string& text, std::size_t where) {
    const std::size_t begin = where == 0 ? 0 : text.rfind('\n', where - 1) + 1;
    constexpr std::size_t kShown = 200;
    return Printable(text.substr(begin, std::min(text.find('\n', where) - begin, kShown)));
  };
  const auto where = static_cast<std::size_t>(at - a.begin());
  return {line(a, where), line(b, where)};
}

}  // namespace

Status Communicator::Agree(const Status& own, const std::string& text) {
  // A mark in front says what follows: a text or an error.
  std::string mine = own.ok() ? "+" + text : "-" + own.message();
  const auto ranks = static_cast<std::size_t>(size());
  std::vector<std::size_t> sizes(ranks), each(ranks, sizeof(std::size_t));
  const std::size_t bytes = mine.size();
  CULET_RETURN_IF_ERROR(AllGather(&bytes, each, sizes.data()));
  std::size_t all = 0;
  for (const std::size_t size : sizes) all += size;
  std::string texts(all, '\0');
  CULET_RETURN_IF_ERROR(AllGather(mine.data(), sizes, texts.data()));
  if (!own.ok()) return own;
  std::vector<std::string> of;
  std::size_t at = 0;
  for (const std::size_t size : sizes) {
    of.push_back(texts.substr(at, size));
    at += size;
  }
  for (std::size_t r = 0; r < ranks; ++r) {
    if (of[r].starts_with('-')) {
      return Status(StatusCode::kFailedPrecondition,
                    fmt::format("rank {} failed: {}", r, Printable(of[r].substr(1))));
    }
  }
  for (std::size_t r = 1; r < ranks; ++r) {
    if (of[r] == of[0]) continue;
    const auto [first, other] = FirstDifference(of[0].substr(1), of[r].substr(1));
    return Status(StatusCode::kFailedPrecondition,
                  fmt::format("rank {} has '{}' where rank 0 has '{}'; start all ranks with one "
                              "model, one set of options and one version of culet",
                              r, other, first));
  }
  return {};
}

}  // namespace culet
