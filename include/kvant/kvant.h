// kvant for programs in C, and for whatever calls C: models, tokenizers, chat templates, sequences
// and their cache, grammars, samplers, batches, beam searches, conversations, vectors of texts. C99
// and C++; the library is libkvant.so.
//
// Calls return a kvant_status; kvant_last_error() tells in one line what was expected and found. A
// failed call changes nothing unless it says so. Nothing is thrown, printed or aborted.
// Handles are opaque, independent of each other's lifetime, and freed in any order; NULL may be
// freed. Texts are UTF-8 with a length in bytes. Arrays are borrowed for the call; what a call
// returns as `T**` with a count is memory of the caller, to be given to kvant_free(). Structs begin
// with their size, which the caller sets; ..._default() fills them in. Flags are 0 or 1.
//
// Threads: models, tokenizers, templates and grammars may be used by any number of threads at once;
// all other handles by one at a time, and a runner not from its own callbacks: KVANT_INVALID then.
// Only kvant_runner_cancel(), kvant_conversation_cancel() and kvant_embedder_cancel() may be called
// at any time from any thread. Different handles are independent, but for batches, searches and
// conversations, which use their runner.
#ifndef KVANT_KVANT_H_INCLUDED
#define KVANT_KVANT_H_INCLUDED

#include <stddef.h>
#include <stdint.h>

#define KVANT_ABI_VERSION 1  // grows when a program must be compiled again

#if defined(_WIN32)
#define KVANT_API
#else
#define KVANT_API __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef int32_t kvant_token;
typedef int32_t kvant_sequence;  // a number within its runner, and so are the next two
typedef int32_t kvant_source;
typedef int32_t kvant_snapshot;

typedef enum kvant_status {
  KVANT_OK = 0,
  KVANT_INVALID = 1,        // a wrong argument, option or token, or a handle in use
  KVANT_NOT_SUPPORTED = 2,  // understood, but this build, model or set of options cannot do it
  KVANT_OUT_OF_MEMORY = 3,
  KVANT_CONTEXT_FULL = 4,  // the sequence does not fit the context
  KVANT_IO = 5,            // the operating system refused: open, read, write, map
  KVANT_CORRUPT = 6,       // a file's content contradicts its format
  KVANT_CANCELLED = 7,     // kvant_runner_cancel(), or a callback that returned other than 0
  KVANT_INTERNAL = 8,      // a bug of kvant
  KVANT_BUSY = 9,          // too much is waiting already; try again later
  KVANT_DEADLINE = 10      // the time that was allowed is over
} kvant_status;

typedef struct kvant_model kvant_model;
typedef struct kvant_tokenizer kvant_tokenizer;
typedef struct kvant_text_stream kvant_text_stream;
typedef struct kvant_template kvant_template;
typedef struct kvant_runner kvant_runner;
typedef struct kvant_grammar kvant_grammar;
typedef struct kvant_sampler kvant_sampler;
typedef struct kvant_batch kvant_batch;
typedef struct kvant_beam_search kvant_beam_search;
typedef struct kvant_tensors kvant_tensors;

// ---- General -----------------------------------------------------------------------------------

KVANT_API uint32_t kvant_abi_version(void);
KVANT_API const char* kvant_version(void);  // "0.1.0"
// "CONTEXT_FULL"; "UNKNOWN" for a number that is no status.
KVANT_API const char* kvant_status_name(kvant_status status);
// The reason why the calling thread's last failed call on this handle failed; with NULL, its last
// failed call of all, such as one that should have made a handle. "" if there was none. Valid until
// the thread's next failed call.
KVANT_API const char* kvant_last_error(const void* handle);
KVANT_API void kvant_free(void* memory);

// Warnings about files, one line each; level 0 debug, 1 information, 2 warning. NULL: nobody gets
// them, as at first. For the whole process, and not while another thread is in a call.
typedef void (*kvant_log_function)(void* user, int32_t level, const char* line, size_t size);
KVANT_API void kvant_set_log(kvant_log_function function, void* user);

// For calls of the calling thread alone: while one computes, or reads a model into memory, it asks
// the function, on this thread, about every 30 ms. Other than 0 ends the call as
// kvant_runner_cancel() does. The function may not use what the call uses. NULL: nobody is asked,
// as at first.
typedef int32_t (*kvant_interrupt_function)(void* user);
KVANT_API void kvant_set_interrupt(kvant_interrupt_function function, void* user);

// ---- Models ------------------------------------------------------------------------------------

