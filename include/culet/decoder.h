// Decoder models: a Hugging Face checkpoint as graphs, and sessions that run them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "culet/graph.h"
#include "culet/kernel_dispatch.h"
#include "culet/sampling.h"
#include "culet/status.h"
#include "culet/tensor.h"
#include "culet/types.h"

namespace culet {

/// Which of a model's rotary embeddings a layer has.
enum class LayerRope : std::uint8_t {
  kMain = 0,  ///< DecoderConfig::rope
  kLocal,     ///< DecoderConfig::local_rope
  kNone,      ///< its heads do not turn
};

enum class NormKind : std::uint8_t {
  kRms = 0,
  kLayer,  ///< without the mean, and without a bias
};

/// Multi-head latent attention (MLA): keys and values of all heads are made of one latent of a
/// position, which the cache holds beside a part of the key that turns and is every head's.
struct LatentAttention {
  int kv_rank = 0;     ///< elements of the latent; 0: the model has attention of another kind
  int q_rank = 0;      ///< of what queries are made of; 0: they are made of the hidden state
  int nope_dim = 0;    ///< elements of a head of queries that meet what is made of the latent
  int rope_dim = 0;    ///< elements behind them, which turn
  int value_dim = 0;   ///< elements of a head of values
  float norm_eps = 0;  ///< of the norms of latents

  bool present() const noexcept { return kv_rank > 0; }
};

/// Gated delta net: linear attention, whose cache is a state of each sequence, of a fixed size.
struct LinearAttention {
  GatedDeltaParams delta;
  int taps = 0;  ///< of the convolution of queries, keys and values; 0: no layer has it

  bool present() const noexcept { return taps > 0; }
};

/// What gate and up of a feed-forward part become.
enum class GateKind : std::uint8_t {
  kSilu = 0,
  kGeluTanh,
  kClampedSilu,  ///< as ClampedSwiGlu, with DecoderConfig::gate_limit and gate_slope
};

/// How a checkpoint stores the weights of its linear layers.
struct WeightCoding {
  enum class Form : std::uint8_t {
    kPlain = 0,       ///< numbers of 16 or 32 bits
    kFp8,             ///< quant_method fp8: E4M3 `weight` and `weight_scale_inv`
    kFloatQuantized,  ///< compressed-tensors: E4M3 `weight` and `weight_scale`
    kPackQuantized,   ///< compressed-tensors: `weight_packed`, `weight_scale`
    kAwq,             ///< AutoAWQ's gemm version: `qweight`, `qzeros`, `scales`
    kGptq,            ///< the same names in GPTQ's order, and `g_idx`
    kMxfp4,           ///< gpt-oss: `_blocks` of E2M1 and `_scales` of UE8M0 a 32, of experts alone
    kNvfp4,           ///< compressed-tensors: `weight_packed` of E2M1, `weight_scale` of E4M3 a 16
    kGguf,            ///< a GGUF file's types, tensor by tensor
  };
  Form form = Form::kPlain;
  QuantDesc weights;               ///< kB, kRow, kTensor of E4M3; kK, kRow of codes of 4 bits
  QuantDesc inputs;                ///< of E4M3: kK, kRow, or kNone: they are not quantised
  bool given_inputs = false;       ///< `input_scale` has the scale of all inputs
  bool zeros = false;              ///< of 4 bits: there are zero points; else the zero is 8
  bool symmetric = false;          ///< GPTQ: those are all 8
  bool zeros_less_one = false;     ///< GPTQ: a zero point is stored as one less
  std::vector<std::string> plain;  ///< modules that are kPlain, as ListsModule reads them

