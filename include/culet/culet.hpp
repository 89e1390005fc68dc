// culet.h for C++17: handles that free themselves, errors as exceptions. For programs that cannot
// share a C++ ABI with libculet; this header stands on culet.h and the standard library alone, and
// all of it is compiled into the program. Who builds with culet's own compiler takes culet/gemm.h.
//
//   culet::c::Engine engine("cpu");
//   culet::c::Problem problem;
//   problem.a = culet::c::RowMajor(CULET_FLOAT32, m, k);
//   problem.b = culet::c::ColMajor(CULET_FLOAT32, k, n);  // a weight (n, k)
//   problem.d = culet::c::RowMajor(CULET_FLOAT32, m, n);
//   problem.B = weight;
//   culet::c::Plan plan(engine, problem);
//   culet::c::LaunchPointers pointers;
//   pointers.A = x;
//   pointers.D = y;
//   plan.Launch(pointers, workspace);
//
// Errors: every call that fails throws Error, thrown and caught within the program; nothing is
// thrown across the library. An exception and no result type, because constructors make these
// objects. Programs without exceptions call culet.h. Threads, memory and lifetimes are those of
// culet.h: an engine outlives its plans, workspaces, models and sessions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "culet/culet.h"

namespace culet {
namespace c {

/// A call failed: its status, and the sentence with the argument, its value and the way out.
class Error : public std::runtime_error {
 public:
  Error(culet_status status, const std::string& message)
      : std::runtime_error(message), status_(status) {}
  culet_status status() const noexcept { return status_; }

 private:
  culet_status status_;
};

/// Throws Error unless `status` is CULET_OK. For calls of culet.h itself.
inline void Check(culet_status status) {
  if (status != CULET_OK) throw Error(status, culet_last_error());
}

/// A struct of culet.h, zeroed and with its size set.
template <class Struct>
struct Sized : Struct {
  Sized() : Struct() { this->struct_size = sizeof(Struct); }
};
using Problem = Sized<culet_problem>;
using Grouped = Sized<culet_grouped>;
using Device = Sized<culet_device>;
using TuneOptions = Sized<culet_tune_options>;
using Choice = Sized<culet_choice>;
using CacheReport = Sized<culet_cache_report>;
using Coverage = Sized<culet_coverage>;
using WorkspaceSize = Sized<culet_workspace_size>;
using ModelOptions = Sized<culet_model_options>;
using ModelInfo = Sized<culet_model_info>;
using SessionOptions = Sized<culet_session_options>;
using SessionInfo = Sized<culet_session_info>;
using Sampling = Sized<culet_sampling>;

/// Layouts; ld 0 is tightly packed.
inline culet_matrix RowMajor(std::int32_t type, std::int32_t rows, std::int32_t cols,
                             std::int64_t ld = 0) noexcept {
  culet_matrix matrix{};
  matrix.type = type;
  matrix.order = CULET_ROW_MAJOR;
  matrix.rows = rows;
  matrix.cols = cols;
  matrix.ld = ld != 0 ? ld : cols;
  return matrix;
}
inline culet_matrix ColMajor(std::int32_t type, std::int32_t rows, std::int32_t cols,
                             std::int64_t ld = 0) noexcept {
  culet_matrix matrix = RowMajor(type, rows, cols, ld != 0 ? ld : rows);
  matrix.order = CULET_COL_MAJOR;
  return matrix;
}

namespace internal {

template <class Handle, void (*Destroy)(Handle*)>
struct Destroyer {
  void operator()(Handle* handle) const noexcept { Destroy(handle); }
};
template <class Handle, void (*Destroy)(Handle*)>
using Owned = std::unique_ptr<Handle, Destroyer<Handle, Destroy>>;

// What a function that gives a text writes: call(text, capacity, needed).
template <class Call>
std::string TextOf(const Call& call) {
  std::string text;
  std::size_t needed = 0;
  Check(call(nullptr, 0, &needed));
  do {  // the text may have grown in between
    text.resize(needed);
    Check(call(&text[0], text.size(), &needed));
  } while (needed > text.size());
  text.resize(needed - 1);
  return text;
}

}  // namespace internal

/// culet_devices_json.
inline std::string DevicesJson() { return internal::TextOf(culet_devices_json); }

/// culet_products_json.
inline std::string ProductsJson(const std::string& path) {
  return internal::TextOf([&](char* text, std::size_t capacity, std::size_t* needed) {
    return culet_products_json(path.c_str(), text, capacity, needed);
  });
}

/// The host, then every CUDA device.
inline std::vector<Device> Devices() {
  std::int32_t count = 0;
  Check(culet_device_count(&count));
  std::vector<Device> devices(static_cast<std::size_t>(count));
  for (std::int32_t i = 0; i < count; ++i) {
    Check(culet_device_get(i, &devices[static_cast<std::size_t>(i)]));
  }
  return devices;
}

/// culet_doctor_json; `cache_path` empty is the default.
inline std::string DoctorJson(const std::string& cache_path = "") {
  return internal::TextOf([&](char* text, std::size_t capacity, std::size_t* needed) {
    return culet_doctor_json(cache_path.empty() ? nullptr : cache_path.c_str(), text, capacity,
                             needed);
  });
}

/// culet_set_log; the function may be a lambda without captures, null ends the log.
inline void SetLog(culet_log_function function, void* context = nullptr,
                   std::int32_t least = CULET_LOG_INFO) {
  Check(culet_set_log(function, context, least));
}

/// culet_set_tracing.
inline void SetTracing(bool on) { Check(culet_set_tracing(on ? 1 : 0)); }

/// culet_explain_lost_files.
inline void ExplainLostFiles(int exit_code) { Check(culet_explain_lost_files(exit_code)); }

/// culet_engine. `cache_path` and `providers`: empty is the default.
class Engine {
 public:
  explicit Engine(const std::string& device = "cpu", const std::string& cache_path = "",
                  const std::string& providers = "") {
    Sized<culet_engine_options> options;
    options.device = device.c_str();
    options.cache_path = cache_path.empty() ? nullptr : cache_path.c_str();
    options.providers = providers.c_str();
    culet_engine* made = nullptr;
    Check(culet_engine_create(&options, &made));
    handle_.reset(made);
  }

