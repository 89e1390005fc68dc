// Functions that take any bytes. libFuzzer drives them where the build has it (CULET_FUZZERS); the
// test suite drives them with mutate_main.cc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace culet {

/// What must hold for every input.
inline void FuzzRequire(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "does not hold: %s\n", what);
  std::abort();
}

}  // namespace culet