  bool is_e4m3() const noexcept { return form == Form::kFp8 || form == Form::kFloatQuantized; }
  bool is_nvfp4() const noexcept { return form == Form::kNvfp4; }
  bool is_u4() const noexcept {
    return form == Form::kPackQuantized || form == Form::kAwq || form == Form::kGptq;
  }
};

/// Elements [first, first + n) of `of`, n being said elsewhere; of 0: all there are.
struct ShardRange {
  std::int64_t first = 0, of = 0;
  friend bool operator==(const ShardRange&, const ShardRange&) = default;
};

/// How ranks share routed experts: each of them by width, or whole ones.
enum class ExpertsBy : std::uint8_t {
  kRule = 0,  ///< by width where that has parts for all ranks
  kWidth,
  kExpert,
};

/// Which part of a model a rank holds, where several hold it together. The sizes of the config that
/// has it are the part's: heads, kv_heads, intermediate, moe_intermediate, shared_intermediate.
struct DecoderShard {
  int rank = 0, ranks = 1;
  ShardRange heads, kv_heads, intermediate, moe_intermediate, shared_intermediate;
  RankParts vocab;    ///< of embedding and head; absent in a whole model
  RankParts experts;  ///< of routed experts; absent where they are cut by width

  bool is_part() const noexcept { return ranks > 1; }
};

/// Everything that config.json says of a decoder, under one spelling.
struct DecoderConfig {
  std::string architecture;  ///< "LlamaForCausalLM"
  std::string model_type;    ///< "llama"
  /// The class of a model of which this is the text's part ("Mistral3ForConditionalGeneration"),
  /// which decides about prefixes of tensor names; empty for a text model.
  std::string container;
  int vocab = 0;
  int hidden = 0;
  int layers = 0;
  int heads = 0;
  int kv_heads = 0;
  int head_dim = 0;
  /// Where present, kv_heads is 1 and head_dim latent.kv_rank + latent.rope_dim: the cache's.
  LatentAttention latent;
  LinearAttention linear;
  std::vector<bool> linear_layers;  ///< one a layer: whether it has that instead of attention
  int intermediate = 0;             ///< of dense layers; 0 when there are none
  NormKind norm = NormKind::kRms;
  float rms_norm_eps = 0;  ///< of norms of either kind
  int max_position = 0;  ///< positions that the model was made for; 0 when the config does not say
  RopeParams rope;
  RopeParams local_rope;         ///< as rope where no layer has it
  std::vector<LayerRope> ropes;  ///< one a layer
  bool tied_head = false;
  bool qkv_bias = false;
  bool o_bias = false;
  bool mlp_bias = false;
  bool sinks = false;  ///< a logit a head, as OpParams::sinks
  bool qk_norm = false;
  bool qk_norm_whole = false;  ///< over all heads of a row together
  /// q has beside each head another, whose sigmoid multiplies the head's result.
  bool attention_gate = false;
  bool qk_norm_turned = false;     ///< without gammas, behind rope, in layers that have one
  bool parallel_residual = false;  ///< attention and feed-forward read the same norm
  GateKind gate = GateKind::kSilu;
  float gate_limit = 0, gate_slope = 0;  ///< of kClampedSilu
  float attention_scale = 0;             ///< of queries times keys
  float attention_softcap = 0;           ///< 0: none, as AttentionParams::softcap
  /// Queries are multiplied by 1 + query_growth * ln(1 + floor((position + query_ahead) /
  /// query_period)); with query_growth_unturned only in layers without rope.
  float query_growth = 0;
  double query_period = 0;
  int query_ahead = 0;
  bool query_growth_unturned = false;
  float embedding_scale = 1;  ///< of what enters the first layer
  float residual_scale = 1;   ///< of what attention and feed-forward add to the sum
  float logit_scale = 1;
  float logit_softcap = 0;   ///< after the scale; 0: none
  std::vector<int> windows;  ///< one a layer: keys that a query sees, 0 for all
  std::vector<int> chunks;   ///< one a layer: as AttentionParams::chunk
  int experts = 0;
  int moe_intermediate = 0;
  RoutingParams routing;
  bool router_bias = false;        ///< of the product that makes the logits
  bool router_correction = false;  ///< a bias of scores, for the choice
  bool expert_bias = false;
  bool share_scales_input = false;  ///< of an expert, instead of its output
  int shared_intermediate = 0;      ///< of the expert that all tokens use; 0: there is none
  bool shared_gate = false;         ///< whose output is multiplied by the sigmoid of a product
  std::vector<bool> sparse;         ///< one a layer: whether it has routed experts
  /// Layers behind the others that predict tokens further ahead; they are passed over.
  int ahead_layers = 0;
  WeightCoding coding;  ///< what quantization_config says of the linear layers
  DecoderShard shard;
  DataType stored_type = DataType::kBfloat16;  ///< of the weights, as the config says
  std::vector<int> eos_ids;                    ///< may be empty
  /// Sentences for the user: keys of config.json that have no effect, and, once a model is loaded,
  /// what of its files contradicts the config. May be empty.
  std::vector<std::string> warnings;
};

/// Architectures that a DecoderConfig can come from.
std::vector<std::string> KnownDecoders();

/// Reads `path`: a config.json, or a folder that holds one and maybe a generation_config.json,
/// whose end tokens count more; or a GGUF file, or a folder that holds one and no config.json.
/// Errors: NOT_FOUND, IO; DATA_LOSS for text that is not JSON; INVALID_ARGUMENT for a missing or
/// impossible key (named, with its value); UNSUPPORTED for an architecture, rope type, activation
/// function or quantisation that is not known, listing the known ones; as GgufFile::Open.
Result<DecoderConfig> ReadDecoderConfig(const std::string& path);
/// The same from the text of a config.json; `origin` names it in messages.
Result<DecoderConfig> ParseDecoderConfig(std::string_view json, const std::string& origin);

/// The part that `rank` of `ranks` holds of a whole model. Rows of q, k, v, gate and up, and
/// columns of o and down, are cut between heads, and at multiples of what shares a scale. Ranks
/// beyond the heads of keys and values hold these twice. Parts differ in size where they must.
/// Errors: INVALID_ARGUMENT for a rank that does not exist, and for more ranks than there are
/// parts, with their number; UNSUPPORTED for norms over all heads.
Result<DecoderConfig> ShardOf(const DecoderConfig& whole, int rank, int ranks,
                              ExpertsBy experts = ExpertsBy::kRule);

/// The weights of latent attention that other attention has not. kv_b_proj, which makes a head's
/// keys and values of the latent, is in two: what meets the queries instead of the keys, and what
/// makes values of the sums of latents.
struct LatentWeights {
  Weight q_a, q_a_bias, q_a_norm;     ///< with a q_rank
  Weight kv_a, kv_a_bias, kv_a_norm;  ///< (kv_rank + rope_dim, hidden); the norm is the latent's
  Weight keys;                        ///< (heads * kv_rank, nope_dim)
  Weight values;                      ///< (heads * value_dim, kv_rank)
};

/// The weights of linear attention, beside o (hidden, value_heads * value_dim).
struct LinearWeights {
  Weight in;           ///< (key_heads * group, hidden), rows as CausalConv's X has columns
  Weight gates;        ///< (2 * value_heads, hidden), as GatedDelta's gates
  Weight conv;         ///< (qkv_cols, taps)
  Weight decay, step;  ///< GatedDelta's gamma and bias
  Weight norm;         ///< of a head's result, (1, value_dim)
};

/// The weights of one layer. What the model has not is not present().
struct LayerWeights {
  Weight attention_norm, q, k, v, o, q_bias, k_bias, v_bias, o_bias, q_norm, k_norm, sinks;
  LatentWeights latent;  ///< beside q (heads * (nope_dim + rope_dim), q_rank or hidden) and o
  LinearWeights linear;
  Weight k_scale, v_scale;  ///< of a cache of float8_e4m3: (1, 1) or (1, kv_heads)
  Weight attention_post_norm, mlp_post_norm;  ///< of what the two parts add to the sum
  Weight mlp_norm, gate, up, down, gate_bias, up_bias, down_bias;
  Weight router, router_bias, router_correction;
  /// Of layers with experts; else null.
  std::shared_ptr<const ExpertWeights> expert_gate, expert_up, expert_down;
  Weight shared_gate, shared_up, shared_down, shared_router;
};

struct DecoderWeights {
  Weight embedding;
  std::vector<LayerWeights> layers;
  Weight final_norm;
  Weight head;  ///< the embedding itself when tied
};

/// How a model gets into the memory of a device: a checkpoint where that does not read the host's.
struct LoadOptions {
  std::size_t reserve = 0;  ///< bytes that must be left beside the weights: for a cache, say
  /// Called now and then while weights are copied or made, with the bytes until then and those of
  /// all. May be null, may not throw.
  std::function<void(std::size_t done, std::size_t all)> on_progress = nullptr;
  /// Asked as often; true ends it. May be null; one that throws is a yes.
  std::function<bool()> stop = nullptr;
  /// Which part is loaded, as ShardOf cuts it; no others are read.
  int rank = 0, ranks = 1;
  ExpertsBy experts = ExpertsBy::kRule;
};

/// A model: its config, and its weights in memory of a device.
class DecoderModel {
 public:
  /// Maps the folder's model.safetensors, or the shards of model.safetensors.index.json, or a GGUF
  /// file (`folder`, or the one that it holds beside no config.json), and binds every tensor.
  /// Weights stay in the mapping where the device reads host memory. Errors: as ReadDecoderConfig
  /// and SafetensorsFile::Open (for a GGUF file DATA_LOSS likewise, and UNSUPPORTED for types of
  /// tensors that are not known, named); NOT_FOUND for a missing tensor; INVALID_ARGUMENT for a
  /// wrong shape or type, and for tensors that the graph does not read (rotary_emb.inv_freq and a
  /// tied head apart), each named. A head that is not the embedding, though the config ties them,
  /// is used: config().tied_head is false then, and a warning says so. RESOURCE_EXHAUSTED, with the
  /// bytes, before anything is copied to a device that has not enough free; FAILED_PRECONDITION
  /// when options.stop ended it.
  static Result<DecoderModel> Load(const std::string& folder, DeviceMemory& memory,
                                   const LoadOptions& options = {});

