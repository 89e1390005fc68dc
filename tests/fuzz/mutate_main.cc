// Drives a fuzz function without libFuzzer: mutate_main COUNT FILE_OR_FOLDER... gives it each file,
// and COUNT damaged ones, the same in every run.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "fuzz.h"

namespace {

namespace fs = std::filesystem;

void Give(const std::string& text) {
  LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(text.data()), text.size());
}

std::string Read(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// A few damaged bytes, spliced pieces, cuts and repetitions.
std::string Mutate(std::string text, std::mt19937& random) {
  static const char* const kPieces[] = {"9223372036854775807",
                                        "9223372036854775808",
                                        "-1",
                                        "18446744073709551616",
                                        "1e999",
                                        "2147483647",
                                        "null",
                                        "[",
                                        "{",
                                        "\"",
                                        "\\u0000",
                                        "0",
                                        "\xff",
                                        "true",
                                        "[[[[",
                                        ",",
                                        "-0",
                                        "1e-320",
                                        "\"\"",
                                        "4294967296"};
  const auto below = [&](std::size_t n) { return random() % n; };
  for (std::size_t edits = 1 + below(4); edits > 0 && !text.empty(); --edits) {
    const std::size_t at = below(text.size());
    switch (below(6)) {
      case 0:
        text[at] = static_cast<char>(random());
        break;
      case 1:
        text.replace(at, below(4), kPieces[below(std::size(kPieces))]);
        break;
      case 2:
        text.erase(at, 1 + below(8));
        break;
      case 3: {
        // Another number in the place of one.
        const std::size_t digit = text.find_first_of("0123456789", at);
        if (digit == std::string::npos) break;
        const std::size_t end = text.find_first_not_of("0123456789.", digit);
        text.replace(digit, std::min(end, text.size()) - digit, kPieces[below(std::size(kPieces))]);
        break;
      }
      case 4:
        text.resize(below(text.size() + 16));
        break;
      default:
        text.insert(at, text.substr(below(text.size()), below(24)));
    }
  }
  return text;
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<fs::path> files;
  for (int i = 2; i < argc; ++i) {
    if (!fs::is_directory(argv[i])) {
      files.emplace_back(argv[i]);
      continue;
    }
    for (const auto& entry : fs::directory_iterator(argv[i])) files.push_back(entry.path());
  }
  std::ranges::sort(files);
  std::vector<std::string> seeds;
  for (const fs::path& file : files) seeds.push_back(Read(file));
  if (seeds.empty()) {
    std::fputs("mutate_main COUNT FILE_OR_FOLDER...\n", stderr);
    return 2;
  }
  for (const std::string& seed : seeds) Give(seed);
  std::mt19937 random(1);
  for (int i = 0; i < std::atoi(argv[1]); ++i) {
    Give(Mutate(seeds[static_cast<std::size_t>(i) % seeds.size()], random));
  }
  return 0;
}
