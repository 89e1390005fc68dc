// The engine on a GPU: launches inside captures, what a capture refuses, the device's scan of an
// output and its quantiser against those of the host. Skipped where there is no GPU.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "base/float_types.h"
#include "culet/gemm.h"
#include "culet/model.h"
#include "culet/quantize.h"
#include "culet/timing.h"
#include "gemm/error_model.h"
#include "gemm/output_scan.h"
#include "gemm/runtime.h"

namespace culet {
namespace {

class EngineOnGpu : public testing::Test {
 protected:
  void SetUp() override {
    std::string note;
    for (const DeviceInfo& device : Devices(&note)) {
      if (device.arch != 0) devices.push_back(device);
    }
    if (devices.empty()) GTEST_SKIP() << note;
    ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
  }
  void TearDown() override {
    if (stream != nullptr) {
      EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
    }
  }

  static Gemm Engine(int ordinal = 0) {
    auto gemm = Gemm::Create({"cuda:" + std::to_string(ordinal), {}});
    EXPECT_TRUE(gemm.ok()) << gemm.status().ToString();
    return *std::move(gemm);
  }
  static GemmDesc Problem(const Gemm& gemm, int m = 33, int n = 512, int k = 1024) {
    const auto desc = MakeDesc(Format::kFp8Block, m, n, k, gemm.device().arch);
    EXPECT_TRUE(desc.ok()) << desc.status().ToString();
    return *desc;
  }

  std::vector<DeviceInfo> devices;
  cudaStream_t stream = nullptr;
};

LaunchPointers PointersOf(const GemmArgs& args) {
  return {args.A, args.U, args.C, args.D, args.alpha, args.beta};
}

TEST_F(EngineOnGpu, ACaptureTakesLaunchesAndRefusesMeasuring) {
  Gemm gemm = Engine();
  const GemmDesc desc = Problem(gemm);
  auto scratch = ScratchProblem::Create(gemm.device(), desc);
  ASSERT_TRUE(scratch.ok()) << scratch.status().ToString();
  const auto plan = gemm.Plan(scratch->args());
  ASSERT_TRUE(plan.ok()) << plan.status().ToString();
  const auto workspace = scratch->workspace(plan->workspace_size());
  ASSERT_TRUE(workspace.ok());
  void* buffer = nullptr;
  ASSERT_EQ(cudaMalloc(&buffer, 4096), cudaSuccess);
  ASSERT_TRUE(scratch->PoisonOutput().ok());
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);

  // The strictest mode: one forbidden call of this thread spoils the capture.
  ASSERT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), cudaSuccess);
  EXPECT_TRUE(plan->Launch(PointersOf(scratch->args()), **workspace, stream).ok());
  TuneOptions options;
  options.stream = stream;
  const auto tuned = gemm.Tune(desc, options);
  EXPECT_EQ(tuned.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_NE(tuned.status().message().find("records a graph"), std::string::npos);
  GemmArgs measured = scratch->args();
  measured.operation.dispatch = DispatchPolicy::kMeasure;
  EXPECT_EQ(gemm.Run(measured, **workspace, stream).code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(gemm.Plan(measured, stream).status().code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(gemm.Choose(desc, DispatchPolicy::kMeasure, stream).status().code(),
            StatusCode::kFailedPrecondition);
  EXPECT_EQ(gemm.RunWorkspaceSize(measured, stream).status().code(),
            StatusCode::kFailedPrecondition);
  EXPECT_EQ(InitWorkspace({}, buffer, 4096, stream).status().code(),
            StatusCode::kFailedPrecondition);
  // A choice that needs no measurement is launched.
  EXPECT_TRUE(gemm.Run(scratch->args(), **workspace, stream).ok());
  cudaGraph_t graph = nullptr;
  ASSERT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
  std::size_t nodes = 0;
  ASSERT_EQ(cudaGraphGetNodes(graph, nullptr, &nodes), cudaSuccess);
  EXPECT_GE(nodes, 2u);

  cudaGraphExec_t executable = nullptr;
  ASSERT_EQ(cudaGraphInstantiate(&executable, graph, 0), cudaSuccess);
  ASSERT_EQ(cudaGraphLaunch(executable, stream), cudaSuccess);
  ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  const auto error =
      scratch->Compare(0, AccumulatorFor(plan->spec().kernel->desc(), scratch->desc()));
  ASSERT_TRUE(error.ok()) << error.status().ToString();
  EXPECT_TRUE(error->ok()) << error->ToString();
  EXPECT_EQ(cudaGraphExecDestroy(executable), cudaSuccess);
  EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  EXPECT_EQ(cudaFree(buffer), cudaSuccess);
}

TEST_F(EngineOnGpu, ThreadsShareAPlanEachOnAStreamOfItsOwn) {
  constexpr int kThreads = 8, kRounds = 50;
  Gemm gemm = Engine();
  const GemmDesc desc = Problem(gemm, 64, 2112, 7168);
  ScratchOptions sets;
  sets.sets = kThreads;  // equal inputs
  auto scratch = ScratchProblem::Create(gemm.device(), desc, sets);
  ASSERT_TRUE(scratch.ok());
  const auto plan = gemm.Plan(scratch->args(0));
  ASSERT_TRUE(plan.ok());
  const std::size_t bytes = workspace_bytes(*plan);
  std::vector<std::thread> threads;
  std::vector<std::string> failures(kThreads);
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      cudaStream_t own = nullptr;
      void* buffer = nullptr;
      if (cudaStreamCreateWithFlags(&own, cudaStreamNonBlocking) != cudaSuccess ||
          cudaMalloc(&buffer, bytes) != cudaSuccess) {
        failures[i] = "no stream or no memory";
        return;
      }
      auto workspace = InitWorkspace(plan->workspace_size(), buffer, bytes, own);
      for (int round = 0; round < kRounds && workspace.ok(); ++round) {
        // B and V are the plan's; A, U and D this thread's.
        const Status status = plan->Launch(PointersOf(scratch->args(i)), *workspace, own);
        if (!status.ok()) failures[i] = status.ToString();
      }
      if (cudaStreamSynchronize(own) != cudaSuccess) failures[i] = "the stream failed";
      cudaStreamDestroy(own);
      cudaFree(buffer);
    });
  }
  for (std::thread& thread : threads) thread.join();
  const auto first = scratch->OutputBytes(0);
  ASSERT_TRUE(first.ok());
  for (int i = 0; i < kThreads; ++i) {
    EXPECT_EQ(failures[i], "");
    const auto error =
        scratch->Compare(i, AccumulatorFor(plan->spec().kernel->desc(), scratch->desc()));
    ASSERT_TRUE(error.ok());
    EXPECT_TRUE(error->ok()) << i << ": " << error->ToString();
    const auto bytes_i = scratch->OutputBytes(i);
    ASSERT_TRUE(bytes_i.ok());
    EXPECT_EQ(*bytes_i, *first) << i;
  }
}

