// Files that lie: safetensors headers, configs and shard indexes end in an error that says what is
// wrong, never in a crash or a read beyond the bytes. tests/fuzz has those that nobody thought of.
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "asan.h"
#include "culet/decoder.h"
#include "culet/safetensors.h"

namespace culet {
namespace {

using testing::HasSubstr;
namespace fs = std::filesystem;

std::string File(const std::string& header, std::size_t data, std::uint64_t length) {
  std::string file(8, '\0');
  for (int i = 0; i < 8; ++i)
    file[static_cast<std::size_t>(i)] = static_cast<char>(length >> 8 * i);
  return file + header + std::string(data, '\1');
}
std::string File(const std::string& header, std::size_t data) {
  return File(header, data, header.size());
}

// In memory of exactly its size, so that a sanitizer sees every byte beyond.
Status Parse(const std::string& file) {
  const std::vector<char> exact(file.begin(), file.end());
  const auto parsed = SafetensorsFile::Parse(reinterpret_cast<const std::byte*>(exact.data()),
                                             exact.size(), "some.safetensors");
  if (!parsed) return parsed.status();
  int sum = 0;
  for (const SafetensorsTensor& tensor : parsed->tensors()) {
    for (std::int64_t i = 0; i < tensor.bytes; ++i) sum += std::to_integer<int>(tensor.data[i]);
  }
  EXPECT_GE(sum, 0);
  return {};
}

std::string Tensor(const std::string& shape, const std::string& offsets,
                   const std::string& dtype = "F32") {
  return R"({"w":{"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets +
         "}}";
}

TEST(HostileSafetensors, EachIsRefusedWithItsReason) {
  EXPECT_TRUE(Parse(File(Tensor("[2]", "[0,8]"), 8)).ok());
  const auto refused = [](const std::string& file, const char* words) {
    const Status status = Parse(file);
    EXPECT_EQ(status.code(), StatusCode::kDataLoss) << words;
    EXPECT_THAT(status.message(), HasSubstr("some.safetensors"));
    EXPECT_THAT(status.message(), HasSubstr(words));
  };
  refused("", "it has 0 bytes");
  refused("1234567", "it has 7 bytes");
  const std::string good = Tensor("[2]", "[0,8]");
  refused(File(good, 8, good.size() + 9), "its header claims");
  refused(File(good, 8, 100'000'001), "its header claims 100000001 bytes");
  refused(File(good, 8, ~std::uint64_t{0}), "its header claims 18446744073709551615");
  refused(File(good, 8, std::uint64_t{1} << 63), "its header claims");
  refused(File(good, 8, ~std::uint64_t{0} - 7), "its header claims");
  refused(File(good, 7), "tensor w lies at [0, 8) of 7 bytes");
  refused(File(good, 9), "the tensors have 8 bytes, the file holds 9");
  refused(File(Tensor("[2]", "[0,9223372036854775807]"), 8), "tensor w lies at");
  refused(File(Tensor("[2]", "[9223372036854775800,9223372036854775807]"), 8), "tensor w lies at");
  refused(File(Tensor("[2]", "[0,9223372036854775808]"), 8), "a number above 2^63");
  refused(File(Tensor("[2]", "[-8,0]"), 8), "tensor w: the header has a negative number");
  refused(File(Tensor("[-2]", "[0,8]"), 8), "tensor w: the header has a negative number");
  refused(File(Tensor("[2]", "[8,0]"), 8), "tensor w lies at [8, 0)");
  refused(File(Tensor("[2]", "[0,8.0]"), 8), "not whole");
  refused(File(Tensor("[3]", "[0,8]"), 8), "tensor w has 8 bytes, but its shape needs 12");
  refused(File(Tensor("[4294967296,4294967296]", "[0,0]"), 0), "more than 2^63 bytes");
  refused(File(Tensor("[4611686018427387904,4]", "[0,0]"), 0), "more than 2^63 bytes");
  refused(File(Tensor("[2305843009213693952]", "[0,0]"), 0), "more than 2^63 bytes");
  refused(File(Tensor("[1,1,1,1,1,1,1,1,1]", "[0,4]"), 4), "more than 8 dimensions");
  refused(File(Tensor("[2]", "[0,8]", "Q\\u001b[1m"), 8),
          "tensor w has the unknown dtype Q\\x1b[1m; known are");
  refused(File(R"({"\u001b[1m":{}})", 0), "tensor \\x1b[1m: dtype");
  refused(File(R"({"w":{"\u009b":1}})", 0), "the key \\u009b is unknown");
  refused(File(Tensor("[2]", "[0,8]", "Q4"), 8), "tensor w has the unknown dtype Q4; known are");
  refused(File(Tensor("[2]", "[0]"), 8), "missing");
  refused(File(Tensor("[2]", "[0,8,8]"), 8), "tensor w");
  refused(File(Tensor("[[2]]", "[0,8]"), 8), "tensor w: the header has a list");
  refused(File(R"({"w":{}})", 0), "missing");
  refused(File(R"([1])", 0), "a list");
  refused(File("{" + std::string(1'000'000, '['), 0), "no JSON");
  refused(File(std::string(1'000'000, '['), 0), "a list");
  refused(File(R"({"w":)" + std::string(1'000'000, '{'), 0), "no JSON");
  const std::string one = R"("a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]})";
  refused(File("{" + one + "," + one + "}", 4), "a stands twice");
  refused(File("{" + one + R"(,"b":{"dtype":"U8","shape":[4],"data_offsets":[2,6]}})", 6),
          "they overlap");
  refused(File("{" + one + R"(,"b":{"dtype":"U8","shape":[4],"data_offsets":[5,9]}})", 9),
          "there is a gap");
  for (std::size_t i = 0; i < good.size(); ++i) {
    EXPECT_FALSE(Parse(File(good.substr(0, i), 8)).ok()) << i;
  }
}

