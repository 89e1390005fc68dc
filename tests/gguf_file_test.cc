// GGUF files: hostile ones end in an error that names what is wrong; blocks become the numbers that
// the format's rules give.
#include "model/gguf_file.h"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/float_types.h"
#include "gguf_builder.h"
#include "model/gguf_unpack.h"

namespace culet {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr std::uint32_t kF32 = 0, kF16 = 1, kQ4_0 = 2, kQ4_1 = 3, kQ5_0 = 6, kQ5_1 = 7, kQ8_0 = 8,
                        kQ4_K = 12, kQ5_K = 13, kQ6_K = 14, kIQ4_NL = 20, kIQ4_XS = 23;
constexpr std::uint32_t kCoded[] = {kQ4_0, kQ4_1, kQ5_0, kQ5_1,   kQ8_0,
                                    kQ4_K, kQ5_K, kQ6_K, kIQ4_NL, kIQ4_XS};

// In memory of exactly its size, so that a sanitizer sees every byte beyond.
struct Parsed {
  explicit Parsed(const std::string& text)
      : bytes(text.begin(), text.end()),
        file(GgufFile::Parse(reinterpret_cast<const std::byte*>(bytes.data()), bytes.size(),
                             "some.gguf")) {}
  std::vector<char> bytes;
  Result<GgufFile> file;
};

void ExpectRefused(const std::string& file, StatusCode code, const char* words) {
  const Parsed parsed(file);
  ASSERT_FALSE(parsed.file.ok()) << words;
  EXPECT_EQ(parsed.file.status().code(), code) << parsed.file.status().ToString();
  EXPECT_THAT(parsed.file.status().message(), HasSubstr("some.gguf"));
  EXPECT_THAT(parsed.file.status().message(), HasSubstr(words));
}
void ExpectDamaged(const GgufBuilder& file, const char* words) {
  ExpectRefused(file.File(), StatusCode::kDataLoss, words);
}

GgufBuilder Good() {
  GgufBuilder file;
  file.Add("general.architecture", "llama");
  file.Raw("a.bool", 7, std::string(1, '\1'));
  file.Raw("a.double", 12, GgufBuilder::Bytes(0.5));
  file.Raw("a.negative", 11, GgufBuilder::Bytes(std::int64_t{-3}));
  file.AddTexts("a.list", {"x", "", "yy"});
  file.Tensor("w", {4, 3}, kF32, std::string(48, '\1'));
  file.Tensor("v", {5}, kF16, std::string(10, '\2'));
  return file;
}

TEST(GgufFile, ReadsMetadataAndTensors) {
  for (const std::uint32_t version : {2u, 3u}) {
    GgufBuilder builder = Good();
    builder.version = version;
    const Parsed parsed(builder.File());
    ASSERT_TRUE(parsed.file.ok()) << parsed.file.status().ToString();
    const GgufFile& file = *parsed.file;
    EXPECT_EQ(file.metadata().at("general.architecture"), "llama");
    EXPECT_EQ(file.metadata().at("a.bool"), true);
    EXPECT_EQ(file.metadata().at("a.double"), 0.5);
    EXPECT_EQ(file.metadata().at("a.negative"), -3);
    EXPECT_EQ(file.metadata().at("a.list"), nlohmann::json({"x", "", "yy"}));
    const GgufTensor* w = file.Find("w");
    ASSERT_NE(w, nullptr);
    EXPECT_THAT(w->sizes, ElementsAre(4, 3));
    EXPECT_EQ(w->rows(), 3);
    EXPECT_EQ(w->bytes, 48);
    EXPECT_EQ(w->data[47], std::byte{1});
    EXPECT_EQ(file.Find("v")->data[0], std::byte{2});
    EXPECT_EQ(file.Find("u"), nullptr);
  }
}

TEST(GgufFile, EveryCutIsAnError) {
  const std::string whole = Good().File();
  const std::size_t padding = 32 - 10;  // behind the last tensor
  for (std::size_t bytes = 0; bytes < whole.size() - padding; ++bytes) {
    const Parsed parsed(whole.substr(0, bytes));
    EXPECT_FALSE(parsed.file.ok()) << bytes;
  }
  EXPECT_TRUE(Parsed(whole.substr(0, whole.size() - padding)).file.ok());
}

TEST(GgufFile, EveryFlippedByteIsAnErrorOrAFile) {
  const std::string whole = Good().File();
  for (std::size_t i = 0; i < whole.size(); ++i) {
    for (const int flip : {1, 0x80, 0xff}) {
      std::string file = whole;
      file[i] = static_cast<char>(file[i] ^ flip);
      const Parsed parsed(file);
      if (!parsed.file.ok()) continue;
      int sum = 0;
      for (const GgufTensor& tensor : parsed.file->tensors()) {
        for (std::int64_t b = 0; b < tensor.bytes; ++b) sum += std::to_integer<int>(tensor.data[b]);
      }
      EXPECT_GE(sum, 0);
    }
  }
}

TEST(GgufFile, WildNumbersAreRefusedWithTheTensorsName) {
  ExpectRefused("GGML", StatusCode::kDataLoss, "does not begin with GGUF");
  ExpectRefused("", StatusCode::kDataLoss, "does not begin with GGUF");
  GgufBuilder file;
  file.version = 1;
  ExpectRefused(file.File(), StatusCode::kUnsupported, "version 1; known are 2 and 3");
  file.version = 0x03000000;
  ExpectRefused(file.File(), StatusCode::kUnsupported, "a big-endian file");

  file = Good();
  file.tensors = ~std::uint64_t{0};
  ExpectDamaged(file, "some.gguf: ");
  file = Good();
  file.keys = std::uint64_t{1} << 40;
  ExpectDamaged(file, "needs");
  file = Good();
  file.Raw("long", 8, GgufBuilder::Bytes(~std::uint64_t{0}));
  ExpectDamaged(file, "metadata long needs 18446744073709551615 bytes");
  file = Good();
  file.Raw("many", 9, GgufBuilder::Bytes(0u) + GgufBuilder::Bytes(std::uint64_t{1} << 62));
  ExpectDamaged(file, "metadata many needs 4611686018427387904 bytes");
  file = Good();
  file.Raw("nested", 9, GgufBuilder::Bytes(9u) + GgufBuilder::Bytes(std::uint64_t{1}));
  ExpectRefused(file.File(), StatusCode::kUnsupported, "metadata nested is a list of lists");
  file = Good();
  file.Raw("odd\x1b[1m", 77, "");
  ExpectDamaged(file, "metadata odd\\x1b[1m has the unknown type 77");
  file = Good();
  file.Add("general.architecture", "qwen3");
  ExpectDamaged(file, "metadata general.architecture stands twice");
  file = Good();
  file.Add("general.alignment", 24u);
  ExpectDamaged(file, "general.alignment is 24; it must be a power of two");

  const auto with = [](const char* name, const std::vector<std::uint64_t>& sizes,
                       std::uint32_t type, std::uint64_t offset) {
    GgufBuilder made = Good();
    made.TensorAt(name, sizes, type, offset);
    return made;
  };
  ExpectDamaged(with("u", {4}, kF32, 1u << 20), "tensor u has 16 bytes at 1048576 of 96 bytes");
  ExpectDamaged(with("u", {4}, kF32, ~std::uint64_t{0} - 31), "tensor u has 16 bytes at");
  ExpectDamaged(with("u", {25}, kF32, 0), "tensor u has 100 bytes at 0 of 96 bytes");
  ExpectDamaged(with("u", {4}, kF32, 4), "tensor u lies at 4, no multiple of the alignment 32");
  ExpectDamaged(with("u", {0}, kF32, 0), "tensor u has the dimension 0");
  ExpectDamaged(with("u", {~std::uint64_t{0}}, kF32, 0), "tensor u has the dimension");
  ExpectDamaged(with("u", {1ull << 40, 1ull << 40}, kF32, 0), "more than 2^63 elements");
  ExpectDamaged(with("u", {1ull << 62}, kF32, 0), "tensor u has more than 2^63 bytes");
  ExpectDamaged(with("u", {33}, kQ8_0, 0), "tensor u is Q8_0 with rows of 33 elements");
  ExpectDamaged(with("u", {}, kF32, 0), "tensor u has 0 dimensions");
  ExpectDamaged(with("u", {1, 1, 1, 1, 1}, kF32, 0), "tensor u has 5 dimensions");
  ExpectDamaged(with("w", {1}, kF32, 0), "tensor w stands twice");
  ExpectRefused(with("u", {4}, 99, 0).File(), StatusCode::kUnsupported,
                "tensor u has the unknown type 99; known are F32, F16, Q4_0, Q4_1, Q5_0");
}

TEST(GgufFile, APathMeansTheOnlyFileOfAFolder) {
  namespace fs = std::filesystem;
  const fs::path folder = fs::path(testing::TempDir()) / "culet_gguf_path";
  fs::remove_all(folder);
  fs::create_directory(folder);
  EXPECT_EQ(*GgufPathOf(folder.string()), "");
  Good().Write((folder / "a.GGUF").string());
  EXPECT_EQ(*GgufPathOf(folder.string()), (folder / "a.GGUF").string());
  Good().Write((folder / "b").string());
  EXPECT_EQ(*GgufPathOf((folder / "b").string()), (folder / "b").string());
  Good().Write((folder / "b.gguf").string());
  const auto several = GgufPathOf(folder.string());
  ASSERT_FALSE(several.ok());
  EXPECT_THAT(several.status().message(), HasSubstr("2 GGUF files; give the path of one: a.GGUF"));
  std::ofstream(folder / "config.json") << "{}";
  EXPECT_EQ(*GgufPathOf(folder.string()), "");
  fs::remove_all(folder);
}

// -- Blocks ---------------------------------------------------------------------------------------

std::string Half(double value) {
  std::uint16_t bits = 0;
  StoreFromDouble(&bits, DataType::kFloat16, 0, value);
  return GgufBuilder::Bytes(bits);
}

std::vector<float> RowOf(const GgufTensor& tensor, std::int64_t row) {
  std::vector<float> values(static_cast<std::size_t>(tensor.cols()));
  LoadGgufRow(tensor, row, values);
  return values;
}

// (code - zero) * scale, in double.
double ValueOf(const GgufCodes& codes, const GgufTensor& tensor, std::int64_t row,
               std::int64_t col) {
  const std::int64_t at = row * (tensor.cols() / codes.group) + col / codes.group;
  double code = LoadAsDouble(codes.codes.data(), codes.type, row * tensor.cols() + col);
  if (codes.zeros_type != DataType::kNull) {
    code -= LoadAsDouble(codes.zeros.data(), codes.zeros_type, at);
  }
  return code * LoadAsDouble(codes.scales.data(), codes.scales_type, at);
}

TEST(GgufBlocks, Q40HoldsTwoHalvesOfSixteen) {
  GgufBuilder builder;
  std::string block = Half(0.25);
  for (int j = 0; j < 16; ++j) block += static_cast<char>(j | (15 - j) << 4);
  builder.Tensor("w", {32, 1}, kQ4_0, block);
  const Parsed parsed(builder.File());
  const std::vector<float> values = RowOf(*parsed.file->Find("w"), 0);
  for (int i = 0; i < 16; ++i) {
    EXPECT_EQ(values[static_cast<std::size_t>(i)], 0.25f * static_cast<float>(i - 8));
    EXPECT_EQ(values[static_cast<std::size_t>(i + 16)], 0.25f * static_cast<float>(7 - i));
  }
}

TEST(GgufBlocks, Q4KUnpacksScalesAndMinimaOfSixBits) {
  GgufBuilder builder;
  std::string block = Half(1) + Half(1);
  for (const int byte : {0x41, 0x82, 0xc3, 0x04, 0x45, 0x86, 0xc7, 0x08, 0x21, 0x43, 0x65, 0x87}) {
    block += static_cast<char>(byte);
  }
  block += std::string(128, '\x21');  // low codes 1, high codes 2
  builder.Tensor("w", {256}, kQ4_K, block);
  const Parsed parsed(builder.File());
  ASSERT_TRUE(parsed.file.ok()) << parsed.file.status().ToString();
  const std::vector<float> values = RowOf(*parsed.file->Find("w"), 0);
  const int pairs[8][2] = {{1, 5}, {2, 6}, {3, 7}, {4, 8}, {17, 18}, {35, 36}, {53, 54}, {7, 8}};
  for (std::size_t j = 0; j < 8; ++j) {
    const int code = j % 2 == 0 ? 1 : 2;
    for (std::size_t i = 0; i < 32; ++i) {
      EXPECT_EQ(values[32 * j + i], static_cast<float>(pairs[j][0] * code - pairs[j][1])) << j;
    }
  }
}

TEST(GgufBlocks, Q6KJoinsFourBitsAndTwo) {
  GgufBuilder builder;
  std::string block(128, '\0');
  std::string high(64, '\0'), scales;
  block[32 + 5] = '\x97';             // low: element 37, high: element 101
  high[5] = static_cast<char>(0xb4);  // quarters 0 to 3 have 0, 1, 3, 2
  for (int g = 0; g < 16; ++g) scales += static_cast<char>(g - 8);
  builder.Tensor("w", {256}, kQ6_K, block + high + scales + Half(0.5));
  const Parsed parsed(builder.File());
  const std::vector<float> values = RowOf(*parsed.file->Find("w"), 0);
  EXPECT_EQ(values[5], 0.5f * -8 * (0 - 32));
  EXPECT_EQ(values[37], 0.5f * (2 - 8) * ((7 | 1 << 4) - 32));
  EXPECT_EQ(values[69], 0.5f * (4 - 8) * ((0 | 3 << 4) - 32));
  EXPECT_EQ(values[101], 0.5f * (6 - 8) * ((9 | 2 << 4) - 32));
  EXPECT_EQ(values[133], 0.5f * 0 * -32);
}

// Numbers that gguf-py gives for the same bytes, and the sums of all.
TEST(GgufBlocks, AreTheNumbersOfTheFormatsOwnReader) {
  const struct {
    std::uint32_t type;
    std::vector<std::pair<std::size_t, float>> values;
    double sum;
  } kCases[] = {
      {kQ4_0, {{0, 0.25f}, {1, -0.25f}, {15, -0.75f}, {16, -0.5f}, {17, 0.5f}, {31, -1.5f}}, 0},
      {kQ4_1, {{0, 3}, {1, -0.5f}, {15, 1}, {16, 2.75f}, {17, 0.25f}, {31, 2.5f}}, 43},
      {kQ5_0, {{0, 3.25f}, {1, -3.25f}, {15, 0.25f}, {16, 2.25f}, {17, 0}, {31, -1.25f}}, 12},
      {kQ5_1, {{0, 4}, {1, 6.5f}, {15, 0}, {16, 5}, {17, 2.75f}, {31, 2}}, 111},
      {kQ8_0, {{0, 26.25f}, {1, -22.25f}, {15, 9.25f}, {16, -1.75f}, {31, 5.25f}}, -64},
      {kQ4_K, {{0, 167.5f}, {17, 97}, {32, 35}, {64, 116.5f}, {161, 125.75f}, {255, 45.5f}}, 22276},
      {kQ5_K,
       {{0, 355.5f}, {17, 285}, {32, 41.5f}, {63, 39}, {64, 116.5f}, {161, 213.25f}, {255, 106}},
       37740},
      {kQ6_K, {{0, -357.75f}, {31, 789.75f}, {64, 648}, {128, 344.25f}, {255, 240.5f}}, -3636},
      {kIQ4_NL, {{0, 3.25f}, {1, -2.5f}, {15, -8.75f}, {16, -5.5f}, {31, -20.75f}}, 20.25},
      {kIQ4_XS,
       {{0, 16.25f}, {17, -22.25f}, {32, -227.5f}, {64, -16.25f}, {128, -471.25f}, {223, 51.75f}},
       2698.5}};
  for (const auto& each : kCases) {
    const GgufTypeInfo& info = *InfoOf(each.type);
    SCOPED_TRACE(info.name);
    std::string block;
    for (int i = 0; i < info.block_bytes; ++i) block += static_cast<char>(i * 37 + 11 + i * i * 5);
    block.replace(each.type == kQ6_K ? 208 : 0, 2, Half(0.25));
    const bool offset =
        each.type == kQ4_1 || each.type == kQ5_1 || each.type == kQ4_K || each.type == kQ5_K;
    if (offset) block.replace(2, 2, Half(-0.75));
    GgufBuilder builder;
    builder.Tensor("w", {static_cast<std::uint64_t>(info.block_elements)}, each.type, block);
    const Parsed parsed(builder.File());
    ASSERT_TRUE(parsed.file.ok()) << parsed.file.status().ToString();
    const std::vector<float> values = RowOf(*parsed.file->Find("w"), 0);
    double sum = 0;
    for (const float value : values) sum += value;
    EXPECT_EQ(sum, each.sum);
    for (const auto& [at, value] : each.values) EXPECT_EQ(values[at], value) << at;
  }
}

// Codes against the rows' own numbers, of random blocks.
TEST(GgufBlocks, CodesGiveTheSameNumbers) {
  std::mt19937 random(3);
  for (const std::uint32_t type : kCoded) {
    const GgufTypeInfo& info = *InfoOf(type);
    constexpr int kRows = 11, kBlocks = 3;
    const bool offsets = type == kQ4_1 || type == kQ5_1 || type == kQ4_K || type == kQ5_K;
    std::string bytes;
    for (int b = 0; b < kRows * kBlocks; ++b) {
      std::string block(static_cast<std::size_t>(info.block_bytes), '\0');
      for (char& c : block) c = static_cast<char>(random());
      const std::string d = Half(std::ldexp(1.0 + (random() % 1000) / 1000.0, -8));
      block.replace(type == kQ6_K ? 208 : 0, 2, d);
      if (offsets) block.replace(2, 2, Half(b % 4 == 0 ? 0.0 : 0.007));
      if (offsets && b % 5 == 0) block.replace(0, 2, Half(0));  // constant groups
      bytes += block;
    }
    GgufBuilder builder;
    const auto cols = static_cast<std::uint64_t>(kBlocks * info.block_elements);
    builder.Tensor("w", {cols, kRows}, type, bytes);
    const Parsed parsed(builder.File());
    ASSERT_TRUE(parsed.file.ok()) << parsed.file.status().ToString();
    const GgufTensor& tensor = *parsed.file->Find("w");
    const auto codes = UnpackGguf(tensor);
    ASSERT_TRUE(codes.ok()) << codes.status().ToString();
    EXPECT_EQ(CodeBytes(tensor), codes->codes.size() + codes->scales.size() + codes->zeros.size());
    for (int row = 0; row < kRows; ++row) {
      const std::vector<float> values = RowOf(tensor, row);
      for (std::size_t col = 0; col < values.size(); ++col) {
        const double value = ValueOf(*codes, tensor, row, static_cast<std::int64_t>(col));
        // Of minima: float32's rounding of zero = minimum / scale.
        const double slack = offsets ? 1e-6 * (std::abs(value) + 0.5) : 0;
        ASSERT_NEAR(value, values[col], slack) << info.name << " " << row << ", " << col;
      }
    }
  }
}

TEST(GgufBlocks, AScaleThatIsNoNumberIsRefused) {
  for (const std::uint32_t type : kCoded) {
    const GgufTypeInfo& info = *InfoOf(type);
    std::string block(static_cast<std::size_t>(info.block_bytes), '\1');
    block.replace(type == kQ6_K ? 208 : 0, 2, "\xff\x7f");
    GgufBuilder builder;
    builder.Tensor("some.weight", {static_cast<std::uint64_t>(info.block_elements)}, type, block);
    const Parsed parsed(builder.File());
    const auto codes = UnpackGguf(*parsed.file->Find("some.weight"));
    ASSERT_FALSE(codes.ok()) << info.name;
    EXPECT_THAT(codes.status().message(), HasSubstr("tensor some.weight is "));
    EXPECT_THAT(codes.status().message(), HasSubstr("row 0 that is not finite"));
  }
}

}  // namespace
}  // namespace culet