TEST_F(EngineOnGpu, AnyDeviceMayBeCurrentAtALaunch) {
  if (devices.size() < 2) GTEST_SKIP() << "one GPU";
  Gemm gemm = Engine(1);
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  auto scratch = ScratchProblem::Create(gemm.device(), Problem(gemm));
  ASSERT_TRUE(scratch.ok());
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  const auto plan = gemm.Plan(scratch->args());
  ASSERT_TRUE(plan.ok());
  Workspace none;
  ASSERT_EQ(plan->workspace_size().barriers + plan->workspace_size().partials, 0u);
  ASSERT_TRUE(scratch->PoisonOutput().ok());
  EXPECT_TRUE(plan->Launch(PointersOf(scratch->args()), none).ok());
  int current = -1;
  EXPECT_EQ(cudaGetDevice(&current), cudaSuccess);
  EXPECT_EQ(current, 0);
  const auto error =
      scratch->Compare(0, AccumulatorFor(plan->spec().kernel->desc(), scratch->desc()));
  ASSERT_TRUE(error.ok());
  EXPECT_TRUE(error->ok()) << error->ToString();
  // CUDA would run it on the stream's device. The engine refuses, and both devices stay usable.
  EXPECT_EQ(plan->Launch(PointersOf(scratch->args()), none, stream).code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(gemm.Run(scratch->args(), none, stream).code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(plan->Launch(PointersOf(scratch->args()), none).ok());
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
}

TEST_F(EngineOnGpu, TheDeviceScansAnOutputAsTheHostDoes) {
  Runtime& runtime = GetRuntime(devices.front());
  for (const std::size_t size : {1, 2, 4}) {
    OutputLines lines{4096, 64 * size, 7, 100 * size, 104 * size, size, 0x7fa5a5a5u};
    std::vector<std::byte> pristine(lines.bytes);
    for (std::size_t i = 0; i < lines.bytes; ++i) {
      pristine[i] = static_cast<std::byte>(lines.poison >> 8 * (i % size));
    }
    std::vector<std::byte> found = pristine;
    for (std::size_t line = 0; line < lines.lines; ++line) {
      // All but the last element of each line is written.
      std::memset(found.data() + lines.data + line * lines.pitch_bytes, 1, 99 * size);
    }
    for (const std::ptrdiff_t broken :
         {-1, 0, static_cast<int>(64 * size) - 1, static_cast<int>(164 * size), 4095}) {
      std::vector<std::byte> seen = found;
      if (broken >= 0) seen[static_cast<std::size_t>(broken)] ^= std::byte{1};
      const auto on_device = [&](const std::vector<std::byte>& bytes) {
        auto buffer = *DeviceBuffer::Create(runtime.memory(), bytes.size());
        EXPECT_TRUE(
            runtime.memory().Upload(buffer.get(), bytes.data(), bytes.size(), nullptr).ok());
        return buffer;
      };
      const DeviceBuffer a = on_device(seen), b = on_device(pristine);
      const auto scan =
          runtime.Scan(lines, FromDevicePtr<void>(a.get()), FromDevicePtr<void>(b.get()));
      ASSERT_TRUE(scan.ok()) << scan.status().ToString();
      const OutputScan expected = ScanOutput(lines, seen.data(), pristine.data());
      EXPECT_EQ(expected.unwritten, lines.lines);
      EXPECT_EQ(expected.guards_intact, broken < 0);
      EXPECT_EQ(scan->unwritten, expected.unwritten) << size << " at " << broken;
      EXPECT_EQ(scan->guards_intact, expected.guards_intact) << size << " at " << broken;
    }
  }
}

TEST_F(EngineOnGpu, TheQuantiserGivesTheBitsOfTheHost) {
  for (const int rows : {1, 5, 130}) {
    for (const int cols : {1, 128, 1000, 4096}) {
      for (const Order order : {Order::kRowMajor, Order::kColMajor}) {
        const int groups = (cols + 127) / 128;
        const MatrixLayout in = RowMajor(DataType::kBfloat16, rows, cols, cols + 8);
        const MatrixLayout out = RowMajor(DataType::kFloat8_e4m3, rows, cols, cols + 16);
        const MatrixLayout scale_layout =
            order == Order::kRowMajor ? RowMajor(DataType::kFloat32, rows, groups, groups + 1)
                                      : ColMajor(DataType::kFloat32, rows, groups, rows + 3);
        const auto lines = static_cast<std::size_t>(order == Order::kRowMajor ? rows : groups);
        std::vector<std::uint16_t> source(static_cast<std::size_t>(rows * in.ld));
        for (std::size_t i = 0; i < source.size(); ++i) {
          StoreFromDouble(source.data(), DataType::kBfloat16, static_cast<std::int64_t>(i),
                          static_cast<double>(i * 2654435761u % 2001) / 100 - 10);
        }
        std::vector<std::uint8_t> values(static_cast<std::size_t>(rows * out.ld), 0xa5);
        std::vector<float> scales(lines * static_cast<std::size_t>(scale_layout.ld), -1.0f);
        auto device_values = values;
        auto device_scales = scales;
        ASSERT_TRUE(
            QuantizeGroups(source.data(), in, values.data(), out, scales.data(), scale_layout)
                .ok());

        void *a = nullptr, *b = nullptr, *c = nullptr;
        ASSERT_EQ(cudaMalloc(&a, source.size() * 2), cudaSuccess);
        ASSERT_EQ(cudaMalloc(&b, values.size()), cudaSuccess);
        ASSERT_EQ(cudaMalloc(&c, scales.size() * 4), cudaSuccess);
        cudaMemcpy(a, source.data(), source.size() * 2, cudaMemcpyDefault);
        cudaMemcpy(b, device_values.data(), values.size(), cudaMemcpyDefault);
        cudaMemcpy(c, device_scales.data(), scales.size() * 4, cudaMemcpyDefault);
        ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
        const Status status =
            QuantizeGroupsCuda(a, in, b, out, static_cast<float*>(c), scale_layout, stream);
        ASSERT_TRUE(status.ok()) << status.ToString();
        ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
        cudaMemcpy(device_values.data(), b, values.size(), cudaMemcpyDefault);
        cudaMemcpy(device_scales.data(), c, scales.size() * 4, cudaMemcpyDefault);
        cudaFree(a);
        cudaFree(b);
        cudaFree(c);
        EXPECT_EQ(device_values, values) << rows << " x " << cols;
        EXPECT_EQ(device_scales, scales) << rows << " x " << cols;
      }
    }
  }
}

TEST_F(EngineOnGpu, RecordingNothingIsAnError) {
  Runtime& runtime = GetRuntime(devices.front());
  const auto nothing = runtime.Record([](cudaStream_t) { return OkStatus(); });
  EXPECT_EQ(nothing.status().code(), StatusCode::kFailedPrecondition);
  const auto failing =
      runtime.Record([](cudaStream_t) { return Status(StatusCode::kOutOfRange, "on purpose"); });
  EXPECT_EQ(failing.status().code(), StatusCode::kOutOfRange);
  // What waits or allocates spoils a capture, and the next one works again.
  const auto waiting = runtime.Record([](cudaStream_t s) {
    static_cast<void>(cudaStreamSynchronize(s));
    return OkStatus();
  });
  EXPECT_FALSE(waiting.ok());
  static_cast<void>(cudaGetLastError());
  const auto memory = *DeviceBuffer::Create(runtime.memory(), 1024);
  const auto replay = runtime.Record([&](cudaStream_t s) {
    return cudaMemsetAsync(FromDevicePtr<void>(memory.get()), 0, 1024, s) == cudaSuccess
               ? OkStatus()
               : Status(StatusCode::kInternal, "cudaMemsetAsync");
  });
  ASSERT_TRUE(replay.ok()) << replay.status().ToString();
  const auto start = std::chrono::steady_clock::now();
  const auto time_us = (*replay)->TimeUs();
  const std::chrono::duration<double, std::micro> around = std::chrono::steady_clock::now() - start;
  ASSERT_TRUE(time_us.ok());
  EXPECT_GT(*time_us, 0.0);
  EXPECT_LE(*time_us, around.count()) << "the device's time lies within the host's";
}

}  // namespace
}  // namespace culet
