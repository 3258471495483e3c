// A Hugging Face model class, as data: the classes' names, the GGUF architecture that they become,
// which tensor becomes which, and how the class's own settings become metadata. It stands in the
// file of the family (engine/arch/family.h); engine/convert makes use of it.
//
// Sources of the names: the model classes of the transformers library on one side, the GGUF
// specification and llama.cpp's converter on the other.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/arch/hf/hf_shape.h"
#include "engine/arch/hf/hf_tensor.h"
#include "engine/arch/hf/hf_translator.h"
#include "formats/gguf_writer.h"
#include "formats/json_object.h"

namespace kvant::arch {

using formats::JsonObject;

// The keys of config.json that give a family's experts. An empty key: the family has no such
// number.
struct HfExperts {
  std::string_view count;  // empty: the family has no experts
  std::string_view used = "num_experts_per_tok";
  std::string_view ffn = "moe_intermediate_size";
  std::string_view shared_ffn = {};    // the width of the shared expert, or
  std::string_view shared_count = {};  // how many times as wide as the others it is
  bool may_be_none = false;            // some models of the class have none
  int64_t none = 0;                    // numbers up to this mean that there are none
};

// The activation of the gates, by the key that names it in config.json.
struct HfActivation {
  std::string_view key = "hidden_act";
  std::span<const std::string_view> names = {};  // the first is the usual one
};

// A tensor that the folder does not hold: factors computed from the configuration.
struct ComputedTensor {
  std::string name;
  std::vector<float> values;
  int64_t columns = 0;  // 0: it is a vector
};

// Integers that a folder may hold as a tensor, though config.json says what they are.
struct KnownIntegers {
  std::string hf_name;
  std::vector<int64_t> values;
};

// The base of rotary embeddings in most classes.
inline constexpr double kUsualRopeBase = 10000.0;

// The metadata and tensors that a class's settings in config.json become.
struct Parameters {
  formats::GgufWriter* writer = nullptr;
  std::string_view arch;  // general.architecture, the prefix of the keys
  // The class's own, for a config.json without them (HfFamily).
  double rope_base = 0;
  double rope_share = 0;
  std::vector<ComputedTensor> tensors;
  std::vector<KnownIntegers> integers;