// Called while a piece of work goes on, with how much of it is done. A result other than 0 ends the
// work.
typedef int32_t (*kvant_progress_function)(void* user, int64_t done, int64_t total);

typedef struct kvant_model_options {
  size_t struct_size;
  int32_t read_file;          // read the file into memory instead of mapping it
  int32_t lock_memory;        // mlock the mapping
  const char* isa;            // instruction set, NULL: $KVANT_ISA or the best
  const char* float_gemm;     // NULL: $KVANT_FLOAT_GEMM or the preferred
  const char* pre_tokenizer;  // instead of the one that the file names; NULL: that
  // How many bytes of a file are in memory, with read_file for every 64 MiB, and of each file of a
  // split model in turn; may be NULL. Other than 0 ends the opening with KVANT_CANCELLED.
  kvant_progress_function progress;
  void* progress_user;
  // Keys whose effect is left out, with commas between their names; NULL: a file with a key that
  // changes what the model computes, but not here, is refused (KVANT_NOT_SUPPORTED).
  const char* ignore_keys;
  // Load the layers that predict further tokens, with which texts then guess
  // (kvant_request.draft_tokens). A file without such layers is refused (KVANT_NOT_SUPPORTED).
  int32_t predictors;
} kvant_model_options;

typedef struct kvant_model_info {
  size_t struct_size;
  const char* architecture;  // valid as long as the model, and so is the path
  const char* path;
  int32_t vocab_size;         // logits per token
  int32_t has_encoder;        // it reads a source before it writes
  int64_t context_length;     // positions it was trained for
  int64_t source_length;      // positions of a source at most; 0 without an encoder
  kvant_token decoder_start;  // what the text of an encoder-decoder begins with; -1: none
  int32_t cache_layers;       // layers that keep keys and values, or states
  uint64_t parameters;
  uint64_t file_bytes;
  uint64_t fingerprint;  // of metadata and weights
  int64_t frame_bins;  // numbers of each frame of sound that its encoder reads; 0: it reads tokens
  int64_t frames;      // frames of a source
} kvant_model_info;

KVANT_API kvant_status kvant_model_options_default(kvant_model_options* options, size_t size);
// Opens a GGUF file, or all files of a split model given one. `options` may be NULL.
KVANT_API kvant_status kvant_model_open(const char* path, const kvant_model_options* options,
                                        kvant_model** model);
KVANT_API void kvant_model_free(kvant_model* model);
KVANT_API kvant_status kvant_model_get_info(const kvant_model* model, kvant_model_info* info);
// The metadata of the file: keys in its order, NULL beyond the last; and a value as JSON text.
KVANT_API const char* kvant_model_metadata_key(const kvant_model* model, size_t index);
KVANT_API kvant_status kvant_model_metadata(const kvant_model* model, const char* key, char** json,
                                            size_t* size);

// ---- Tokenizers --------------------------------------------------------------------------------

enum {
  KVANT_ADD_SPECIAL = 1,    // encode: BOS, EOS or CLS, SEP where the file asks for them
  KVANT_PARSE_SPECIAL = 2,  // encode: control tokens in the text become their ids
  KVANT_SHOW_SPECIAL = 4,   // decode: control tokens appear as their names
  KVANT_IGNORE_END = 8,     // streams: end tokens are tokens like others
  KVANT_IS_CONTROL = 16,    // kvant_tokenizer_flags
  KVANT_IS_END = 32         // it ends a text
};

typedef struct kvant_tokenizer_info {
  size_t struct_size;
  const char* kind;  // "spm", "bpe", "wordpiece", "unigram", "rwkv"; valid as long as the handle
  int32_t vocab_size;
  kvant_token bos, eos, eot, unk, sep, pad, mask, cls;  // -1: there is none
  int32_t add_bos;
  int32_t add_eos;
} kvant_tokenizer_info;

KVANT_API kvant_status kvant_tokenizer_of_model(const kvant_model* model,
                                                kvant_tokenizer** tokenizer);
// Reads the vocabulary of a file and looks at none of its weights.
KVANT_API kvant_status kvant_tokenizer_open(const char* path, kvant_tokenizer** tokenizer);
KVANT_API void kvant_tokenizer_free(kvant_tokenizer* tokenizer);
KVANT_API kvant_status kvant_tokenizer_get_info(const kvant_tokenizer* tokenizer,
                                                kvant_tokenizer_info* info);
