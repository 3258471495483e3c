// Vectors of texts, and scores of pairs of texts: embedding models and rerankers.
//
//   rows   = final_norm(layers(tokens of the text))               [tokens][dim]
//   vector = normalize(dense layers(pool(rows)) cut to `dimensions`)
//   logits = output . norm(activation(cls . pool(rows)))          [labels], of rerankers
//
// Any decoder or encoder can be asked for rows. An embedding model's file says how they are pooled
// (pooling_type) and whether a position sees those after it (attention.causal). Several texts are
// rows of one pass, without padding; a text sees nothing of the others, and no cache is kept. All
// tokens of a text are in one pass, so memory grows with the longest one.
//
// The bits of a vector depend on its text, the model and the instruction set, but neither on the
// other texts of a call nor on the number of threads.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kvant/model.h"
#include "kvant/pooling.h"
#include "kvant/result.h"
#include "kvant/thread_placement.h"
#include "kvant/token_id.h"

namespace kvant {

// Rows that a pass is filled with, where texts are shorter: they stay in second-level caches.
inline constexpr int64_t kDefaultEmbedRows = 512;

struct EmbedOptions {
  // 0 = the performance cores, or the CPUs that `placement` leaves.
  int threads = 0;
  ThreadPlacement placement = {};
  // Most tokens of a text; 0 = those that the model was trained for. kInvalid where the model has
  // learned fewer positions.
  int64_t context = 0;
  // Texts are put into one pass up to this many tokens; a longer text is a pass of its own.
  int64_t batch_tokens = kDefaultEmbedRows;
  // Nothing: as the file says, where it does. kInvalid for a file that does not say it, and for
  // kRank where it has no classifier.
  std::optional<Pooling> pooling = {};
  // Read between the phases of every pass; once it is set, calls end with kCancelled.
  const std::atomic<bool>* cancel = nullptr;
};

// The tokens of a text or of a pair of texts.
struct EmbedTokens {
  std::vector<TokenId> ids;
  // The segment of each token, for models with learned rows for them (BERT): 0 for the first text
  // of a pair, 1 for the second. Empty: all are 0.
  std::vector<int32_t> types = {};
};

// Says what becomes of a text of more tokens than the context has.
enum class TooLong : uint8_t {
  kRefused,  // kContextFull, with both numbers
  kCut,      // its last tokens are left out; the special tokens around it stay
};

struct TextOptions {
  std::string_view prompt = {};  // put in front of the text, as sentence-transformers does
  TooLong too_long = TooLong::kRefused;
};

// A prefix that a model's folder names: "query" -> "search_query: ".
struct EmbedPrompt {
  std::string name;
  std::string text;
};

struct VectorOptions {
  // The norm that a vector is divided by: 2 the Euclidean one, 1 the sum of magnitudes, another p
  // > 0 that p-norm; 0 scales the largest magnitude to 32760; -1 changes nothing. A vector of zeros
  // stays as it is. Rows without pooling (kNone) are never changed.
  double normalize = 2;
  // Keeps the first values and normalizes them, for models that were trained so (Matryoshka); 0 =
  // all. kInvalid beyond Embedder::dim(), and with kNone.
  int64_t dimensions = 0;
};

// The vectors of a call.
struct Embeddings {
  int64_t dim = 0;
  std::vector<float> values;        // [rows][dim], in the order of the texts
  std::vector<int64_t> first_rows;  // [texts + 1]: a text's rows, one each but with kNone

  int64_t texts() const { return static_cast<int64_t>(first_rows.size()) - 1; }
  std::span<const float> RowsOf(int64_t text) const {
    const int64_t first = first_rows[static_cast<size_t>(text)];
    const int64_t end = first_rows[static_cast<size_t>(text + 1)];
    return std::span(values).subspan(static_cast<size_t>(first * dim),
                                     static_cast<size_t>((end - first) * dim));
  }
};

enum class ScoreKind : uint8_t {
  kRaw,          // the logit; of two labels (yes, no), the first logit less the second
  kProbability,  // 1 / (1 + e^-raw), which is the softmax of two labels
};

// The logits of a call.
struct Ranking {
  int64_t labels = 0;
  std::vector<float> logits;  // [texts][labels]

