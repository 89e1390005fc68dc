// Verifies and times the Hopper kernels on one GPU, with nothing but the CUDA runtime.
//   sm90_bench verify [substring,...]
//   sm90_bench bench ANCHORS.csv [--format bf16] [--m 256,512] [--only substring,...] [--keep 6]
//     [--reps 7] [--log FILE] [--colmajor] [--pdl | --both] [--sample-us 3000]
//     [--gated | --gated-e4m3 [--halves] [--beside]]
// verify: exact-integer inputs (equality after one rounding), then normal data against an FP64
// product; poisoned outputs, guard zones, the same bits whatever shared memory held before, edges
// of m, n, k and both scale orders; of general epilogues D, C and the bias in several types. bench:
// CUDA graphs over rotating inputs of more than 220 MB, a first pass over all candidates, then
// interleaved medians of the best `keep`.
// --format: the name of a policy in kernels/sm90/product/policy.h, fp8 (scales of blocks) unless told;
// --gated, --gated-e4m3: the kernels that pair columns, and that quantise besides; --halves:
// columns of gate in front of those of up, not by eights; --beside: in turn with the plain product,
// which is then the first peer, and with that and a kernel of its own for the activation, which is
// the best.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "bench/sm90_apart.cuh"
#include "bench/sm90_bench.h"
#include "bench/sm90_data.cuh"
#include "bench/sm90_quantised.cuh"
#include "bench/sm90_verify.cuh"

// libstdc++'s unused random_device would bind a static link to the newest glibc through this
// symbol.
extern "C" __uint32_t arc4random(void) noexcept { return 4; }