// As long as headers may be, and a byte longer. Sanitizers, to which the end of a header is as that
// of any other, read a hundredth of it.
TEST(HostileSafetensors, HeadersOf100Megabytes) {
  constexpr std::size_t kMost = 100'000'000, kLong = kSanitized ? kMost / 100 : kMost;
  const auto refused = [](std::string header, const char* words) {
    header.resize(kLong, header.back());
    const Status status = Parse(File(header, 8));
    EXPECT_EQ(status.code(), StatusCode::kDataLoss) << words;
    EXPECT_THAT(status.message(), HasSubstr(words));
    EXPECT_LT(status.message().size(), 1000u);
  };
  refused(R"({"x)", "no JSON");
  refused(R"({"w":{"shape":[[)", "tensor w: the header has a list");
  const std::string good = Tensor("[2]", "[0,8]");
  EXPECT_TRUE(Parse(File(good + std::string(kLong - good.size(), ' '), 8)).ok());
  const Status longer = Parse(File(good + std::string(kMost + 1 - good.size(), ' '), 8));
  EXPECT_THAT(longer.message(), HasSubstr("the format allows 100000000"));
}

// As the format's own library has it.
TEST(HostileSafetensors, NoMetadata) {
  const std::string tensor = Tensor("[2]", "[0,8]").substr(1);
  EXPECT_TRUE(Parse(File(R"({"__metadata__":null,)" + tensor, 8)).ok());
  EXPECT_TRUE(Parse(File(R"({"__metadata__":null})", 0)).ok());
  for (const char* bad : {R"({"a":null})", "[]", "7", "null,\"__metadata__\":null"}) {
    EXPECT_FALSE(Parse(File(std::string(R"({"__metadata__":)") + bad + "," + tensor, 8)).ok());
  }
  EXPECT_FALSE(Parse(File(R"({"w":null})", 0)).ok());
}

TEST(HostileSafetensors, ManyTensorsAndLongNames) {
  std::string many = "{";
  for (int i = 0; i < 100'000; ++i) {
    many += "\"t" + std::to_string(i) + R"(":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},)";
  }
  many.back() = '}';
  const Status status = Parse(File(many, 0));
  EXPECT_TRUE(status.ok()) << status.ToString();
  const auto named = [](std::size_t length) {
    return File("{\"" + std::string(length, 'w') + Tensor("[2]", "[0,8]").substr(3), 8);
  };
  EXPECT_TRUE(Parse(named(1000)).ok());
  EXPECT_THAT(Parse(named(1001)).message(), HasSubstr("a name has 1001 bytes, more than 1000"));
}

constexpr const char* kConfig = R"({"architectures": ["LlamaForCausalLM"], "vocab_size": 96,
  "hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2,
  "intermediate_size": 80, "rms_norm_eps": 1e-5, "eos_token_id": [1, 2], "rope_scaling":
  {"rope_type": "llama3", "factor": 8, "low_freq_factor": 1, "high_freq_factor": 4,
  "original_max_position_embeddings": 16}})";

TEST(HostileConfig, DeepNestingIsNoDocument) {
  for (const char* key : {"vocab_size", "quantization_config", "rope_scaling", "unknown"}) {
    const std::string deep = std::string(500'000, '[') + std::string(500'000, ']');
    const std::string text = std::string(R"({"architectures": ["LlamaForCausalLM"], ")") + key +
                             R"(": {"quant_method": )" + deep + "}}";
    EXPECT_EQ(ParseDecoderConfig(text, "config.json").status().code(), StatusCode::kDataLoss);
  }
}

