// Options of the command line. CLI11 parses them, behind options.cc alone: including it costs a
// compiler some 14 seconds a file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace culet::cli {

/// One option, declared. A handle: copies are the same option. All functions that return the option
/// refine its declaration.
class Option {
 public:
  /// No option: never given.
  Option() = default;
  explicit Option(CLI::Option* option) : option_(option) {}

  /// How often the command line gave it. Ask after the command line was parsed.
  std::size_t count() const;
  /// "--budget".
  std::string name() const;

  /// The word that stands for the value in the help text.
  const Option& Type(const std::string& name) const;
  /// The heading in the help text.
  const Option& Group(const std::string& name) const;
  /// The help text shows the variable's present value as the default.
  const Option& ShowDefault() const;
  const Option& Required() const;
  const Option& Range(long long least, long long most) const;
  const Option& OneOf(const std::vector<std::string>& names) const;
  /// A finite number above 0; `what` is "a number of seconds", e.g., in the complaint.
  const Option& AboveZero(const std::string& what) const;
  /// `complaint` returns what is wrong with a value, or nothing.
  const Option& Check(std::function<std::string(const std::string&)> complaint) const;

 private:
  CLI::Option* option_ = nullptr;
};

/// A command whose options are being declared. A handle, as Option.
class Command {
 public:
  explicit Command(CLI::App* app) : app_(app) {}

  /// Declares an option with a value, or a position if the name has no dashes. `value` must live
  /// until the command has run.
  Option Add(const std::string& name, std::string& value, const std::string& help) const;
  Option Add(const std::string& name, int& value, const std::string& help) const;
  Option Add(const std::string& name, float& value, const std::string& help) const;
  Option Add(const std::string& name, double& value, const std::string& help) const;
  Option Add(const std::string& name, std::uint64_t& value, const std::string& help) const;
  /// A list: 1,16,128.
  Option Add(const std::string& name, std::vector<int>& values, const std::string& help) const;
  Option Add(const std::string& name, std::vector<std::string>& values,
             const std::string& help) const;
  /// An option without a value: present or not.
  Option AddFlag(const std::string& name, bool& value, const std::string& help) const;

  Command AddCommand(const std::string& name, const std::string& help) const;
  /// Text below the help.
  void Footer(const std::string& text) const;
  /// What runs when the command line names this command; returns the exit code.
  void Runs(std::function<int()> run) const;

 private:
  CLI::App* app_;
};

/// Parses a command line. `declare` adds the commands to the program's.
/// Returns the exit code of the command that the line names; help and version go to stdout, misuse
/// is reported as Misuse() does.
int RunCommandLine(int argc, char** argv, const std::function<void(const Command&)>& declare);

}  // namespace culet::cli