  culet_engine* get() const noexcept { return handle_.get(); }

  Device device() const {
    Device device;
    Check(culet_engine_device(get(), &device));
    return device;
  }
  /// How many distinct problems it was asked for, and how many choices were measured.
  Coverage coverage() const {
    Coverage coverage;
    Check(culet_engine_coverage(get(), &coverage));
    return coverage;
  }
  std::string cache_note() const { return culet_engine_cache_note(get()); }

  /// Merges the measured choices into the engine's own cache file, or into that of `path`.
  void Save() const { Check(culet_engine_save(get(), nullptr)); }
  void Save(const std::string& path) const { Check(culet_engine_save(get(), path.c_str())); }
  /// Whether Save could write.
  void CheckSave() const { Check(culet_engine_check_save(get(), nullptr)); }
  void CheckSave(const std::string& path) const {
    Check(culet_engine_check_save(get(), path.c_str()));
  }
  CacheReport Load(const std::string& path) const {
    CacheReport report;
    Check(culet_engine_load(get(), path.c_str(), &report));
    return report;
  }

  Choice Tune(const Problem& problem, const TuneOptions& options = TuneOptions()) const {
    Choice choice;
    Check(culet_tune(get(), &problem, &options, &choice));
    return choice;
  }

  std::string KernelsJson() const {
    return internal::TextOf([&](char* text, std::size_t capacity, std::size_t* needed) {
      return culet_kernels_json(get(), text, capacity, needed);
    });
  }
  std::string DescribeJson(const Problem& problem) const {
    return TextOf(culet_describe_json, problem);
  }
  std::string Explain(const Problem& problem) const { return TextOf(culet_explain, problem); }
  std::string ExplainJson(const Problem& problem) const {
    return TextOf(culet_explain_json, problem);
  }

