#include "model/session_sizes.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>

#include <fmt/format.h>

namespace culet {
namespace {

constexpr int kMostDefaultContext = 4096;

Status Invalid(std::string message) {
  return Status(StatusCode::kInvalidArgument, std::move(message));
}

}  // namespace

Status CompleteSizes(const DecoderConfig& config, SessionOptions& options) {
  if (options.max_context == 0) {
    options.max_context = config.max_position > 0
                              ? std::min(config.max_position, kMostDefaultContext)
                              : kMostDefaultContext;
  }
  constexpr int kMost = 1 << 24;  // keeps every product of two below 2^63
  const std::pair<const char*, int> sizes[] = {{"max_sequences", options.max_sequences},
                                               {"max_context", options.max_context},
                                               {"block_size", options.block_size},
                                               {"max_step_tokens", options.max_step_tokens}};
  for (const auto& [name, value] : sizes) {
    if (value < 1 || value > kMost) {
      return Invalid(fmt::format("{} is {}; it must be from 1 to {}", name, value, kMost));
    }
  }
  if (config.max_position > 0 && options.max_context > config.max_position) {
    return Invalid(fmt::format("max_context is {}; the model was made for at most {} positions",
                               options.max_context, config.max_position));
  }
  if (options.cache_type == DataType::kNull) {
    options.cache_type =
        options.value_type == DataType::kBfloat16 ? DataType::kBfloat16 : DataType::kFloat32;
  }
  if (options.cache_type != DataType::kFloat32 && options.cache_type != DataType::kFloat16 &&
      options.cache_type != DataType::kBfloat16 && options.cache_type != DataType::kFloat8_e4m3) {
    return Invalid(fmt::format("cache_type is {}; use float32, float16, bfloat16 or float8_e4m3",
                               ToString(options.cache_type)));
  }
  if (config.latent.present() && options.cache_type == DataType::kFloat8_e4m3) {
    return Invalid(
        fmt::format("cache_type is float8_e4m3, which holds no latents of a {}; use another "
                    "cache_type: float32, float16 or bfloat16",
                    config.architecture));
  }
  const std::int64_t a_sequence =
      (options.max_context + std::int64_t{options.block_size} - 1) / options.block_size;
  const std::int64_t blocks =
      options.cache_blocks != 0 ? options.cache_blocks : a_sequence * options.max_sequences;
  if (blocks < 1 || blocks * options.block_size > std::numeric_limits<std::int32_t>::max()) {
    return Invalid(
        fmt::format("the cache would have {} blocks of {} positions; at least one and "
                    "fewer than 2^31 positions together",
                    blocks, options.block_size));
  }
  options.cache_blocks = static_cast<int>(blocks);
  return {};
}

namespace {

constexpr std::size_t Padded(std::size_t bytes) {
  constexpr std::size_t kAlignment = 256;
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

std::size_t ConvStateBytes(const DecoderConfig& config, const SessionOptions& options) {
  return Padded(static_cast<std::size_t>(options.max_sequences) *
                static_cast<std::size_t>(config.linear.taps - 1) *
                static_cast<std::size_t>(config.linear.delta.qkv_cols()) * sizeof(float));
}

std::size_t DeltaStateBytes(const DecoderConfig& config, const SessionOptions& options) {
  return Padded(static_cast<std::size_t>(options.max_sequences) *
                static_cast<std::size_t>(config.linear.delta.state_cols()) * sizeof(float));
}

int CacheMatrices(const DecoderConfig& config) { return config.latent.present() ? 1 : 2; }

bool MayHaveRing(const DecoderConfig& config, std::size_t layer) {
  return config.windows[layer] > 0 || config.chunks[layer] > 0;
}

int RingReach(const DecoderConfig& config) {
  int reach = 0;
  for (std::size_t layer = 0; layer < config.windows.size(); ++layer) {
    const int window = config.windows[layer], chunk = config.chunks[layer];
    // Both at once see no more than either.
    reach = std::max(reach,
                     window > 0 && chunk > 0 ? std::min(window, chunk) : std::max(window, chunk));
  }
  return reach;
}

int RingBlocks(const DecoderConfig& config, const SessionOptions& options) {
  const int reach = RingReach(config);
  if (reach == 0) return 0;
  // Kernels load keys in whole tiles, whose other keys they leave out.
  constexpr int kTile = 256;
  const std::int64_t positions = std::int64_t{reach} + options.max_step_tokens + kAhead + kTile;
  const std::int64_t blocks = (positions + options.block_size - 1) / options.block_size;
  return blocks * options.max_sequences < options.cache_blocks ? static_cast<int>(blocks) : 0;
}

std::size_t CacheMatrixBytes(const DecoderConfig& config, const SessionOptions& options,
                             std::size_t layer) {
  const int ring = MayHaveRing(config, layer) ? RingBlocks(config, options) : 0;
  const std::size_t blocks =
      ring > 0 ? static_cast<std::size_t>(ring) * static_cast<std::size_t>(options.max_sequences)
               : static_cast<std::size_t>(options.cache_blocks);
  return Padded(blocks * static_cast<std::size_t>(options.block_size) *
                static_cast<std::size_t>(config.kv_heads) *
                static_cast<std::size_t>(config.head_dim) * SizeOf(options.cache_type));
}

std::size_t CacheScaleBytes(const DecoderConfig& config, const SessionOptions& options) {
  if (options.cache_type != DataType::kFloat8_e4m3) return 0;
  return Padded(static_cast<std::size_t>(config.kv_heads) * sizeof(float));
}

Result<std::size_t> CacheBytes(const DecoderConfig& config, const SessionOptions& options) {
  SessionOptions complete = options;
  // Of rings, what the dispatch that prefers the longest steps has.
  constexpr int kMostStepTokens = 2048;
  if (complete.max_step_tokens == 0) {
    complete.max_step_tokens = std::max(kMostStepTokens, complete.max_sequences);
  }
  CULET_RETURN_IF_ERROR(CompleteSizes(config, complete));
  const auto matrices = static_cast<std::size_t>(CacheMatrices(config));
  std::size_t bytes = 0;
  for (std::size_t layer = 0; layer < config.linear_layers.size(); ++layer) {
    bytes += config.linear_layers[layer]
                 ? ConvStateBytes(config, complete) + DeltaStateBytes(config, complete)
                 : matrices * (CacheMatrixBytes(config, complete, layer) +
                               CacheScaleBytes(config, complete));
  }
  return bytes;
}

}  // namespace culet