  /// A model of random weights (normal, of standard deviation 1 / sqrt(k)), for timing without
  /// files. `weights`: kFloat32, kFloat16, kBfloat16, or of products (the rest BF16) E4M3 with
  /// blocks of 128 x 128 or codes as formats u4, mxfp4, int8. Errors: INVALID_ARGUMENT for
  /// another type; RESOURCE_EXHAUSTED, with the bytes, before any is made where free_bytes() is too
  /// little; as DeviceMemory::Allocate; FAILED_PRECONDITION when options.stop ended it.
  static Result<DecoderModel> Random(const DecoderConfig& config, DataType weights,
                                     DeviceMemory& memory, std::uint64_t seed = 1,
                                     const LoadOptions& options = {});
  ~DecoderModel();
  DecoderModel(DecoderModel&&) noexcept;
  DecoderModel& operator=(DecoderModel&&) noexcept;

  const DecoderConfig& config() const noexcept;
  const DecoderWeights& weights() const noexcept;
  /// Bytes that one token's step must read: all weights of products and norms, of experts the
  /// active ones; of the embedding one row.
  double bytes_a_token() const noexcept;
  /// Bytes of all weights.
  double weight_bytes() const noexcept;
  /// Bytes of the checkpoint's tensors that were read, or are where they lie; 0 if random.
  double read_bytes() const noexcept;

