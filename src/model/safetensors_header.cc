#include "model/safetensors_header.h"

#include <fmt/format.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <unordered_set>
#include <utility>

#include "culet/printable.h"

namespace culet {
namespace {

using nlohmann::json;

constexpr std::size_t kMostDimensions = 8;
constexpr std::size_t kMostNameBytes = 1000;  // names end up in messages

// Accepts only the one form that a header may have; anything else is an error with a reason.
class HeaderReader final : public json::json_sax_t {
 public:
  std::vector<HeaderTensor> tensors;
  std::string reason;

  bool start_object(std::size_t) override {
    switch (place_) {
      case Place::kStart:
        place_ = Place::kTop;
        return true;
      case Place::kTopValue:
        if (metadata_) {
          place_ = Place::kMetadata;
        } else {
          place_ = Place::kTensor;
          has_dtype_ = has_shape_ = has_offsets_ = false;
        }
        return true;
      default:
        return Unexpected("an object");
    }
  }

  bool key(string_t& name) override {
    switch (place_) {
      case Place::kTop:
        if (name.size() > kMostNameBytes) {
          return Fail(
              fmt::format("a name has {} bytes, more than {}", name.size(), kMostNameBytes));
        }
        if (!seen_.insert(name).second) return Fail(fmt::format("{} stands twice", Shown(name)));
        metadata_ = name == "__metadata__";
        if (!metadata_) tensors.emplace_back().name = name;
        place_ = Place::kTopValue;
        return true;
      case Place::kMetadata:
        return true;
      case Place::kTensor:
        if (name == "dtype" && !has_dtype_) {
          has_dtype_ = true;
          place_ = Place::kDtype;
        } else if (name == "shape" && !has_shape_) {
          has_shape_ = true;
          place_ = Place::kShape;
        } else if (name == "data_offsets" && !has_offsets_) {
          has_offsets_ = true;
          offsets_ = 0;
          place_ = Place::kOffsets;
        } else {
          return FailTensor(fmt::format("the key {} is unknown or stands twice", Shown(name)));
        }
        return true;
      default:
        return Unexpected("a key");
    }
  }

  bool end_object() override {
    switch (place_) {
      case Place::kTensor:
        if (!has_dtype_ || !has_shape_ || !has_offsets_ || offsets_ != 2) {
          return FailTensor("dtype, shape or the two data_offsets are missing");
        }
        place_ = Place::kTop;
        return true;
      case Place::kMetadata:
        place_ = Place::kTop;
        return true;
      case Place::kTop:
        place_ = Place::kEnd;
        return true;
      default:
        return Unexpected("the end of an object");
    }
  }

  bool start_array(std::size_t) override {
    if (place_ == Place::kShape) {
      place_ = Place::kShapeItems;
    } else if (place_ == Place::kOffsets) {
      place_ = Place::kOffsetItems;
    } else {
      return Unexpected("a list");
    }
    return true;
  }

  bool end_array() override {
    place_ = Place::kTensor;
    return true;
  }

  bool string(string_t& text) override {
    if (place_ == Place::kMetadata) return true;
    if (place_ != Place::kDtype) return Unexpected("a text");
    tensors.back().dtype = text;
    place_ = Place::kTensor;
    return true;
  }

  bool number_unsigned(number_unsigned_t value) override {
    if (value > static_cast<number_unsigned_t>(std::numeric_limits<std::int64_t>::max())) {
      return Unexpected("a number above 2^63");
    }
    const auto number = static_cast<std::int64_t>(value);
    if (place_ == Place::kShapeItems) {
      if (tensors.back().shape.size() == kMostDimensions) {
        return FailTensor(fmt::format("it has more than {} dimensions", kMostDimensions));
      }
      tensors.back().shape.push_back(number);
      return true;
    }
    if (place_ == Place::kOffsetItems && offsets_ < 2) {
      (offsets_ == 0 ? tensors.back().begin : tensors.back().end) = number;
      ++offsets_;
      return true;
    }
    return Unexpected("a number");
  }

  bool null() override {
    // The format's own library takes it for no metadata.
    if (place_ != Place::kTopValue || !metadata_) return Unexpected("null");
    place_ = Place::kTop;
    return true;
  }
  bool boolean(bool) override { return Unexpected("true or false"); }
  bool number_integer(number_integer_t) override { return Unexpected("a negative number"); }
  bool number_float(number_float_t, const string_t&) override {
    return Unexpected("a number that is not whole");
  }
  bool binary(binary_t&) override { return Unexpected("binary data"); }

  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception&) override {
    return Fail(fmt::format("the header is no JSON at byte {}", position));
  }

 private:
  enum class Place {
    kStart,
    kTop,
    kTopValue,
    kMetadata,
    kTensor,
    kDtype,
    kShape,
    kShapeItems,
    kOffsets,
    kOffsetItems,
    kEnd
  };

  static std::string Shown(const std::string& name) {
    constexpr std::size_t kMostBytes = 100;
    return Printable(name, kMostBytes);
  }
  bool Fail(std::string why) {
    if (reason.empty()) reason = std::move(why);
    return false;
  }
  bool FailTensor(const std::string& why) {
    return Fail(fmt::format("tensor {}: {}", Shown(tensors.back().name), why));
  }
  bool Unexpected(const char* what) {
    const bool inside = place_ != Place::kStart && place_ != Place::kTop &&
                        place_ != Place::kMetadata && !tensors.empty();
    const std::string why = fmt::format("the header has {} where none may be", what);
    return inside ? FailTensor(why) : Fail(why);
  }

  Place place_ = Place::kStart;
  bool metadata_ = false;
  bool has_dtype_ = false, has_shape_ = false, has_offsets_ = false;
  int offsets_ = 0;
  std::unordered_set<std::string> seen_;
};

}  // namespace

Result<std::vector<HeaderTensor>> ParseSafetensorsHeader(std::string_view text,
                                                         const std::string& origin) {
  HeaderReader reader;
  const bool read = json::sax_parse(text.begin(), text.end(), &reader);
  if (!read || !reader.reason.empty()) {
    return Status(StatusCode::kDataLoss,
                  fmt::format("{}: {}", origin,
                              reader.reason.empty() ? "the header is no JSON" : reader.reason));
  }
  return std::move(reader.tensors);
}

}  // namespace culet
