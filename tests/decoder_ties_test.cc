// The FP8 fixture at all positions: three inputs of products lie so near the middle between two
// E4M3 numbers that the order of FP32 additions decides their codes (docs/graph.md). With those
// three codes as the fixture's maker had them, everything else has to agree.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/float_types.h"
#include "culet/decoder.h"
#include "culet/dispatch.h"
#include "culet/kernel_dispatch.h"
#include "decoder_fixture.h"

namespace culet {
namespace {

struct Input {
  std::string node;
  std::int64_t row, col;
  bool up;  // the code of the larger magnitude
};
const std::vector<Input> kInputs = {
    {"layers.1.gate", 29, 75, false}, {"layers.1.up", 29, 75, false},
    {"layers.0.o", 30, 81, false},    {"layers.0.q", 31, 248, true},
    {"layers.0.k", 31, 248, true},    {"layers.0.v", 31, 248, true}};

// The nearest E4M3 number and, on the other side of `magnitude`, the next one; in ascending order.
std::pair<double, double> Neighbours(double magnitude) {
  double below = 0, above = 448;
  for (int code = 0; code < 127; ++code) {
    const double value = Float8E4m3ToFloat(static_cast<std::uint8_t>(code));
    if (value <= magnitude) below = std::max(below, value);
    if (value > magnitude) above = std::min(above, value);
  }
  return {below, above};
}

// Gives one input of a product the code that is asked for, in a value that is already there.
void Recode(const NodeLaunch& launch, const Input& input) {
  const Weight& weight = launch.node().params.weight;
  const std::int64_t k = weight.cols, group = launch.node().params.quant_a.group_size;
  const float* const x = FromDevicePtr<const float>(launch.input(0)) + input.row * k;
  const std::int64_t first = input.col / group * group;
  float amax = 0;
  for (std::int64_t i = first; i < std::min(k, first + group); ++i) {
    amax = std::max(amax, std::fabs(x[i]));
  }
  const float scale = amax / 448, y = x[input.col] / scale;
  const auto [below, above] = Neighbours(std::fabs(y));
  ASSERT_LT(std::fabs(std::fabs(y) - (below + above) / 2), 1e-4)
      << input.node << ": not near the middle of two codes";
  const double wanted = std::copysign(input.up ? above : below, y);
  const double change = (wanted - Float8E4m3ToFloat(FloatToFloat8E4m3(y))) * scale;
  const std::int64_t g = weight.quant.group_size, across = (k + g - 1) / g;
  auto* const out = FromDevicePtr<float>(launch.output) + input.row * weight.rows;
  for (std::int64_t j = 0; j < weight.rows; ++j) {
    const double code =
        LoadAsDouble(FromDevicePtr<const void>(weight.data_ptr), weight.type, j * k + input.col);
    const float weight_scale =
        FromDevicePtr<const float>(weight.scales_ptr)[j / g * across + input.col / g];
    out[j] = static_cast<float>(out[j] + change * code * weight_scale);
  }
}

TEST(Fp8Fixture, ThreeCodesAreTheWholeDifference) {
  const std::string folder = FixtureFolder("qwen3-fp8");
  if (folder.empty()) GTEST_SKIP() << "no fixture qwen3-fp8; set CULET_FIXTURES";
  const auto goldens = ReadGoldens(folder);
  ASSERT_TRUE(goldens.has_value());
  const auto model = DecoderModel::Load(folder, HostMemory(), {DataType::kBfloat16});
  ASSERT_TRUE(model.ok()) << model.status().ToString();
  const auto dispatch = MakeReferenceDispatch();
  auto session = Session::Create(*model, *dispatch, {.max_context = 64});
  ASSERT_TRUE(session.ok());
  session->SetHook([](KernelDispatch& inner, const NodeLaunch& launch) {
    CULET_RETURN_IF_ERROR(inner.launch(launch));
    for (const Input& input : kInputs) {
      if (launch.node().name == input.node) Recode(launch, input);
    }
    return Status();
  });
  const auto result = session->Prefill(*session->AddSequence(), goldens->input_ids,
                                       {.all_logits = true, .hidden = true});
  ASSERT_TRUE(result.ok()) << result.status().ToString();
  const auto vocab = static_cast<std::size_t>(model->config().vocab);
  const std::size_t tokens = goldens->input_ids.size();
  for (std::size_t row = 0; row < tokens; ++row) {
    EXPECT_LE(RelativeL2(&result->logits[row * vocab], &goldens->logits[row * vocab], vocab), 1e-3)
        << "position " << row;
  }
  EXPECT_LE(RelativeL2(result->logits.data(), goldens->logits.data(), tokens * vocab), 5e-4);
  EXPECT_LE(RelativeL2(result->hidden.data(), goldens->hidden.data(), goldens->hidden.size()),
            5e-4);
}

}  // namespace
}  // namespace culet
