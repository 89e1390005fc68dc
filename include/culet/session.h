/* Decoder models and their sessions: a part of culet/culet.h, which programs include and which has the
 * rules of the C interface. C99 and C++. */
#pragma once

#include "culet/c_base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A decoder model: what its config.json says, and its weights in the memory of an engine's device. */
typedef struct culet_model culet_model;

typedef struct culet_model_options {
  size_t struct_size;
  int32_t random_weights; /* 0: the checkpoint's weights. A type: random ones of that type, for timing
                             without files; CULET_FLOAT32, CULET_FLOAT16, CULET_BFLOAT16, or
                             CULET_FLOAT8_E4M3 for products in blocks of 128 x 128, the rest BF16 */
  int32_t reserved;       /* 0 */
  uint64_t seed;          /* of random weights */
  const char* rank_program; /* the program culet of this version, which `ranks` starts; default:
                               that of PATH */
  int32_t ranks;     /* processes of this host that share the model, on a GPU each; default 1. Under
                        torchrun, mpirun or srun these are their processes: each makes the same calls,
                        on an engine of its own GPU. Else this process, on an engine of cuda:0 or the
                        CPU, starts the others and leads them */
  int32_t exchange;  /* type of what crosses between the ranks' GPUs: 0 or CULET_FLOAT32, or
                        CULET_BFLOAT16, which halves it, and rounds each summand (2^-8) */
} culet_model_options;

/* Opens the folder of a checkpoint as Hugging Face has them (config.json, safetensors), or with
 * random weights a config.json or the folder of one. On the CPU weights stay in the files' mapping.
 * `options` may be null. The model must not outlive its engine.
 * Errors: NOT_FOUND and IO for files; DATA_LOSS for damaged ones; INVALID_ARGUMENT for an impossible
 * config or a tensor of the wrong shape; UNSUPPORTED for an unknown architecture;
 * RESOURCE_EXHAUSTED. Of several ranks also FAILED_PRECONDITION, as of every call of their sessions,
 * which names the rank that died, failed, did not come or was started otherwise. */
CULET_API culet_status culet_model_load(culet_engine* engine, const char* path,
                                        const culet_model_options* options, culet_model** model);

/* Null is ignored. Sessions keep what they need of it. */
CULET_API void culet_model_destroy(culet_model* model);

typedef struct culet_model_info {
  size_t struct_size;
  char architecture[64]; /* "LlamaForCausalLM" */
  char model_type[64];   /* "llama" */
  int32_t vocab;         /* tokens are 0 to vocab - 1 */
  int32_t hidden, layers, heads, kv_heads, head_dim;
  int32_t max_position; /* positions that the model was made for; 0 when its config does not say */
  int32_t end_tokens;   /* how many there are: culet_model_end_tokens */
  uint64_t weight_bytes;
  uint64_t bytes_a_token; /* of weights that the step of one token must read */
} culet_model_info;

CULET_API culet_status culet_model_get_info(const culet_model* model, culet_model_info* info);

/* The tokens that end a text, as generation_config.json has them, else config.json. Writes at most
 * `capacity` and how many there are to `count` (may be null). `tokens` may be null when capacity is
 * 0. */
CULET_API culet_status culet_model_end_tokens(const culet_model* model, int32_t* tokens,
                                              int32_t capacity, int32_t* count);

/* What the user should know of the model's files, a sentence a line, each with its line end: keys of
 * config.json without effect, a head that is not tied though the config says so. Empty when there is
 * nothing. Writes at most `capacity` bytes, the final 0 included, and how many there are to `needed`
 * (may be null). `text` may be null when capacity is 0. */
CULET_API culet_status culet_model_warnings(const culet_model* model, char* text, size_t capacity,
                                            size_t* needed);

/* Sequences of one model with their cache of keys and values. Calls on one session from several
 * threads wait for each other; several sessions, also of one model, run side by side. */
typedef struct culet_session culet_session;

/* Called before work on each node of a step begins, in the thread that called; not 0 ends the step.
 * It may ask culet_session_sequence how far a prefill is, and call nothing else of its session. */
typedef int32_t (*culet_gate)(void* context);

