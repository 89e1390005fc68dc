// Times attention of the CUDA dispatch on one GPU, over a paged cache of BF16, F16 or E4M3 whose
// blocks are shuffled.
//   cuda_attention [--anchors CSV] [--heads 32] [--kv-heads 8] [--head-dim 128] [--f16|--fp8]
//     [--exact]
//     [--pdl] [--early] [--no-clusters] [--no-near] [--no-wgmma] [--block 16] [--room KEYS]
//     [--fine KEYS] [--even SPLITS] [--cluster BLOCKS] [--stages 2|3] [--ahead SPLITS] [--qkv]
//     [--check]
//     [--only decode|prefill|mixed] [--batch B --context N] [--latent]
// decode: one row a sequence; prefill: one sequence's prompt; mixed: a prompt of 512 tokens beside
// single rows of `batch - 1` sequences. CUDA graphs over caches of more than 220 MB together, the
// median of seven replays after two. limit_us: the bytes of the keys and values at 4.31 TB/s, or
// the causal FLOPs at 788 TFLOP/s. The columns are those of --anchors, whose peers of the same row
// are named behind. --block: keys of a block of the cache. --room: keys that the block table has
// room for, the context unless told. --fine: keys of a split above which decoding takes more splits
// than --even, which is how many a row gets. --early: launches read their keys before the one
// before has ended, as in a decode step. --qkv: from the product of q, k and v on, with norms and
// rotary embedding of the heads and the write of the row's own key and value. --check: with
// the relative error (L2) of what the last replay left, against FP32 lanes. --latent: instead,
// latent attention (MLA) of 16 and of 128 heads, keys of 576 elements of which 512 are the values,
// by each kernel: columns kind, heads, batch, context, limit_us, kernel, splits, us, the share of
// 4.31 TB/s, TFLOP/s. --fp32-too: with the kernel in FP32 lanes, which takes its time.
#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <numeric>
#include <random>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "base/float_types.h"
#include "graph_timer.h"
#include "kernels/cuda_ops/fused.h"

namespace culet::cuda_ops {
namespace {

class Buffer {
 public:
  explicit Buffer(std::size_t bytes) {
    Check(cudaMalloc(&data_, std::max<std::size_t>(bytes, 256)), "cudaMalloc");
    Check(cudaMemset(data_, 0, std::max<std::size_t>(bytes, 256)), "cudaMemset");
  }
  explicit Buffer(const std::vector<std::int32_t>& values) : Buffer(values.size() * 4) {
    Check(cudaMemcpy(data_, values.data(), values.size() * 4, cudaMemcpyHostToDevice), "upload");
  }
  Buffer(Buffer&& other) noexcept : data_(std::exchange(other.data_, nullptr)) {}
  Buffer& operator=(Buffer&&) = delete;
  ~Buffer() { cudaFree(data_); }
  void* get() const { return data_; }

 private:
  void* data_ = nullptr;
};

struct Options {
  int heads = 32, kv_heads = 8, head_dim = 128;
  DataType cache = DataType::kBfloat16;
  bool exact = false, pdl = false, early = false, clusters = CanOverlap();
  bool wgmma = CanMultiplyWarpgroups();
  int room = 0, batch = 0, context = 0, fine = 0, even = 0, cluster = 0, stages = 0, ahead = -1;
  bool qkv = false, check = false, near = true, latent = false, fp32_too = false;
  int block = 16;  // positions of a block of the cache
  std::string only, anchors;
};

struct Row {
  std::string kind;
  int batch, context;
};

// Normal values over and over.
Buffer Values(std::size_t count, DataType type, std::mt19937& random) {
  std::normal_distribution<float> normal;
  const std::size_t size = SizeOf(type), some = std::min<std::size_t>(count, std::size_t{1} << 20);
  std::vector<std::byte> values(some * size);
  for (std::size_t i = 0; i < some; ++i) {
    StoreFromDouble(values.data(), type, static_cast<std::int64_t>(i), normal(random));
  }
  Buffer buffer(count * size);
  Check(cudaMemcpy(buffer.get(), values.data(), some * size, cudaMemcpyHostToDevice), "upload");
  for (std::size_t at = some; at < count; at *= 2) {
    Check(cudaMemcpy(static_cast<std::byte*>(buffer.get()) + at * size, buffer.get(),
                     std::min(at, count - at) * size, cudaMemcpyDeviceToDevice),
          "fill");
  }
  return buffer;
}

// The rows of a timing and where their keys lie.
struct Batch {
  std::vector<std::int32_t> starts = {0}, positions, lengths, table;
  int used = 0, cols = 0;  // blocks of a sequence, and of the table's rows

