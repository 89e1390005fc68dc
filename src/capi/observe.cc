// What the C interface tells of its own work and of the machine: messages, ranges, the doctor.
#include <fmt/format.h>

#include <string>

#include "capi/guard.h"
#include "capi/handles.h"
#include "capi/text.h"
#include "capi/versioned.h"
#include "culet/culet.h"
#include "culet/doctor.h"
#include "culet/log.h"
#include "culet/lost_file.h"
#include "culet/trace.h"

using culet::LogLevel;
using culet::Status;
using culet::capi::Guarded;
using culet::capi::Null;

culet_status culet_set_log(culet_log_function function, void* context, int32_t least) {
  return Guarded([&]() -> Status {
    if (least < CULET_LOG_OFF || least > CULET_LOG_WARNING) {
      return culet::capi::NotAConstant("least", least);
    }
    if (function == nullptr) {
      culet::SetLog(nullptr);
      return {};
    }
    culet::SetLog(
        [function, context](LogLevel level, const std::string& message) {
          function(context, static_cast<int32_t>(level), message.c_str());
        },
        static_cast<LogLevel>(least));
    return {};
  });
}

culet_status culet_set_tracing(int32_t on) {
  return Guarded([&] { return culet::SetTracing(on != 0); });
}

culet_status culet_explain_lost_files(int32_t exit_code) {
  return Guarded([&]() -> Status {
    if (exit_code < 0 || exit_code > 255) {
      return Status(culet::StatusCode::kInvalidArgument,
                    fmt::format("exit_code is {}; give 0 to 255", exit_code));
    }
    culet::ExplainLostFiles({.exit_code = exit_code});
    return {};
  });
}

culet_status culet_doctor_json(const char* cache_path, char* text, size_t capacity,
                               size_t* needed) {
  return Guarded([&]() -> Status {
    if (text == nullptr && capacity != 0) return Null("text");
    culet::DiagnoseOptions options;
    if (cache_path != nullptr) options.cache_path = cache_path;
    return culet::capi::WriteText(culet::JsonOf(culet::Diagnose(options)), text, capacity, needed);
  });
}

culet_status culet_engine_coverage(const culet_engine* engine, culet_coverage* coverage) {
  return Guarded([&]() -> Status {
    if (engine == nullptr) return Null("engine");
    const culet::Coverage counted = engine->gemm.coverage();
    culet_coverage out{};
    out.problems = counted.problems;
    out.measured = counted.measured;
    return culet::capi::Write("coverage", out, coverage);
  });
}
