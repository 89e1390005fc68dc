#include "gemm/cache_record.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <type_traits>

#include "base/json_text.h"
#include "gemm/cache_rules.h"
#include "gemm/desc_fields.h"

namespace culet {
namespace {

using Json = nlohmann::json;

// A line is {<key>,"launch":{...},"library":"...","checksum":"<16 hex digits>"}. A quote inside a
// JSON string is escaped, so neither mark can occur in one.
constexpr std::string_view kLaunchMark = ",\"launch\":";
constexpr std::string_view kChecksumMark = ",\"checksum\":\"";
constexpr std::size_t kChecksumDigits = 16;
constexpr std::string_view kLineEnd = "\"}";

// FNV-1a, 64 bits. Every step is a bijection of the state, so a change within one byte is always
// found, any other with probability 1 - 2^-64.
std::uint64_t Checksum(std::string_view text) noexcept {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return hash;
}

using Digits = std::array<char, kChecksumDigits>;
Digits HexDigits(std::uint64_t value) noexcept {
  Digits text;
  for (std::size_t i = kChecksumDigits; i-- > 0; value >>= 4) {
    text[i] = "0123456789abcdef"[value & 15];
  }
  return text;
}

// The text in front of the checksum, or nothing when it is wrong.
std::string_view CheckedText(std::string_view line) noexcept {
  constexpr std::size_t kTail = kChecksumMark.size() + kChecksumDigits + kLineEnd.size();
  if (line.size() < kTail || line.size() > CacheFile::kMaxLineBytes) return {};
  const std::string_view text = line.substr(0, line.size() - kTail);
  std::string_view tail = line.substr(text.size());
  if (!tail.starts_with(kChecksumMark) || !tail.ends_with(kLineEnd)) return {};
  tail = tail.substr(kChecksumMark.size(), kChecksumDigits);
  return std::ranges::equal(tail, HexDigits(Checksum(text))) ? text : std::string_view();
}

const char* TextOf(Bias::Axis axis) noexcept { return axis == Bias::Axis::kM ? "m" : "n"; }
template <class Enum>
const char* TextOf(Enum value) noexcept {
  return ToString(value);
}

template <class Enum>
std::optional<Enum> ValueOf(const std::string& text) noexcept {
  if constexpr (std::is_same_v<Enum, Bias::Axis>) {
    if (text == "n") return Bias::Axis::kN;
    if (text == "m") return Bias::Axis::kM;
    return std::nullopt;
  } else {
    return FromString<Enum>(text);
  }
}

// The fields of a launch, as VisitFields does it for the problem.
template <class Record, class Visit>
void VisitLaunch(Record& record, Visit&& visit) {
  visit("kernel", record.kernel_id);
  visit("swizzle", record.swizzle, FieldRange{.max = kMaxSwizzle});
  visit("splits", record.splits, FieldRange{.min = 1, .max = kMaxSplits});
  visit.OnlyIfSet("serial", record.serial);
  visit.OnlyIfSet("variant", record.variant, FieldRange{.max = kMaxVariant});
  visit.OnlyIfSet("provider_version", record.provider_version);
  visit("time_us", record.time_us);
  visit("spread_us", record.spread_us);
  visit("baseline_us", record.baseline_us);
  visit("origin", record.origin);
  visit("when", record.when);
}

// JSON text of a string. An id that is not UTF-8 must not throw; when it is read again it names no
// kernel.
std::string Quoted(std::string_view text) { return JsonText(text); }

// Writes the members of an object, whose braces are the caller's. Text is appended as it comes: a
// document tree that is built only to be printed takes twice as long.
class ObjectWriter {
 public:
  explicit ObjectWriter(std::string& out) : out_(out) {}

  template <class T, class... Range>
  void operator()(const char* name, const T& value, const Range&...) {
    if constexpr (std::is_enum_v<T>) {
      AddName(name, TextOf(value));
    } else if constexpr (std::is_same_v<T, bool>) {
      Add(name, value ? "true" : "false");
    } else if constexpr (std::is_same_v<T, std::string>) {
      Add(name, Quoted(value));
    } else if constexpr (std::is_floating_point_v<T>) {
      AddNumber(name, value);
    } else {
      AddNumber(name, static_cast<std::int64_t>(value));
    }
  }

  // Left out where it is as usual, as it was before there was such a field.
  template <class T, class... Range>
  void Newer(const char* name, const T& value, const T& usual, const Range&... range) {
    if (value != usual) (*this)(name, value, range...);
  }
  template <class T, class... Range>
  void OnlyIfSet(const char* name, const T& value, const Range&... range) {
    Newer(name, value, T{}, range...);
  }

