// Weights of 4 bits as AutoAWQ, GPTQ and compressed-tensors pack them: the words that those
// projects' own code packs, written out, and files that contradict themselves.
#include "model/packed_weight.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "base/float_types.h"

namespace culet {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Form = WeightCoding::Form;

// Tensors in memory.
struct Words {
  Words(std::string name, std::vector<std::int64_t> shape, std::vector<std::uint32_t> values)
      : words(std::move(values)) {
    tensor.name = std::move(name);
    tensor.dtype = "I32";
    tensor.shape = std::move(shape);
    tensor.data = reinterpret_cast<const std::byte*>(words.data());
    tensor.bytes = static_cast<std::int64_t>(words.size() * 4);
  }
  Words(const Words&) = delete;
  std::vector<std::uint32_t> words;
  SafetensorsTensor tensor;
};

struct Scales {
  Scales(std::string name, std::vector<std::int64_t> shape, const std::vector<float>& values)
      : halves(values.size()) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      StoreFromDouble(halves.data(), DataType::kFloat16, static_cast<std::int64_t>(i),
                      static_cast<double>(values[i]));
    }
    tensor.name = std::move(name);
    tensor.dtype = "F16";
    tensor.shape = std::move(shape);
    tensor.data = reinterpret_cast<const std::byte*>(halves.data());
    tensor.bytes = static_cast<std::int64_t>(halves.size() * 2);
  }
  Scales(const Scales&) = delete;
  std::vector<std::uint16_t> halves;
  SafetensorsTensor tensor;
};

// Row `row` in the order of the weight's columns.
std::vector<double> RowOf(const UnpackedWeight& weight, std::int64_t row, std::int64_t cols,
                          std::int64_t group) {
  std::vector<double> values;
  for (std::int64_t k = 0; k < cols; ++k) {
    const std::int64_t at = row * (cols / group) + k / group;
    const double code = LoadAsDouble(weight.codes.data(), DataType::kUint4, row * cols + k);
    const double zero = LoadAsDouble(weight.zeros.data(), DataType::kBfloat16, at);
    values.push_back((code - zero) * LoadAsDouble(weight.scales.data(), weight.scales_type, at));
  }
  return values;
}

std::vector<double> ColumnOf(const UnpackedWeight& weight, std::int64_t rows, std::int64_t cols,
                             std::int64_t group, std::int64_t col) {
  std::vector<double> values;
  for (std::int64_t row = 0; row < rows; ++row) {
    values.push_back(RowOf(weight, row, cols, group)[static_cast<std::size_t>(col)]);
  }
  return values;
}

WeightCoding Coding(Form form, int group, bool zeros = true, bool less_one = false) {
  WeightCoding coding;
  coding.form = form;
  coding.weights = group == 0 ? QuantDesc{QuantType::kRow} : QuantDesc{QuantType::kK, group};
  coding.zeros = zeros;
  coding.zeros_less_one = less_one;
  return coding;
}

// AutoAWQ packs columns of the output in the order 0 2 4 6 1 3 5 7.
TEST(PackedWeight, AwqHasItsOrder) {
  const Words codes("q", {2, 1}, {0x75316420u, 0x75316420u}), zeros("z", {1, 1}, {0x88888888u});
  const Scales scales("s", {1, 8}, std::vector<float>(8, 0.5f));
  for (const int group : {2, 0}) {
    const auto made = Unpack({&codes.tensor, &scales.tensor, &zeros.tensor, nullptr, nullptr},
                             Coding(Form::kAwq, group), 8, 2);
    ASSERT_TRUE(made.ok()) << made.status().ToString();
    EXPECT_THAT(ColumnOf(*made, 8, 2, 2, 1), ElementsAre(-4, -3.5, -3, -2.5, -2, -1.5, -1, -0.5));
    EXPECT_TRUE(made->order.empty());
  }
}

TEST(PackedWeight, AwqZeroPointsHaveItTo) {
  const Words codes("q", {2, 1}, {0, 0}), zeros("z", {1, 1}, {0x75316420u});
  const Scales scales("s", {1, 8}, std::vector<float>(8, 1.0f));
  const auto made = Unpack({&codes.tensor, &scales.tensor, &zeros.tensor, nullptr, nullptr},
                           Coding(Form::kAwq, 2), 8, 2);
  ASSERT_TRUE(made.ok()) << made.status().ToString();
  EXPECT_THAT(ColumnOf(*made, 8, 2, 2, 0), ElementsAre(0, -1, -2, -3, -4, -5, -6, -7));
}

