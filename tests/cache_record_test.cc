#include "gemm/cache_record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "cache_fixture.h"
#include "gemm/cache_rules.h"
#include "gemm/desc_fields.h"

namespace culet {
namespace {

using Json = nlohmann::ordered_json;

IdleKernel& Fast() {
  static IdleKernel kernel("fake/fast");
  return kernel;
}

std::string LineOf(const GemmDesc& desc, const LaunchSpec& spec) {
  return WriteRecord(kTestDevice, desc, spec);
}

std::string SampleLine() { return LineOf(Problem(16), Measured(Fast(), 12.25)); }

// The line with the checksum that its text should have, by the rule of docs/cache-format.md.
std::string Sealed(std::string text) {
  std::uint64_t hash = 14695981039346656037u;
  for (const unsigned char c : text) hash = (hash ^ c) * 1099511628211u;
  char digits[17];
  std::snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(hash));
  return text + ",\"checksum\":\"" + digits + "\"}";
}

// The sample after `edit`, with a right checksum: what another version or a careless tool wrote.
ParsedRecord ReadEdited(const std::function<void(Json&)>& edit) {
  Json json = Json::parse(SampleLine());
  json.erase("checksum");
  edit(json);
  std::string text = json.dump();
  text.pop_back();
  return ReadRecord(Sealed(text));
}

// The spec of the document's example.
LaunchSpec SpecOf(const CacheFile::Record& record) {
  static IdleKernel kernel("cpu_simd/skinny/m4");
  EXPECT_EQ(record.kernel_id, kernel.id());
  return {&kernel,          record.swizzle,     record.splits, record.time_us,
          record.spread_us, record.baseline_us, record.origin, record.when,
          record.serial,    record.variant};
}

// A random value among those that have a text name.
template <class Enum>
Enum AnyNamed(std::mt19937& random) {
  if constexpr (std::is_same_v<Enum, Bias::Axis>) {
    return random() % 2 ? Bias::Axis::kM : Bias::Axis::kN;
  } else {
    for (;;) {
      const auto value = static_cast<Enum>(random() % 8);
      if (FromString<Enum>(ToString(value)) == value) return value;
    }
  }
}

TEST(CacheRecordTest, ALineIsDocumentedJson) {
  const std::string line = SampleLine();
  const Json json = Json::parse(line);
  EXPECT_EQ(json["device"], kTestDevice);
  EXPECT_EQ(json["problem"]["m"], 16);
  EXPECT_EQ(json["problem"]["type_a"], "bfloat16");
  EXPECT_EQ(json["problem"]["bias_axis"], "n");
  EXPECT_EQ(json["launch"]["kernel"], "fake/fast");
  EXPECT_EQ(json["launch"]["time_us"], 12.25);
  EXPECT_EQ(json["launch"]["origin"], "measured");
  const std::string text = line.substr(0, line.find(",\"checksum\""));
  EXPECT_EQ(line, Sealed(text)) << "the checksum is not what the document says";
  EXPECT_EQ(line.find('\n'), std::string::npos);
}

TEST(CacheRecordTest, TheDocumentsExampleIsSound) {
  const auto lines = Lines(ReadText(CULET_SOURCE_DIR "/docs/cache-example.jsonl"));
  int examples = 0;
  for (const std::string& line : lines) {
    if (!line.starts_with("{\"device\"")) continue;
    ++examples;
    const ParsedRecord parsed = ReadRecord(line);
    ASSERT_EQ(parsed.state, RecordState::kSound) << parsed.record.damage;
    EXPECT_EQ(line,
              WriteRecord(parsed.record.device_class, parsed.record.desc, SpecOf(parsed.record)))
        << "the writer's form has changed";
  }
  EXPECT_EQ(examples, 1);
}

TEST(CacheRecordTest, EveryFieldOfTheProblemSurvives) {
  std::mt19937 random(1);
  const auto among = [&](auto... values) {
    const std::array all = {values...};
    return all[random() % all.size()];
  };
  for (int round = 0; round < 200; ++round) {
    GemmDesc desc;
    VisitFields(desc, [&]<class T>(const char*, T& value, const auto&... range) {
      if constexpr (std::is_same_v<T, bool>) {
        value = random() % 2;
      } else if constexpr (std::is_same_v<T, std::uint8_t>) {
        value = static_cast<T>(1 << random() % 5);
      } else if constexpr (std::is_same_v<T, int>) {
        const FieldRange limits = (range, ...);
        value = among(limits.min, limits.min + 1, limits.max);
      } else {
        value = AnyNamed<T>(random);
      }
    });
    const LaunchSpec spec = Measured(Fast(), round);
    ASSERT_TRUE(IsRecordable(desc, spec));
    const ParsedRecord parsed = ReadRecord(LineOf(desc, spec));
    ASSERT_EQ(parsed.state, RecordState::kSound) << parsed.record.damage;
    EXPECT_EQ(parsed.record.desc, desc);
    EXPECT_EQ(parsed.record.problem, ToString(desc));
    EXPECT_EQ(parsed.record.damage, "");
  }
}

// A record of a library that knew one order alone says nothing of it, and one by eights still does
// not.
TEST(CacheRecordTest, RecordsWithoutAGateOrderAreOfEights) {
  GemmDesc eights = Problem(16);
  eights.epilogue = Epilogue::kGatedSilu;
  GemmDesc halves = eights;
  halves.gate_order = GateOrder::kHalves;
  const LaunchSpec spec = Measured(Fast(), 12.25);
  const std::string old = LineOf(eights, spec), line = LineOf(halves, spec);
  EXPECT_FALSE(Json::parse(old)["problem"].contains("gate_order"));
  EXPECT_EQ(ReadRecord(old).record.desc, eights);
  EXPECT_EQ(Json::parse(line)["problem"]["gate_order"], "halves");
  EXPECT_EQ(ReadRecord(line).record.desc, halves);
  EXPECT_NE(RecordKey(old), RecordKey(line));
  const auto state = [&](const char* order) {
    return ReadEdited([&](Json& json) { json["problem"]["gate_order"] = order; }).state;
  };
  EXPECT_EQ(state("halves"), RecordState::kSound);
  EXPECT_EQ(state("thirds"), RecordState::kOtherVersion);
}

TEST(CacheRecordTest, DoublesSurviveBitByBit) {
  std::mt19937_64 random(2);
  std::vector<double> times = {0.0,
                               -0.0,
                               0.1,
                               1.0 / 3,
                               std::nextafter(1.0, 2.0),
                               std::numeric_limits<double>::denorm_min(),
                               std::numeric_limits<double>::min(),
                               std::numeric_limits<double>::max(),
                               9007199254740993.0};
  while (times.size() < 2000) {
    const double time = std::bit_cast<double>(random() >> 1);
    if (std::isfinite(time)) times.push_back(time);
  }
  for (const double time : times) {
    const ParsedRecord parsed = ReadRecord(LineOf(Problem(1), Measured(Fast(), time)));
    ASSERT_EQ(parsed.state, RecordState::kSound) << parsed.record.damage << ' ' << time;
    ASSERT_EQ(std::bit_cast<std::uint64_t>(parsed.record.time_us),
              std::bit_cast<std::uint64_t>(time));
  }
}

TEST(CacheRecordTest, AnyChangedByteIsDamage) {
  const std::string line = SampleLine();
  for (std::size_t i = 0; i < line.size(); ++i) {
    for (const char flip : {'\x01', '\x20', '\x80'}) {
      std::string changed = line;
      changed[i] = static_cast<char>(changed[i] ^ flip);
      ASSERT_EQ(ReadRecord(changed).state, RecordState::kDamaged) << i;
      ASSERT_TRUE(RecordKey(changed).empty()) << i;
    }
    ASSERT_EQ(ReadRecord(line.substr(0, i)).state, RecordState::kDamaged) << i;
    ASSERT_EQ(ReadRecord(line.substr(i + 1)).state, RecordState::kDamaged) << i;
  }
  EXPECT_EQ(ReadRecord(line + " ").state, RecordState::kDamaged);
  EXPECT_EQ(ReadRecord(line).state, RecordState::kSound);
}

TEST(CacheRecordTest, HostileLinesAreDamageAndNothingWorse) {
  std::vector<std::string> lines = {"",
                                    "{",
                                    "}",
                                    std::string(1, '\0'),
                                    "null",
                                    "\xff\xfe",
                                    std::string(60'000, '['),
                                    std::string(1 << 20, '{')};
  for (const char* text :
       {"", "[", "[1,2", "{\"device\":1", "\"x\"", "{\"problem\":{}", "{\"a\":{"}) {
    lines.push_back(Sealed(text));  // even with a right checksum
  }
  lines.push_back(Sealed("{\"device\":" + std::string(30'000, '[')));
  for (const std::string& line : lines) {
    const ParsedRecord parsed = ReadRecord(line);
    EXPECT_NE(parsed.state, RecordState::kSound) << line.substr(0, 80);
    EXPECT_NE(parsed.record.damage, "");
  }
}

TEST(CacheRecordTest, ImpossibleValuesAreDamage) {
  const auto damage = [](const char* object, const char* field, const Json& value) {
    const ParsedRecord parsed = ReadEdited([&](Json& json) { json[object][field] = value; });
    EXPECT_EQ(parsed.state, RecordState::kDamaged) << field << " = " << value;
    EXPECT_THAT(parsed.record.damage, testing::HasSubstr(field));
  };
  for (const char* extent : {"m", "n", "k", "num"}) {
    for (const Json& value : {Json(0), Json(-1), Json(1.5), Json("1"), Json(nullptr), Json(1e10),
                              Json(2147483648), Json(std::numeric_limits<std::uint64_t>::max())}) {
      damage("problem", extent, value);
    }
  }
  damage("problem", "align_a", 3);
  damage("problem", "align_a", 32);
  damage("problem", "batch_dim", 2);
  damage("problem", "group_axis", -2);
  damage("problem", "pdl", 1);
  damage("problem", "order_a", 1);
  damage("launch", "swizzle", -7);
  damage("launch", "swizzle", kMaxSwizzle + 1);
  damage("launch", "splits", 0);
  damage("launch", "splits", -7);
  damage("launch", "splits", kMaxSplits + 1);
  damage("launch", "time_us", -1);
  damage("launch", "time_us", "fast");
  damage("launch", "spread_us", -0.5);
  damage("launch", "when", -1);
  damage("launch", "when", 1e18);
  damage("launch", "kernel", 7);
}

TEST(CacheRecordTest, IntactRecordsOfAnotherVersionAreNotDamage) {
  const auto other = [](const std::function<void(Json&)>& edit) {
    const ParsedRecord parsed = ReadEdited(edit);
    EXPECT_EQ(parsed.state, RecordState::kOtherVersion) << parsed.record.damage;
    EXPECT_NE(parsed.record.damage, "");
  };
  other([](Json& json) { json["new"] = 1; });
  other([](Json& json) { json["problem"]["new"] = 1; });
  other([](Json& json) { json["launch"]["new"] = 1; });
  other([](Json& json) { json["problem"]["type_a"] = "int3"; });
  other([](Json& json) { json["launch"]["origin"] = "guessed"; });
  for (const char* object : {"problem", "launch"}) {
    const Json sample = Json::parse(SampleLine());
    for (const auto& [field, value] : sample[object].items()) {
      other([&, name = field](Json& json) { json[object].erase(name); });
    }
  }
  for (const char* field : {"device", "library", "problem", "launch"}) {
    other([&](Json& json) { json.erase(field); });
  }
}

TEST(CacheRecordTest, KeysAreEqualExactlyForEqualDevicesAndProblems) {
  const std::string line = SampleLine();
  const std::string_view key = RecordKey(line);
  EXPECT_FALSE(key.empty());
  LaunchSpec other = Measured(Fast(), 99);
  other.splits = 4;
  EXPECT_EQ(key, RecordKey(LineOf(Problem(16), other)));
  EXPECT_NE(key, RecordKey(LineOf(Problem(17), other)));
  EXPECT_NE(key, RecordKey(WriteRecord("cuda", Problem(16), other)));
  // A device class that looks like the mark must not cut the key short.
  const std::string tricky = ",\"launch\":";
  const std::string a = WriteRecord(tricky, Problem(16), other);
  const std::string b = WriteRecord(tricky, Problem(17), other);
  EXPECT_NE(RecordKey(a), RecordKey(b));
  EXPECT_EQ(ReadRecord(a).record.device_class, tricky);
}

TEST(CacheRecordTest, PrecedenceIsATotalOrder) {
  std::vector<LaunchSpec> specs;
  IdleKernel other("fake/other");
  for (int bits = 0; bits < 256; ++bits) {
    LaunchSpec spec = Measured(bits & 1 ? Fast() : other, 1 + (bits >> 1 & 1), bits >> 2 & 1);
    spec.origin = static_cast<Origin>(bits >> 3 & 1);
    spec.splits = 1 + (bits >> 4 & 1);
    spec.swizzle = bits >> 5 & 1;
    spec.serial = bits >> 6 & 1;
    spec.variant = bits >> 7 & 1;
    specs.push_back(spec);
  }
  for (const LaunchSpec& a : specs) {
    for (const LaunchSpec& b : specs) {
      EXPECT_EQ(ComparePrecedence(a, b), -ComparePrecedence(b, a));
      EXPECT_EQ(ComparePrecedence(a, b) == 0, SameSpec(a, b));
      if (a.origin != b.origin) {
        EXPECT_EQ(ComparePrecedence(a, b) > 0, a.origin == Origin::kMeasured);
      } else if (a.when != b.when) {
        EXPECT_EQ(ComparePrecedence(a, b) > 0, a.when > b.when);
      } else if (a.time_us != b.time_us) {
        EXPECT_EQ(ComparePrecedence(a, b) > 0, a.time_us < b.time_us);
      }
    }
  }
}

}  // namespace
}  // namespace culet
