// Times sums over the GPUs of a host inside CUDA graphs: NCCL, and this library's kernels.
//   cuda_exchange [--ranks 2] [--seconds 55] [--sums] [--norms] [--check] [--kill RANK]
// Starts the other ranks itself, one a GPU, where no launcher did, and ends all of them within that
// time; without --sums and --norms does both. A row of the first table is a sum of float32 of that
// size on each rank; of the second, rows of a width: the sum, the residual sum and the RMS norm (to
// bfloat16), by NCCL or the kernels' sums and the norm's kernel, or by one kernel. "bf16": summands
// cross as bfloat16. Microseconds of one, the median of replays of a graph of 40, on the rank that
// came last. Every result is checked ("WRONG"). --check: a few launches of a few sizes, not timed,
// as compute-sanitizer can watch them.
// --kill: that rank dies in the midst, and the others say so.
#include <cuda_runtime.h>
#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/float_types.h"
#include "cuda/device_memory.h"
#include "cuda/peer_memory.h"
#include "culet/ranks.h"
#include "graph/cuda/peer_exchange.h"
#include "kernels/cuda_ops/exchange.h"

namespace culet::cuda_ops {
namespace {

constexpr int kLaunches = 40, kReplays = 15, kWarm = 3;
int own_rank = 0;

[[noreturn]] void Die(const std::string& what) {
  std::fprintf(stderr, "rank %d: %s\n", own_rank, what.c_str());
  std::exit(1);
}
void Check(const Status& status) {
  if (!status.ok()) Die(status.ToString());
}
void Check(cudaError_t error, const char* what) {
  if (error != cudaSuccess) Die(std::string(what) + ": " + cudaGetErrorString(error));
}

template <class T>
class Buffer {
 public:
  explicit Buffer(std::size_t count) {
    Check(cudaMalloc(&data_, count * sizeof(T)), "cudaMalloc");
    Check(cudaMemset(data_, 0xFF, count * sizeof(T)), "cudaMemset");
  }
  explicit Buffer(const std::vector<T>& values) : Buffer(values.size()) {
    Check(cudaMemcpy(data_, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice),
          "upload");
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() { cudaFree(data_); }
  T* get() const { return data_; }
  DevicePtr pointer() const { return ToDevicePtr(data_); }
  std::vector<T> Read(std::size_t count) const {
    std::vector<T> values(count);
    Check(cudaMemcpy(values.data(), data_, count * sizeof(T), cudaMemcpyDeviceToHost), "download");
    return values;
  }

 private:
  T* data_ = nullptr;
};

// What a rank has: exchanges, and areas of its own for kernels with other settings.
struct Bench {
  explicit Bench(Communicator& all) : ranks(all) {}
  Communicator& ranks;
  cudaStream_t stream = nullptr;
  std::shared_ptr<RankExchange> nccl, peers;
  ExchangePeers own;
  int units = 1, kill = -1;
  bool check = false, wrong = false;
  RankExchange& watch() const { return peers != nullptr ? *peers : *nccl; }
};

using Launches = std::function<Status(ExchangeStream)>;

// Microseconds of one launch; 0 where only its result is wanted.
double Time(Bench& bench, const Launches& launch) {
  if (bench.check) {
    Check(cudaDeviceSynchronize(), "synchronize");
    constexpr int kChecked = 3;
    for (int i = 0; i < kChecked; ++i) Check(launch({bench.stream, i > 0}));
    bench.watch().BeginWait();
    const cudaError_t error = cudaStreamSynchronize(bench.stream);
    Check(bench.watch().EndWait());
    Check(error, "synchronize");
    return 0;
  }
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t replay = nullptr;
  Check(cudaStreamBeginCapture(bench.stream, cudaStreamCaptureModeRelaxed), "capture");
  for (int i = 0; i < kLaunches; ++i) Check(launch({bench.stream, i > 0}));
  Check(cudaStreamEndCapture(bench.stream, &graph), "capture");
  Check(cudaGraphInstantiate(&replay, graph, 0), "cudaGraphInstantiate");
  Check(cudaGraphUpload(replay, bench.stream), "cudaGraphUpload");
  cudaEvent_t begin, end;
  Check(cudaEventCreate(&begin), "event");
  Check(cudaEventCreate(&end), "event");
  std::vector<float> times;
  const std::vector<std::size_t> each(static_cast<std::size_t>(bench.ranks.size()), sizeof(float));
  for (int i = 0; i < kReplays + kWarm; ++i) {
    if (i == kReplays / 2 && bench.kill == own_rank) kill(getpid(), SIGKILL);
    Check(cudaStreamSynchronize(bench.stream), "synchronize");
    Check(bench.ranks.Barrier());
    Check(cudaEventRecord(begin, bench.stream), "record");
    Check(cudaGraphLaunch(replay, bench.stream), "cudaGraphLaunch");
    Check(cudaEventRecord(end, bench.stream), "record");
    bench.watch().BeginWait();
    const cudaError_t error = cudaStreamSynchronize(bench.stream);
    Check(bench.watch().EndWait());
    Check(error, "synchronize");
    float ms = 0;
    Check(cudaEventElapsedTime(&ms, begin, end), "elapsed");
    // Who came first also waited for the others.
    std::vector<float> all(each.size());
    Check(bench.ranks.AllGather(&ms, each, all.data()));
    if (i >= kWarm) times.push_back(*std::ranges::min_element(all));
  }
  cudaEventDestroy(begin), cudaEventDestroy(end);
  cudaGraphExecDestroy(replay), cudaGraphDestroy(graph);
  std::ranges::sort(times);
  return double{times[times.size() / 2]} * 1e3 / kLaunches;
}

// Small integers, whose sums are exact in bfloat16 of up to eight ranks.
float Value(int rank, std::size_t i) {
  return static_cast<float>((static_cast<int>(i % 1009) * 7 + rank * 3) % 31 - 15);
}
std::vector<float> Values(int rank, std::size_t count) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = Value(rank, i);
  return values;
}
float SumAt(const Bench& bench, std::size_t i) {
  float sum = 0;
  for (int r = 0; r < bench.ranks.size(); ++r) sum += Value(r, i);
  return sum;
}

void Show(Bench& bench, double time, bool right) {
  if (!right) bench.wrong = true;
  if (own_rank != 0 && !right) std::fprintf(stderr, "rank %d has a WRONG result\n", own_rank);
  if (own_rank != 0) return;
  if (time < 0) {
    std::printf(" %12s", "-");
  } else {
    std::printf(" %7.2f%s", time, right ? "     " : "WRONG");
  }
  std::fflush(stdout);
}

AllReduceArgs OwnArgs(const Bench& bench, const Buffer<float>& x, const Buffer<float>& sum,
                      std::size_t count, DataType wire) {
  AllReduceArgs args;
  args.peers = bench.own;
  args.x = x.get();
  args.sum = sum.get();
  args.count = static_cast<std::int64_t>(count);
  args.wire = wire;
  args.units = bench.units;
  return args;
}

void Sums(Bench& bench) {
  if (own_rank == 0) {
    std::printf("%10s %12s %12s %12s %12s %12s %12s\n", "bytes", "nccl", "peers", "f32 push",
                "bf16 push", "f32 2 shots", "bf16 2 shots");
  }
  const std::size_t most = std::size_t{bench.check ? 1u : 64u} << 20;
  for (std::size_t bytes = 8192; bytes <= most; bytes *= bench.check ? 8 : 2) {
    const std::size_t count = bytes / sizeof(float);
    const Buffer<float> x(Values(own_rank, count));
    const auto time = [&](const std::function<Status(const Buffer<float>&, ExchangeStream)>& run) {
      const Buffer<float> sum(count);
      const double us = Time(bench, [&](ExchangeStream s) { return run(sum, s); });
      const std::vector<float> got = sum.Read(count);
      bool right = true;
      for (std::size_t i = 0; i < count; ++i) right &= got[i] == SumAt(bench, i);
      Show(bench, us, right);
    };
    const auto through = [&](const std::shared_ptr<RankExchange>& exchange) {
      if (exchange == nullptr) return Show(bench, -1, true);
      time([&](const Buffer<float>& sum, ExchangeStream s) {
        return exchange->AllReduce(x.pointer(), sum.pointer(), count, s);
      });
    };
    const auto push = [&](DataType wire) {
      if (bench.own.areas == nullptr ||
          AllReduceSlots(static_cast<std::int64_t>(count), wire) > bench.own.slots) {
        return Show(bench, -1, true);
      }
      time([&](const Buffer<float>& sum, ExchangeStream s) {
        Check(AllReduce(OwnArgs(bench, x, sum, count, wire), {s.stream, s.overlap}), "AllReduce");
        return Status();
      });
    };
    if (own_rank == 0) std::printf("%10zu", bytes);
    through(bench.nccl);
    through(bench.peers);
    push(DataType::kFloat32);
    push(DataType::kBfloat16);
    // At most that many in one launch; what is larger goes in pieces of it.
    const auto two_shots = [&](DataType wire) {
      if (bench.own.areas == nullptr) return Show(bench, -1, true);
      time([&](const Buffer<float>& sum, ExchangeStream s) {
        AllReduceArgs args = OwnArgs(bench, x, sum, count, wire);
        const std::int64_t piece = bench.own.groups * kTwoShotTile * bench.own.ranks;
        for (std::int64_t left = args.count; left > 0; left -= piece) {
          args.count = std::min(left, piece);
          Check(AllReduceTwoShot(args, {s.stream, s.overlap}), "AllReduceTwoShot");
          args.x += piece;
          args.sum += piece;
        }
        return Status();
      });
    };
    two_shots(DataType::kFloat32);
    two_shots(DataType::kBfloat16);
    if (own_rank == 0) std::printf("\n");
  }
}

void Norms(Bench& bench) {
  if (own_rank == 0) {
    std::printf("%12s %12s %12s %12s %12s\n", "rows x width", "nccl + norm", "peers + norm",
                "one kernel", "one, bf16");
  }
  for (const int width : {4096, 8192}) {
    for (const int rows : {1, 2, 4, 8, 16, 32, 64}) {
      if (bench.check && (width > 4096 || (rows != 1 && rows != 8 && rows != 64))) continue;
      const auto count = static_cast<std::size_t>(rows * width);
      const Buffer<float> x(Values(own_rank, count)), residual(Values(77, count));
      const Buffer<float> gamma(std::vector<float>(static_cast<std::size_t>(width), 0.5f));
      Weight weight;
      weight.data_ptr = gamma.pointer();
      weight.type = DataType::kFloat32;
      weight.rows = 1;
      weight.cols = width;
      FusedNormArgs norm;
      norm.x_type = DataType::kFloat32;
      norm.y = residual.get();
      norm.gamma = gamma.get();
      norm.gamma_type = DataType::kFloat32;
      norm.epsilon = 1e-5f;
      norm.out_type = DataType::kBfloat16;
      norm.rows = rows;
      norm.width = width;
      using Run = std::function<Status(FusedNormArgs, ExchangeStream)>;
      const auto time = [&](const Run& run) {
        const Buffer<float> sum(count);
        const Buffer<std::uint16_t> out(count);
        FusedNormArgs args = norm;
        args.sum = sum.get();
        args.out = out.get();
        const double us = Time(bench, [&](ExchangeStream s) { return run(args, s); });
        const auto sums = sum.Read(count);
        const auto outs = out.Read(count);
        bool right = true;
        for (int row = 0; row < rows; ++row) {
          const std::size_t first = static_cast<std::size_t>(row) * static_cast<std::size_t>(width);
          const std::size_t last = first + static_cast<std::size_t>(width);
          double squares = 0;
          for (std::size_t i = first; i < last; ++i) {
            const float want = SumAt(bench, i) + Value(77, i);
            right &= sums[i] == want;
            squares += double{want} * want;
          }
          const double scale = 0.5 / std::sqrt(squares / width + 1e-5);
          for (std::size_t i = first; i < last; ++i) {
            const double want = sums[i] * scale;
            right &= std::abs(Bfloat16ToFloat(outs[i]) - want) <= std::abs(want) * 0.0040 + 1e-9;
          }
        }
        Show(bench, us, right);
      };
      const auto two = [&](const std::shared_ptr<RankExchange>& exchange) {
        if (exchange == nullptr) return Show(bench, -1, true);
        const Buffer<float> between(count);
        time([&](FusedNormArgs args, ExchangeStream s) {
          Check(exchange->AllReduce(x.pointer(), between.pointer(), count, s));
          args.x = between.get();
          Check(FusedNorm(args, {s.stream, true}), "FusedNorm");
          return Status();
        });
      };
      if (own_rank == 0) std::printf("%4d x %5d", rows, width);
      two(bench.nccl);
      two(bench.peers);
      if (bench.peers == nullptr || !bench.peers->TakesNorm(rows, width)) {
        Show(bench, -1, true);
      } else {
        time([&](const FusedNormArgs& args, ExchangeStream s) {
          SumAndNorm what;
          what.x = x.pointer();
          what.residual = residual.pointer();
          what.sum = ToDevicePtr(args.sum);
          what.gamma = &weight;
          what.epsilon = args.epsilon;
          what.out = ToDevicePtr(args.out);
          what.out_type = args.out_type;
          what.rows = rows;
          what.width = width;
          return bench.peers->AllReduceNorm(what, s);
        });
      }
      const std::int64_t slots = AllReduceNormSlots(rows, width, DataType::kBfloat16, bench.units);
      if (bench.own.areas == nullptr || slots == 0 || slots > bench.own.slots) {
        Show(bench, -1, true);
      } else {
        time([&](const FusedNormArgs& args, ExchangeStream s) {
          AllReduceNormArgs all;
          all.peers = bench.own;
          all.norm = args;
          all.norm.x = x.get();
          all.wire = DataType::kBfloat16;
          all.units = bench.units;
          Check(AllReduceNorm(all, {s.stream, s.overlap}), "AllReduceNorm");
          return Status();
        });
      }
      if (own_rank == 0) std::printf("\n");
    }
  }
}

struct Options {
  int ranks = 2, seconds = 55, kill = -1;
  bool sums = false, norms = false, check = false;
};

int Run(const Options& options, const RankOptions& rank) {
  auto joined = JoinRanks(rank);
  if (!joined) Die(joined.status().ToString());
  Communicator& ranks = **joined;
  Check(cudaSetDevice(rank.local_rank), "cudaSetDevice");
  DeviceMemory& memory = CudaMemory(rank.local_rank);
  Bench bench(ranks);
  bench.kill = options.kill;
  bench.check = options.check;
  Check(cudaStreamCreateWithFlags(&bench.stream, cudaStreamNonBlocking), "stream");
  Check(cudaDeviceGetAttribute(&bench.units, cudaDevAttrMultiProcessorCount, rank.local_rank),
        "units");
  if (auto made = MakeNcclExchange(ranks, memory)) {
    bench.nccl = *std::move(made);
  } else if (own_rank == 0) {
    std::printf("no NCCL: %s\n", made.status().ToString().c_str());
  }
  if (auto made = MakePeerExchange(ranks, memory, bench.nccl, UsualExchange(ranks.size()))) {
    bench.peers = *std::move(made);
  } else if (own_rank == 0) {
    std::printf("no peers: %s\n", made.status().ToString().c_str());
  }
  if (bench.nccl == nullptr && bench.peers == nullptr) Die("there is nothing to time");
  // Areas for the largest size, beside those of the exchange.
  const std::int64_t slots = AllReduceSlots((std::int64_t{64} << 20) / 4, DataType::kFloat32);
  const std::int64_t groups = (TwoShotGroups(kMostTwoShotBytes / 4, ranks.size()) + 3) / 4 * 4;
  std::unique_ptr<PeerMemory> pieces;
  std::unique_ptr<Buffer<void*>> table;
  const Buffer<ExchangeControl> control(std::vector<ExchangeControl>(1));
  ExchangeStatus* status = nullptr;
  Check(cudaHostAlloc(&status, sizeof *status, cudaHostAllocMapped), "cudaHostAlloc");
  *status = {};
  if (bench.peers != nullptr) {
    auto made =
        PeerMemory::Create(ranks, rank.local_rank, ExchangeAreaBytes(ranks.size(), slots, groups));
    if (!made) Die(made.status().ToString());
    pieces = *std::move(made);
    table = std::make_unique<Buffer<void*>>(pieces->pieces());
    bench.own.areas = table->get();
    bench.own.control = control.get();
    bench.own.status = status;
    bench.own.rank = ranks.rank();
    bench.own.ranks = ranks.size();
    bench.own.slots = slots;
    bench.own.groups = groups;
    bench.own.limit_ns = static_cast<std::uint64_t>(rank.wait_seconds * 1e9);
    Check(ranks.Barrier());
  }
  if (own_rank == 0) {
    cudaDeviceProp properties{};
    Check(cudaGetDeviceProperties(&properties, rank.local_rank), "properties");
    std::printf("%s x%d; us of one in a graph of %d\n", properties.name, ranks.size(), kLaunches);
  }
  if (options.norms || !options.sums) Norms(bench);
  if (options.sums || !options.norms) Sums(bench);
  Check(cudaDeviceSynchronize(), "end");
  if (status->late != 0) Die("rank " + std::to_string(status->late - 1) + " did not come");
  Check(ranks.Barrier());
  if (own_rank == 0) std::printf("%s\n", bench.wrong ? "WRONG" : "all results are right here");
  return bench.wrong ? 1 : 0;
}

int Main(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    const auto number = [&] { return i + 1 < argc ? std::atoi(argv[++i]) : 0; };
    if (arg == "--ranks") {
      options.ranks = number();
    } else if (arg == "--seconds") {
      options.seconds = number();
    } else if (arg == "--kill") {
      options.kill = number();
    } else if (arg == "--sums") {
      options.sums = true;
    } else if (arg == "--check") {
      options.check = true;
    } else if (arg == "--norms") {
      options.norms = true;
    } else {
      std::fprintf(stderr, "unknown: %s\n", arg.c_str());
      return 2;
    }
  }
  alarm(static_cast<unsigned>(options.seconds));  // its default action ends the process
  setvbuf(stdout, nullptr, _IOLBF, 0);
  RankOptions rank;
  rank.size = options.ranks;
  rank.start_seconds = 20;
  rank.wait_seconds = 10;
  const auto launched = RanksOfLauncher();
  Check(launched.status());
  if (launched->has_value()) {
    rank = **launched;
    own_rank = rank.rank;
    return Run(options, rank);
  }
  if (const char* const number = std::getenv("CUDA_EXCHANGE_RANK")) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    own_rank = rank.rank = rank.local_rank = std::atoi(number);
    rank.meeting = std::getenv("CUDA_EXCHANGE_MEETING");
    return Run(options, rank);
  }
  rank.meeting = "cuda-exchange-" + std::to_string(getpid());
  setenv("CUDA_EXCHANGE_MEETING", rank.meeting.c_str(), 1);
  std::vector<pid_t> others;
  for (int r = 1; r < options.ranks; ++r) {
    setenv("CUDA_EXCHANGE_RANK", std::to_string(r).c_str(), 1);
    pid_t pid = -1;
    if (posix_spawn(&pid, "/proc/self/exe", nullptr, nullptr, argv, environ) != 0) Die("no rank");
    others.push_back(pid);
  }
  int code = Run(options, rank);
  for (const pid_t pid : others) {
    int status = 0;
    waitpid(pid, &status, 0);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) code = 1;
  }
  return code;
}

}  // namespace
}  // namespace culet::cuda_ops

int main(int argc, char** argv) { return culet::cuda_ops::Main(argc, argv); }
