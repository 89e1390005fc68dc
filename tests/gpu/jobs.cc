#include "jobs.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <span>
#include <utility>

#include "check_kernels.h"
#include "cuda/quantize_e4m3.h"
#include "culet/model.h"
#include "culet/quantize.h"
#include "gemm/error_model.h"

namespace culet {

void Die(const std::string& what) {
  fmt::print("FAILED  {}\n", what);
  std::exit(2);
}

void Check(const Status& status, const std::string& what) {
  if (!status.ok()) Die(what + ": " + status.ToString());
}

void CheckCuda(int error, const std::string& what) {
  if (error != 0) Die(what + ": " + cudaGetErrorString(static_cast<cudaError_t>(error)));
}

DeviceMemory::DeviceMemory(std::size_t bytes) : bytes_(bytes) {
  void* pointer = nullptr;
  CheckCuda(cudaMalloc(&pointer, std::max<std::size_t>(bytes, 16)), "cudaMalloc");
  data_ = static_cast<std::byte*>(pointer);
}

DeviceMemory::~DeviceMemory() { cudaFree(data_); }

WorkspaceSize LargestWorkspace(const std::vector<Job>& jobs) {
  WorkspaceSize most;
  for (const Job& job : jobs) {
    most.barriers = std::max(most.barriers, job.workspace.barriers);
    most.partials = std::max(most.partials, job.workspace.partials);
    most.tensormaps = std::max(most.tensormaps, job.workspace.tensormaps);
  }
  return most;
}

namespace {

constexpr std::size_t Padded(std::size_t bytes) { return (bytes + 15) / 16 * 16; }

struct Shape {
  int m, n, k;
  bool fp8_only = false;
};
// Whole and partial tiles of every family; k with one to 56 blocks, and a partial one; then two
// that keep the whole GPU busy, a B above 50 MB, which some kernels load in another way, and a D
// whose stores take longer than its products, which meets buffers that are still being read.
constexpr Shape kShapes[] = {{1, 576, 1024},        {7, 520, 656},          {17, 256, 512},
                             {64, 384, 528},        {128, 512, 384},        {200, 264, 272},
                             {257, 520, 400},       {64, 2112, 7168},       {1000, 2056, 1040},
                             {8, 8200, 6656, true}, {1000, 8200, 400, true}};
// The last two of the tiny ones have columns to pair, a whole scale of D and a part of one; the
// last is long enough to go around every ring of a kernel.
constexpr Shape kTinyShapes[] = {
    {3, 72, 400}, {130, 264, 272}, {66, 136, 272}, {70, 256, 272}, {130, 80, 2064}};
constexpr std::span<const Shape> kTinyUnwrapped = std::span(kTinyShapes).first(4);
struct Types {
  Format format;
  DataType output;
  bool rows = false;  // E4M3 with a scale a row of A and a column of B instead of blocks
  Accumulate accumulate = Accumulate::kPromoted;
  Epilogue epilogue = Epilogue::kNone;
  DataType added = DataType::kNull;  // the type of C and of the bias
  std::uint8_t align = 16;           // of A's and B's rows
};
constexpr Types kFormats[] = {
    {.format = Format::kFp8Block, .output = DataType::kBfloat16},
    {.format = Format::kFp8Block, .output = DataType::kFloat32},
    {.format = Format::kBf16, .output = DataType::kBfloat16},
    {.format = Format::kF32, .output = DataType::kFloat32},
    {.format = Format::kF16, .output = DataType::kFloat16},
    {.format = Format::kFp8Block, .output = DataType::kBfloat16, .rows = true},
    {.format = Format::kFp8Block,
     .output = DataType::kBfloat16,
     .rows = true,
     .accumulate = Accumulate::kFast},
    {.format = Format::kBf16, .output = DataType::kBfloat16, .epilogue = Epilogue::kGatedSilu},
    {.format = Format::kFp8Block, .output = DataType::kBfloat16, .epilogue = Epilogue::kGatedSilu},
    {.format = Format::kBf16,
     .output = DataType::kFloat8_e4m3,
     .epilogue = Epilogue::kGatedSiluQuant},
    {.format = Format::kFp8Block,
     .output = DataType::kFloat8_e4m3,
     .epilogue = Epilogue::kGatedSiluQuant},
    {.format = Format::kBf16, .output = DataType::kBfloat16, .added = DataType::kBfloat16},
    {.format = Format::kBf16,
     .output = DataType::kFloat16,
     .epilogue = Epilogue::kGatedSilu,
     .added = DataType::kFloat16},
    {.format = Format::kFp8Block,
     .output = DataType::kFloat32,
     .rows = true,
     .added = DataType::kFloat32},
    {.format = Format::kFp8Block, .output = DataType::kBfloat16, .align = 8},
    {.format = Format::kFp8Block, .output = DataType::kBfloat16, .rows = true, .align = 4},
    {.format = Format::kBf16,
     .output = DataType::kBfloat16,
     .added = DataType::kBfloat16,
     .align = 8},
    {.format = Format::kF16, .output = DataType::kFloat16, .align = 4}};

// The problem, and whether there is one: gated columns come in groups of 16.
bool Describe(const Types& types, const Shape& shape, int arch, GemmDesc& desc) {
  const bool gated = types.epilogue != Epilogue::kNone;
  if (gated && shape.n % 16 != 0) return false;
  const bool quantised = types.epilogue == Epilogue::kGatedSiluQuant;
  auto described = MakeDesc(types.format, shape.m, shape.n, shape.k, arch,
                            quantised ? DataType::kBfloat16 : types.output);
  Check(described.status(), "MakeDesc");
  desc = *described;
  desc.accumulate = types.accumulate;
  desc.epilogue = types.epilogue;
  if (quantised) {
    desc.d.type = types.output;
    desc.d.quant = {QuantType::kK, 128};
    desc.d.scale_type = DataType::kFloat32;
  }
  desc.c.type = desc.type_bias = types.added;
  desc.a.align = desc.b.align = types.align;
  if (types.rows) desc.a.quant = desc.b.quant = {QuantType::kRow};
  return true;
}

struct Parameters {
  int swizzle, splits;
};

std::vector<Parameters> ParametersOf(const Kernel& kernel, const GemmDesc& desc) {
  constexpr std::size_t kBarrierBytes = std::size_t{1} << 16, kPartialBytes = std::size_t{4} << 20;
  const int4 shape = ShapeOf(desc);
  const int swizzle = std::max(0, kernel.GetMaxSwizzle(shape));
  const int splits =
      std::clamp(kernel.GetMaxSplits(shape, swizzle, kBarrierBytes, kPartialBytes), 1, desc.k);
  std::vector<Parameters> all = {{0, 1}};
  if (swizzle > 0 || splits > 1) all.push_back({swizzle, splits});
  return all;
}

std::size_t OutputBytes(const GemmArgs& args) {
  const MatrixLayout& d = args.Ddesc;
  const std::size_t lines = static_cast<std::size_t>(d.order == Order::kRowMajor ? d.rows : d.cols);
  return lines * static_cast<std::size_t>(d.ld) * SizeOf(d.type);
}

std::shared_ptr<DeviceMemory> Poisoned(std::size_t bytes) {
  auto memory = std::make_shared<DeviceMemory>(bytes);
  CheckCuda(cudaMemset(memory->data(), kPoisonByte, bytes), "cudaMemset");
  return memory;
}

// Launches into scratch's own output, which is judged, then into an image; both must agree, though
// shared memory holds zeros first and NaN then.
void MakeExpected(Job& job, ScratchProblem& scratch, const GemmPlan& plan) {
  auto own = scratch.workspace(plan.workspace_size());
  Check(own.status(), job.name);
  Check(scratch.PoisonOutput(), job.name);
  const GemmArgs& args = scratch.args();
  CheckCuda(FillShared(0, nullptr), job.name);
  Check(plan.Launch({args.A, args.U, args.C, args.D, args.alpha, args.beta}, **own), job.name);
  const auto report =
      scratch.Compare(0, AccumulatorFor(plan.spec().kernel->desc(), scratch.desc()));
  Check(report.status(), job.name);
  if (!report->ok()) Die(job.name + ": " + report->ToString());

  job.expected = Poisoned(job.image_bytes);
  CheckCuda(FillShared(~0u, nullptr), job.name);
  Check(job.launch(job.expected->data(), **own, nullptr), job.name);
  std::vector<std::byte> image(job.image_bytes);
  CheckCuda(cudaMemcpy(image.data(), job.expected->data(), image.size(), cudaMemcpyDeviceToHost),
            job.name);
  const auto bytes = scratch.OutputBytes();
  Check(bytes.status(), job.name);
  const auto rows = static_cast<std::size_t>(args.Ddesc.rows);
  const std::size_t line = static_cast<std::size_t>(args.Ddesc.cols) * SizeOf(args.Ddesc.type);
  const std::size_t pitch = static_cast<std::size_t>(args.Ddesc.ld) * SizeOf(args.Ddesc.type);
  const std::size_t step = bytes->size() / rows;  // a quantised row's scales lie behind it
  for (std::size_t row = 0; row < rows; ++row) {
    if (std::memcmp(image.data() + kGuardBytes + row * pitch, bytes->data() + row * step, line) !=
        0)
      Die(job.name + ": two launches gave different bits");
  }
}

}  // namespace

std::vector<Job> MakeJobs(Gemm& gemm, const JobOptions& options) {
  std::vector<Job> jobs;
  bool pdl = true;
  const std::span<const Shape> shapes = options.unwrapped ? kTinyUnwrapped
                                        : options.tiny    ? std::span<const Shape>(kTinyShapes)
                                                          : kShapes;
  for (const Types& types : kFormats) {
    for (const Shape& shape : shapes) {
      if (shape.fp8_only && types.format != Format::kFp8Block) continue;
      GemmDesc desc;
      if (!Describe(types, shape, gemm.device().arch, desc)) continue;
      // Scales of A in either order, and where no tensor map reaches them.
      if (desc.a.scale_type != DataType::kNull && !types.rows) {
        const auto variant = &shape - shapes.data();
        if (variant % 3 == 1) desc.a.scale_order = Order::kColMajor;
        if (variant % 3 == 2) desc.a.scale_align = 4;
      }
      std::shared_ptr<ScratchProblem> scratch[2];  // without and with pdl
      for (Kernel* kernel : gemm.registry().kernels()) {
        if (!kernel->id().starts_with(options.prefix)) continue;
        pdl = options.pdl_only || !pdl;
        desc.pdl = pdl;
        // A library may be absent, or know no algorithm.
        if (!Takes(*kernel, desc) || !Variants(*kernel, desc).ok()) continue;
        auto& problem = scratch[pdl];
        if (problem == nullptr) {
          ScratchOptions fill;
          fill.gap_bytes = 40;
          fill.alpha = 0.7f;
          auto made = ScratchProblem::Create(gemm.device(), desc, fill);
          Check(made.status(), "ScratchProblem");
          problem = std::make_shared<ScratchProblem>(std::move(*made));
        }
        for (const Parameters& parameters : ParametersOf(*kernel, desc)) {
          LaunchSpec spec;
          spec.kernel = kernel;
          spec.swizzle = parameters.swizzle;
          spec.splits = parameters.splits;
          const GemmArgs& args = problem->args();
          auto made = gemm.Plan(args, spec);
          Check(made.status(), kernel->id());
          const auto plan = std::make_shared<const GemmPlan>(std::move(*made));
          Job job;
          job.name = fmt::format("{}  {} swizzle {} splits {}{}", kernel->id(), ToString(desc),
                                 parameters.swizzle, parameters.splits, pdl ? " pdl" : "");
          job.family = kernel->id().substr(0, kernel->id().find('/'));
          job.workspace = plan->workspace_size();
          job.image_bytes = Padded(2 * kGuardBytes + OutputBytes(args));
          job.scratch = problem;
          job.launch = [plan, problem](std::byte* image, Workspace& workspace,
                                       cudaStream_t stream) {
            const GemmArgs& own = problem->args();
            return plan->Launch({own.A, own.U, own.C, image + kGuardBytes, own.alpha, own.beta},
                                workspace, stream);
          };
          MakeExpected(job, *problem, *plan);
          jobs.push_back(std::move(job));
        }
      }
    }
  }
  return jobs;
}

std::vector<Job> MakeQuantiserJobs(bool tiny) {
  struct Case {
    int rows, k, pad;
    bool column_major, pdl;
  };
  std::vector<Case> cases =
      tiny ? std::vector<Case>{{3, 264, 0, false, false}, {2, 131, 3, true, true}}
           : std::vector<Case>{{16, 4096, 0, false, false},
                               {33, 1000, 3, true, false},
                               {128, 2048, 0, true, true},
                               {1, 129, 1, false, true}};
  // Long enough for two loads a lane, which the second has no alignment for.
  cases.push_back({2100, 1104, 16, false, true});
  cases.push_back({2100, 1096, 0, true, false});
  std::vector<Job> jobs;
  for (const Case& c : cases) {
    const int groups = (c.k + 127) / 128, ld = c.k + c.pad;
    const MatrixLayout source_layout{DataType::kBfloat16, Order::kRowMajor, c.rows, c.k, ld};
    const MatrixLayout values_layout{DataType::kFloat8_e4m3, Order::kRowMajor, c.rows, c.k, ld};
    const MatrixLayout scales_layout{DataType::kFloat32,
                                     c.column_major ? Order::kColMajor : Order::kRowMajor, c.rows,
                                     groups, c.column_major ? c.rows : groups};
    const std::size_t elements = static_cast<std::size_t>(c.rows) * static_cast<std::size_t>(ld);
    const std::size_t scales_at = kGuardBytes + Padded(elements);
    const std::size_t scale_bytes = static_cast<std::size_t>(c.rows) * groups * sizeof(float);

    // Any finite BF16 numbers: the top 16 bits of a counter's hash, exponents around 1.
    std::vector<std::uint16_t> source(elements);
    std::uint32_t state = 1;
    for (std::uint16_t& x : source) {
      state = state * 1664525u + 1013904223u;
      x = static_cast<std::uint16_t>((state >> 16 & 0x83ffu) | 0x3c00u);
    }
    auto memory = std::make_shared<DeviceMemory>(elements * 2);
    CheckCuda(cudaMemcpy(memory->data(), source.data(), elements * 2, cudaMemcpyHostToDevice),
              "quantiser input");

    Job job;
    job.name = fmt::format("quantise_e4m3  rows {} k {} ld {}{}{}", c.rows, c.k, ld,
                           c.column_major ? " column-major scales" : "", c.pdl ? " pdl" : "");
    job.family = "quantise_e4m3";
    job.image_bytes = Padded(scales_at + scale_bytes + kGuardBytes);
    job.launch = [=](std::byte* image, Workspace&, cudaStream_t stream) {
      QuantizeE4m3Args args;
      args.source = memory->data();
      args.source_ld = args.values_ld = ld;
      args.values = image + kGuardBytes;
      args.scales = reinterpret_cast<float*>(image + scales_at);
      args.scale_row = c.column_major ? 1 : groups;
      args.scale_group = c.column_major ? c.rows : 1;
      args.rows = c.rows;
      args.k = c.k;
      const cudaError_t error = LaunchQuantizeE4m3(args, c.pdl, stream);
      return error == cudaSuccess ? Status()
                                  : Status(StatusCode::kInternal, cudaGetErrorString(error));
    };
    // The host's quantiser defines every bit.
    std::vector<std::byte> image(job.image_bytes, std::byte{kPoisonByte});
    Check(QuantizeGroups(source.data(), source_layout, image.data() + kGuardBytes, values_layout,
                         reinterpret_cast<float*>(image.data() + scales_at), scales_layout),
          job.name);
    job.expected = Poisoned(job.image_bytes);
    CheckCuda(cudaMemcpy(job.expected->data(), image.data(), image.size(), cudaMemcpyHostToDevice),
              job.name);
    jobs.push_back(std::move(job));
  }
  return jobs;
}

}  // namespace culet