  std::string Key(std::string_view name) const { return fmt::format("{}.{}", arch, name); }
};

// The keys of config.json under which a class keeps its sizes. Empty: it has no such key, and
// `finish_shape` of its family gives the size.
struct HfKeys {
  std::string_view layers = "num_hidden_layers";
  std::string_view dim = "hidden_size";
  std::string_view ffn = "intermediate_size";
  std::string_view heads = "num_attention_heads";
  std::string_view kv_heads = "num_key_value_heads";  // where absent: as many as heads
  std::string_view context = "max_position_embeddings";
};

// The small number in norms: its key, and the value of a class that has none.
struct HfEpsilon {
  std::string_view key = "rms_norm_eps";
  std::string_view gguf_key = "attention.layer_norm_rms_epsilon";
  double otherwise = 0;  // 0: the key must be there
};

// A number of rows of a matrix, or of values of its bias, and what multiplies them.
struct RowFactor {
  int64_t rows = 0;
  float factor = 1;
  bool operator==(const RowFactor&) const = default;
};

// A number of each layer: a tensor of one value in the folder, an array of metadata in the GGUF
// file, under a key without the architecture. Nothing: the tensor must be there.
struct HfNumber {
  std::string_view hf_name;  // "{}" stands for the number of the layer
  std::string_view key;
  std::optional<float> otherwise = {};
};

// Whether the weights of a model's output are those of its embedding.
enum class HfOutputIs : uint8_t { kEmbedding, kOwn };

// The languages of a class that translates between several, whose tokens follow the pieces of a
// unigram vocabulary in fairseq's order. A model has all of them or the first ones.
struct HfLanguages {
  std::span<const std::string_view> names = {};
  // Models with exactly this many have the source's language behind the text and the target's in
  // place of the decoder's first token; others have the source's in front of the text, and the
  // target's is the first one that the decoder chooses.
  size_t behind = 0;
};

struct HfFamily {
  std::span<const std::string_view> classes;  // in "architectures" of config.json
  std::string_view arch;
  // Whether a model of these classes is described here and not by a later row; null: it is.
  bool (*is_of)(const JsonObject& config) = nullptr;
  HfActivation activation = {};
  HfKeys keys = {};
  HfEpsilon epsilon = {};
  // Completes the sizes that the keys leave 0; null: there are none.
  Status (*finish_shape)(const JsonObject& config, HfShape& shape) = nullptr;
  // Names of tensors may lack this beginning: some folders were written by the class of the inner
  // model.
  std::string_view optional_prefix = {};
  // Other folders have this beginning in place of `optional_prefix`.
  std::string_view other_prefix = {};
  // Names of tensors may have this beginning in folders of classes around the inner model.
  std::string_view outer_prefix = {};
  double rope_base = kUsualRopeBase;  // where config.json says nothing; 0: there is no rope
  bool own_rope_base = false;         // add_parameters writes it
  // The share of each head that is rotated, where config.json says nothing. 0: the class rotates
  // all of it, and config.json may say nothing else.
  double rope_share = 0;
  bool window_ropes = false;  // whether layers with a window have settings of their own
  // Settings that other classes do not have (rope_settings.h).
  std::span<const std::string_view> rope_names = {};
  std::span<const HfTensor> tensors;
  // Adds what the keys common to all families leave out.
  Status (*add_parameters)(const JsonObject& config, const HfShape& shape, Parameters& out);
  HfExperts experts = {};
  // Whether the model divides each row of its output by the row's length; null: no.
  bool (*has_unit_output_rows)(const HfShape& shape) = nullptr;
  // Factors of the model that the GGUF architecture has in its weights, by the name of a tensor
  // there: of all its rows in turn, or nothing. Null: there are none.
  Result<std::vector<RowFactor>> (*row_factors)(const JsonObject& config, const HfShape& shape,
                                                std::string_view gguf_name,
                                                HfOutputIs output) = nullptr;
  // The "quant_method" of folders of the class alone, with quantized weights that rows of `tensors`
  // describe; empty: there are no such folders.
  std::string_view quantization = {};
  // How GGUF calls the tokenizer; empty: it follows from the folder's files.
  std::string_view tokenizer = {};
  // Further names under which folders hold the embedding, instead of its own or beside it.
  std::span<const std::string_view> embedding_names = {};
  // Whether the output is the embedding where config.json does not say it; where this is false, it
  // is if the folder has no other.
  bool tied_unless_told = false;
  HfLanguages languages = {};
  // Ids that the folder's files leave without a token have those of Whisper's tokenizers.
  bool has_speech_tokens = false;
  HfTranslator translator = {};
  // Beginnings of the names of tensors that no vector and no score is made of: heads that the
  // class was trained with. They are left out.
  std::span<const std::string_view> left_out = {};
  // Whether the class is an encoder of texts, whose rows become vectors or scores. A unigram
  // vocabulary of such a class is taken from tokenizer.json where the folder has one.
  bool is_encoder = false;
  // Whether the class is the inner part of one that writes texts. Its folders are converted where
  // they say how rows become vectors.
  bool is_inner = false;
  // Whether ids of the pieces in SentencePiece's file are in fairseq's order, though there are no
  // languages.
  bool fairseq_ids = false;
  std::span<const HfNumber> numbers = {};
  // Whether layers that predict further tokens are kept: the family has them as drafts, and their
  // tensors are those of its layers with attention and of kHfPredictor.
  bool keeps_predictors = false;
};

inline constexpr std::string_view kSiluNames[] = {"silu", "swish"};
inline constexpr HfActivation kSiluActivation = {.key = "hidden_act", .names = kSiluNames};
inline constexpr HfEpsilon kLayerNormEpsilon = {.key = "layer_norm_eps",
                                                .gguf_key = "attention.layer_norm_epsilon"};
inline constexpr std::string_view kGeluNames[] = {"gelu_pytorch_tanh"};
inline constexpr HfActivation kGeluActivation = {.key = "hidden_activation", .names = kGeluNames};

// The weights of the embedding and of the output, which may be one and the same.
inline constexpr std::string_view kEmbeddingName = "token_embd.weight";
inline constexpr std::string_view kOutputName = "output.weight";

// The weights that choose the experts of a layer.
inline constexpr std::string_view kRouterName = "blk.{}.ffn_gate_inp.weight";

// The row for the class that config.json names. kNotSupported for an unknown class, with what is
// known of it, and for experts that the class does not have.
Result<const HfFamily*> FindHfFamily(const JsonObject& config);

// Reads and checks the sizes.
Result<HfShape> ReadHfShape(const HfFamily& family, const JsonObject& config);

// A layer, by its number; experts are not told by the shape.
struct HfLayer {
  int64_t number = 0;
  bool has_experts = false;
};

// The sizes of a model of which the layers that predict further tokens are the last ones.
HfShape ShapeWithPredictors(const HfShape& shape);
// The sizes of one layer.
HfShape ShapeOfLayer(const HfShape& shape, int64_t layer);
// The sizes of the decoder, as those of a model of its own. Its heads are as wide as the encoder's
// where there are as many, and else a share of the stream.
HfShape ShapeOfDecoder(const HfShape& shape);

// The number of the folder's tensors that become one, and the name of one of them: `layer_name`
// with the number of the expert or with what else stands for the second "{}".
int64_t SourceCountOf(const HfTensor& tensor, const HfShape& shape);
std::string SourceNameOf(const HfTensor& tensor, std::string layer_name, int64_t number);

// How many matrices a tensor of several has.
int64_t StackedCountOf(const HfTensor& tensor, const HfShape& shape);

// Whether the GGUF file has a matrix for each head of a tensor in that order.
bool IsOfHeads(RowOrder order);

// Whether a matrix is that of a convolution over the last rows.
constexpr bool IsConvTaps(Extent columns) {
  return columns == Extent::kConvTaps || columns == Extent::kConvTapsApart ||
         columns == Extent::kNgramTaps;
}

// Whether a layer is one of `layers`.
bool HasTensorsOf(InLayers layers, const HfShape& shape, const HfLayer& layer);

// Rows of the folder's matrix, or of one expert's.
int64_t SourceRowsOf(const HfTensor& tensor, const HfShape& shape);
// The shape of the folder's tensor, or of one expert's where each has its own.
std::vector<int64_t> SourceShapeOf(const HfTensor& tensor, const HfShape& shape);

// The size of a dimension.
int64_t ExtentSize(Extent extent, const HfShape& shape);

// Adds the metadata that all families share, then the family's own.
Status AddParameters(const HfFamily& family, const JsonObject& config, const HfShape& shape,
                     Parameters& out);

}  // namespace kvant::arch
