#include "options.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <string_view>
#include <type_traits>
#include <utility>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "output.h"

namespace culet::cli {
namespace {

// The function of the command that was named. CLI11 calls a command's callback while it parses;
// what the command does must happen after that, outside its try block.
std::function<int()> g_chosen;

// Decimal numbers alone, the whole of `text`: CLI11 takes 010 for 8 and 2^64 for 2^64 - 1.
template <typename T>
bool ParseNumber(std::string_view text, T& value) {
  if (text.starts_with('+') && !text.starts_with("+-")) text.remove_prefix(1);
  const char* const end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, value);
  return at == end && error == std::errc();
}

template <typename T>
void TakeNumber(const std::string& name, const std::string& text, T& value) {
  if (ParseNumber(text, value)) return;
  if constexpr (std::is_integral_v<T>) {
    throw CLI::ValidationError(
        name, fmt::format("'{}' is not a whole number from {} to {}", text,
                          std::numeric_limits<T>::min(), std::numeric_limits<T>::max()));
  } else {
    throw CLI::ValidationError(name, fmt::format("'{}' is not a number that fits", text));
  }
}

template <typename T>
Option AddNumber(CLI::App* app, const std::string& name, T& value, const std::string& help) {
  CLI::Option* const option = app->add_option_function<std::string>(
      name, [name, &value](const std::string& text) { TakeNumber(name, text, value); }, help);
  option->default_function([&value] { return fmt::format("{}", value); });
  return Option(option);
}

}  // namespace

std::size_t Option::count() const { return option_ == nullptr ? 0 : option_->count(); }

std::string Option::name() const { return option_ == nullptr ? "" : option_->get_name(); }

const Option& Option::Type(const std::string& name) const {
  option_->type_name(name);
  return *this;
}

const Option& Option::Group(const std::string& name) const {
  option_->group(name);
  return *this;
}

const Option& Option::ShowDefault() const {
  option_->capture_default_str();
  return *this;
}

const Option& Option::Required() const {
  option_->required();
  return *this;
}

const Option& Option::Range(long long least, long long most) const {
  return Check([least, most](const std::string& text) {
    long long value = 0;
    const bool valid = ParseNumber(text, value) && value >= least && value <= most;
    return valid ? std::string()
                 : fmt::format("'{}' is not a whole number from {} to {}", text, least, most);
  });
}

const Option& Option::OneOf(const std::vector<std::string>& names) const {
  option_->check(CLI::IsMember(names));
  return *this;
}

const Option& Option::AboveZero(const std::string& what) const {
  return Check([what](const std::string& text) {
    double value = 0;
    const bool valid = ParseNumber(text, value) && std::isfinite(value) && value > 0;
    return valid ? std::string() : fmt::format("{} is not {} above 0", text, what);
  });
}

const Option& Option::Check(std::function<std::string(const std::string&)> complaint) const {
  option_->check(CLI::Validator(
      [complaint = std::move(complaint)](const std::string& text) { return complaint(text); }, ""));
  return *this;
}

Option Command::Add(const std::string& name, std::string& value, const std::string& help) const {
  return Option(app_->add_option(name, value, help));
}

Option Command::Add(const std::string& name, int& value, const std::string& help) const {
  return AddNumber(app_, name, value, help);
}

Option Command::Add(const std::string& name, float& value, const std::string& help) const {
  return AddNumber(app_, name, value, help);
}

Option Command::Add(const std::string& name, double& value, const std::string& help) const {
  return AddNumber(app_, name, value, help);
}

Option Command::Add(const std::string& name, std::uint64_t& value, const std::string& help) const {
  return AddNumber(app_, name, value, help);
}

Option Command::Add(const std::string& name, std::vector<int>& values,
                    const std::string& help) const {
  const auto take = [name, &values](const std::vector<std::string>& lists) {
    values.clear();
    for (const std::string& list : lists) {
      for (std::size_t first = 0; first <= list.size();) {
        const std::size_t comma = std::min(list.find(',', first), list.size());
        values.emplace_back();
        TakeNumber(name, list.substr(first, comma - first), values.back());
        first = comma + 1;
      }
    }
  };
  // One word each time that it is given: what follows is another option's.
  return Option(app_->add_option_function<std::vector<std::string>>(name, take, help)
                    ->allow_extra_args(false));
}

Option Command::Add(const std::string& name, std::vector<std::string>& values,
                    const std::string& help) const {
  CLI::Option* const option = app_->add_option(name, values, help);
  // One word each time that an option is given: what follows may be a position's.
  if (name.starts_with('-')) option->allow_extra_args(false);
  return Option(option);
}

Option Command::AddFlag(const std::string& name, bool& value, const std::string& help) const {
  return Option(app_->add_flag(name, value, help));
}

Command Command::AddCommand(const std::string& name, const std::string& help) const {
  return Command(app_->add_subcommand(name, help));
}

void Command::Footer(const std::string& text) const { app_->footer(text); }

void Command::Runs(std::function<int()> run) const {
  app_->callback([run = std::move(run)] { g_chosen = run; });
}

int RunCommandLine(int argc, char** argv, const std::function<void(const Command&)>& declare) {
  CLI::App app("Finds, explains and measures the fastest kernel for each matrix product.", "culet");
  app.set_version_flag("--version", "culet " CULET_VERSION);
  app.require_subcommand(0, 1);
  app.get_formatter()->column_width(26);
  g_chosen = nullptr;
  declare(Command(&app));
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& help) {
    return app.exit(help);
  } catch (const CLI::ConversionError& error) {
    return Misuse(fmt::format("{}; the value is no number that this option takes", error.what()));
  } catch (const CLI::ParseError& error) {
    return Misuse(fmt::format("{} (culet --help shows the options)", error.what()));
  }
  if (!g_chosen) return Misuse("a command is missing; culet --help lists them");
  return g_chosen();
}

}  // namespace culet::cli