// A folder of a model of one layer, in two shards.
class HostileFolder : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("culet_hostile_" + std::to_string(::getpid()));
    fs::create_directories(folder_);
    Write("config.json", kConfig);
    const std::string layer = "model.layers.0.";
    shards_[0] = {{"model.embed_tokens.weight", {96, 64}},
                  {layer + "self_attn.q_proj.weight", {64, 64}},
                  {layer + "self_attn.k_proj.weight", {32, 64}},
                  {layer + "self_attn.v_proj.weight", {32, 64}},
                  {layer + "self_attn.o_proj.weight", {64, 64}},
                  {layer + "input_layernorm.weight", {64}}};
    shards_[1] = {{layer + "post_attention_layernorm.weight", {64}},
                  {layer + "mlp.gate_proj.weight", {80, 64}},
                  {layer + "mlp.up_proj.weight", {80, 64}},
                  {layer + "mlp.down_proj.weight", {64, 80}},
                  {"model.norm.weight", {64}},
                  {"lm_head.weight", {96, 64}}};
    Save();
  }
  void TearDown() override { fs::remove_all(folder_); }

  struct Named {
    std::string name;
    std::vector<std::int64_t> shape;
    DataType type = DataType::kFloat32;
    const void* data = nullptr;  // null: zeros
  };
  void Write(const std::string& name, const std::string& text) {
    std::ofstream(folder_ / name, std::ios::binary) << text;
  }
  void Save() {
    std::string map;
    for (int s = 0; s < 2; ++s) {
      const std::string file = "part" + std::to_string(s) + ".safetensors";
      std::vector<SafetensorsEntry> entries;
      for (const Named& tensor : shards_[s]) {
        entries.push_back({tensor.name, tensor.type, tensor.shape,
                           tensor.data != nullptr ? tensor.data : zeros_.data()});
        map += (map.empty() ? "\"" : ",\"") + tensor.name + "\":\"" + file + "\"";
      }
      ASSERT_TRUE(WriteSafetensors((folder_ / file).string(), entries).ok());
    }
    Index("{" + map + "}");
  }
  void Index(const std::string& map) {
    Write("model.safetensors.index.json", R"({"weight_map":)" + map + "}");
  }
  Status Load() { return DecoderModel::Load(folder_.string(), HostMemory()).status(); }
  void Refused(StatusCode code, const char* words) {
    const Status status = Load();
    EXPECT_EQ(status.code(), code) << status.ToString();
    EXPECT_THAT(status.message(), HasSubstr(words));
  }

  fs::path folder_;
  std::vector<Named> shards_[2];
  std::vector<float> zeros_ = std::vector<float>(96 * 64);
};

TEST_F(HostileFolder, ShardsLoad) {
  const Status status = Load();
  EXPECT_TRUE(status.ok()) << status.ToString();
}

TEST_F(HostileFolder, IndexesThatLie) {
  for (const char* file : {"\"../part0.safetensors\"", "\"/etc/passwd\"", "\"..\"", "\"\"", "7",
                           "\"a\\\\b\"", "\"part0.safetensors\\u0000\""}) {
    Index(R"({"lm_head.weight":)" + std::string(file) + "}");
    Refused(StatusCode::kDataLoss, "tensor lm_head.weight lies in no file of the folder");
  }
  Index(R"({"lm_head.weight":"part0.safetensors"})");
  Refused(StatusCode::kDataLoss, "promises tensor lm_head.weight in part0.safetensors");
  Index(R"({"lm_head.weight":"part7.safetensors"})");
  Refused(StatusCode::kNotFound, "part7.safetensors");
  Index("[]");
  Refused(StatusCode::kDataLoss, "no JSON object with a weight_map");
  Index(std::string(1'000'000, '['));
  Refused(StatusCode::kDataLoss, "no JSON object with a weight_map");
  fs::remove(folder_ / "model.safetensors.index.json");
  Refused(StatusCode::kNotFound, "holds neither model.safetensors nor");
}

// The tensor that the index does not name may be cut, and its shape may be another.
TEST_F(HostileFolder, TheIndexDecidesWhereATensorIs) {
  const auto kept = shards_[0];
  shards_[0].push_back(shards_[1].back());
  shards_[0].back().shape = {3};
  Save();  // names it in the second shard
  EXPECT_TRUE(Load().ok()) << Load().ToString();
  shards_[0] = kept;
  shards_[1].push_back({"model.embed_tokens.weight", {7}});
  Save();
  Refused(StatusCode::kInvalidArgument, "model.embed_tokens.weight is [7]");
  shards_[1].pop_back();
  for (auto& shard : shards_) shard.push_back({"model.layers.0.self_attn.k_scale", {1}});
  Save();
  Index(R"({"lm_head.weight":"part1.safetensors","model.norm.weight":"part1.safetensors",
    "model.embed_tokens.weight":"part0.safetensors"})");
  Refused(StatusCode::kDataLoss,
          "in another shard too, and the index does not say which one counts");
}