 private:
  void Add(const char* name, std::string_view json);
  void AddName(const char* name, const char* text);  // no character of it is escaped
  void AddNumber(const char* name, double value);
  void AddNumber(const char* name, std::int64_t value);

  std::string& out_;
};

// The records have some 60 fields: what each of them takes is not inlined, which would cost the
// compiler seconds.
void ObjectWriter::Add(const char* name, std::string_view json) {
  if (!out_.ends_with('{')) out_ += ',';
  ((out_ += '"') += name) += "\":";
  out_ += json;
}
void ObjectWriter::AddName(const char* name, const char* text) {
  Add(name, "\"");
  (out_ += text) += '"';
}
void ObjectWriter::AddNumber(const char* name, double value) {
  Add(name, JsonText(value));  // the shortest text that reads back as the same bits
}
void ObjectWriter::AddNumber(const char* name, std::int64_t value) {
  Add(name, fmt::format_int(value).c_str());
}

// Reads the members of an object into fields and keeps the first thing that is wrong.
class ObjectReader {
 public:
  ObjectReader(const Json& object, ParsedRecord& result) : object_(object), result_(result) {}

  ObjectReader Child(const char* name) {
    const Json* json = Member(name);
    if (json != nullptr && json->is_object()) return {*json, result_};
    Fail(RecordState::kDamaged, "has no object", name);
    return *this;  // reads nothing more: the result has failed
  }

  void operator()(const char* name, int& value, const FieldRange& range) {
    value = static_cast<int>(Integer(name, value, range.min, range.max, range.power_of_two));
  }
  void operator()(const char* name, std::uint8_t& value, const FieldRange& range) {
    value =
        static_cast<std::uint8_t>(Integer(name, value, range.min, range.max, range.power_of_two));
  }
  void operator()(const char* name, std::int64_t& value) {
    value = Integer(name, value, 0, kMaxWhen, false);
  }
  void operator()(const char* name, bool& value);
  void operator()(const char* name, double& value);
  void operator()(const char* name, std::string& value);
  template <class Enum>
  requires std::is_enum_v<Enum>
  void operator()(const char* name, Enum& value) {
    std::string text;
    (*this)(name, text);
    if (result_.state != RecordState::kSound) return;
    const auto known = ValueOf<Enum>(text);
    if (!known) return Fail(RecordState::kOtherVersion, "has an unknown value of", name);
    value = *known;
  }
  template <class T, class... Range>
  void Newer(const char* name, T& value, const T& usual, const Range&... range) {
    value = usual;
    if (Has(name)) (*this)(name, value, range...);
  }
  template <class T, class... Range>
  void OnlyIfSet(const char* name, T& value, const Range&... range) {
    Newer(name, value, T{}, range...);
  }

  // Requires: all members that are known were read.
  void RefuseOthers(const char* name);

 private:
  bool Has(const char* name) const;
  const Json* Member(const char* name);
  // `usual` when it fails.
  std::int64_t Integer(const char* name, std::int64_t usual, std::int64_t min, std::int64_t max,
                       bool power_of_two);
  void Fail(RecordState state, const char* what, const char* name);