/* What is 0 takes the default. */
typedef struct culet_session_options {
  size_t struct_size;
  int32_t max_sequences;   /* at a time; default 1 */
  int32_t max_context;     /* positions of a sequence, no more than the model's; default those, at
                              most 4096 */
  int32_t max_step_tokens; /* tokens of all sequences in one step; default 512, on a GPU 2048 */
  int32_t block_size;      /* positions in a block of the cache; default 64 */
  int32_t cache_blocks;    /* default: enough for max_sequences of max_context */
  int32_t cache_type;      /* default: the values', CULET_BFLOAT16 on a GPU with weights of it, else
                              CULET_FLOAT32; or these, CULET_FLOAT16, or CULET_FLOAT8_E4M3 with a
                              scale for each head of keys and values */
  int32_t dispatch;        /* CULET_DISPATCH_KERNELS or CULET_DISPATCH_REFERENCE */
  int32_t policy;          /* CULET_POLICY_*: where products' kernels come from */
  int32_t determinism;     /* CULET_DETERMINISM_* */
  int32_t reserved;        /* 0 */
  const int32_t* stop;     /* once it is not 0, e.g. set by a signal handler or another thread, a
                              step ends before its next node; null: never */
  culet_gate gate;         /* null: none */
  void* gate_context;
  void* stream; /* a cudaStream_t for all copies and launches */
} culet_session_options;

enum { /* what computes a session's steps */
  CULET_DISPATCH_KERNELS = 0,
  CULET_DISPATCH_REFERENCE = 1 /* the definition in double, slow, to compare with */
};

enum { /* where a choice of kernel comes from */
  CULET_POLICY_DEFAULT = 0, /* a measured one; else the cost model's */
  CULET_POLICY_MEASURE = 1, /* a measured one; else measured now and remembered */
  CULET_POLICY_REUSE = 2    /* a measured one; else that of the next smaller batch; else default */
};

/* `options` may be null. Must not outlive the model's engine.
 * Errors: INVALID_ARGUMENT for an impossible option, RESOURCE_EXHAUSTED for the cache's memory. */
CULET_API culet_status culet_session_create(const culet_model* model,
                                            const culet_session_options* options,
                                            culet_session** session);

/* Null is ignored. */
CULET_API void culet_session_destroy(culet_session* session);

typedef struct culet_session_info {
  size_t struct_size;
  /* The options, with the defaults filled in. */
  int32_t max_sequences, max_context, max_step_tokens, block_size, cache_blocks, cache_type;
  uint64_t cache_bytes;   /* of keys and values */
  uint64_t scratch_bytes; /* of the last step's values and workspaces; 0 before the first */
} culet_session_info;

CULET_API culet_status culet_session_get_info(culet_session* session, culet_session_info* info);

/* Plans a step of one token of one sequence, as the first of them would: what it cannot do is known
 * then, and culet_engine_coverage says how many of its products have a measured choice.
 * Errors: as culet_session_step. */
CULET_API culet_status culet_session_plan(culet_session* session);

/* A new, empty sequence; its number is from 0 to max_sequences - 1.
 * Errors: RESOURCE_EXHAUSTED when all are in use. */
CULET_API culet_status culet_session_add(culet_session* session, int32_t* sequence);

/* Gives the sequence's number and its blocks of the cache back. Errors: NOT_FOUND. */
CULET_API culet_status culet_session_remove(culet_session* session, int32_t sequence);

/* Forgets the tokens behind the first `length`: to answer anew, or to keep a common beginning.
 * Errors: NOT_FOUND; INVALID_ARGUMENT unless 0 <= length <= the sequence's. */
CULET_API culet_status culet_session_truncate(culet_session* session, int32_t sequence,
                                              int32_t length);

/* The positions that a sequence has, and how many more it can take if no other does: up to
 * max_context, and as far as the cache's free blocks go. Either pointer may be null.
 * Errors: NOT_FOUND. */
CULET_API culet_status culet_session_sequence(culet_session* session, int32_t sequence,
                                              int32_t* length, int32_t* left);

/* New tokens for some sequences, as many as each is given, run as one batch. */
typedef struct culet_batch {
  size_t struct_size;
  int32_t count;            /* sequences */
  int32_t reserved;         /* 0 */
  const int32_t* sequences; /* (count): their numbers, none twice */
  const int32_t* lengths;   /* (count): tokens of each; null: one each */
  const int32_t* tokens;    /* of the first sequence, then of the second, ... */
} culet_batch;

/* Host memory for what a step makes; null where it is not wanted. */
typedef struct culet_outputs {
  size_t struct_size;
  int32_t* next;     /* (count): of each sequence's last logits the arg max, or what
                        culet_session_sampling asks for */
  float* logits;     /* (count, vocab): of each sequence's last token */
  float* all_logits; /* (tokens, vocab): of every token */
  float* hidden;     /* (layers + 1, tokens, hidden): after the embedding and after each layer, the
                        last one normalised */
} culet_outputs;