// Version 1 stores the whole word of zero points less 0x11111111: (0, 8, ... 8) is 0x7777776f.
TEST(PackedWeight, GptqZeroPoints) {
  const auto column = [](std::uint32_t zero_word, bool less_one, bool symmetric) {
    const Words codes("q", {1, 8}, std::vector<std::uint32_t>(8, 0x88888888u));
    const Words zeros("z", {1, 1}, {zero_word});
    const Scales scales("s", {1, 8}, std::vector<float>(8, 1.0f));
    WeightCoding coding = Coding(Form::kGptq, 8, true, less_one);
    coding.symmetric = symmetric;
    const auto made =
        Unpack({&codes.tensor, &scales.tensor, &zeros.tensor, nullptr, nullptr}, coding, 8, 8);
    EXPECT_TRUE(made.ok()) << made.status().ToString();
    return ColumnOf(*made, 8, 8, 8, 3);
  };
  EXPECT_THAT(column(0x7777776fu, true, false), ElementsAre(8, 0, 0, 0, 0, 0, 0, 0));
  EXPECT_THAT(column(0x88888880u, false, false), ElementsAre(8, 0, 0, 0, 0, 0, 0, 0));
  // Symmetric weights say themselves which version they are.
  const std::vector<double> nothing(8, 0.0);
  for (const bool less_one : {true, false}) {
    EXPECT_EQ(column(0x77777777u, less_one, true), nothing);
    EXPECT_EQ(column(0x88888888u, less_one, true), nothing);
  }
}

// Nibble i of a word of row r is k = 8 r + i.
TEST(PackedWeight, GptqPacksAlongK) {
  const Words codes("q", {2, 8},
                    {0x76543210u, 0, 0, 0, 0, 0, 0, 0, 0xfedcba98u, 0, 0, 0, 0, 0, 0, 0});
  const Words zeros("z", {2, 1}, {0, 0});
  const Scales scales("s", {2, 8}, {1, 1, 1, 1, 1, 1, 1, 1, 2, 1, 1, 1, 1, 1, 1, 1});
  const auto made = Unpack({&codes.tensor, &scales.tensor, &zeros.tensor, nullptr, nullptr},
                           Coding(Form::kGptq, 8), 8, 16);
  ASSERT_TRUE(made.ok()) << made.status().ToString();
  EXPECT_THAT(RowOf(*made, 0, 16, 8),
              ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 16, 18, 20, 22, 24, 26, 28, 30));
}

// Columns are sorted by their groups, and the order says where each came from.
TEST(PackedWeight, GptqGroupsInAnyOrder) {
  std::vector<std::uint32_t> words(8, 0);
  words[0] = 0x76543210u;
  const Words codes("q", {1, 8}, words), zeros("z", {2, 1}, {0, 0});
  const Words order("g_idx", {8}, {1, 0, 1, 0, 0, 1, 1, 0});
  const Scales scales("s", {2, 8}, {1, 1, 1, 1, 1, 1, 1, 1, 10, 1, 1, 1, 1, 1, 1, 1});
  const auto made = Unpack({&codes.tensor, &scales.tensor, &zeros.tensor, &order.tensor, nullptr},
                           Coding(Form::kGptq, 4), 8, 8);
  ASSERT_TRUE(made.ok()) << made.status().ToString();
  EXPECT_THAT(made->order, ElementsAre(1, 3, 4, 7, 0, 2, 5, 6));
  EXPECT_THAT(RowOf(*made, 0, 8, 4), ElementsAre(1, 3, 4, 7, 0, 20, 50, 60));
}

// compressed-tensors stores nibble - 8, zero points packed along rows.
TEST(PackedWeight, CompressedTensors) {
  const Words codes("q", {2, 1}, {0xcba9f870u, 0xcba9f870u}), zeros("z", {1, 1}, {0x00000098u});
  const Words order("g", {8}, std::vector<std::uint32_t>(8, 0xffffffffu));  // -1: none
  const Words shape("n", {2}, {2, 8});
  const Scales scales("s", {2, 1}, {1, 2});
  const auto symmetric =
      Unpack({&codes.tensor, &scales.tensor, nullptr, &order.tensor, &shape.tensor},
             Coding(Form::kPackQuantized, 8, false), 2, 8);
  ASSERT_TRUE(symmetric.ok()) << symmetric.status().ToString();
  EXPECT_THAT(RowOf(*symmetric, 0, 8, 8), ElementsAre(-8, -1, 0, 7, 1, 2, 3, 4));
  EXPECT_TRUE(symmetric->order.empty());
  const auto shifted = Unpack({&codes.tensor, &scales.tensor, &zeros.tensor, nullptr, nullptr},
                              Coding(Form::kPackQuantized, 8), 2, 8);
  ASSERT_TRUE(shifted.ok()) << shifted.status().ToString();
  EXPECT_THAT(RowOf(*shifted, 0, 8, 8), ElementsAre(-8, -1, 0, 7, 1, 2, 3, 4));
  EXPECT_THAT(RowOf(*shifted, 1, 8, 8), ElementsAre(-18, -4, -2, 12, 0, 2, 4, 6));
}