namespace culet::bench {
namespace {

struct FamilyRecord {
  const char* name;
  Family::Make make;
};
std::vector<FamilyRecord>& Families() {
  static std::vector<FamilyRecord> families;
  return families;
}

struct Anchor {
  std::string layer;
  int m, n, k;
  double first_peer_us, best_peer_us, limit_us;
};

// The peers that a format is compared with, as the anchors call them.
bool IsPeer(const FormatInfo& format, const std::string& peer) {
  if (format.element_bytes == 2) return peer == "cublas_bf16" || peer == "dg_bf16";
  const bool fast = format.sums == sm90::Sums::kDirect;
  return peer == (fast ? "lt_tensor_fast" : "lt_tensor_precise") ||
         peer == (fast ? "torch_row_fast" : "torch_row_precise");
}

// Of either file of anchors: a row a shape with FP8 blocks' peers, or a row a shape and peer.
std::vector<Anchor> ReadAnchors(const char* path, const FormatInfo& format) {
  std::vector<Anchor> anchors;
  std::FILE* f = std::fopen(path, "r");
  if (f == nullptr) return anchors;
  char line[1024];
  while (std::fgets(line, sizeof line, f) != nullptr) {
    std::vector<std::string> cells;
    std::string cell;
    for (const char* c = line; *c != 0 && *c != '\n'; ++c) {
      if (*c == ',') {
        cells.push_back(cell);
        cell.clear();
      } else {
        cell += *c;
      }
    }
    cells.push_back(cell);
    if (cells.size() == 8 && IsPeer(format, cells[4])) {
      const int m = std::atoi(cells[1].c_str());
      const double us = std::atof(cells[5].c_str());
      if (anchors.empty() || anchors.back().layer != cells[0] || anchors.back().m != m)
        anchors.push_back({cells[0], m, std::atoi(cells[2].c_str()), std::atoi(cells[3].c_str()),
                           us, us, std::atof(cells[6].c_str())});
      anchors.back().best_peer_us = std::min(anchors.back().best_peer_us, us);
    }
    if (cells.size() < 10 || cells[0] == "layer" || !HasBlockScales(format)) continue;
    Anchor a{cells[0],
             std::atoi(cells[1].c_str()),
             std::atoi(cells[2].c_str()),
             std::atoi(cells[3].c_str()),
             std::atof(cells[4].c_str()),
             1e30,
             std::atof(cells[9].c_str())};
    for (int i : {4, 5, 6})
      if (!cells[i].empty()) a.best_peer_us = std::min(a.best_peer_us, std::atof(cells[i].c_str()));
    anchors.push_back(a);
  }
  std::fclose(f);
  return anchors;
}

__global__ void Nothing() {}

// A process's first eight launches make its graphs slower, for good: see src/cuda/runtime.cc.
void LeaveTheFirstLaunchesBehind(cudaStream_t stream) {
  for (int i = 0; i < 16; ++i) {
    Nothing<<<1, 32, 0, stream>>>();
    CHECK(cudaStreamSynchronize(stream));
  }
}

constexpr const FormatInfo* kFormats[] = {&sm90::Fp8Block::kInfo, &sm90::Fp8Precise::kInfo,
                                          &sm90::Fp8Fast::kInfo, &sm90::Bf16Direct::kInfo,
                                          &sm90::F16Direct::kInfo};

bool IsUngated(const Candidate& c) { return !sm90::IsGated(c.epilogue); }

struct Options {
  std::string only, log;
  std::vector<int> ms;
  int keep = 6, reps = 7;
  double sample_us = 3000;
  bool column_major = false, pdl = false, both = false, beside = false, halves = false;
  const FormatInfo* format = &sm90::Fp8Block::kInfo;
  EpilogueKind kind = EpilogueKind::kGeneral;  // of plain kernels, too
};

struct Timed {
  const Candidate* candidate;
  bool pdl;
  cudaGraphExec_t graph;
  double first_us;
  std::vector<Launcher> launchers;
  bool apart = false;  // the plain product with a kernel for the activation behind it
  std::vector<double> samples;
};

int Bench(const std::vector<Candidate>& candidates, const std::vector<Anchor>& anchors,
          const Options& options, cudaStream_t stream) {
  std::FILE* log = options.log.empty() ? nullptr : std::fopen(options.log.c_str(), "w");
  cudaEvent_t start, stop;
  CHECK(cudaEventCreate(&start));
  CHECK(cudaEventCreate(&stop));
  LeaveTheFirstLaunchesBehind(stream);
  double log_dg = 0, log_limit = 0;
  int rows = 0;
  std::printf("%-16s %5s %6s %6s | %9s %6s %6s %6s | %s\n", "layer", "m", "n", "k", "us", "/limit",
              "/1st", "/best", "kernel");
  for (const Anchor& anchor : anchors) {
    if (!options.ms.empty() &&
        std::find(options.ms.begin(), options.ms.end(), anchor.m) == options.ms.end())
      continue;
    const int m = anchor.m, n = anchor.n, k = anchor.k;
    Data data(*options.format, m, n, k, Fill::kNormal, options.column_major, 0, 99,
              {.kind = options.kind, .halves = options.halves});
    const int bytes = options.format->element_bytes;
    const size_t a_bytes = size_t(m) * data.p.lda * bytes, b_bytes = size_t(n) * data.p.ldb * bytes;
    const double set_bytes = double(a_bytes) + double(b_bytes) + 2.0 * m * n,
                 flops = 2.0 * m * n * k;
    const int sets = std::max(1, std::min(48, int(std::ceil(220e6 / set_bytes))));
    const double estimate_us = std::max(flops / 1000e6, set_bytes / 3e6);
    const int calls = std::max({sets, std::min(200, int(options.sample_us / estimate_us)), 4});
    std::vector<Problem> problems(sets, data.p);
    std::vector<void*> owned;
    for (int i = 1; i < sets; ++i) {
      auto* a = Allocate<uint8_t>(a_bytes);
      auto* b = Allocate<uint8_t>(b_bytes);
      auto* d = Allocate<uint8_t>(size_t(m) * data.p.ldd * data.element);
      CHECK(cudaMemcpy(a, data.p.a, a_bytes, cudaMemcpyDeviceToDevice));
      CHECK(cudaMemcpy(b, data.p.b, b_bytes, cudaMemcpyDeviceToDevice));
      problems[i].a = a, problems[i].b = b, problems[i].d = d;
      owned.insert(owned.end(), {a, b, d});
    }
    // The product alone, of the same operands.
    const bool gated = sm90::IsGated(options.kind);
    std::vector<Problem> ungated = problems;
    for (Problem& p : ungated) {
      if (!gated || !options.beside) break;
      p.ldd = n;
      p.epilogue.d_scale = nullptr;
      p.epilogue.up_column = 0;
      auto* const d = Allocate<uint8_t>(size_t(m) * n * 2);
      owned.push_back(p.d = d);
    }
    auto replay = [&](cudaGraphExec_t graph) {
      CHECK(cudaEventRecord(start, stream));
      CHECK(cudaGraphLaunch(graph, stream));
      CHECK(cudaEventRecord(stop, stream));
      CHECK(cudaEventSynchronize(stop));
      float ms = 0;
      CHECK(cudaEventElapsedTime(&ms, start, stop));
      return double(ms) * 1e3 / calls;
    };
    // A graph of as many calls as a sample has.
    const auto record = [&](auto call) {
      cudaGraph_t graph;
      cudaGraphExec_t exec;
      CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
      for (int i = 0; i < calls; ++i) call(i % sets);
      CHECK(cudaStreamEndCapture(stream, &graph));
      CHECK(cudaGraphInstantiate(&exec, graph, 0));
      CHECK(cudaGraphDestroy(graph));
      replay(exec);
      return exec;
    };
    std::vector<Timed> timed;
    for (size_t turn = 0; turn < candidates.size() * (options.both ? 2 : 1); ++turn) {
      const Candidate& candidate = candidates[options.both ? turn / 2 : turn];
      const bool pdl = options.both ? turn % 2 == 1 : options.pdl;
      std::vector<Problem>& takes = gated && IsUngated(candidate) ? ungated : problems;
      for (Problem& p : takes) p.pdl = pdl;
      std::vector<Launcher> launchers;
      for (const Problem& p : takes) {
        Launcher launcher = candidate.plan(p);
        if (!launcher) break;
        launchers.push_back(std::move(launcher));
      }
      if (launchers.size() != problems.size()) continue;
      const cudaGraphExec_t exec = record([&](int set) { CHECK(launchers[set](stream)); });
      timed.push_back({&candidate, pdl, exec, replay(exec), std::move(launchers)});
      if (log != nullptr)
        std::fprintf(log, "%s,%d,%d,%d,%d,%s,%.3f\n", anchor.layer.c_str(), m, n, k, pdl,
                     candidate.id.c_str(), timed.back().first_us);
    }
    std::sort(timed.begin(), timed.end(),
              [](const Timed& x, const Timed& y) { return x.first_us < y.first_us; });
    // The best of either way to launch, and of either product, come first.
    int kept[2][2] = {}, keep = 0;
    for (size_t i = 0; i < timed.size(); ++i)
      if (kept[timed[i].pdl][IsUngated(*timed[i].candidate)]++ < options.keep)
        std::rotate(timed.begin() + keep, timed.begin() + i, timed.begin() + i + 1), ++keep;
    for (int i = 0, count = keep; i < count && gated; ++i) {
      if (!IsUngated(*timed[i].candidate)) continue;
      const auto& launchers = timed[i].launchers;
      const cudaGraphExec_t exec = record([&](int set) {
        CHECK(launchers[set](stream));
        CHECK(LaunchGateApart(ungated[set].d, problems[set],
                              options.kind == EpilogueKind::kGatedQuant, stream));
      });
      timed.insert(timed.begin() + keep++,
                   {timed[i].candidate, timed[i].pdl, exec, replay(exec), launchers, true});
    }
    // At the power limit a sample's clock depends on what ran before it: each turn has an order of
    // its own.
    std::vector<int> order(keep);
    std::iota(order.begin(), order.end(), 0);
    std::mt19937 random(1);
    for (int rep = 0; rep < options.reps; ++rep) {
      std::shuffle(order.begin(), order.end(), random);
      for (int i : order) timed[i].samples.push_back(replay(timed[i].graph));
    }
    const Timed* best = nullptr;
    double best_us = 1e30, ungated_us = 1e30, apart_us = 1e30;
    for (int i = 0; i < keep; ++i) {
      std::sort(timed[i].samples.begin(), timed[i].samples.end());
      const double us = timed[i].samples[timed[i].samples.size() / 2];
      if (timed[i].apart)
        apart_us = std::min(apart_us, us);
      else if (gated && IsUngated(*timed[i].candidate))
        ungated_us = std::min(ungated_us, us);
      else if (us < best_us)
        best_us = us, best = &timed[i];
      if (log != nullptr)
        std::fprintf(log, "%s,%d,%d,%d,%d,%s,%.3f,median%s\n", anchor.layer.c_str(), m, n, k,
                     timed[i].pdl, timed[i].candidate->id.c_str(), us,
                     timed[i].apart ? " apart" : "");
    }
    if (best != nullptr) {
      const bool beside = ungated_us < 1e30;
      const double first_us = beside ? ungated_us : anchor.first_peer_us;
      std::printf("%-16s %5d %6d %6d | %9.2f %6.3f %6.3f %6.3f | %s\n", anchor.layer.c_str(), m, n,
                  k, best_us, best_us / anchor.limit_us, best_us / first_us,
                  best_us / (beside ? apart_us : anchor.best_peer_us), best->candidate->id.c_str());
      log_dg += std::log(best_us / first_us);
      log_limit += std::log(best_us / anchor.limit_us);
      ++rows;
    }
    for (Timed& t : timed) CHECK(cudaGraphExecDestroy(t.graph));
    for (void* p : owned) CHECK(cudaFree(p));
    std::fflush(stdout);
    if (log != nullptr) std::fflush(log);
  }
  if (rows > 0)
    std::printf("%d rows: geometric mean over limit %.3f, over the first peer %.3f\n", rows,
                std::exp(log_limit / rows), std::exp(log_dg / rows));
  if (log != nullptr) std::fclose(log);
  return 0;
}

}  // namespace

Family::Family(const char* name, Make make) { Families().push_back({name, make}); }

int Main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "";
  Options options;
  std::string path;
  for (int i = 2; i < argc; ++i) {
    const std::string arg = argv[i];
    auto value = [&] { return i + 1 < argc ? std::string(argv[++i]) : std::string(); };
    if (arg == "--only")
      options.only = value();
    else if (arg == "--log")
      options.log = value();
    else if (arg == "--keep")
      options.keep = std::atoi(value().c_str());
    else if (arg == "--reps")
      options.reps = std::atoi(value().c_str());
    else if (arg == "--colmajor")
      options.column_major = true;
    else if (arg == "--pdl")
      options.pdl = true;
    else if (arg == "--both")
      options.both = true;
    else if (arg == "--beside")
      options.beside = true;
    else if (arg == "--sample-us")
      options.sample_us = std::atof(value().c_str());
    else if (arg == "--halves")
      options.halves = true;
    else if (arg == "--gated")
      options.kind = EpilogueKind::kGated;
    else if (arg == "--gated-e4m3")
      options.kind = EpilogueKind::kGatedQuant;
    else if (arg == "--format") {
      const std::string name = value();
      options.format = nullptr;
      for (const FormatInfo* format : kFormats)
        if (name == format->name) options.format = format;
      if (options.format == nullptr) {
        std::printf("unknown format %s\n", name.c_str());
        return 2;
      }
    } else if (arg == "--m") {
      std::string list = value();
      for (char* t = std::strtok(list.data(), ","); t != nullptr; t = std::strtok(nullptr, ","))
        options.ms.push_back(std::atoi(t));
    } else
      path = arg;
  }
  if (mode == "verify") options.only = path;
  const auto is_asked_for = [&](const std::string& id) {
    for (size_t at = 0; at <= options.only.size();) {
      const size_t end = std::min(options.only.find(',', at), options.only.size());
      if (id.find(options.only.substr(at, end - at)) != std::string::npos) return true;
      at = end + 1;
    }
    return false;
  };
  std::vector<Candidate> candidates, all;
  for (const FamilyRecord& family : Families())
    for (Candidate& c : family.make()) {
      if (c.epilogue == EpilogueKind::kGated) all.push_back(Quantised(c));
      all.push_back(std::move(c));
    }
  for (Candidate& c : all)
    if (is_asked_for(c.id) &&
        (mode != "bench" ||
         (c.format == options.format &&
          (c.epilogue == options.kind ||
           (IsUngated(c) && (options.beside || options.kind == EpilogueKind::kGeneral))))))
      candidates.push_back(std::move(c));
  // The card warms up in the course of a pass: in a fixed order the last of several versions of a
  // kernel measured up to 6 % behind the first.
  std::shuffle(candidates.begin(), candidates.end(), std::mt19937(1));
  cudaDeviceProp properties;
  CHECK(cudaGetDeviceProperties(&properties, 0));
  std::printf("%s, %d SMs, %zu candidates\n", properties.name, properties.multiProcessorCount,
              candidates.size());
  cudaStream_t stream;
  CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  CHECK(cudaDeviceSynchronize());
  if (mode == "verify") return Verify(candidates, stream);
  if (mode == "bench")
    return Bench(candidates, ReadAnchors(path.c_str(), *options.format), options, stream);
  std::printf(
      "usage: sm90_bench verify [substring] | bench ANCHORS.csv [--m LIST] [--format NAME] [--only "
      "TEXT] [--keep "
      "N] [--reps N] [--log FILE]\n");
  return 2;
}

}  // namespace culet::bench

int main(int argc, char** argv) { return culet::bench::Main(argc, argv); }