/* Runs the model over the new tokens; complete on return. `outputs` may be null.
 * Errors: INVALID_ARGUMENT for no tokens, a sequence twice, a token outside the vocabulary, more
 * than max_step_tokens; NOT_FOUND for a sequence; RESOURCE_EXHAUSTED beyond max_context or when the
 * cache is full; UNSUPPORTED for what the device has no kernel for; DATA_LOSS for a logit that is
 * NaN, with the node that made it; FAILED_PRECONDITION when `stop` or the gate ended it, or the gate
 * called it. After an error the sequences are as before. */
CULET_API culet_status culet_session_step(culet_session* session, const culet_batch* batch,
                                          const culet_outputs* outputs);

/* The same for long prompts: in pieces of max_step_tokens, with what one step would give. */
CULET_API culet_status culet_session_prefill(culet_session* session, const culet_batch* batch,
                                             const culet_outputs* outputs);

/* Called with each token as soon as it is there, in the thread that called; `part` counts the batch's
 * sequences. Not 0: that sequence gets no more. It may call nothing of its session. */
typedef int32_t (*culet_on_token)(void* context, int32_t part, int32_t token);

typedef struct culet_decode_options {
  size_t struct_size;
  int32_t steps;             /* tokens that each sequence gets at most */
  int32_t end_token_count;   /* of end_tokens */
  const int32_t* end_tokens; /* a sequence that makes one of them gets no more */
  culet_on_token on_token;   /* null: none */
  void* context;             /* for on_token */
} culet_decode_options;

enum { /* why a sequence got no more tokens */
  CULET_DECODE_STEPS = 0,     /* it has as many as were asked for */
  CULET_DECODE_END_TOKEN = 1, /* its last one is an end token */
  CULET_DECODE_STOPPED = 2,   /* on_token said so */
  CULET_DECODE_NO_ROOM = 3    /* max_context is reached, or the cache is full */
};

/* Steps one after the other, from one token of each sequence on: what culet_session_step with
 * each `next` as the next token would make, without a wait of the device for the host between two
 * steps. `tokens` (count, steps) gets each sequence's tokens from the beginning of its row, `made`
 * (count) how many, `ends` (count) a CULET_DECODE_* each; each may be null. A sequence becomes longer
 * by the tokens that it got.
 * Errors: as culet_session_step, but for a full cache, which ends sequences; INVALID_ARGUMENT for
 * lengths other than 1, and for no steps. After an error a sequence has read as many tokens as
 * on_token was called with. */
CULET_API culet_status culet_session_decode(culet_session* session, const culet_batch* batch,
                                            const culet_decode_options* options, int32_t* tokens,
                                            int32_t* made, int32_t* ends);

/* How to draw a token. What is 0 is off. In the order of Hugging Face's generate: logits are divided
 * by the temperature, then top_k, top_p and min_p leave out tokens. */
typedef struct culet_sampling {
  size_t struct_size;
  float temperature; /* 0: the largest logit, of equals the first */
  float top_p;       /* keeps the likeliest tokens until they have this probability together */
  float min_p;       /* keeps tokens of at least this share of the likeliest one's probability */
  int32_t top_k;     /* keeps so many of the likeliest tokens */
  uint64_t seed;     /* of culet_session_sampling */
} culet_sampling;

/* How culet_outputs.next of a sequence is drawn in the next steps, where the logits lie: greedily
 * until this is called, and with `sampling` null. The token behind n others is draw number n of its
 * seed: the same seed and logits give the same tokens, in any batch and after culet_session_truncate.
 * Errors: NOT_FOUND; INVALID_ARGUMENT for an option outside its range. */
CULET_API culet_status culet_session_sampling(culet_session* session, int32_t sequence,
                                              const culet_sampling* sampling);

/* Draws a token from `count` logits on the host, e.g. one row of culet_outputs.logits. `state` is the
 * random numbers' state: any seed at first, changed by each draw; the same seed and logits give the
 * same tokens. `sampling` null, or a temperature of 0, needs no state; its seed must be 0.
 * Errors: INVALID_ARGUMENT for options outside their range and for a logit that is NaN or infinite
 * (minus infinity leaves a token out, but not all of them). */
CULET_API culet_status culet_sample(const float* logits, int32_t count,
                                    const culet_sampling* sampling, uint64_t* state,
                                    int32_t* token);

#ifdef __cplusplus
}
#endif
