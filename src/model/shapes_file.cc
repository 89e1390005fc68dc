#include <algorithm>
#include <charconv>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include <fmt/format.h>

#include "culet/printable.h"
#include "culet/model.h"
#include "model/text_file.h"

namespace culet {
namespace {

// A million shapes of 60 characters.
constexpr std::size_t kMaxShapesBytes = std::size_t{64} << 20;
constexpr std::string_view kBlanks = " \t\r\v\f";

std::vector<std::string_view> Words(std::string_view line) {
  line = line.substr(0, line.find('#'));
  std::vector<std::string_view> words;
  for (;;) {
    const std::size_t begin = line.find_first_not_of(kBlanks);
    if (begin == std::string_view::npos) return words;
    line.remove_prefix(begin);
    words.push_back(line.substr(0, line.find_first_of(kBlanks)));
    line.remove_prefix(words.back().size());
  }
}

bool ParseSize(std::string_view word, int* size) {
  const char* const end = word.data() + word.size();
  const auto [parsed, error] = std::from_chars(word.data(), end, *size);
  return error == std::errc() && parsed == end && *size >= 1;
}

}  // namespace

Result<std::vector<NamedShape>> ReadShapes(const std::string& path) {
  const Result<std::string> text = ReadTextFile(path, kMaxShapesBytes);
  if (!text.ok()) return text.status();
  std::string_view rest = *text;
  std::vector<NamedShape> shapes;
  for (int number = 1; !rest.empty(); ++number) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
    const std::vector<std::string_view> words = Words(line);
    if (words.empty()) continue;
    NamedShape shape;
    if (words.size() != 4 || !ParseSize(words[1], &shape.m) || !ParseSize(words[2], &shape.n) ||
        !ParseSize(words[3], &shape.k)) {
      return Status(StatusCode::kInvalidArgument,
                    fmt::format("{}:{}: '{}' is not 'name m n k' with sizes from 1 to 2147483647",
                                path, number, Printable(line, 80)));
    }
    shape.name = words[0];
    shapes.push_back(std::move(shape));
  }
  if (shapes.empty()) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("{} holds no shape; a line is 'name m n k'", path));
  }
  return shapes;
}

}  // namespace culet
