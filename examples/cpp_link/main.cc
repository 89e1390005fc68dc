// A model that reads a prompt and goes on, by culet's C++ interface.
// cpp_link FOLDER PROMPT: the folder of a checkpoint whose tokens are bytes, like examples/adder.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "culet/decoder.h"
#include "culet/dispatch.h"
#include "culet/gemm.h"

namespace {

culet::Status Continue(const std::string& folder, const std::string& prompt) {
  auto gemm = culet::Gemm::Create();
  if (!gemm) return gemm.status();
  const auto dispatch = culet::MakeCpuDispatch(*gemm);
  const auto model = culet::DecoderModel::Load(folder, dispatch->memory());
  if (!model) return model.status();
  auto session = culet::Session::Create(*model, *dispatch);
  if (!session) return session.status();
  const auto sequence = session->AddSequence();
  if (!sequence) return sequence.status();

  const std::vector<std::int32_t> tokens(prompt.begin(), prompt.end());
  auto step = session->Prefill(*sequence, tokens);
  std::string text = prompt;
  const std::vector<int>& ends = model->config().eos_ids;
  while (step.ok() && std::find(ends.begin(), ends.end(), step->next[0]) == ends.end()) {
    text += static_cast<char>(step->next[0]);
    const culet::SequenceTokens next{*sequence, {&step->next[0], 1}};
    step = session->Step({&next, 1});
  }
  std::puts(text.c_str());
  return step.status();
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 3) return std::puts("usage: cpp_link FOLDER PROMPT"), 2;
  const culet::Status status = Continue(arguments[1], arguments[2]);
  if (!status.ok()) std::fputs((status.ToString() + '\n').c_str(), stderr);
  return status.ok() ? 0 : 1;
}
