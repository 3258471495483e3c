// A part of kvant/kvant.h: runners, which hold token sequences and their cache. Sequences that were
// forked share what they have in common; a step takes tokens of any number of sequences.
//
// A step that is refused (KVANT_INVALID, KVANT_CONTEXT_FULL, KVANT_OUT_OF_MEMORY) changes nothing;
// one that is cancelled keeps the passes that were complete: kvant_sequence_length() tells. The
// bits of a sequence do not depend on what it shares a step with.
#include "kvant/kvant.h"  // first: it includes all parts in their order

#ifndef KVANT_KVANT_RUNNER_H_INCLUDED
#define KVANT_KVANT_RUNNER_H_INCLUDED

#ifdef __cplusplus
extern "C" {
#endif

typedef enum kvant_kv_type { KVANT_F32 = 0, KVANT_F16 = 1, KVANT_Q8 = 2 } kvant_kv_type;

// The parts that a CUDA device computes (SessionOptions::offload), and the memory for keys and
// values of offloaded layers: the device's as far as it has room, the device's for all of them, or
// the host's.
typedef enum kvant_offload { KVANT_OFFLOAD_NONE = 0, KVANT_OFFLOAD_ATTENTION = 1 } kvant_offload;
typedef enum kvant_kv_device {
  KVANT_KV_DEVICE_AUTO = 0,
  KVANT_KV_DEVICE_CUDA = 1,
  KVANT_KV_DEVICE_CPU = 2
} kvant_kv_device;

// Where threads run: anywhere, each on a CPU of its own (one on every core first), or on the CPUs
// of a list one after the other. And where memory lies on machines with several nodes: anywhere,
// spread over all of them with each thread's rows of weights on its own node, or all on the node of
// the caller.
typedef enum kvant_pin { KVANT_PIN_NONE = 0, KVANT_PIN_CORES = 1, KVANT_PIN_LIST = 2 } kvant_pin;
typedef enum kvant_numa {
  KVANT_NUMA_NONE = 0,
  KVANT_NUMA_DISTRIBUTE = 1,
  KVANT_NUMA_ISOLATE = 2
} kvant_numa;

typedef struct kvant_runner_options {
  size_t struct_size;
  int64_t context;        // positions of a sequence; 0: what the model was trained for
  int64_t sequences;      // that may exist at the same time; of encoder-decoders, sources too
  int64_t chunk;          // tokens of a pass at most
  int32_t threads;        // 0: as many as are useful
  int32_t kv_cache;       // 0: every step computes the whole sequence again
  int32_t k_type;         // kvant_kv_type of the keys
  int32_t v_type;         // and of the values
  int32_t source_k_type;  // of what is kept of sources; -1: as above
  int32_t source_v_type;
  int32_t state_type;         // of recurrent layers: KVANT_F32 or KVANT_F16
  int32_t strict;             // prefill and decode give the same bits
  int32_t prefix_cache;       // keep what sequences leave behind for prompts that begin alike
  int32_t kv_commit;          // touch all memory of the cache now
  int32_t kv_rotation;        // rotate 8-bit keys and values
  int32_t kv_check;           // test invariants after every operation
  int32_t kv_poison;          // fill freed blocks with NaN
  uint64_t kv_bytes_max;      // most bytes of cache in use; 0: what all sequences may need
  int64_t state_checkpoints;  // earlier states of recurrent layers that a sequence keeps
  int64_t state_log;          // last tokens that can be taken back without computing; 0: none
  int32_t offload;            // kvant_offload
  int32_t kv_device;          // kvant_kv_device
  int32_t pin;                // kvant_pin
  int32_t numa;               // kvant_numa
  const int32_t* cpus;        // of KVANT_PIN_LIST; from kvant_runner_get_options, the runner's own
  size_t cpu_count;
  uint64_t
      prefix_bytes_max;  // with prefix_cache: most bytes that it refers to; 0: it keeps nothing
} kvant_runner_options;

typedef struct kvant_memory_plan {
  size_t struct_size;
  uint64_t weights, kv, activations, logits, encoder, total;  // bytes
} kvant_memory_plan;

typedef struct kvant_runner_stats {
  size_t struct_size;
  uint64_t kv_bytes_used, kv_bytes_peak, kv_bytes_committed, kv_bytes_capacity;
  uint64_t kv_bytes_written, kv_bytes_copied, kv_blocks_taken, kv_blocks_copied;
  uint64_t rewinds, replays;
  uint64_t tokens_processed, tokens_replayed, tokens_scanned, tokens_reused;
  uint64_t passes, encoder_passes;
  int64_t sequences, snapshots;
  uint64_t prefix_bytes;  // blocks in use that the prefix cache refers to
} kvant_runner_stats;

KVANT_API kvant_status kvant_runner_options_default(kvant_runner_options* options, size_t size);
// The memory that a runner will take, before anything is reserved.
KVANT_API kvant_status kvant_plan_memory(const kvant_model* model,
                                         const kvant_runner_options* options,
                                         kvant_memory_plan* plan);
// `options` may be NULL: one sequence.
KVANT_API kvant_status kvant_runner_new(const kvant_model* model,
                                        const kvant_runner_options* options, kvant_runner** runner);
KVANT_API void kvant_runner_free(kvant_runner* runner);
// The options with every default filled in.
KVANT_API kvant_status kvant_runner_get_options(const kvant_runner* runner,
                                                kvant_runner_options* options);
KVANT_API kvant_status kvant_runner_get_stats(const kvant_runner* runner,
                                              kvant_runner_stats* stats);
// From any thread: the call under way ends with KVANT_CANCELLED, or if there is none, the next one
// that computes. Each cancellation ends one call; kvant_runner_resume() takes one back.
KVANT_API void kvant_runner_cancel(kvant_runner* runner);
KVANT_API void kvant_runner_resume(kvant_runner* runner);
// A line for everything that happens to the cache; level is 1. NULL ends it.
KVANT_API kvant_status kvant_runner_set_kv_log(kvant_runner* runner, kvant_log_function function,
                                               void* user);
// Tests the cache's invariants.
KVANT_API kvant_status kvant_runner_check(kvant_runner* runner);

// ---- Sequences ---------------------------------------------------------------------------------

KVANT_API kvant_status kvant_sequence_new(kvant_runner* runner, kvant_sequence* sequence);
KVANT_API kvant_status kvant_sequence_free(kvant_runner* runner, kvant_sequence sequence);
KVANT_API kvant_status kvant_sequence_reset(kvant_runner* runner, kvant_sequence sequence);
// The position of the next token; -1 if there is no such sequence.
KVANT_API int64_t kvant_sequence_length(const kvant_runner* runner, kvant_sequence sequence);
// NULL if there are none. Valid until a call that changes the sequence, and so are logits.
KVANT_API const kvant_token* kvant_sequence_tokens(const kvant_runner* runner,
                                                   kvant_sequence sequence, size_t* count);
// The logits of the last token, [vocab]. NULL before the first step, and after a rewind, a prune or
// an import until kvant_sequence_compute_logits().
KVANT_API const float* kvant_sequence_logits(const kvant_runner* runner, kvant_sequence sequence,
                                             size_t* count);
// Copies the logits into memory of the caller, [count]; KVANT_INVALID where there are no logits or
// another number of them.
KVANT_API kvant_status kvant_sequence_copy_logits(const kvant_runner* runner,
                                                  kvant_sequence sequence, float* logits,
                                                  size_t count);
KVANT_API kvant_status kvant_sequence_append(kvant_runner* runner, kvant_sequence sequence,
                                             const kvant_token* tokens, size_t count);
// Appends tokens in passes; after each pass `progress` gets the number of tokens that are done. A
// result other than 0 ends the call with KVANT_CANCELLED.
KVANT_API kvant_status kvant_sequence_append_telling(kvant_runner* runner, kvant_sequence sequence,
                                                     const kvant_token* tokens, size_t count,
                                                     kvant_progress_function progress, void* user);
// Draws a token from the sequence's logits, tells the sampler, appends it and returns it. The
// sequence is unchanged if that fails, but for the sampler, if the step does.
KVANT_API kvant_status kvant_sequence_generate(kvant_runner* runner, kvant_sequence sequence,
                                               kvant_sampler* sampler, kvant_token* token);
// Gives an empty sequence the cached beginning of a prompt; how many tokens that has.
KVANT_API kvant_status kvant_sequence_reuse_prefix(kvant_runner* runner, kvant_sequence sequence,
                                                   const kvant_token* prompt, size_t count,
                                                   int64_t* reused);
KVANT_API kvant_status kvant_sequence_fork(kvant_runner* runner, kvant_sequence sequence,
                                           kvant_sequence* copy);
// All i at once: sequences[i] becomes what sequences[parents[i]] was.
KVANT_API kvant_status kvant_sequence_reorder(kvant_runner* runner, const kvant_sequence* sequences,
                                              const int32_t* parents, size_t count);
// Keeps the first `length` tokens, as if no more had been processed. What a window has dropped is
// computed again if `replay` is 1, else that is KVANT_NOT_SUPPORTED.
KVANT_API kvant_status kvant_sequence_rewind(kvant_runner* runner, kvant_sequence sequence,
                                             int64_t length, int32_t replay);
KVANT_API kvant_status kvant_sequence_compute_logits(kvant_runner* runner, kvant_sequence sequence);
// Forgets all but the first and the last tokens; the later ones move to earlier positions, or keep
// theirs.
KVANT_API kvant_status kvant_sequence_prune(kvant_runner* runner, kvant_sequence sequence,
                                            int64_t keep_first, int64_t keep_last, int32_t move);

typedef enum kvant_logits {
  KVANT_LOGITS_NONE = 0,
  KVANT_LOGITS_LAST = 1,  // the sequence keeps those of the last token
  KVANT_LOGITS_ALL = 2    // the step's callback gets them, too
} kvant_logits;

typedef struct kvant_step_input {
  kvant_sequence sequence;
  int32_t logits;  // kvant_logits
  const kvant_token* tokens;
  size_t count;
} kvant_step_input;

// The logits [vocab] of a token of an input; valid during the call. Other than 0: the pass is
// undone and the step ends with KVANT_CANCELLED.
typedef int32_t (*kvant_row_function)(void* user, size_t input, int64_t token, const float* logits,
                                      size_t vocab);
// New tokens of different sequences. `rows` may be NULL.
KVANT_API kvant_status kvant_runner_step(kvant_runner* runner, const kvant_step_input* inputs,
                                         size_t count, kvant_row_function rows, void* user);

// ---- Log-probabilities of given tokens ----------------------------------------------------------

typedef struct kvant_score_text {
  const kvant_token* tokens;
  size_t count;
  size_t first;               // tokens[first] and those after it are scored; at least 1
  double* log_probs;          // [count - first], natural logarithms; may be NULL
  kvant_token* likeliest;     // [count - first], the likeliest token in each place; may be NULL
  const kvant_token* source;  // what an encoder-decoder reads before; NULL: nothing
  size_t source_count;
} kvant_score_text;

// Scores texts, those with the same beginning together. The runner's sequences are left alone; it
// needs room for one more, and uses what other room it has.
KVANT_API kvant_status kvant_runner_score(kvant_runner* runner, const kvant_score_text* texts,
                                          size_t count);

// ---- Snapshots, files, tensors ------------------------------------------------------------------

KVANT_API kvant_status kvant_snapshot_take(kvant_runner* runner, kvant_sequence sequence,
                                           kvant_snapshot* snapshot);
KVANT_API kvant_status kvant_snapshot_restore(kvant_runner* runner, kvant_sequence sequence,
                                              kvant_snapshot snapshot);
KVANT_API kvant_status kvant_snapshot_drop(kvant_runner* runner, kvant_snapshot snapshot);

// A later process continues saved sequences with the same bits. Loading makes new sequences.
KVANT_API kvant_status kvant_runner_save(kvant_runner* runner, const char* path,
                                         const kvant_sequence* sequences, size_t count);
KVANT_API kvant_status kvant_runner_load(kvant_runner* runner, const char* path,
                                         kvant_sequence** sequences, size_t* count);

// past_key_values.N.key and .value as [batch, kv head, position, dim], or past_N with both, as
// [2, batch, ...] or [batch, 2, ...]. Keys are those after the rotary embedding.
typedef enum kvant_kv_layout { KVANT_BHSD = 0, KVANT_KBHSD = 1, KVANT_BKHSD = 2 } kvant_kv_layout;

typedef struct kvant_tensor {
  size_t struct_size;
  const char* name;
  size_t dims;
  const int64_t* shape;  // [dims]
  const float* values;
  size_t count;
} kvant_tensor;

// The caches of sequences of one length.
KVANT_API kvant_status kvant_tensors_export(kvant_runner* runner, const kvant_sequence* sequences,
                                            size_t count, kvant_kv_layout layout,
                                            kvant_tensors** tensors);
KVANT_API kvant_status kvant_tensors_import(kvant_runner* runner, const kvant_tensors* tensors,
                                            kvant_kv_layout layout, kvant_sequence** sequences,
                                            size_t* count);
// The tokens are [batch][length]. What is added is copied.
KVANT_API kvant_status kvant_tensors_new(const kvant_token* tokens, size_t batch, size_t length,
                                         kvant_tensors** tensors);
KVANT_API kvant_status kvant_tensors_add(kvant_tensors* tensors, const char* name,
                                         const int64_t* shape, size_t dims, const float* values);
KVANT_API void kvant_tensors_free(kvant_tensors* tensors);
KVANT_API size_t kvant_tensors_count(const kvant_tensors* tensors);
// Valid as long as the handle and until something is added.
KVANT_API kvant_status kvant_tensors_get(const kvant_tensors* tensors, size_t index,
                                         kvant_tensor* tensor);
// NULL beyond the last sequence.
KVANT_API const kvant_token* kvant_tensors_tokens(const kvant_tensors* tensors, size_t sequence,
                                                  size_t* count);
// As a safetensors file.
KVANT_API kvant_status kvant_tensors_write(const kvant_tensors* tensors, const char* path);
KVANT_API kvant_status kvant_tensors_read(const char* path, kvant_tensors** tensors);

// ---- Rows --------------------------------------------------------------------------------------

// Registers rows of an image or of sound: `count` floats in all, as many for each row as the
// model's embeddings have. The first row gets the id `first`, which is no less than the vocabulary,
// and the rows behind it get the ids that follow. A sequence takes these ids among its tokens, and
// keeps the rows. Equal rows have equal ids. Every call is one more reference, which
// kvant_runner_free_rows() gives back.
KVANT_API kvant_status kvant_runner_add_rows(kvant_runner* runner, const float* rows, size_t count,
                                             kvant_token* first);
KVANT_API kvant_status kvant_runner_free_rows(kvant_runner* runner, kvant_token first);

// ---- Sources -----------------------------------------------------------------------------------

// Called with the encoder's output, [positions][dim], which is valid during the call. Other than 0
// ends the call with KVANT_CANCELLED.
typedef int32_t (*kvant_encoded_function)(void* user, const float* rows, size_t count);

// Encodes the source that an encoder-decoder reads before it writes, or finds the source that the
// same tokens gave before. Every call is one more reference. `rows` may be NULL.
KVANT_API kvant_status kvant_source_new(kvant_runner* runner, const kvant_token* tokens,
                                        size_t count, kvant_encoded_function rows, void* user,
                                        kvant_source* source);
// Encodes frames of sound, [frame_bins][frames] values (see kvant_model_info), as
// kvant_source_new() does tokens.
KVANT_API kvant_status kvant_source_new_of_frames(kvant_runner* runner, const float* frames,
                                                  size_t count, kvant_encoded_function rows,
                                                  void* user, kvant_source* source);
KVANT_API kvant_status kvant_source_free(kvant_runner* runner, kvant_source source);
// An empty sequence of this source, to which it is one more reference.
KVANT_API kvant_status kvant_sequence_new_of_source(kvant_runner* runner, kvant_source source,
                                                    kvant_sequence* sequence);
KVANT_API kvant_status kvant_sequence_set_source(kvant_runner* runner, kvant_sequence sequence,
                                                 kvant_source source);

#ifdef __cplusplus
}
#endif

#endif  // KVANT_KVANT_RUNNER_H_INCLUDED