  std::uint64_t PackedBytes(const culet_matrix& layout, std::int32_t format) const {
    std::uint64_t bytes = 0;
    Check(culet_packed_bytes(get(), &layout, format, &bytes));
    return bytes;
  }
  /// The layout to give as problem.b.
  culet_matrix Pack(const void* weight, const culet_matrix& layout, std::int32_t format,
                    void* packed, std::uint64_t bytes, void* stream = nullptr) const {
    culet_matrix made{};
    Check(culet_pack(get(), weight, &layout, format, packed, bytes, stream, &made));
    return made;
  }
  void Unpack(const void* packed, const culet_matrix& packed_layout, void* weight,
              const culet_matrix& layout) const {
    Check(culet_unpack(get(), packed, &packed_layout, weight, &layout));
  }

  void Quantize(std::int32_t quant, std::int32_t group, const void* source,
                const culet_matrix& source_layout, void* values, const culet_matrix& values_layout,
                float* scales, const culet_matrix& scales_layout, void* stream = nullptr) const {
    Check(culet_quantize(get(), quant, group, source, &source_layout, values, &values_layout,
                         scales, &scales_layout, stream));
  }

  /// culet_grouped_gemm.
  void GroupedGemm(const Grouped& product, void* stream = nullptr) const {
    Check(culet_grouped_gemm(get(), &product, stream));
  }

  /// culet_capture_id.
  std::uint64_t CaptureId(void* stream) const {
    std::uint64_t id = 0;
    Check(culet_capture_id(get(), stream, &id));
    return id;
  }

 private:
  template <class Function>
  std::string TextOf(Function* function, const Problem& problem) const {
    return internal::TextOf([&](char* text, std::size_t capacity, std::size_t* needed) {
      return function(get(), &problem, text, capacity, needed);
    });
  }

  internal::Owned<culet_engine, culet_engine_destroy> handle_;
};

/// culet_workspace: parts of a buffer that stays the caller's.
class Workspace {
 public:
  Workspace(const Engine& engine, const WorkspaceSize& size, void* buffer, std::uint64_t bytes,
            void* stream = nullptr) {
    culet_workspace* made = nullptr;
    Check(culet_workspace_create(engine.get(), &size, buffer, bytes, stream, &made));
    handle_.reset(made);
  }
  culet_workspace* get() const noexcept { return handle_.get(); }

  /// Bytes of the buffer that such a workspace needs.
  static std::uint64_t Bytes(const WorkspaceSize& size) {
    std::uint64_t bytes = 0;
    Check(culet_workspace_bytes(&size, &bytes));
    return bytes;
  }

 private:
  internal::Owned<culet_workspace, culet_workspace_destroy> handle_;
};

/// What changes between two launches of a plan.
struct LaunchPointers {
  const void* A = nullptr;
  const void* U = nullptr;
  const void* C = nullptr;
  void* D = nullptr;
  float alpha = 1;
  float beta = 0;
};

/// culet_plan.
class Plan {
 public:
  Plan(const Engine& engine, const Problem& problem) {
    culet_plan* made = nullptr;
    Check(culet_plan_create(engine.get(), &problem, &made));
    handle_.reset(made);
  }
  culet_plan* get() const noexcept { return handle_.get(); }

  Choice choice() const {
    Choice choice;
    Check(culet_plan_choice(get(), &choice));
    return choice;
  }
  WorkspaceSize workspace_size() const {
    WorkspaceSize size;
    Check(culet_plan_workspace(get(), &size));
    return size;
  }

  void Launch(const LaunchPointers& to, const Workspace& workspace, void* stream = nullptr) const {
    Check(culet_launch(get(), to.A, to.U, to.C, to.D, to.alpha, to.beta, workspace.get(), stream));
  }
  /// Of a plan that needs no workspace.
  void Launch(const LaunchPointers& to, void* stream = nullptr) const {
    Check(culet_launch(get(), to.A, to.U, to.C, to.D, to.alpha, to.beta, nullptr, stream));
  }

