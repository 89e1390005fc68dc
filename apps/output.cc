#include "output.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "culet/json.h"
#include "culet/printable.h"

namespace culet::cli {
namespace {

bool misuse_as_json = false;

void PrintError(const Status& status) {
  PrintJson({{"error", {{"code", ToString(status.code())}, {"message", status.message()}}}});
}

// Text from files must not steer the terminal. Line ends are the command's own.
std::string PrintableLines(std::string_view text) {
  std::string lines;
  for (;;) {
    const std::size_t end = text.find('\n');
    lines += Printable(text.substr(0, end));
    if (end == std::string_view::npos) return lines;
    lines += '\n';
    text.remove_prefix(end + 1);
  }
}

std::string Line(const std::vector<Table::Column>& columns, const std::vector<std::string>& cells) {
  std::string line;
  for (std::size_t i = 0; i < columns.size(); ++i) {
    const std::string cell = Printable(cells[i]);
    if (i != 0) line += "  ";
    line += columns[i].align == Table::Align::kRight
                ? fmt::format("{:>{}}", cell, columns[i].width)
                : fmt::format("{:<{}}", cell, columns[i].width);
  }
  line.erase(line.find_last_not_of(' ') + 1);
  return line + '\n';
}

}  // namespace

Table::Table(std::vector<Column> columns) : columns_(std::move(columns)) {
  for (Column& column : columns_) column.width = std::max(column.width, column.header.size());
}

void Table::Add(std::vector<std::string> cells) {
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    cells[i] = Printable(cells[i]);
    columns_[i].width = std::max(columns_[i].width, cells[i].size());
  }
  rows_.push_back(std::move(cells));
}

std::string Table::Header() const {
  std::vector<std::string> headers;
  for (const Column& column : columns_) headers.push_back(column.header);
  return Line(columns_, headers);
}

std::string Table::Row(const std::vector<std::string>& cells) const {
  return Line(columns_, cells);
}

std::string Table::ToString() const {
  std::string text = Header();
  for (const auto& row : rows_) text += Row(row);
  return text;
}

std::string ShownTime(double time_us) {
  const auto three_digits = [](double value, const char* unit) {
    const int decimals = value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
    return fmt::format("{:.{}f} {}", value, decimals, unit);
  };
  if (!std::isfinite(time_us)) return "-";
  if (time_us < 0.9995) return three_digits(time_us * 1e3, "ns");
  if (time_us < 999.5) return three_digits(time_us, "us");
  if (time_us < 999.5e3) return three_digits(time_us / 1e3, "ms");
  return three_digits(time_us / 1e6, "s");
}

std::string ShownTimeOrDash(double time_us) { return time_us > 0 ? ShownTime(time_us) : "-"; }

std::string ShownBytes(double bytes) {
  const char* const units[] = {"B", "KB", "MB", "GB", "TB"};
  std::size_t unit = 0;
  while (bytes >= 1024 && unit + 1 < std::size(units)) {
    bytes /= 1024;
    ++unit;
  }
  return fmt::format("{:.{}f} {}", bytes, unit == 0 || bytes >= 100 ? 0 : 1, units[unit]);
}

std::string Counted(std::size_t count, const char* noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

Json Number(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

Json ToJson(const LaunchSpec& spec) { return Json::parse(JsonOf(spec)); }

void PrintText(const std::string& text) {
  const std::string lines = PrintableLines(text);
  std::fwrite(lines.data(), 1, lines.size(), stdout);
}

void PrintJson(const Json& document) {
  std::string text = document.dump(2, ' ', false, Json::error_handler_t::replace) + '\n';
  // The one escape of Printable that JSON has not, and that its writer leaves to it.
  for (std::size_t at = 0; (at = text.find('\x7f', at)) != std::string::npos;) {
    text.replace(at, 1, "\\u007f");
  }
  PrintText(text);
}

void Note(const std::string& sentence) {
  const std::string line = "culet: " + PrintableLines(sentence) + '\n';
  std::fwrite(line.data(), 1, line.size(), stderr);
}

void ReportMisuseAsJson() { misuse_as_json = true; }

int Fail(const Status& status, bool json) {
  Note(status.message());
  if (json) PrintError(status);
  return kFailure;
}

int Misuse(const std::string& sentence) {
  Note(sentence);
  if (misuse_as_json) PrintError(Status(StatusCode::kInvalidArgument, sentence));
  return kMisuse;
}

}  // namespace culet::cli