  Batch(const Options& options, const Row& row, std::mt19937& random) {
    const bool prefill = row.kind == "prefill", mixed = row.kind == "mixed";
    constexpr int kPrompt = 512;
    for (int s = 0; s < row.batch; ++s) {
      const int length = mixed && s == 0 ? kPrompt : row.context;
      const int rows = prefill || (mixed && s == 0) ? length : 1;
      for (int i = 0; i < rows; ++i) positions.push_back(length - rows + i);
      starts.push_back(static_cast<std::int32_t>(positions.size()));
      lengths.push_back(length);
    }
    used = (row.context + options.block - 1) / options.block;
    cols = std::max(used, options.room / options.block);
    std::vector<std::int32_t> blocks(static_cast<std::size_t>(row.batch * used));
    std::iota(blocks.begin(), blocks.end(), 0);
    std::shuffle(blocks.begin(), blocks.end(), random);
    table.assign(static_cast<std::size_t>(row.batch) * static_cast<std::size_t>(cols), -1);
    for (int s = 0; s < row.batch; ++s) {
      std::copy_n(blocks.begin() + s * used, used, table.begin() + std::ptrdiff_t{s} * cols);
    }
  }
};

struct Launched {
  AttentionArgs attention;
  FusedHeadsArgs heads;
  bool makes_heads = false;