  std::span<const float> LogitsOf(int64_t text) const {
    return std::span(logits).subspan(static_cast<size_t>(text * labels),
                                     static_cast<size_t>(labels));
  }
  // The score of a text, larger for a more relevant document. Takes one or two labels.
  float Score(int64_t text, ScoreKind kind) const;
};

// The bytes of memory that an embedder takes.
struct EmbedMemory {
  uint64_t weights = 0;      // mapped from the file
  uint64_t activations = 0;  // buffers of a pass of batch_tokens, or of one text of the context
  uint64_t total() const { return weights + activations; }
};

// Runs a model over texts. Thread-safety: one call of Embed or Rank at a time; the other functions
// are const and may run beside it. A caller may set the flags of cancellation from any thread.
class Embedder {
 public:
  // kInvalid for impossible options, and where the file does not say how rows are pooled;
  // kNotSupported for a model that reads frames of sound or whose decoder needs a source.
  static Result<std::unique_ptr<Embedder>> Create(std::shared_ptr<const Model> model,
                                                  const EmbedOptions& options);
  ~Embedder();
  // The memory that an embedder will take, before anything is reserved. Errors are those of Create.
  static Result<EmbedMemory> PlanMemory(std::shared_ptr<const Model> model,
                                        const EmbedOptions& options);

  // The ids of a text: its prompt and its bytes, with the special tokens that the tokenizer's flags
  // ask for. Names of control tokens in the text are text. kInvalid for a text that is empty;
  // kContextFull, see TooLong.
  Result<EmbedTokens> Tokens(std::string_view text, const TextOptions& options = {}) const;
  // The ids of a query and a document: by the template tokenizer.chat_template.rerank, whose
  // {query} and {document} are replaced by ids of the texts, so that these cannot become control
  // tokens; else [BOS] query [EOS] [SEP] document [EOS] by the tokenizer's flags. Only the document
  // is cut. kInvalid for a text that is empty; kContextFull.
  Result<EmbedTokens> PairTokens(std::string_view query, std::string_view document,
                                 TooLong too_long = TooLong::kRefused) const;

  // The vectors of the texts, in their order. kInvalid for a text without tokens, with an id that
  // the vocabulary lacks, or with an unknown segment, by its number from 0, and for kRank;
  // kContextFull; kOutOfMemory; kCancelled: then there are no vectors.
  Result<Embeddings> Embed(std::span<const EmbedTokens> texts, const VectorOptions& options = {},
                           const std::atomic<bool>* cancel = nullptr);

  // The logits of the texts, mostly of PairTokens. Errors are those of Embed; kInvalid unless
  // pooling() is kRank.
  Result<Ranking> Rank(std::span<const EmbedTokens> texts,
                       const std::atomic<bool>* cancel = nullptr);

  const Model& model() const;
  Pooling pooling() const;
  int64_t dim() const;      // of a vector, before it is cut
  int64_t context() const;  // most tokens of a text
  int threads() const;
  // Labels of the classifier, 0 without one, and their names where the file has them.
  int64_t labels() const;
  std::span<const std::string> label_names() const;
  const EmbedMemory& memory() const;

  // The prompts of the file, and the name of the one that texts get where a user names none ("":
  // none). Keys: general.prompts.names and general.prompts.texts, arrays of strings of one length;
  // general.prompts.default.
  std::span<const EmbedPrompt> prompts() const;
  std::string_view default_prompt() const;
  // The prefix of a name, or of the default where it is empty. kInvalid for an unknown name, with
  // those that there are.
  Result<std::string_view> PromptText(std::string_view name) const;

 private:
  struct Parts;
  explicit Embedder(std::unique_ptr<Parts> parts);

  std::unique_ptr<Parts> parts_;
};

}  // namespace kvant