  const Json& object_;
  ParsedRecord& result_;
  std::size_t members_read_ = 0;
};

void ObjectReader::operator()(const char* name, bool& value) {
  if (const Json* json = Member(name)) {
    if (!json->is_boolean()) return Fail(RecordState::kDamaged, "has no true or false in", name);
    value = json->get<bool>();
  }
}

void ObjectReader::operator()(const char* name, double& value) {
  if (const Json* json = Member(name)) {
    if (!json->is_number() || !IsTime(json->get<double>())) {
      return Fail(RecordState::kDamaged, "has no time in", name);
    }
    value = json->get<double>();
  }
}

void ObjectReader::operator()(const char* name, std::string& value) {
  if (const Json* json = Member(name)) {
    if (!json->is_string()) return Fail(RecordState::kDamaged, "has no text in", name);
    value = json->get<std::string>();
  }
}

void ObjectReader::RefuseOthers(const char* name) {
  if (object_.size() != members_read_) {
    Fail(RecordState::kOtherVersion, "has fields that this version does not know in", name);
  }
}

bool ObjectReader::Has(const char* name) const { return object_.contains(name); }

const Json* ObjectReader::Member(const char* name) {
  if (result_.state != RecordState::kSound) return nullptr;
  const auto found = object_.find(name);
  if (found == object_.end()) {
    Fail(RecordState::kOtherVersion, "has no field", name);
    return nullptr;
  }
  ++members_read_;
  return &*found;
}

std::int64_t ObjectReader::Integer(const char* name, std::int64_t usual, std::int64_t min,
                                   std::int64_t max, bool power_of_two) {
  const Json* json = Member(name);
  if (json == nullptr) return usual;
  if (!json->is_number_integer()) {
    Fail(RecordState::kDamaged, "has no integer in", name);
    return usual;
  }
  const bool too_large = json->is_number_unsigned() &&
                         json->get<std::uint64_t>() >
                             static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  const std::int64_t wide = too_large ? 0 : json->get<std::int64_t>();
  if (too_large || wide < min || wide > max || (power_of_two && (wide & (wide - 1)) != 0)) {
    Fail(RecordState::kDamaged, "has an impossible value of", name);
    return usual;
  }
  return wide;
}

void ObjectReader::Fail(RecordState state, const char* what, const char* name) {
  if (result_.state != RecordState::kSound) return;
  result_.state = state;
  result_.record.damage = std::string(what) + " '" + name + "'";
}

std::string BeginLine(std::string_view device_class, const GemmDesc& desc) {
  std::string text = "{\"device\":" + Quoted(device_class) + ",\"problem\":{";
  VisitFields(desc, ObjectWriter(text));
  text += '}';
  return text;
}

std::string EndLine(std::string text) {
  text += ",\"library\":" + Quoted(CULET_VERSION);
  const Digits checksum = HexDigits(Checksum(text));
  text += kChecksumMark;
  text.append(checksum.data(), checksum.size());
  text += kLineEnd;
  return text;
}

}  // namespace

std::string WriteRecord(std::string_view device_class, const GemmDesc& desc,
                        const LaunchSpec& spec) {
  CacheFile::Record record;
  record.kernel_id = spec.kernel->id();
  record.swizzle = spec.swizzle;
  record.splits = spec.splits;
  record.serial = spec.serial;
  record.variant = spec.variant;
  record.provider_version = spec.kernel->provider_version();
  record.time_us = spec.time_us;
  record.spread_us = spec.spread_us;
  record.baseline_us = spec.baseline_us;
  record.origin = spec.origin;
  record.when = spec.when;
  std::string text = BeginLine(device_class, desc);
  text += kLaunchMark;
  text += '{';
  VisitLaunch(record, ObjectWriter(text));
  text += '}';
  return EndLine(std::move(text));
}

std::string WriteProblem(std::string_view device_class, const GemmDesc& desc) {
  return EndLine(BeginLine(device_class, desc));
}

namespace {

// `with_launch`: a record; else a problem alone.
ParsedRecord ReadLine(std::string_view line, bool with_launch) {
  ParsedRecord result;
  if (line.size() > CacheFile::kMaxLineBytes) {
    result.record.damage = "the line is too long for a record";
    return result;
  }
  if (CheckedText(line).empty()) {
    result.record.damage = "the checksum is missing or wrong";
    return result;
  }
  const Json json = ParseJson(line);
  if (!json.is_object()) {
    result.record.damage = "the line is not a JSON object";
    return result;
  }
  result.state = RecordState::kSound;
  CacheFile::Record& record = result.record;
  ObjectReader reader(json, result);
  reader("device", record.device_class);
  reader("library", record.library_version);
  std::string checksum;
  reader("checksum", checksum);
  ObjectReader problem = reader.Child("problem");
  VisitFields(record.desc, problem);
  problem.RefuseOthers("problem");
  if (with_launch) {
    ObjectReader launch = reader.Child("launch");
    VisitLaunch(record, launch);
    launch.RefuseOthers("launch");
  }
  reader.RefuseOthers("the record");
  if (result.state == RecordState::kSound) record.problem = ToString(record.desc);
  return result;
}

}  // namespace

ParsedRecord ReadRecord(std::string_view line) { return ReadLine(line, true); }

ParsedRecord ReadProblem(std::string_view line) { return ReadLine(line, false); }

std::string SealRecord(std::string text) { return EndLine(std::move(text)); }

std::string_view RecordKey(std::string_view line) noexcept {
  const std::string_view text = CheckedText(line);
  return text.substr(0, text.find(kLaunchMark));
}

}  // namespace culet