  cudaError_t Launch(LaunchStream stream) const {
    return makes_heads ? HeadsAttention(heads, attention, stream) : Attention(attention, stream);
  }
};

double MedianMicroseconds(const std::vector<Launched>& sets, bool pdl, int least = 12) {
  const int count = static_cast<int>(sets.size());
  return MicrosecondsInGraph(std::max(count, least), pdl, [&](int i, const LaunchStream& stream) {
    return sets[static_cast<std::size_t>(i % count)].Launch(stream);
  });
}

std::vector<float> Output(const AttentionArgs& args) {
  const auto count =
      static_cast<std::size_t>(args.rows * args.params.heads * args.params.out_dim());
  std::vector<std::uint16_t> bits(count);
  Check(cudaMemcpy(bits.data(), args.out, 2 * count, cudaMemcpyDeviceToHost), "download");
  std::vector<float> out(count);
  for (std::size_t i = 0; i < count; ++i) {
    out[i] = static_cast<float>(
        LoadAsDouble(bits.data(), DataType::kBfloat16, static_cast<std::int64_t>(i)));
  }
  return out;
}

// The error of what the launches left in the last set's output.
double ErrorOfOutput(const Launched& last, int multiprocessors) {
  const std::vector<float> out = Output(last.attention);
  AttentionArgs args = last.attention;
  AttentionShape shape{args.params, args.kv_type, args.rows, args.sequences,
                       args.table_cols * args.params.block_size};
  args.plan = PlanAttention(shape, true, multiprocessors, false, false);
  const Buffer workspace(args.plan.workspace_bytes);
  args.workspace = workspace.get();
  const Buffer q(
      static_cast<std::size_t>(2 * args.rows * args.params.heads * args.params.head_dim));
  if (last.makes_heads) {
    FusedHeadsArgs heads = last.heads;
    heads.out = q.get();
    args.q = q.get();
    Check(FusedHeads(heads, nullptr), "FusedHeads");
  }
  Check(Attention(args, nullptr), "FP32 lanes");
  Check(cudaDeviceSynchronize(), "FP32 lanes");
  const std::vector<float> right = Output(args);
  double error = 0, norm = 0;
  for (std::size_t i = 0; i < out.size(); ++i) {
    error += std::pow(static_cast<double>(out[i]) - static_cast<double>(right[i]), 2);
    norm += std::pow(static_cast<double>(right[i]), 2);
  }
  return std::sqrt(error / norm);
}

// ", peer us" of each of the row's peers.
std::string Peers(const Options& options, const Row& row) {
  std::ifstream file(options.anchors);
  std::string line, found;
  const std::string key =
      row.kind + "," + std::to_string(row.batch) + "," + std::to_string(row.context) + ",";
  while (std::getline(file, line)) {
    if (!line.starts_with(key)) continue;
    std::istringstream cells(line.substr(key.size()));
    std::string limit, peer, us;
    std::getline(cells, limit, ',');
    std::getline(cells, peer, ',');
    std::getline(cells, us, ',');
    found += "," + peer + " " + us;
  }
  return found;
}

void Time(const Options& options, const Row& row, int multiprocessors) {
  std::mt19937 random(7);
  const bool prefill = row.kind == "prefill";
  AttentionShape shape;
  shape.params = {.heads = options.heads,
                  .kv_heads = options.kv_heads,
                  .head_dim = options.head_dim,
                  .scale = 1 / std::sqrt(static_cast<float>(options.head_dim)),
                  .block_size = options.block};
  shape.kv_type = options.cache;
  shape.sequences = row.batch;
  const Batch batch(options, row, random);
  const auto& [starts, positions, lengths, table, used, cols] = batch;
  shape.rows = static_cast<std::int64_t>(positions.size());
  shape.most_keys = std::int64_t{cols} * options.block;

  shape.near = options.near && options.even == 0 && options.cluster == 0;
  AttentionPlan plan =
      PlanAttention(shape, options.exact, multiprocessors, options.clusters, options.wgmma);
  if (options.fine > 0) plan.decode.fine = options.fine;
  if (options.even > 0) {
    plan.decode.even = std::min(options.even, plan.decode.most);
    const bool fits = row.context <= plan.decode.fine * plan.decode.even;
    if (fits) plan.decode.most = plan.decode.even;  // blocks without keys take places
  }
  if (options.cluster > 0) plan.decode.cluster = options.cluster;
  if (options.stages > 0) plan.decode.stages = options.stages;
  if (options.ahead >= 0) plan.decode.ahead = options.ahead;
  Check(PrepareAttention(shape, plan), "PrepareAttention");
  if (options.qkv) Check(PrepareHeadsAttention(shape, plan), "PrepareHeadsAttention");
  const Buffer device_starts(starts), device_positions(positions), device_lengths(lengths),
      device_table(table), workspace(plan.workspace_bytes), counters(plan.state_bytes);
  const std::int64_t q_cols = std::int64_t{options.heads} * options.head_dim;
  const std::int64_t kv_cols = std::int64_t{options.kv_heads} * options.head_dim;
  const std::int64_t key_rows = std::int64_t{row.batch} * used * options.block;
  const Buffer q =
      Values(static_cast<std::size_t>(shape.rows * q_cols), DataType::kBfloat16, random);
  // For --qkv: the row's own place in the cache, the product, gammas, frequencies.
  std::vector<std::int32_t> slots;
  for (int s = 0; s < row.batch && options.qkv; ++s) {
    const int last = row.context - 1;
    slots.push_back(table[static_cast<std::size_t>(s * cols + last / options.block)] *
                        options.block +
                    last % options.block);
  }
  const Buffer device_slots(slots);
  const Buffer qkv = Values(static_cast<std::size_t>(shape.rows * (q_cols + 2 * kv_cols)),
                            DataType::kBfloat16, random);
  const Buffer gamma =
      Values(static_cast<std::size_t>(options.head_dim), DataType::kBfloat16, random);
  std::vector<double> frequencies;
  for (int i = 0; i < options.head_dim / 2; ++i) {
    frequencies.push_back(std::pow(1e6, -2.0 * i / options.head_dim) / 6.283185307179586);
  }
  const Buffer turns(frequencies.size() * sizeof(double));
  Check(cudaMemcpy(turns.get(), frequencies.data(), frequencies.size() * sizeof(double),
                   cudaMemcpyHostToDevice),
        "upload");
  const std::vector<float> ones(static_cast<std::size_t>(options.kv_heads), 1.0f);
  const Buffer scales(ones.size() * sizeof(float));
  Check(cudaMemcpy(scales.get(), ones.data(), ones.size() * sizeof(float), cudaMemcpyHostToDevice),
        "upload");
  const Buffer out(static_cast<std::size_t>(2 * shape.rows * q_cols));
  const double bytes =
      2.0 * static_cast<double>(SizeOf(options.cache)) * static_cast<double>(key_rows * kv_cols);
  const auto count = static_cast<std::size_t>(std::clamp(2.2e8 / bytes + 1, 1.0, 24.0));
  std::vector<Buffer> caches;
  std::vector<Launched> sets;
  for (std::size_t i = 0; i < count; ++i) {
    AttentionArgs args;
    args.params = shape.params;
    args.q = q.get();
    args.out = out.get();
    for (const void** cache : {&args.k, &args.v}) {
      caches.push_back(Values(static_cast<std::size_t>(key_rows * kv_cols), options.cache, random));
      *cache = caches.back().get();
    }
    args.q_type = args.out_type = DataType::kBfloat16;
    args.kv_type = shape.kv_type;
    args.k_scales = args.v_scales = static_cast<const float*>(scales.get());
    args.starts = static_cast<const std::int32_t*>(device_starts.get());
    args.positions = static_cast<const std::int32_t*>(device_positions.get());
    args.lengths = static_cast<const std::int32_t*>(device_lengths.get());
    args.table = static_cast<const std::int32_t*>(device_table.get());
    args.rows = shape.rows;
    args.sequences = shape.sequences;
    args.table_cols = cols;
    args.key_rows = key_rows;
    args.early = options.early;
    args.plan = plan;
    args.workspace = workspace.get();
    args.counters = static_cast<unsigned*>(counters.get());
    sets.push_back({args, {}, options.qkv});
    if (!options.qkv) continue;
    FusedHeadsArgs& heads = sets.back().heads;
    heads.qkv = qkv.get();
    heads.type = heads.q_gamma_type = heads.k_gamma_type = DataType::kBfloat16;
    heads.q_gamma = heads.k_gamma = gamma.get();
    heads.q_epsilon = heads.k_epsilon = 1e-6f;
    heads.rope.positions = args.positions;
    heads.rope.turns = static_cast<const double*>(turns.get());
    heads.rope.half = options.head_dim / 2;
    heads.keys = const_cast<void*>(args.k);
    heads.values = const_cast<void*>(args.v);
    heads.cache_type = args.kv_type;
    heads.key_scales = heads.value_scales = args.k_scales;
    heads.key_slots = heads.value_slots = static_cast<const std::int32_t*>(device_slots.get());
    heads.cache_rows = key_rows;
    heads.heads = options.heads;
    heads.kv_heads = options.kv_heads;
    heads.head_dim = options.head_dim;
    heads.rows = shape.rows;
  }
  Check(cudaMemset(out.get(), 0xFF, static_cast<std::size_t>(2 * shape.rows * q_cols)), "poison");
  const double us = MedianMicroseconds(sets, options.pdl);
  std::string error;
  if (options.check) {
    const std::size_t launches = std::max<std::size_t>(sets.size(), 12);
    char text[32];
    std::snprintf(text, sizeof text, ",error %.2e",
                  ErrorOfOutput(sets[(launches - 1) % sets.size()], multiprocessors));
    error = text;
  }
  const double flops =
      2.0 * 2.0 * options.heads * options.head_dim * row.context * (row.context + 1.0) / 2;
  const double limit = prefill ? flops / 788e6 : bytes / 4.31e6;
  std::printf("%s,%d,%d,%.3f,culet,%.2f,%.3f%s%s\n", row.kind.c_str(), row.batch, row.context,
              limit, us, us / limit, error.c_str(), Peers(options, row).c_str());
  std::fflush(stdout);
}

// One row of latent attention: `exact` by FP32 lanes, else by the kernel that `wgmma` leaves.
void TimeLatent(const Options& options, const Row& row, int heads, bool exact, bool wgmma,
                int multiprocessors) {
  std::mt19937 random(7);
  const bool prefill = row.kind == "prefill";
  const Batch batch(options, row, random);
  AttentionShape shape;
  shape.params = {.heads = heads,
                  .kv_heads = 1,
                  .head_dim = kMostLatentKey,
                  .value_dim = kMostLatentValue,
                  .scale = 1 / std::sqrt(static_cast<float>(kMostLatentKey)),
                  .block_size = options.block};
  shape.kv_type = options.cache;
  shape.sequences = row.batch;
  shape.rows = static_cast<std::int64_t>(batch.positions.size());
  shape.most_keys = std::int64_t{batch.cols} * options.block;
  AttentionPlan plan = PlanAttention(shape, exact, multiprocessors, options.clusters, wgmma);
  if (options.even > 0 && options.even <= plan.tiles.most) {
    plan.tiles.even = plan.tiles.most = options.even;
  }
  Check(PrepareAttention(shape, plan), "PrepareAttention");
  const Buffer starts(batch.starts), positions(batch.positions), lengths(batch.lengths),
      table(batch.table), workspace(plan.workspace_bytes);
  const std::int64_t key_rows = std::int64_t{row.batch} * batch.used * options.block;
  const auto elements = [&](std::int64_t rows, int width) {
    return static_cast<std::size_t>(rows * width);
  };
  const Buffer q =
      Values(elements(shape.rows * heads, kMostLatentKey), DataType::kBfloat16, random);
  const Buffer out(2 * elements(shape.rows * heads, kMostLatentValue));
  const std::size_t cache_elements = elements(key_rows, kMostLatentKey);
  const double bytes = 2.0 * static_cast<double>(cache_elements);
  const auto count =
      static_cast<std::size_t>(prefill ? 1.0 : std::clamp(2.2e8 / bytes + 1, 1.0, 24.0));
  std::vector<Buffer> caches;
  std::vector<Launched> sets;
  for (std::size_t i = 0; i < count; ++i) {
    caches.push_back(Values(cache_elements, options.cache, random));
    AttentionArgs args;
    args.params = shape.params;
    args.q = q.get();
    args.k = args.v = caches.back().get();
    args.out = out.get();
    args.q_type = args.out_type = DataType::kBfloat16;
    args.kv_type = shape.kv_type;
    args.starts = static_cast<const std::int32_t*>(starts.get());
    args.positions = static_cast<const std::int32_t*>(positions.get());
    args.lengths = static_cast<const std::int32_t*>(lengths.get());
    args.table = static_cast<const std::int32_t*>(table.get());
    args.rows = shape.rows;
    args.sequences = shape.sequences;
    args.table_cols = batch.cols;
    args.key_rows = key_rows;
    args.early = options.early && !prefill;
    args.plan = plan;
    args.workspace = workspace.get();
    sets.push_back({args, {}, false});
  }
  const int launches = prefill ? 2 : std::max<int>(static_cast<int>(sets.size()), 12);
  const double us = MedianMicroseconds(sets, options.pdl, launches);
  std::string error;
  if (options.check && !exact && (!prefill || row.context <= 512)) {
    const std::size_t last = static_cast<std::size_t>(launches - 1) % sets.size();
    char text[32];
    std::snprintf(text, sizeof text, ",error %.2e", ErrorOfOutput(sets[last], multiprocessors));
    error = text;
  }
  const double context = row.context;
  const double pairs = prefill ? context * (context + 1) / 2 : row.batch * context;
  const double flops = 2.0 * heads * (kMostLatentKey + kMostLatentValue) * pairs;
  const std::string kernel = exact        ? "fp32"
                             : plan.wgmma ? "wgmma"
                                          : "mma" + std::to_string(plan.latent_queries) + "x" +
                                                std::to_string(plan.tiles.stages);
  std::printf("latent-%s,%d,%d,%d,%.3f,%s,%d,%.2f,%.3f,%.1f%s\n", row.kind.c_str(), heads,
              row.batch, row.context, bytes / 4.31e6, kernel.c_str(),
              exact ? plan.lanes.most : plan.tiles.most, us, bytes / 4.31e6 / us, flops / us * 1e-6,
              error.c_str());
  std::fflush(stdout);
}

void TimeLatents(const Options& options, int multiprocessors) {
  std::vector<Row> rows;
  if (options.batch > 0 && options.context > 0) {
    rows.push_back(
        {options.only.empty() ? "decode" : options.only, options.batch, options.context});
  } else {
    for (const int batch : {1, 8, 32}) {
      for (const int context : {512, 8192}) rows.push_back({"decode", batch, context});
    }
    for (const int context : {512, 8192}) rows.push_back({"prefill", 1, context});
  }
  std::printf("kind,heads,batch,context,limit_us,kernel,splits,us,share,tflops\n");
  // Those on warpgroup products come last.
  for (const bool wgmma : {false, true}) {
    if (wgmma && !options.wgmma) continue;
    for (const Row& row : rows) {
      if (!options.only.empty() && options.only != row.kind) continue;
      for (const int heads : {16, 128}) {
        const bool is_slow = row.kind == "prefill" && row.context > 512;
        if (options.fp32_too && !wgmma && !is_slow) {
          TimeLatent(options, row, heads, true, false, multiprocessors);
        }
        TimeLatent(options, row, heads, false, wgmma, multiprocessors);
      }
    }
  }
}

int Main(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    const auto value = [&] {
      if (i + 1 < argc) return argv[++i];
      std::fprintf(stderr, "%s needs a value\n", name.c_str());
      std::exit(2);
    };
    if (name == "--heads") {
      options.heads = std::atoi(value());
    } else if (name == "--kv-heads") {
      options.kv_heads = std::atoi(value());
    } else if (name == "--head-dim") {
      options.head_dim = std::atoi(value());
    } else if (name == "--block") {
      options.block = std::atoi(value());
    } else if (name == "--room") {
      options.room = std::atoi(value());
    } else if (name == "--fine") {
      options.fine = std::atoi(value());
    } else if (name == "--even") {
      options.even = std::atoi(value());
    } else if (name == "--cluster") {
      options.cluster = std::atoi(value());
    } else if (name == "--latent") {
      options.latent = true;
    } else if (name == "--fp32-too") {
      options.fp32_too = true;
    } else if (name == "--check") {
      options.check = true;
    } else if (name == "--qkv") {
      options.qkv = options.early = true;
    } else if (name == "--stages") {
      options.stages = std::atoi(value());
    } else if (name == "--ahead") {
      options.ahead = std::atoi(value());
    } else if (name == "--batch") {
      options.batch = std::atoi(value());
    } else if (name == "--context") {
      options.context = std::atoi(value());
    } else if (name == "--only") {
      options.only = value();
    } else if (name == "--anchors") {
      options.anchors = value();
    } else if (name == "--f16") {
      options.cache = DataType::kFloat16;
    } else if (name == "--fp8") {
      options.cache = DataType::kFloat8_e4m3;
    } else if (name == "--exact") {
      options.exact = true;
    } else if (name == "--pdl") {
      options.pdl = true;
    } else if (name == "--early") {
      options.early = true;
    } else if (name == "--no-clusters") {
      options.clusters = false;
    } else if (name == "--no-near") {
      options.near = false;
    } else if (name == "--no-wgmma") {
      options.wgmma = false;
    } else {
      std::fprintf(stderr, "no option %s; the head of bench/cuda_attention.cc has all\n",
                   name.c_str());
      return 2;
    }
  }
  if (options.heads < 1 || options.kv_heads < 1 || options.heads % options.kv_heads != 0 ||
      options.head_dim < 1 || options.block < 1 || options.head_dim > kMostHeadDim) {
    std::fprintf(stderr, "%d heads, %d of keys, of %d, blocks of %d: no such attention\n",
                 options.heads, options.kv_heads, options.head_dim, options.block);
    return 2;
  }
  int device = 0, multiprocessors = 0;
  Check(cudaGetDevice(&device), "cudaGetDevice");
  Check(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device),
        "cudaDeviceGetAttribute");
  if (options.latent) return TimeLatents(options, multiprocessors), 0;
  std::vector<Row> rows;
  if (options.batch > 0 && options.context > 0) {
    rows.push_back(
        {options.only.empty() ? "decode" : options.only, options.batch, options.context});
  } else {
    for (const int batch : {1, 8, 64}) {
      for (const int context : {512, 4096, 32768}) rows.push_back({"decode", batch, context});
    }
    for (const int context : {512, 2048, 8192}) rows.push_back({"prefill", 1, context});
    for (const int batch : {8, 64}) rows.push_back({"mixed", batch, 4096});
  }
  std::printf("kind,batch,context,limit_us,peer,us,over_limit\n");
  for (const Row& row : rows) {
    if (options.only.empty() || options.only == row.kind) Time(options, row, multiprocessors);
  }
  return 0;
}

}  // namespace
}  // namespace culet::cuda_ops

int main(int argc, char** argv) { return culet::cuda_ops::Main(argc, argv); }