KVANT_API kvant_status kvant_tokenizer_encode(const kvant_tokenizer* tokenizer, const char* text,
                                              size_t size, uint32_t flags, kvant_token** tokens,
                                              size_t* count);
// The tokens of a prompt: BOS where the file asks for it, control tokens, never an end token.
KVANT_API kvant_status kvant_tokenizer_prompt(const kvant_tokenizer* tokenizer, const char* text,
                                              size_t size, kvant_token** tokens, size_t* count);
// The text, also terminated by a 0 that is not counted.
KVANT_API kvant_status kvant_tokenizer_decode(const kvant_tokenizer* tokenizer,
                                              const kvant_token* tokens, size_t count,
                                              uint32_t flags, char** text, size_t* size);
// The bytes of one token in running text, possibly a part of a character.
KVANT_API kvant_status kvant_tokenizer_token_bytes(const kvant_tokenizer* tokenizer,
                                                   kvant_token token, uint32_t flags, char** bytes,
                                                   size_t* size);
// The entry of the vocabulary; valid as long as the handle. NULL for a token outside it.
KVANT_API const char* kvant_tokenizer_piece(const kvant_tokenizer* tokenizer, kvant_token token,
                                            size_t* size);
// KVANT_IS_CONTROL, KVANT_IS_END; 0 for a token outside the vocabulary.
KVANT_API uint32_t kvant_tokenizer_flags(const kvant_tokenizer* tokenizer, kvant_token token);

// Text from tokens as they come: pieces of complete characters. Text that may still become a stop
// text is held back.
typedef enum kvant_stream_state {
  KVANT_STREAM_OPEN = 0,
  KVANT_STREAM_END_TOKEN = 1,  // the token just taken ends the text and is no part of it
  KVANT_STREAM_STOP_TEXT = 2
} kvant_stream_state;
KVANT_API kvant_status kvant_text_stream_new(const kvant_tokenizer* tokenizer,
                                             const char* const* stop_texts, size_t count,
                                             uint32_t flags, kvant_text_stream** stream);
KVANT_API void kvant_text_stream_free(kvant_text_stream* stream);
// `piece` is valid until the next call on the stream. `state` may be NULL.
KVANT_API kvant_status kvant_text_stream_push(kvant_text_stream* stream, kvant_token token,
                                              const char** piece, size_t* size,
                                              kvant_stream_state* state);
// The bytes that the stream has held back.
KVANT_API kvant_status kvant_text_stream_finish(kvant_text_stream* stream, const char** piece,
                                                size_t* size);

// ---- Chat templates ----------------------------------------------------------------------------

typedef struct kvant_template_options {
  size_t struct_size;
  int32_t add_generation_prompt;  // end with what the assistant's message begins with
  int32_t enable_thinking;        // the variable of this name; -1: it does not exist
  const char* tools;              // a JSON array; NULL: none
  const char* variables;          // a JSON object of further variables; NULL: none
  int64_t now;                    // seconds since 1970 for strftime_now; INT64_MIN: the clock
} kvant_template_options;

KVANT_API kvant_status kvant_template_options_default(kvant_template_options* options, size_t size);
KVANT_API kvant_status kvant_template_of_model(const kvant_model* model, kvant_template** out);
// The name of a template that comes with kvant, or the path of a file.
KVANT_API kvant_status kvant_template_named(const kvant_model* model, const char* name_or_path,
                                            kvant_template** out);
KVANT_API kvant_status kvant_template_parse(const kvant_model* model, const char* name,
                                            const char* source, size_t size, kvant_template** out);
KVANT_API void kvant_template_free(kvant_template* chat_template);
// Messages are a JSON array: [{"role": "user", "content": "..."}, ...]. `options` may be NULL.
KVANT_API kvant_status kvant_template_render(const kvant_template* chat_template,
                                             const char* messages, size_t messages_size,
                                             const kvant_template_options* options, char** text,
                                             size_t* size);
// Control tokens come from text that the template wrote, never from text of messages.
KVANT_API kvant_status kvant_template_tokens(const kvant_template* chat_template,
                                             const char* messages, size_t messages_size,
                                             const kvant_template_options* options,
                                             kvant_token** tokens, size_t* count);

#ifdef __cplusplus
}
#endif

// clang-format off: conversations need the two others
#include "kvant/kvant_conversation.h"
#include "kvant/kvant_embed.h"
#include "kvant/kvant_generate.h"
#include "kvant/kvant_runner.h"
// clang-format on

#endif  // KVANT_KVANT_H_INCLUDED