TEST_F(HostileFolder, NamesWithoutTheModelsPrefix) {
  for (auto& shard : shards_) {
    for (Named& tensor : shard) {
      if (tensor.name.starts_with("model.")) tensor.name.erase(0, 6);
    }
  }
  Save();
  EXPECT_TRUE(Load().ok()) << Load().ToString();
  shards_[1].push_back({"score.weight", {2, 64}});
  Save();
  Refused(StatusCode::kInvalidArgument, "score.weight");
  shards_[1].back() = {"model.norm.weight", {64}};  // beside norm.weight
  Save();
  Refused(StatusCode::kInvalidArgument, "does not read: norm.weight");
}

TEST_F(HostileFolder, AHeadBesideATiedEmbedding) {
  const std::string untied = kConfig;
  Write("config.json", untied.substr(0, untied.size() - 1) + R"(, "tie_word_embeddings": true})");
  auto model = DecoderModel::Load(folder_.string(), HostMemory());
  ASSERT_TRUE(model.ok()) << model.status().ToString();
  EXPECT_TRUE(model->config().tied_head);
  EXPECT_THAT(model->config().warnings, testing::IsEmpty());
  EXPECT_EQ(model->weights().head.data_ptr, model->weights().embedding.data_ptr);

  std::vector<float> other(zeros_);
  other.back() = 1;
  shards_[1].back().data = other.data();
  Save();
  model = DecoderModel::Load(folder_.string(), HostMemory());
  ASSERT_TRUE(model.ok()) << model.status().ToString();
  EXPECT_FALSE(model->config().tied_head);
  EXPECT_THAT(model->config().warnings,
              testing::ElementsAre(HasSubstr("lm_head.weight is not the embedding")));
  EXPECT_EQ(reinterpret_cast<const float*>(model->weights().head.data_ptr)[other.size() - 1], 1);
}

TEST_F(HostileFolder, TextInsteadOfWeights) {
  for (const auto& [text, words] :
       {std::pair{"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n",
                  "this is text, not safetensors; it is a Git LFS pointer: fetch the file itself "
                  "with git lfs pull"},
        std::pair{"<!doctype html>\n<html lang=\"en\">",
                  "this is text, not safetensors; it is an HTML page: download the file itself"},
        std::pair{"Entry not found", "part1.safetensors: this is text, not safetensors"}}) {
    Write("part1.safetensors", text);
    Refused(StatusCode::kDataLoss, words);
  }
  Write("model.safetensors.index.json", "version https://git-lfs.github.com/spec/v1\noid");
  Refused(StatusCode::kDataLoss, "with a weight_map; it is a Git LFS pointer");
}

TEST_F(HostileFolder, NamesThatSteerATerminal) {
  shards_[1].push_back({"model.\x1b[31mred", {3}});
  Save();
  Index(R"({"lm_head.weight":"part1.safetensors","model.norm.weight":"part1.safetensors",
    "model.embed_tokens.weight":"part0.safetensors"})");
  Refused(StatusCode::kInvalidArgument, "model.\\x1b[31mred");
  Index(R"({"\u001b]0;x":"part9\u001b.safetensors"})");
  Refused(StatusCode::kDataLoss, "tensor \\x1b]0;x lies in no file of the folder");
}

TEST_F(HostileFolder, TensorsThatDoNotFit) {
  const auto kept = shards_[1];
  shards_[1].pop_back();
  Save();
  Refused(StatusCode::kNotFound, "tensor lm_head.weight is missing");
  shards_[1] = kept;
  shards_[1].push_back({"model.extra", {3}});
  Save();
  Refused(StatusCode::kInvalidArgument, "model.extra");
  shards_[1] = kept;
  shards_[1][3].shape = {80, 64};
  Save();
  Refused(StatusCode::kInvalidArgument, "is [80, 64]; the config makes it [64, 80]");
  shards_[1] = kept;
  shards_[1].back().type = DataType::kInt32;
  Save();
  Refused(StatusCode::kUnsupported, "tensor lm_head.weight is I32; it must be F32, F16 or BF16");
}

TEST_F(HostileFolder, CutFiles) {
  const fs::path part = folder_ / "part1.safetensors";
  const auto bytes = fs::file_size(part);
  for (const std::uintmax_t size : {bytes - 1, bytes / 2, std::uintmax_t{20}, std::uintmax_t{0}}) {
    fs::resize_file(part, size);
    Refused(StatusCode::kDataLoss, "part1.safetensors");
  }
}

}  // namespace
}  // namespace culet
