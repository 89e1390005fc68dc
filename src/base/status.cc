#include "culet/status.h"

namespace culet {

const char* ToString(StatusCode code) noexcept {
  switch (code) {
    case StatusCode::kOk:
      return "OK";
    case StatusCode::kInvalidArgument:
      return "INVALID_ARGUMENT";
    case StatusCode::kUnsupported:
      return "UNSUPPORTED";
    case StatusCode::kOutOfRange:
      return "OUT_OF_RANGE";
    case StatusCode::kResourceExhausted:
      return "RESOURCE_EXHAUSTED";
    case StatusCode::kFailedPrecondition:
      return "FAILED_PRECONDITION";
    case StatusCode::kNotFound:
      return "NOT_FOUND";
    case StatusCode::kDataLoss:
      return "DATA_LOSS";
    case StatusCode::kIo:
      return "IO";
    case StatusCode::kWrongResult:
      return "WRONG_RESULT";
    case StatusCode::kInternal:
      return "INTERNAL";
  }
  return "UNKNOWN";
}

Status::Status(StatusCode code, std::string message)
    : code_(code),
      message_(code == StatusCode::kOk ? nullptr
                                       : std::make_shared<const std::string>(std::move(message))) {}

const std::string& Status::message() const noexcept {
  static const std::string empty;
  return message_ != nullptr ? *message_ : empty;
}

std::string Status::ToString() const {
  std::string text = culet::ToString(code_);
  if (message_ != nullptr && !message_->empty()) text += ": " + *message_;
  return text;
}

}  // namespace culet
