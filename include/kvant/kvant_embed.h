// A part of kvant/kvant.h: vectors of texts, and scores of documents for a query, by embedding
// models and rerankers. Any other model gives vectors, too, where a pooling is chosen.
//
// A vector's bits depend on its text, the model and the instruction set, but neither on the other
// texts of a call nor on the number of threads. A call that fails returns nothing.
#include "kvant/kvant.h"  // first: it includes all parts in their order

#ifndef KVANT_KVANT_EMBED_H_INCLUDED
#define KVANT_KVANT_EMBED_H_INCLUDED

#ifdef __cplusplus
extern "C" {
#endif

// How the rows of a text's tokens become a vector.
typedef enum kvant_pooling {
  KVANT_POOLING_OF_FILE = -1,
  KVANT_POOLING_NONE = 0,  // every token keeps its row
  KVANT_POOLING_MEAN = 1,
  KVANT_POOLING_CLS = 2,   // the row of the first token
  KVANT_POOLING_LAST = 3,  // the row of the last token
  KVANT_POOLING_RANK = 4   // no vector but scores, by the classifier of the file
} kvant_pooling;

typedef struct kvant_embedder kvant_embedder;

typedef struct kvant_embed_options {
  size_t struct_size;
  int32_t threads;       // 0: as many as are useful
  int32_t pooling;       // kvant_pooling; KVANT_INVALID where the file must say it and does not
  int64_t context;       // most tokens of a text; 0: what the model was trained for
  int64_t batch_tokens;  // tokens of short texts that are computed together; no bit depends on it
  int32_t pin;           // kvant_pin
  int32_t numa;          // kvant_numa
  const int32_t* cpus;   // of KVANT_PIN_LIST
  size_t cpu_count;
} kvant_embed_options;

typedef struct kvant_embedder_info {
  size_t struct_size;
  int32_t pooling;  // kvant_pooling
  int32_t threads;
  int64_t dim;      // of a vector
  int64_t context;  // most tokens of a text
  int64_t labels;   // of the classifier; 0 without one
  uint64_t weight_bytes;
  uint64_t activation_bytes;
  const char* default_prompt;  // its name; "": none. Valid as long as the handle
} kvant_embedder_info;

// How texts become vectors.
typedef struct kvant_vector_options {
  size_t struct_size;
  // The norm that a vector is divided by: 2 the Euclidean one, 1 the sum of magnitudes, another
  // p > 0 that p-norm; 0 scales the largest magnitude to 32760; -1 changes nothing.
  double normalize;
  int64_t dimensions;       // keep the first values, and normalize these; 0: all
  int32_t truncate;         // cut texts of more tokens than the context has; 0: they are refused
  const char* prompt_name;  // of the file, put in front of each text; NULL: the file's default
  const char* prefix;       // put in front of each text instead of a prompt of the file; or NULL
} kvant_vector_options;

// A text, or its tokens, which stay as they are.
typedef struct kvant_embed_text {
  const char* text;  // NULL: there are tokens
  size_t size;
  const kvant_token* tokens;
  size_t count;
  const int32_t* types;  // the segment of each token, 0 or 1; NULL: all are 0
} kvant_embed_text;

KVANT_API kvant_status kvant_embed_options_default(kvant_embed_options* options, size_t size);
KVANT_API kvant_status kvant_vector_options_default(kvant_vector_options* options, size_t size);
// `options` may be NULL. KVANT_NOT_SUPPORTED for a model that reads sound or that needs a source.
KVANT_API kvant_status kvant_embedder_new(const kvant_model* model,
                                          const kvant_embed_options* options,
                                          kvant_embedder** embedder);
KVANT_API void kvant_embedder_free(kvant_embedder* embedder);
KVANT_API kvant_status kvant_embedder_get_info(const kvant_embedder* embedder,
                                               kvant_embedder_info* info);
// The prompts of the file in their order: their names, and what stands in front of texts. The
// labels of the classifier, where the file names them. All are NULL beyond the last, and valid as
// long as the handle.
KVANT_API const char* kvant_embedder_prompt_name(const kvant_embedder* embedder, size_t index);
KVANT_API const char* kvant_embedder_prompt_text(const kvant_embedder* embedder, size_t index);
KVANT_API const char* kvant_embedder_label(const kvant_embedder* embedder, size_t index);

// The tokens of a text as kvant_embedder_embed() makes them: with its prompt and special tokens.
// KVANT_INVALID for a text that is empty; KVANT_CONTEXT_FULL. `options` may be NULL.
KVANT_API kvant_status kvant_embedder_tokens(const kvant_embedder* embedder, const char* text,
                                             size_t size, const kvant_vector_options* options,
                                             kvant_token** tokens, size_t* count);
// The tokens of a query with a document, and the segment of each token, [count]; `types` may be
// NULL. Where `truncate` is 1, the document is cut if both do not fit.
KVANT_API kvant_status kvant_embedder_pair_tokens(const kvant_embedder* embedder, const char* query,
                                                  size_t query_size, const char* document,
                                                  size_t document_size, int32_t truncate,
                                                  int32_t** types, kvant_token** tokens,
                                                  size_t* count);

// Vectors of texts one behind the other, [dim or dimensions] each, `count` floats in all. With
// KVANT_POOLING_NONE a text has a vector for each of its tokens; `rows`, [texts] or NULL, gets how
// many each text has. KVANT_INVALID names the text by its number from 0. `options` may be NULL.
KVANT_API kvant_status kvant_embedder_embed(kvant_embedder* embedder, const kvant_embed_text* texts,
                                            size_t text_count, const kvant_vector_options* options,
                                            int64_t* rows, float** vectors, size_t* count);

// A score for each document, larger for one that answers the query better: scores[document_count],
// which the caller has. They lie between 0 and 1, unless `raw` is 1: then they are the model's
// logits. Documents are texts, not tokens. KVANT_INVALID for a classifier of more than two labels.
KVANT_API kvant_status kvant_embedder_rank(kvant_embedder* embedder, const char* query, size_t size,
                                           const kvant_embed_text* documents, size_t document_count,
                                           int32_t truncate, int32_t raw, float* scores);
// The logits of the classifier for texts, [labels] each, `count` floats in all.
KVANT_API kvant_status kvant_embedder_logits(kvant_embedder* embedder,
                                             const kvant_embed_text* texts, size_t text_count,
                                             int32_t truncate, float** logits, size_t* count);

// From any thread: the call under way ends with KVANT_CANCELLED, or if there is none, the next one
// that computes. Each cancellation ends one call.
KVANT_API void kvant_embedder_cancel(kvant_embedder* embedder);

#ifdef __cplusplus
}
#endif

#endif  // KVANT_KVANT_EMBED_H_INCLUDED
