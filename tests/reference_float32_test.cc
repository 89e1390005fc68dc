// The reference in FP32 on tests/goldens/qwen3-fp8-tie, whose outputs were made with the same
// arithmetic in NumPy: same operations, same orders of addition (docs/graph.md).
#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "culet/decoder.h"
#include "culet/dispatch.h"
#include "decoder_fixture.h"

namespace culet {
namespace {

constexpr std::size_t kTie = 8;  // the position

class ReferenceFloat32 : public testing::Test {
 protected:
  void SetUp() override {
    const std::string folder = OwnGoldens("qwen3-fp8-tie");
    goldens_ = ReadGoldens(folder);
    ASSERT_TRUE(goldens_.has_value());
    auto model = DecoderModel::Load(folder, HostMemory(), {});
    ASSERT_TRUE(model.ok()) << model.status().ToString();
    model_ = std::make_unique<DecoderModel>(*std::move(model));
  }

  // The prompt in pieces of so many tokens.
  StepResult Read(Arithmetic arithmetic, int piece) {
    const auto dispatch = MakeReferenceDispatch(arithmetic);
    const int length = static_cast<int>(goldens_->input_ids.size());
    auto session =
        Session::Create(*model_, *dispatch, {.max_context = length, .max_step_tokens = piece});
    EXPECT_TRUE(session.ok()) << session.status().ToString();
    auto result = session->Prefill(*session->AddSequence(), goldens_->input_ids,
                                   {.all_logits = true, .hidden = true});
    EXPECT_TRUE(result.ok()) << result.status().ToString();
    return *std::move(result);
  }

  std::optional<Goldens> goldens_;
  std::unique_ptr<DecoderModel> model_;
};

TEST_F(ReferenceFloat32, HasTheBitsOfItsDefinition) {
  for (const int piece : {24, 7, 1}) {
    const StepResult result = Read(Arithmetic::kFloat32, piece);
    EXPECT_TRUE(std::ranges::equal(result.logits, goldens_->logits)) << piece;
    EXPECT_TRUE(std::ranges::equal(result.hidden, goldens_->hidden)) << piece;
  }
}

TEST_F(ReferenceFloat32, DoubleDiffersFromTheTieOn) {
  const StepResult result = Read(Arithmetic::kFloat64, 24);
  const auto vocab = static_cast<std::size_t>(model_->config().vocab);
  ASSERT_EQ(result.logits.size(), goldens_->logits.size());
  for (std::size_t row = 0; row < goldens_->input_ids.size(); ++row) {
    const double error =
        RelativeL2(&result.logits[row * vocab], &goldens_->logits[row * vocab], vocab);
    EXPECT_LE(error, row < kTie ? 1e-5 : 0.1) << "position " << row;
    if (row >= kTie) {
      EXPECT_GT(error, 5e-3) << "position " << row;
    }
  }
}

}  // namespace
}  // namespace culet