TEST(PackedWeight, SaysWhatIsWrong) {
  const Words codes("m.qweight", {2, 8}, std::vector<std::uint32_t>(16));
  const Words zeros("m.qzeros", {2, 1}, {0, 0}), short_zeros("m.qzeros", {1, 1}, {0});
  const std::vector<float> ones(16, 1.0f);
  const Scales scales("m.scales", {2, 8}, ones);
  std::vector<float> with_zero = ones, with_nan = ones;
  with_zero[9] = 0;
  with_nan[3] = std::numeric_limits<float>::quiet_NaN();
  const Scales zero("m.scales", {2, 8}, with_zero), nan("m.scales", {2, 8}, with_nan);
  const auto message = [&](const PackedTensors& tensors, int group, std::int64_t rows = 8,
                           std::int64_t cols = 16, Form form = Form::kGptq) {
    const auto made = Unpack(tensors, Coding(form, group), rows, cols);
    EXPECT_FALSE(made.ok());
    return made.status().message();
  };
  const PackedTensors good{&codes.tensor, &scales.tensor, &zeros.tensor, nullptr, nullptr};
  const auto with = [&](const std::function<void(PackedTensors&)>& change) {
    PackedTensors tensors = good;
    change(tensors);
    return tensors;
  };
  ASSERT_TRUE(Unpack(good, Coding(Form::kGptq, 8), 8, 16).ok());
  EXPECT_THAT(message(with([&](auto& t) { t.zeros = &short_zeros.tensor; }), 8),
              HasSubstr("tensor m.qzeros is [1, 1]; the config makes it [2, 1]"));
  EXPECT_THAT(message(with([&](auto& t) { t.scales = &zero.tensor; }), 8),
              HasSubstr("tensor m.scales holds the scale 0 for output feature 1, group 1"));
  EXPECT_THAT(message(with([&](auto& t) { t.scales = &nan.tensor; }), 8),
              HasSubstr("tensor m.scales holds the scale nan for output feature 3, group 0"));
  EXPECT_THAT(message(good, 6), HasSubstr("tensor m.qweight is of 16 input features, no multiple "
                                          "of group_size 6"));
  EXPECT_THAT(message(good, 4, 8, 12), HasSubstr("is of 12 input features; 8 of them share"));
  EXPECT_THAT(message(good, 8, 7, 16, Form::kAwq),
              HasSubstr("is of 7 output features; 8 of them share"));
  EXPECT_THAT(message(good, 8, 16), HasSubstr("tensor m.qweight is [2, 8]; the config makes it "
                                              "[2, 16]"));
  const auto order = [&](std::vector<std::uint32_t> groups) {
    const Words g_idx("m.g_idx", {static_cast<std::int64_t>(groups.size())}, groups);
    return message(with([&](auto& t) { t.order = &g_idx.tensor; }), 8);
  };
  std::vector<std::uint32_t> groups(16, 0);
  EXPECT_THAT(order(groups), HasSubstr("tensor m.g_idx puts 16 input features into group 0; "
                                       "group_size is 8"));
  groups[5] = 2;
  EXPECT_THAT(order(groups), HasSubstr("tensor m.g_idx puts input feature 5 into group 2; there "
                                       "are groups 0 to 1"));
  groups[5] = 0x80000000u;
  EXPECT_THAT(order(groups), HasSubstr("into group -2147483648; there are groups 0 to 1"));
  EXPECT_THAT(order({0, 0, 0}), HasSubstr("tensor m.g_idx is [3]; the config makes it [16]"));
  SafetensorsTensor wide = codes.tensor;
  wide.dtype = "I64";
  EXPECT_THAT(message(with([&](auto& t) { t.codes = &wide; }), 8),
              HasSubstr("tensor m.qweight is I64; it must be I32"));
  const Words shape("m.weight_shape", {2}, {8, 8});
  EXPECT_THAT(message(with([&](auto& t) { t.shape = &shape.tensor; }), 8),
              HasSubstr("tensor m.weight_shape holds (8, 8); the config makes it (8, 16)"));
}

}  // namespace
}  // namespace culet
