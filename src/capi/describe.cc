// What the C interface tells of devices, kernels, problems and models, as text and as JSON.
#include <string>

#include "capi/guard.h"
#include "capi/handles.h"
#include "capi/text.h"
#include "capi/versioned.h"
#include "culet/culet.h"
#include "culet/device.h"
#include "culet/gemm.h"
#include "culet/json.h"
#include "culet/model.h"

using culet::Status;
using culet::capi::Guarded;
using culet::capi::Null;
using culet::capi::WriteText;

namespace culet::capi {
namespace {

Result<GemmDesc> DescribeFor(const culet_engine* engine, const culet_problem* problem) {
  if (engine == nullptr) return Null("engine");
  GemmArgs args;
  CULET_RETURN_IF_ERROR(ReadProblem(problem, args));
  return Describe(args, engine->gemm.device().arch);
}

Result<Explanation> ExplanationFor(const culet_engine* engine, const culet_problem* problem) {
  const auto desc = DescribeFor(engine, problem);
  if (!desc.ok()) return desc.status();
  return engine->gemm.explain(*desc);
}

// A list of JSON objects.
template <class Objects, class ToJson>
std::string List(const Objects& objects, const ToJson& to_json) {
  std::string text = "[";
  for (const auto& object : objects) {
    if (text.size() > 1) text += ',';
    text += to_json(object);
  }
  return text + ']';
}

}  // namespace
}  // namespace culet::capi

culet_status culet_devices_json(char* text, size_t capacity, size_t* needed) {
  return Guarded([&] {
    const auto to_json = [](const culet::DeviceInfo& device) { return culet::JsonOf(device); };
    return WriteText(culet::capi::List(culet::Devices(), to_json), text, capacity, needed);
  });
}

culet_status culet_kernels_json(const culet_engine* engine, char* text, size_t capacity,
                                size_t* needed) {
  return Guarded([&]() -> Status {
    if (engine == nullptr) return Null("engine");
    const auto to_json = [](const culet::Kernel* kernel) { return culet::JsonOf(*kernel); };
    return WriteText(culet::capi::List(engine->gemm.registry().kernels(), to_json), text, capacity,
                     needed);
  });
}

culet_status culet_describe_json(const culet_engine* engine, const culet_problem* problem,
                                 char* text, size_t capacity, size_t* needed) {
  return Guarded([&]() -> Status {
    const auto desc = culet::capi::DescribeFor(engine, problem);
    if (!desc.ok()) return desc.status();
    return WriteText(culet::JsonOf(*desc), text, capacity, needed);
  });
}

culet_status culet_explain(culet_engine* engine, const culet_problem* problem, char* text,
                           size_t capacity, size_t* needed) {
  return Guarded([&]() -> Status {
    const auto explanation = culet::capi::ExplanationFor(engine, problem);
    if (!explanation.ok()) return explanation.status();
    return WriteText(explanation->ToString(), text, capacity, needed);
  });
}

culet_status culet_explain_json(culet_engine* engine, const culet_problem* problem, char* text,
                                size_t capacity, size_t* needed) {
  return Guarded([&]() -> Status {
    const auto explanation = culet::capi::ExplanationFor(engine, problem);
    if (!explanation.ok()) return explanation.status();
    return WriteText(culet::JsonOf(*explanation), text, capacity, needed);
  });
}

culet_status culet_products_json(const char* path, char* text, size_t capacity, size_t* needed) {
  return Guarded([&]() -> Status {
    if (path == nullptr) return Null("path");
    const auto shapes = culet::ReadModelShapes(path);
    if (!shapes.ok()) return shapes.status();
    return WriteText(culet::JsonOf(*shapes), text, capacity, needed);
  });
}