 private:
  friend class Session;
  struct Impl;
  explicit DecoderModel(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// What a graph of the model needs besides weights, all at fixed addresses on the device.
struct DecoderInputs {
  DevicePtr ids = 0;        ///< (T, 1) kInt32
  DevicePtr positions = 0;  ///< (T, 1) kInt32
  DevicePtr slots = 0;      ///< (T, 1) kInt32: the cache's row of each token, negative for padding
  DevicePtr q_starts = 0;   ///< (S + 1, 1) kInt32
  DevicePtr lengths = 0;    ///< (S, 1) kInt32: keys of each sequence, this step's included
  DevicePtr block_table = 0;  ///< (S, blocks) kInt32
  DevicePtr state_rows = 0;   ///< (S, 1) kInt32: negative for padding; of linear attention
  DevicePtr ring_slots = 0;   ///< as slots and block_table, of layers whose keys lie in rings
  DevicePtr ring_table = 0;
  DevicePtr rows = 0;      ///< (R, 1) kInt32: tokens whose logits are wanted; unused for all
  DevicePtr log = 0;       ///< (log_rows, S) kInt32: what Advance logs
  DevicePtr sampling = 0;  ///< (S, 8) kInt32: SamplingRows; unused unless tokens are drawn
};

/// The paged cache of keys and values: per layer two matrices (blocks * block_size, kv_heads *
/// head_dim), and of float8_e4m3 two rows of scales (1, kv_heads) float32. With latent attention
/// one matrix: a row is a position's latent and the part of its key that turns. A layer with linear
/// attention has instead two float32 matrices, with a row a sequence: its last inputs of the
/// convolution, and its state. Layers with windows or chunks may have rings: of each sequence
/// number so many blocks, in which later positions take the place of those that no query sees any
/// more.
struct CacheLayout {
  DataType type = DataType::kFloat32;
  int blocks = 0;
  int block_size = 0;
  std::vector<DevicePtr> keys, values;  ///< one a layer; no values if latent; 0 if linear
  std::vector<DevicePtr> conv_states, delta_states;  ///< one a layer; 0 unless linear
  int sequences = 0;                                 ///< that states and rings are for
  int ring_blocks = 0;                               ///< of a sequence's ring; 0: there are none
  std::vector<DevicePtr> key_scales, value_scales;   ///< likewise; empty but of float8_e4m3
};

/// How large a graph is.
struct DecoderBatch {
  int tokens = 0;
  int sequences = 0;
  int table_blocks = 0;      ///< columns of the block table
  int logit_rows = 0;        ///< 0: logits of all tokens, in order
  bool keep_hidden = false;  ///< keeps the hidden state after the embedding and after each layer
  /// float32, or bfloat16: of norms, queries, keys, values, attention and what lies between a
  /// layer's products. The residual sums, what is added to them, and the logits are float32.
  DataType value_type = DataType::kFloat32;
  int log_rows =
      0;  ///< ends with an Advance when above 0; then one token a sequence, and its logits
  bool sample = false;  ///< draws tokens; one row of logits a sequence, in order
  /// Of a part: whether the logits of all ranks are gathered, as drawing needs them. Else there are
  /// none, and ranks exchange each row's largest.
  bool whole_logits = true;
  bool long_rope = false;  ///< longrope: sequences longer than the original context
};

/// A graph of the model, and its interesting nodes.
struct DecoderGraph {
  ComputeGraph graph;
  int logits = -1;  ///< (rows, vocab) float32; -1 without whole_logits
  int argmax = -1;  ///< (rows, 1) kInt32: the next tokens, by ArgMax, or by Sample where asked for
  std::vector<int> hidden;  ///< keep_hidden: L + 1 nodes, the last after the final norm
  int advance = -1;         ///< (log_rows, sequences) kInt32; -1 without
};

/// The model's step as a graph. Requires: as many layers in the cache as in the config.
DecoderGraph BuildDecoderGraph(const DecoderConfig& config, const DecoderWeights& weights,
                               const DecoderInputs& inputs, const CacheLayout& cache,
                               const DecoderBatch& batch);

/// Whether steps are padded to few sizes of batches and contexts, so that few graphs serve all.
enum class StepPadding : std::uint8_t {
  kDispatch = 0,  ///< as the dispatch prefers: on a GPU, where graphs cost more than rows
  kNone,          ///< each step has its own size, and its graph
  kBuckets,
};

struct SessionOptions {
  int max_sequences = 1;
  /// Positions a sequence, no more than the model's max_position; 0: that, at most 4096.
  int max_context = 0;
  int block_size = 64;   ///< positions in a block of the cache
  int cache_blocks = 0;  ///< 0: enough for max_sequences of max_context
  /// Tokens of all sequences in one step; 0: as many as the dispatch prefers, 512 on a CPU and 2048
  /// on a GPU, and no fewer than max_sequences.
  int max_step_tokens = 0;
  /// kNull: that of the values, float32 or bfloat16, which holds them as they are. Or float32,
  /// float16, bfloat16, or float8_e4m3: a byte an element, with a float32 scale for each head of
  /// keys and of values of a layer. They are the checkpoint's k_scale and v_scale where it
  /// has them, else powers of two so large that nothing that the layer can make is beyond 448 of
  /// them. With latent attention float8_e4m3 is refused.
  DataType cache_type = DataType::kNull;
  cudaStream_t stream = nullptr;  ///< for all copies and launches
  FusionChoice fusions = {};      ///< which of the dispatch's fusions are used
  StepPadding padding = StepPadding::kDispatch;
  /// As DecoderBatch::value_type; kNull: what the dispatch prefers for the model's weights, with
  /// routed experts float32.
  DataType value_type = DataType::kNull;
  bool record = true;  ///< steps are recorded and replayed where the dispatch can
};

/// Bytes of the cache, of states, too, that a session of a model with `config` takes, at most
/// where cache_type and value_type are kNull; what LoadOptions::reserve is for.
/// Errors: INVALID_ARGUMENT for the sizes that Session::Create refuses.
Result<std::size_t> CacheBytes(const DecoderConfig& config, const SessionOptions& options);

/// Tokens that a step adds to one sequence.
struct SequenceTokens {
  int sequence = 0;
  std::span<const std::int32_t> tokens;
};

/// What a step returns to the host besides the next tokens.
struct StepOutputs {
  bool logits = false;      ///< of the last token of each sequence
  bool all_logits = false;  ///< of every token
  bool hidden = false;      ///< of every token
};

struct StepResult {
  /// Of each sequence, in the batch's order: the arg max of its last logits, or the token drawn
  /// of them (SetSampling).
  std::vector<std::int32_t> next;
  std::vector<float> logits;  ///< (sequences or tokens, vocab)
  std::vector<float> hidden;  ///< (L + 1, tokens, hidden)
};

/// Why Decode gave a sequence no more tokens.
enum class DecodeEnd : std::uint8_t {
  kSteps = 0,  ///< it has as many as were asked for
  kEndToken,   ///< its last token is an end token
  kStopped,    ///< on_token said so
  kNoRoom,     ///< max_context is reached, or the cache is full
};

struct DecodeOptions {
  int steps = 1;                              ///< tokens that each sequence gets at most
  std::vector<std::int32_t> end_tokens = {};  ///< a sequence that makes one gets no more
  /// Called with each token once it is there, while later steps run: `part` counts the batch's.
  /// False: that sequence gets no more. It may not call the session.
  std::function<bool(std::size_t part, std::int32_t token)> on_token = nullptr;
};

/// What Decode made of one sequence.
struct DecodedTokens {
  std::vector<std::int32_t> tokens;
  DecodeEnd end = DecodeEnd::kSteps;
};

/// Takes what a session does, as bytes.
using CallSink = std::function<Status(std::span<const std::byte>)>;

/// Sequences of one model on one dispatch, with their paged cache. Not for concurrent use.
class Session {
 public:
  /// Requires: a model in `dispatch.memory()`; model and dispatch outlive the session.
  /// Errors: INVALID_ARGUMENT for an impossible option, and for a scale of the cache that is no
  /// positive number; RESOURCE_EXHAUSTED.
  static Result<Session> Create(const DecoderModel& model, KernelDispatch& dispatch,
                                const SessionOptions& options = {});
  ~Session();
  Session(Session&&) noexcept;
  Session& operator=(Session&&) noexcept;

  /// A new, empty sequence. Errors: RESOURCE_EXHAUSTED when all max_sequences are in use.
  Result<int> AddSequence();
  /// Gives its blocks back. Errors: NOT_FOUND.
  Status RemoveSequence(int sequence);
  /// Positions in the cache. Errors: NOT_FOUND.
  Result<int> LengthOf(int sequence) const;
  /// How many more positions the sequence can take if no other does: up to max_context, and as far
  /// as free blocks go. Errors: NOT_FOUND.
  Result<int> RoomOf(int sequence) const;
  /// Forgets the positions after the first `length`. A state of linear attention cannot go back,
  /// and a ring holds the last positions alone: where these are needed, the next step reads the
  /// sequence's tokens anew. Errors: NOT_FOUND; INVALID_ARGUMENT unless 0 <= length <=
  /// LengthOf(sequence).
  Status Truncate(int sequence, int length);

  /// How the next tokens of a sequence are drawn; greedily until this is called. The token behind n
  /// others is draw number n: what is truncated and asked for again comes out the same, and so does
  /// a text of the same seed in any batch, as far as its logits do.
  /// Errors: NOT_FOUND; as CheckSampling.
  Status SetSampling(int sequence, const SamplingOptions& options);

  /// Runs the model over new tokens of some sequences, of different numbers each, as one batch.
  /// Errors: INVALID_ARGUMENT for no tokens, a sequence twice, a token outside the vocabulary, more
  /// than max_step_tokens; NOT_FOUND; RESOURCE_EXHAUSTED beyond max_context or when the cache is
  /// full; DATA_LOSS for a logit that is NaN, with the first node that made one; what graphs and
  /// dispatch return. After an error the sequences are as before.
  Result<StepResult> Step(std::span<const SequenceTokens> batch, const StepOutputs& outputs = {});

  /// Step over long prompts, in pieces of max_step_tokens of all of them; the result is that of one
  /// step. Errors: as Step, without the limit of max_step_tokens.
  Result<StepResult> Prefill(std::span<const SequenceTokens> batch,
                             const StepOutputs& outputs = {});
  /// The same for one sequence.
  Result<StepResult> Prefill(int sequence, std::span<const std::int32_t> tokens,
                             const StepOutputs& outputs = {});

  /// Steps one after the other: each sequence reads its token, which makes one, reads that,
  /// and so on. The tokens are those of as many Steps; but where the dispatch can, each step's
  /// inputs are made of the one before on the device, and steps are launched before the tokens of
  /// earlier ones are looked at. What ran ahead of an end is taken back: a sequence is longer by
  /// the tokens that it got. Results are in the batch's order.
  /// Errors: as Step, but for a full cache, which ends sequences; INVALID_ARGUMENT for parts of
  /// more than one token, or no steps; INTERNAL for an on_token that throws. After an error a
  /// sequence has read as many tokens as on_token was called with.
  Result<std::vector<DecodedTokens>> Decode(std::span<const SequenceTokens> batch,
                                            const DecodeOptions& options);

  /// Plans a step that reads one token of one sequence, as the first of them would: what it cannot
  /// do is known then, and Gemm::coverage() says how many of its products have a measured kernel.
  /// Errors: as Step.
  Status Prepare();

  /// Through which the next steps launch their nodes; null for none. For profiles and comparisons.
  void SetHook(NodeHook hook);
  /// Called before each node of the next steps is prepared and before each is launched, a recorded
  /// step as one; null for none.
  void SetGate(NodeGate gate);

  /// From now on each call is told before it is made, and so is what the gate and on_token decide,
  /// for the sessions of other ranks to Follow. The gate is then called before each step. The end
  /// of the session is told as no bytes.
  void SetLead(CallSink tell);
  /// Makes a call that a leading session told; `hear` waits for what it tells next.
  /// Errors: as the call.
  Status Follow(std::span<const std::byte> call,
                const std::function<Result<std::vector<std::byte>>()>& hear);

  const DecoderModel& model() const noexcept;
  const SessionOptions& options() const noexcept;
  /// Bytes of the cache.
  double cache_bytes() const noexcept;
  /// The executor of the last step; null before the first. For plans and profiles.
  const GraphExecutor* last_executor() const noexcept;

  struct Impl;

 private:
  explicit Session(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace culet
