// MXFP4 as gpt-oss stores it: parts of stacked tensors, against the rules' numbers and products of
// them against sums in double.
#include <cmath>
#include <cstring>
#include <filesystem>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/float_types.h"
#include "culet/gemm.h"
#include "culet/safetensors.h"
#include "decoder_fixture.h"
#include "model/checkpoint.h"
#include "other_memory.h"

namespace culet {
namespace {

using testing::HasSubstr;
namespace fs = std::filesystem;

constexpr float kValues[16] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6, 0, -0.5f, -1, -1.5f, -2, -3, -4, -6};

DecoderConfig Config() {
  DecoderConfig config;
  config.architecture = "GptOssForCausalLM";
  config.coding.form = WeightCoding::Form::kMxfp4;
  return config;
}

double ValueAt(const Weight& weight, std::int64_t row, std::int64_t col) {
  return LoadAsDouble(FromDevicePtr<const void>(weight.data_ptr), weight.type,
                      row * weight.cols + col) *
         LoadAsDouble(FromDevicePtr<const void>(weight.scales_ptr), weight.scales_type,
                      row * (weight.cols / 32) + col / 32);
}

// Two experts of four rows of 64, in a file of its own.
class Stacked : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(testing::TempDir()) / "culet_mxfp4";
    fs::create_directories(folder_);
    for (std::size_t i = 0; i < blocks_.size(); ++i) blocks_[i] = static_cast<std::byte>(i * 7);
    for (std::size_t i = 0; i < scales_.size(); ++i) scales_[i] = static_cast<std::byte>(120 + i);
  }
  void TearDown() override { fs::remove_all(folder_); }

  Result<Checkpoint> Open(WeightMemory& memory, std::int64_t groups = 2) {
    SafetensorsEntry blocks{"w_blocks", DataType::kNull, {2, 4, groups, 16}, blocks_.data()};
    SafetensorsEntry scales{"w_scales", DataType::kNull, {2, 4, 2}, scales_.data()};
    blocks.dtype = scales.dtype = "U8";
    EXPECT_TRUE(WriteSafetensors((folder_ / "model.safetensors").string(), {blocks, scales}).ok());
    return Checkpoint::Open(folder_.string(), config_, memory);
  }

  static StackedRequest Part(std::int64_t expert, std::int64_t rows, std::int64_t first,
                             std::int64_t step) {
    return {.name = "w",
            .count = 2,
            .number = expert,
            .rows = rows,
            .cols = 64,
            .first = first,
            .step = step,
            .of = 4};
  }

  std::string WhyNot(const StackedRequest& request, std::int64_t groups = 2) {
    WeightMemory memory(HostMemory());
    auto checkpoint = Open(memory, groups);
    EXPECT_TRUE(checkpoint.ok());
    EXPECT_FALSE(checkpoint->GetStacked(request).present());
    return checkpoint->status().message();
  }

  DecoderConfig config_ = Config();
  fs::path folder_;
  std::vector<std::byte> blocks_ = std::vector<std::byte>(2 * 4 * 32);
  std::vector<std::byte> scales_ = std::vector<std::byte>(2 * 4 * 2);
};

// The rules' example: bytes 2a f7 with a scale of 126.
TEST_F(Stacked, APairIsAByteTheFirstInItsLowerHalf) {
  blocks_[0] = std::byte{0x2a};
  blocks_[1] = std::byte{0xf7};
  scales_[0] = std::byte{126};
  WeightMemory memory(HostMemory());
  auto checkpoint = Open(memory);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().ToString();
  const Weight weight = checkpoint->GetStacked(Part(0, 4, 0, 1));
  ASSERT_TRUE(weight.present()) << checkpoint->status().ToString();
  const double wanted[] = {-0.5, 0.5, 3, -3};
  for (int i = 0; i < 4; ++i) EXPECT_EQ(ValueAt(weight, 0, i), wanted[i]);
  EXPECT_TRUE(checkpoint->AllRead().ok());
}

TEST_F(Stacked, RowsOfAnExpertMayAlternate) {
  WeightMemory memory(HostMemory());
  auto checkpoint = Open(memory);
  ASSERT_TRUE(checkpoint.ok());
  for (const std::int64_t expert : {0, 1}) {
    for (const std::int64_t step : {1, 2}) {
      for (const std::int64_t first : {0, 1}) {
        const std::int64_t rows = step == 1 ? 3 : 2;
        const Weight weight = checkpoint->GetStacked(Part(expert, rows, first, step));
        ASSERT_TRUE(weight.present()) << checkpoint->status().ToString();
        for (std::int64_t row = 0; row < rows; ++row) {
          const std::int64_t from = 4 * expert + first + row * step;
          for (std::int64_t col = 0; col < 64; ++col) {
            const auto byte =
                std::to_integer<int>(blocks_[static_cast<std::size_t>(32 * from + col / 2)]);
            const int code = col % 2 == 0 ? byte & 15 : byte >> 4;
            const int power =
                std::to_integer<int>(scales_[static_cast<std::size_t>(2 * from + col / 32)]);
            ASSERT_EQ(ValueAt(weight, row, col), std::ldexp(kValues[code], power - 127))
                << expert << " " << from << ", " << col;
          }
        }
      }
    }
  }
}

