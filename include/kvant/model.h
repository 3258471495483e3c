// A model that is ready to run: the mapped file, its architecture, tokenizer, weights and plan.
//
// Weights are used where they lie in the mapped file; Open checks every tensor's name, type and
// shape but reads no weight data. Thread-safety: const after Open; any number of sessions may share
// one model.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kvant/file_access.h"
#include "kvant/result.h"
#include "kvant/tokenizer.h"

namespace kvant {

struct Adapter;
struct ModelDefaults;
namespace formats {
class GgufFile;
}
namespace cpu {
struct KernelTable;
struct FloatGemm;
}  // namespace cpu
namespace arch {
struct ModelSpec;
}
namespace graph {
class AdapterSet;
class MatMulObserver;
class Plan;
struct CacheLayer;
}  // namespace graph

// Frames of features that an encoder reads: `bins` values in each frame, and exactly `frames`
// frames.
struct FrameShape {
  int64_t bins = 0;
  int64_t frames = 0;
  bool operator==(const FrameShape&) const = default;
};

struct ModelOptions {
  FileAccess access = FileAccess::kMap;
  bool lock_memory = false;    // mlock the mapping
  ReadProgress progress = {};  // of each file of a split model in turn
  TokenizerOptions tokenizer = {};
  std::string isa = {};         // "" = $KVANT_ISA or the best; see cpu::ChooseKernels
  std::string float_gemm = {};  // "" = $KVANT_FLOAT_GEMM or the preferred; see cpu::ChooseFloatGemm
  // Keys that change what the model computes, but not here: the file is opened without that effect.
  // Names with or without the architecture. kInvalid for a key that is read.
  std::vector<std::string> ignored_keys = {};
  // Low-rank additions that sequences may use (Runner::SetAdapters), by number. kInvalid for
  // shapes that are not the model's; kNotSupported, with the tensor, where one cannot be added to.
  std::vector<std::shared_ptr<const Adapter>> adapters = {};
  // Also loads the layers at the end of the file that predict further tokens, for a PredictedDraft
  // (draft.h): one more cache layer each. kNotSupported for a file without such layers, and without
  // a KV cache.
  bool predictors = false;
  // Gets the inputs of all matrix products of every session on this model, so there should be only
  // one session. Must outlive the model. Null: there is no observer.
  graph::MatMulObserver* observer = nullptr;
};

class Model {
 public:
  // Opens the file (any shard of a split model). kNotSupported for an unknown architecture, with
  // the list of known ones, and for a key that changes what the model computes, but not here;
  // kCorrupt for missing tensors, wrong shapes or contradicting metadata.
  static Result<std::shared_ptr<const Model>> Open(const std::string& path,
                                                   const ModelOptions& options = {});
  // Creates a model from a file that is open already, in whatever way: `access` and `progress` have
  // no effect. Errors are those of Open.
  static Result<std::shared_ptr<const Model>> Create(formats::GgufFile&& file,
                                                     const ModelOptions& options = {});
  ~Model();

  const formats::GgufFile& file() const { return *file_; }
  // The tokenizer of the texts that the model writes, and of those that it reads where there is no
  // encoder.
  const Tokenizer& tokenizer() const { return *tokenizer_; }
  // The tokenizer of the sources of an encoder; in most models tokenizer() serves both.
  const Tokenizer& source_tokenizer() const {
    return source_tokenizer_ == nullptr ? *tokenizer_ : *source_tokenizer_;
  }
  const arch::ModelSpec& spec() const { return *spec_; }
  // A model has a plan for each thing it can compute: "decode" (graph::kDecodePlan) turns tokens
  // into logits. There must be one of this name.
  const graph::Plan& plan(std::string_view name) const;
  const graph::Plan& plan() const;  // "decode"
  // Encoder-decoders have another one, "encode" (graph::kEncodePlan), and read a source before they
  // write: Runner::Encode.
  bool has_encoder() const;
  // Rows of the encoder's embedding; 0 for models without an encoder.
  int32_t source_vocab_size() const;
  // Positions of a source, at most; 0 for models without an encoder.
  int64_t source_length() const;
  // The frames that the encoder reads instead of tokens, as Whisper's reads frames of sound
  // (Runner::EncodeFrames); nothing for other models.
  std::optional<FrameShape> frame_shape() const;
  // An encoder alone gives rows (SourceOptions::rows) and writes no text.
  bool has_decoder() const;
  // The file asks for vectors or scores of texts, not for texts: its rows are pooled, or positions
  // see those after them. Then there is neither a decoder nor an encoder; see embed.h.
  bool is_embedder() const;
  // kNotSupported for a model without a decoder.
  Status CheckDecoder() const;
  // The token that the text of an encoder-decoder begins with, as the file says it, or BOS; nothing
  // where there is neither.
  std::optional<TokenId> decoder_start() const;
  // The options that the model's file recommends where a user asks for nothing else
  // (model_defaults.h).
  const ModelDefaults& defaults() const { return *defaults_; }
  // The cache layers for all plans: keys and values, or states.
  std::span<const graph::CacheLayer> cache_layers() const;
  const cpu::KernelTable& kernels() const { return *kernels_; }
  const cpu::FloatGemm& float_gemm() const { return *float_gemm_; }

  // How many layers predict further tokens; 0 unless ModelOptions asked for them.
  int64_t predictors() const;
  int64_t hidden_dim() const;  // floats of the rows that these read
  int adapters() const;        // how many ModelOptions::adapters has
  std::string_view architecture() const;
  int64_t context_length() const;  // positions the model was trained for
  int32_t vocab_size() const;      // rows of the output matrix = logits per token
  // The floats of a row that can stand in place of a token's embedding (Runner::AddRows); 0 where
  // none can, because layers read ids of tokens or there is no decoder.
  int64_t row_dim() const;

  // Identifies the model in files that are made for it: XXH64 of all metadata and tensor
  // descriptions and of the first and last 4 KiB of every tensor's data.
  uint64_t Fingerprint() const;

  // The plans as text, one node a line: operation, shapes, kernels, buffers.
  std::string DescribePlan() const;

 private:
  explicit Model(std::unique_ptr<formats::GgufFile> file);
  Status MakePlans(graph::MatMulObserver* observer);
  Status CheckVocabulary() const;
  void ReadDefaults();

  std::unique_ptr<formats::GgufFile> file_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::unique_ptr<Tokenizer> source_tokenizer_;  // null: tokenizer_
  std::unique_ptr<arch::ModelSpec> spec_;
  std::shared_ptr<const ModelDefaults> defaults_;
  std::unique_ptr<graph::AdapterSet> adapters_;  // null: there are none; plans refer to it
  std::vector<std::unique_ptr<graph::Plan>> plans_;
  const cpu::KernelTable* kernels_ = nullptr;
  const cpu::FloatGemm* float_gemm_ = nullptr;
};

// The model's tokenizer, as an owner of the model.
inline std::shared_ptr<const Tokenizer> SharedTokenizer(std::shared_ptr<const Model> model) {
  const Tokenizer* const tokenizer = &model->tokenizer();
  return {std::move(model), tokenizer};
}

// The architectures that Model::Open accepts.
struct KnownArchitecture {
  std::string_view name;    // general.architecture: "llama"
  std::string_view models;  // "Llama 1 to 3, Mistral, TinyLlama"
};
std::vector<KnownArchitecture> KnownArchitectures();

}  // namespace kvant
