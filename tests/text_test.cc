// The text names of all enums: caches and the command line depend on them.
#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "culet/desc.h"
#include "culet/kernel.h"
#include "culet/types.h"

namespace culet {
namespace {

// Every enumerator in order. `names` are spelt out: they stand in files of users.
template <class Enum>
void CheckNames(const std::vector<std::string>& names) {
  std::set<std::string> unique;
  for (std::size_t i = 0; i < names.size(); ++i) {
    const Enum value = static_cast<Enum>(i);
    EXPECT_EQ(ToString(value), names[i]);
    EXPECT_EQ(FromString<Enum>(names[i]), value) << names[i];
    unique.insert(names[i]);
  }
  EXPECT_EQ(unique.size(), names.size());
  // No other byte has a name, so a value from a damaged file is noticed.
  for (std::size_t i = names.size(); i < 256; ++i) {
    const std::string name = ToString(static_cast<Enum>(i));
    EXPECT_EQ(name, "invalid") << i;
  }
  for (const std::string_view text : {"", "invalid", "no such name", "INVALID"}) {
    EXPECT_EQ(FromString<Enum>(text), std::nullopt) << text;
  }
  for (const std::string& name : names) {
    EXPECT_EQ(FromString<Enum>(name + " "), std::nullopt);
    EXPECT_EQ(FromString<Enum>(std::string_view(name).substr(0, name.size() - 1)), std::nullopt);
  }
}

TEST(Text, DataType) {
  CheckNames<DataType>({"none", "float32", "float16", "bfloat16", "float8_e4m3", "float8_ue8m0",
                        "int32", "int4", "uint4", "float4_e2m1", "int8"});
}
TEST(Text, Order) { CheckNames<Order>({"col", "row"}); }
TEST(Text, Striding) { CheckNames<Striding>({"flat", "blocked", "indexed"}); }
TEST(Text, QuantType) { CheckNames<QuantType>({"none", "k", "block", "tensor", "row"}); }
TEST(Text, Epilogue) { CheckNames<Epilogue>({"none", "gated_silu", "gated_silu_quant"}); }
TEST(Text, GateOrder) { CheckNames<GateOrder>({"eights", "halves"}); }
TEST(Text, DispatchPolicy) { CheckNames<DispatchPolicy>({"default", "measure", "reuse"}); }
TEST(Text, Accumulate) { CheckNames<Accumulate>({"promoted", "fast", "full"}); }
TEST(Text, Determinism) { CheckNames<Determinism>({"fast", "repeatable", "batch_invariant"}); }
TEST(Text, Backend) { CheckNames<Backend>({"reference", "native", "library", "user"}); }
TEST(Text, Origin) { CheckNames<Origin>({"predicted", "measured"}); }

TEST(SizeOf, IsTheBytesOfAnElement) {
  EXPECT_EQ(SizeOf(DataType::kNull), 0u);
  EXPECT_EQ(SizeOf(DataType::kFloat32), 4u);
  EXPECT_EQ(SizeOf(DataType::kFloat16), 2u);
  EXPECT_EQ(SizeOf(DataType::kBfloat16), 2u);
  EXPECT_EQ(SizeOf(DataType::kFloat8_e4m3), 1u);
  EXPECT_EQ(SizeOf(DataType::kFloat8_ue8m0), 1u);
  EXPECT_EQ(SizeOf(static_cast<DataType>(200)), 0u);
}

}  // namespace
}  // namespace culet
