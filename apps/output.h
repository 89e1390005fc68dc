// What the commands print: aligned tables for people, one JSON document for programs.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "culet/desc.h"
#include "culet/kernel.h"
#include "culet/status.h"

namespace culet::cli {

using Json = nlohmann::ordered_json;

/// What a command returns to the shell.
enum ExitCode : int {
  kSuccess = 0,
  kFailure = 1,
  kMisuse = 2,  ///< conflicting or missing options
};

/// A table with a header; columns are as wide as their widest cell.
class Table {
 public:
  enum class Align { kLeft, kRight };
  struct Column {
    std::string header;
    Align align = Align::kLeft;
    std::size_t width = 0;  ///< at least; for rows that are printed before the last is known
  };

  explicit Table(std::vector<Column> columns);

  /// One cell a column, which is shown as Printable has it.
  void Add(std::vector<std::string> cells);

  /// Header and rows, each with a line end.
  std::string ToString() const;

  /// The header alone, and a row alone, for tables that grow while they are printed.
  std::string Header() const;
  std::string Row(const std::vector<std::string>& cells) const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

/// "820 ns", "12.3 us", "4.56 ms", "1.20 s": three digits.
std::string ShownTime(double time_us);
/// "-" where nothing is known.
std::string ShownTimeOrDash(double time_us);
/// "60.0 MB", in powers of 1024.
std::string ShownBytes(double bytes);

/// "1 problem", "3 problems".
std::string Counted(std::size_t count, const char* noun);

/// A number as JSON, null when it is not finite.
Json Number(double value);
Json ToJson(const LaunchSpec& spec);

/// Text on stdout, each line as Printable has it. That it could not be written is told at the end
/// of the command, by main.
void PrintText(const std::string& text);
template <class... Args>
void Print(fmt::format_string<Args...> format, Args&&... args) {
  PrintText(fmt::format(format, std::forward<Args>(args)...));
}

/// The document, on stdout.
void PrintJson(const Json& document);

/// One sentence on stderr, as Printable has it; nothing happens where that cannot be written.
void Note(const std::string& sentence);

/// Makes Misuse print a document too. Said before the options are parsed, which may be what fails.
void ReportMisuseAsJson();

/// Reports the failure: a sentence on stderr and, with `json`, {"error": ...} on stdout.
int Fail(const Status& status, bool json);
/// The same for a command line that makes no sense.
int Misuse(const std::string& sentence);

}  // namespace culet::cli
