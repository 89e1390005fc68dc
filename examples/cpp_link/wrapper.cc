// A model that reads a prompt and goes on, by the C++17 wrapper of culet's C interface.
// cpp_wrapper FOLDER PROMPT: the folder of a checkpoint whose tokens are bytes, like
// examples/adder.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "culet/culet.hpp"

namespace {

std::string Continue(const std::string& folder, const std::string& prompt) {
  const culet::c::Engine engine("cpu");
  const culet::c::Model model(engine, folder);
  culet::c::Session session(model);
  const std::int32_t sequence = session.Add();
  const std::vector<std::int32_t> ends = model.end_tokens();
  auto step = session.Prefill({{sequence, {prompt.begin(), prompt.end()}}});
  std::string text = prompt;
  while (std::find(ends.begin(), ends.end(), step.next[0]) == ends.end()) {
    text += static_cast<char>(step.next[0]);
    if (session.LeftOf(sequence) == 0) break;
    step = session.Step({{sequence, step.next}});
  }
  return text;
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 3) return std::puts("usage: cpp_wrapper FOLDER PROMPT"), 2;
  try {
    std::puts(Continue(arguments[1], arguments[2]).c_str());
    return 0;
  } catch (const culet::c::Error& error) {
    std::fprintf(stderr, "%s: %s\n", culet_status_name(error.status()), error.what());
    return 1;
  }
}
