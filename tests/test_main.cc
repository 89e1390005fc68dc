// main() of the test programs, each of which holds many files. --entry=NAME runs the tests of one
// entry of ctest, which is one file with the headers that it takes tests from; --gtest_filter
// chooses among those. A test that is in no entry would never run under ctest: it fails every run.
#include "test_main.h"

#include <fnmatch.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace culet {
namespace {

std::vector<std::string> Split(std::string_view text, char separator) {
  std::vector<std::string> parts(1);
  for (const char c : text) {
    if (c == separator) {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

// As GoogleTest reads --gtest_filter: patterns, then a minus and those that are left out.
bool Passes(const std::string& filter, const std::string& name) {
  const auto matches = [&](const std::string& patterns) {
    return std::ranges::any_of(Split(patterns, ':'), [&](const std::string& pattern) {
      return fnmatch(pattern.c_str(), name.c_str(), FNM_NOESCAPE) == 0;
    });
  };
  const std::size_t minus = filter.find('-');
  const std::string wanted = filter.substr(0, minus);
  return (wanted.empty() || matches(wanted)) &&
         (minus == std::string::npos || !matches(filter.substr(minus + 1)));
}

std::string_view BaseName(std::string_view path) { return path.substr(path.rfind('/') + 1); }

// The filter of the entry `wanted`, or that of the command line where `wanted` is empty.
bool ChooseTests(const std::string& wanted) {
  std::set<std::string, std::less<>> covered, chosen;
  bool known = wanted.empty();
  for (const char* const* entry = kTestEntries; *entry != nullptr; ++entry) {
    const std::vector<std::string> words = Split(*entry, ' ');
    covered.insert(words.begin() + 1, words.end());
    if (words.front() != wanted) continue;
    known = true;
    chosen.insert(words.begin() + 1, words.end());
  }
  if (!known) {
    std::fprintf(stderr, "--entry=%s: this program has no such entry\n", wanted.c_str());
    return false;
  }
  const std::string given = GTEST_FLAG_GET(filter);
  std::string filter;
  for (int s = 0; s < testing::UnitTest::GetInstance()->total_test_suite_count(); ++s) {
    const testing::TestSuite& suite = *testing::UnitTest::GetInstance()->GetTestSuite(s);
    for (int t = 0; t < suite.total_test_count(); ++t) {
      const testing::TestInfo& test = *suite.GetTestInfo(t);
      const std::string name = std::string(suite.name()) + "." + test.name();
      const std::string_view file = BaseName(test.file());
      if (name.starts_with("GoogleTestVerification.")) continue;
      if (!covered.contains(file)) {
        std::fprintf(stderr, "%s of %s is in no entry of ctest; tests/CMakeLists.txt makes them\n",
                     name.c_str(), test.file());
        return false;
      }
      if (chosen.contains(file) && Passes(given, name))
        filter += (filter.empty() ? "" : ":") + name;
    }
  }
  if (wanted.empty()) return true;
  if (filter.empty()) {
    std::fprintf(stderr, "--entry=%s --gtest_filter=%s: no test has both\n", wanted.c_str(),
                 given.c_str());
    return false;
  }
  GTEST_FLAG_SET(filter, filter);
  return true;
}

// What the process was started with, and what main() finds.
bool EnvironmentIsKept() {
  if (kTestEntries[1] == nullptr) return true;  // a program of one file
  std::ifstream file("/proc/self/environ");
  const std::vector<std::string> started =
      Split(std::string(std::istreambuf_iterator<char>(file), {}), '\0');
  for (char** entry = environ; *entry != nullptr; ++entry) {
    if (std::ranges::find(started, *entry) != started.end()) continue;
    std::fprintf(stderr, "a file sets %s before main(); it needs a program of its own\n", *entry);
    return false;
  }
  return true;
}

}  // namespace
}  // namespace culet

int main(int argc, char** argv) {
  if (!culet::EnvironmentIsKept()) return 2;
  testing::InitGoogleMock(&argc, argv);
  constexpr std::string_view kEntry = "--entry=";
  std::string entry;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (!argument.starts_with(kEntry)) {
      std::fprintf(stderr, "%s: no option of this program\n", argv[i]);
      return 2;
    }
    entry = argument.substr(kEntry.size());
  }
  return culet::ChooseTests(entry) ? RUN_ALL_TESTS() : 2;
}