 private:
  internal::Owned<culet_plan, culet_plan_destroy> handle_;
};

/// culet_model.
class Model {
 public:
  Model(const Engine& engine, const std::string& path,
        const ModelOptions& options = ModelOptions()) {
    culet_model* made = nullptr;
    Check(culet_model_load(engine.get(), path.c_str(), &options, &made));
    handle_.reset(made);
    Check(culet_model_get_info(get(), &info_));
  }
  culet_model* get() const noexcept { return handle_.get(); }

  const ModelInfo& info() const noexcept { return info_; }
  std::vector<std::int32_t> end_tokens() const {
    std::vector<std::int32_t> tokens(static_cast<std::size_t>(info_.end_tokens));
    Check(culet_model_end_tokens(get(), tokens.data(), info_.end_tokens, nullptr));
    return tokens;
  }
  /// A sentence a line; empty when there is nothing to say.
  std::string warnings() const {
    return internal::TextOf([&](char* text, std::size_t capacity, std::size_t* needed) {
      return culet_model_warnings(get(), text, capacity, needed);
    });
  }

 private:
  internal::Owned<culet_model, culet_model_destroy> handle_;
  ModelInfo info_;
};

/// New tokens of one sequence.
struct SequenceTokens {
  std::int32_t sequence = 0;
  std::vector<std::int32_t> tokens;
};

/// What a step is to give besides the next tokens.
struct StepOutputs {
  bool logits = false;
  bool all_logits = false;
  bool hidden = false;
};

/// As culet_outputs.
struct StepResult {
  std::vector<std::int32_t> next;
  std::vector<float> logits, all_logits, hidden;
};

/// What Session::Decode made of one sequence.
struct DecodedTokens {
  std::vector<std::int32_t> tokens;
  std::int32_t end = 0;  ///< CULET_DECODE_*
};

/// culet_session.
class Session {
 public:
  explicit Session(const Model& model, const SessionOptions& options = SessionOptions())
      : model_(model.info()) {
    culet_session* made = nullptr;
    Check(culet_session_create(model.get(), &options, &made));
    handle_.reset(made);
  }
  culet_session* get() const noexcept { return handle_.get(); }

  SessionInfo info() const {
    SessionInfo info;
    Check(culet_session_get_info(get(), &info));
    return info;
  }

  std::int32_t Add() {
    std::int32_t sequence = 0;
    Check(culet_session_add(get(), &sequence));
    return sequence;
  }
  void Remove(std::int32_t sequence) { Check(culet_session_remove(get(), sequence)); }
  void Truncate(std::int32_t sequence, std::int32_t length) {
    Check(culet_session_truncate(get(), sequence, length));
  }
  /// culet_session_sampling.
  void SetSampling(std::int32_t sequence, const Sampling& sampling) {
    Check(culet_session_sampling(get(), sequence, &sampling));
  }
  /// Positions that the sequence has.
  std::int32_t LengthOf(std::int32_t sequence) const { return Positions(sequence).first; }
  /// Positions that it can still take.
  std::int32_t LeftOf(std::int32_t sequence) const { return Positions(sequence).second; }

  StepResult Step(const std::vector<SequenceTokens>& batch,
                  const StepOutputs& outputs = StepOutputs()) {
    return Run(culet_session_step, batch, outputs);
  }
  StepResult Prefill(const std::vector<SequenceTokens>& batch,
                     const StepOutputs& outputs = StepOutputs()) {
    return Run(culet_session_prefill, batch, outputs);
  }