TEST_F(Stacked, WhatCannotBeIsNamed) {
  StackedRequest more = Part(0, 4, 0, 1);
  more.count = 3;
  EXPECT_THAT(WhyNot(more), HasSubstr("tensor w_blocks is U8 [2, 4, 2, 16]; the config makes it U8 "
                                      "[3, 4, 2, 16]"));
  StackedRequest wide = Part(0, 4, 0, 1);
  wide.cols = 96;
  EXPECT_THAT(WhyNot(wide), HasSubstr("tensor w_blocks is U8 [2, 4, 2, 16]; the config makes it U8 "
                                      "[2, 4, 3, 16]"));
  scales_[2 * 4 + 2 * 3 + 1] = std::byte{255};
  EXPECT_THAT(WhyNot(Part(1, 2, 1, 2)),
              HasSubstr("tensor w_scales holds 255, no number, for expert 1, row 3"));
}

// Products of the fixture's experts, by the kernel that the engine chooses.
TEST(Mxfp4Fixture, ProductsAreNearTheSumsInDouble) {
  const std::string folder = FixtureFolder("gptoss-mxfp4");
  if (folder.empty()) GTEST_SKIP() << "no fixture gptoss-mxfp4";
  const DecoderConfig config = Config();
  WeightMemory memory(HostMemory());
  auto checkpoint = Checkpoint::Open(folder, config, memory);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().ToString();
  const auto file = SafetensorsFile::Open(folder + "/model.safetensors");
  ASSERT_TRUE(file.ok());
  Gemm gemm = *Gemm::Create();
  std::mt19937 random(11);
  std::normal_distribution<float> normal;
  struct Case {
    const char* name;
    std::int64_t rows, of, cols, first, step;
  };
  for (const Case& c :
       {Case{"gate_up_proj", 96, 192, 128, 1, 2}, Case{"down_proj", 128, 128, 96, 0, 1}}) {
    const std::string name = std::string("model.layers.1.mlp.experts.") + c.name;
    const SafetensorsTensor* blocks = file->Find(name + "_blocks");
    const SafetensorsTensor* powers = file->Find(name + "_scales");
    ASSERT_NE(blocks, nullptr);
    constexpr std::int64_t kExpert = 4;
    const Weight weight = checkpoint->GetStacked({.name = name,
                                                  .count = 6,
                                                  .number = kExpert,
                                                  .rows = c.rows,
                                                  .cols = c.cols,
                                                  .first = c.first,
                                                  .step = c.step,
                                                  .of = c.of});
    ASSERT_TRUE(weight.present()) << checkpoint->status().ToString();
    for (const int m : {1, 5}) {
      std::vector<float> a(static_cast<std::size_t>(m * c.cols)),
          d(static_cast<std::size_t>(m * c.rows));
      for (float& value : a) value = normal(random);
      GemmArgs args;
      const auto n = static_cast<int>(c.rows), k = static_cast<int>(c.cols);
      args.A = a.data();
      args.Adesc = RowMajor(DataType::kFloat32, m, k);
      args.B = FromDevicePtr<const void>(weight.data_ptr);
      args.Bdesc = ColMajor(weight.type, k, n);
      args.V = FromDevicePtr<const void>(weight.scales_ptr);
      args.Vdesc = ColMajor(weight.scales_type, k / 32, n);
      args.operation.quant_b = weight.quant;
      args.D = d.data();
      args.Ddesc = RowMajor(DataType::kFloat32, m, n);
      const auto plan = gemm.Plan(args);
      ASSERT_TRUE(plan.ok()) << plan.status().ToString();
      EXPECT_EQ(plan->spec().kernel->id(), "cpu_simd/e2m1");
      std::vector<std::byte> room(plan->workspace_size().partials + 256);
      void* at = room.data();
      std::size_t space = room.size();
      Workspace workspace;
      workspace.partials = std::align(256, room.size() - 256, at, space);
      workspace.partials_size = room.size() - 256;
      LaunchPointers pointers;
      pointers.A = a.data();
      pointers.D = d.data();
      ASSERT_TRUE(plan->Launch(pointers, workspace).ok());
      for (std::int64_t row = 0; row < c.rows; ++row) {
        const std::int64_t from = kExpert * c.of + c.first + row * c.step;
        for (int i = 0; i < m; ++i) {
          double sum = 0, size = 0;
          for (std::int64_t col = 0; col < c.cols; ++col) {
            const auto byte = std::to_integer<int>(blocks->data[from * c.cols / 2 + col / 2]);
            const auto power = std::to_integer<int>(powers->data[from * c.cols / 32 + col / 32]);
            const double product =
                std::ldexp(kValues[col % 2 == 0 ? byte & 15 : byte >> 4], power - 127) *
                a[static_cast<std::size_t>(i * c.cols + col)];
            sum += product;
            size += std::abs(product);
          }
          ASSERT_LE(std::abs(d[static_cast<std::size_t>(i * c.rows + row)] - sum),
                    4e-7 * size + 1e-30);
        }
      }
    }
  }
}

}  // namespace
}  // namespace culet