  /// Steps one after the other, `steps` at most, from one token of each sequence on.
  /// `on_token(part, token)`: false ends that sequence; empty: none. It must not throw.
  std::vector<DecodedTokens> Decode(
      const std::vector<SequenceTokens>& parts, std::int32_t steps,
      const std::vector<std::int32_t>& end_tokens = {},
      const std::function<bool(std::int32_t part, std::int32_t token)>& on_token = nullptr) {
    const Packed packed(parts);
    Sized<culet_decode_options> options;
    options.steps = steps;
    options.end_tokens = end_tokens.data();
    options.end_token_count = static_cast<std::int32_t>(end_tokens.size());
    if (on_token) {
      options.on_token = [](void* context, std::int32_t part, std::int32_t token) {
        const auto& call =
            *static_cast<const std::function<bool(std::int32_t, std::int32_t)>*>(context);
        return std::int32_t{call(part, token) ? 0 : 1};
      };
      options.context = const_cast<std::function<bool(std::int32_t, std::int32_t)>*>(&on_token);
    }
    const std::size_t row = steps > 0 ? static_cast<std::size_t>(steps) : 0;
    std::vector<std::int32_t> tokens(parts.size() * row), made(parts.size()), ends(parts.size());
    Check(culet_session_decode(get(), &packed.batch, &options, tokens.data(), made.data(),
                               ends.data()));
    std::vector<DecodedTokens> all(parts.size());
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const auto begin = tokens.begin() + static_cast<std::ptrdiff_t>(i * row);
      all[i].tokens.assign(begin, begin + made[i]);
      all[i].end = ends[i];
    }
    return all;
  }

 private:
  // Parts as the C interface takes them; points into itself.
  struct Packed {
    explicit Packed(const std::vector<SequenceTokens>& parts) {
      for (const SequenceTokens& part : parts) {
        sequences.push_back(part.sequence);
        lengths.push_back(static_cast<std::int32_t>(part.tokens.size()));
        tokens.insert(tokens.end(), part.tokens.begin(), part.tokens.end());
      }
      batch.count = static_cast<std::int32_t>(parts.size());
      batch.sequences = sequences.data();
      batch.lengths = lengths.data();
      batch.tokens = tokens.data();
    }
    Packed(const Packed&) = delete;
    Packed& operator=(const Packed&) = delete;
    std::vector<std::int32_t> sequences, lengths, tokens;
    Sized<culet_batch> batch;
  };

  std::pair<std::int32_t, std::int32_t> Positions(std::int32_t sequence) const {
    std::pair<std::int32_t, std::int32_t> positions;
    Check(culet_session_sequence(get(), sequence, &positions.first, &positions.second));
    return positions;
  }

  static float* Room(std::vector<float>& values, std::size_t count) {
    values.resize(count);
    return values.data();
  }

  template <class Function>
  StepResult Run(Function* function, const std::vector<SequenceTokens>& parts,
                 const StepOutputs& wanted) {
    const Packed packed(parts);
    const std::vector<std::int32_t>& tokens = packed.tokens;
    const auto vocab = static_cast<std::size_t>(model_.vocab);
    StepResult result;
    Sized<culet_outputs> outputs;
    result.next.resize(parts.size());
    outputs.next = result.next.data();
    if (wanted.logits) outputs.logits = Room(result.logits, parts.size() * vocab);
    if (wanted.all_logits) outputs.all_logits = Room(result.all_logits, tokens.size() * vocab);
    if (wanted.hidden) {
      const auto states = static_cast<std::size_t>(model_.layers) + 1;
      outputs.hidden =
          Room(result.hidden, states * tokens.size() * static_cast<std::size_t>(model_.hidden));
    }
    Check(function(get(), &packed.batch, &outputs));
    return result;
  }

  ModelInfo model_;
  internal::Owned<culet_session, culet_session_destroy> handle_;
};

/// culet_sample.
inline std::int32_t Sample(const float* logits, std::size_t count, const Sampling& sampling,
                           std::uint64_t& state) {
  std::int32_t token = 0;
  Check(culet_sample(logits, static_cast<std::int32_t>(count), &sampling, &state, &token));
  return token;
}

}  // namespace c
}  // namespace culet
