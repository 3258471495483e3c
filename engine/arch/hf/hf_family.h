// A Hugging Face model class, as data: the classes' names, the GGUF architecture that they become,
// which tensor becomes which, and how the class's own settings become metadata. It stands in the
// file of the family (engine/arch/family.h); engine/convert makes use of it.
//
// Sources of the names: the model classes of the transformers library on one side, the GGUF
// specification and llama.cpp's converter on the other.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/arch/hf/hf_translator.h"
#include "formats/gguf_writer.h"
#include "formats/json_object.h"

namespace kvant::arch {

using formats::JsonObject;

// The heads of gated delta nets.
struct HfDelta {
  int64_t key_heads = 0;
  int64_t value_heads = 0;
  int64_t key_dim = 0;    // of a head
  int64_t value_dim = 0;  // of a head
  int64_t keys() const { return key_heads * key_dim; }
  int64_t values() const { return value_heads * value_dim; }
  int64_t per_key() const { return value_heads / key_heads; }
};

// The heads of Mamba 2. Mamba 1 has heads of one column.
struct HfMamba {
  int64_t heads = 0;
  int64_t head_dim = 0;
  int64_t state_dim = 0;
  int64_t groups = 0;
  int64_t rank = 0;  // of Mamba 1: columns that steps are made of
  int64_t inner() const { return heads * head_dim; }
  int64_t conv_columns() const { return inner() + 2 * groups * state_dim; }
  int64_t in_columns() const { return inner() + conv_columns() + heads; }
};

inline constexpr int64_t kHfVocabMax = 1 << 22;

// Sizes that differ from layer to layer in some families.
struct HfLayerSizes {
  int64_t head_dim = 0;
  int64_t kv_heads = 0;
  int64_t ffn = 0;
  // Layers without keys and values of their own read another layer's, and folders may hold tensors
  // for them that nothing reads.
  bool own_keys = true;
  bool own_values = true;  // false with own keys: these are the values, too
};

// The heads of RWKV, and the columns of its products in two steps.
struct HfRwkv {
  int64_t heads = 0;
  int64_t head_dim = 0;
  int64_t mixes = 0;  // of a row with the one before it
  int64_t mix_rank = 0;
  int64_t decay_rank = 0;
  int64_t rate_rank = 0;
  int64_t value_rank = 0;
  int64_t gate_rank = 0;
  int64_t rescale_every = 0;  // layers after which the stream is halved; 0: it is not
};

// The decoder behind an encoder, where it differs from that.
struct HfDecoder {
  int64_t layers = 0;
  int64_t heads = 0;
  int64_t ffn = 0;
};

// The sizes that config.json gives every family.
struct HfShape {
  int64_t layers = 0;
  int64_t dim = 0;
  int64_t ffn = 0;
  int64_t vocab = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  int64_t context = 0;
  // Families with experts:
  int64_t experts = 0;       // of a layer
  int64_t experts_used = 0;  // by a token
  int64_t expert_ffn = 0;
  int64_t shared_ffn = 0;     // of the shared expert; 0: there is none
  int64_t expert_latent = 0;  // columns that experts read and write; 0: dim
  // Families with latent attention:
  int64_t q_rank = 0;  // 0: queries are made in one step
  int64_t latent = 0;
  int64_t nope = 0;  // dimensions of a head that are not rotated, and those that are
  int64_t rope = 0;
  int64_t v_dim = 0;  // values of a head
  // Families with recurrent layers:
  std::vector<bool> attention_layers = {};  // which layers have attention; empty: all
  int64_t conv_taps = 0;                    // rows that a convolution sees
  HfDelta delta = {};
  HfMamba mamba = {};
  // The width of each layer that is a feed-forward alone, 0 for others; empty: there are none.
  std::vector<int64_t> ffn_widths = {};
  // The sizes of each layer, where layers differ; empty: the sizes above hold for all.
  std::vector<HfLayerSizes> layer_sizes = {};
  HfRwkv rwkv = {};
  int64_t layer_inputs = 0;       // values that a layer is given by the token
  int64_t layer_input_vocab = 0;  // tokens that have them; 0: all
  // Families with several streams:
  int64_t streams = 0;
  int64_t laurel = 0;          // rank of the residuals
  bool correct_scale = false;  // whether what a layer gives has factors
  // Layers behind the others that predict further tokens. They are left out.
  int64_t prediction_layers = 0;
  // Families with two stacks: the sizes above are the encoder's. Tensors whose name in the GGUF
  // architecture begins with kHfDecoderPrefix belong to layers of the decoder.
  HfDecoder decoder = {};
  int64_t buckets = 0;  // of distances
  int64_t source = 0;   // positions of a source, where they have another number than `context`
  int64_t bins = 0;     // values of a frame of features
  // Tokens of sources where sources have an embedding of their own; 0: they have none.
  int64_t source_vocab = 0;
  int64_t q_rows() const { return heads * head_dim; }
};
inline constexpr std::string_view kHfDecoderPrefix = "dec.";

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

// A dimension of a tensor in terms of the shape. Where one is 0, the model has no such tensor.
enum class Extent : uint8_t {
  kNone,  // no such dimension: the tensor is a vector
  kDim,
  kVocab,
  kFfn,
  kTwoFfn,  // gate, then up
  kQRows,   // heads * head_dim
  kKvRows,  // kv_heads * head_dim
  kHeadDim,
  kQkvRows,  // q, then k, then v
  kOne,
  kExperts,
  kExpertFfn,
  kTwoExpertFfn,  // gate, then up
  kSharedFfn,
  kHeads,    // rows of a matrix with one for each query head
  kKvHeads,  // rows of a matrix with one for each kv head
  kContext,
  // Latent attention:
  kQRank,
  kOneStepQRows,  // kLatentQRows where queries are made in one step
  kLatentQRows,   // heads * (nope + rope)
  kLatent,
  kLatentRow,     // latent + rope
  kLatentKvRows,  // heads * (nope + v_dim)
  kLatentORows,   // heads * v_dim
  kNope,
  kVDim,
  kThreeDims,
  kConvTaps,  // of a matrix that the folder has as [rows, 1, taps]
  kTwoQRows,  // a query and a gate for each head
  // Inputs by the token:
  kLayerInput,
  kAllLayerInputs,  // of all layers
  // Several streams:
  kStreams,
  kStreamPairs,
  kLaurel,
  // Gated delta nets:
  kDeltaQkv,       // queries, keys, values
  kDeltaValues,    // of all value heads
  kDeltaHeads,     // one for each value head
  kTwoDeltaHeads,  // two for each
  kDeltaHeadDim,   // of a value head
  // Mamba 2:
  kMambaIn,         // gates, columns of the convolution, steps
  kMambaConv,       // x, b and c
  kMambaInner,      // x
  kMambaHeads,      // one for each head
  kMambaGroups,     // one for each group
  kMambaGroupCols,  // of x in a group
  // Mamba 1:
  kTwoMambaInner,    // x and gates
  kMambaParameters,  // what steps are made of, b and c
  kMambaRank,        // what steps are made of
  kMambaState,       // of b and c
  // Experts that read fewer values than the stream has:
  kExpertDim,     // what an expert reads
  kExpertLatent,  // kExpertDim where it is not dim
  // RWKV:
  kWkvHeads,
  kWkvHeadDim,
  kMixes,    // of a row with the one before it
  kMixRank,  // columns of the product for one of them, and for all
  kMixRanks,
  kDecayRank,
  kRateRank,
  kValueRank,
  kGateRank,
  kBuckets,  // of distances
  // Encoders that read frames:
  kSource,       // positions of a source
  kThreeFrames,  // of a matrix that the folder has as [rows, values of a frame, 3]
  kThreeRows,    // of a matrix that the folder has as [rows, dim, 3]
  kSourceVocab,
};

// Says which layers have a tensor. In families some of whose layers have experts, these are the
// layers with a router. In families with recurrent layers, these are the layers in
// HfShape::attention_layers or the other layers; a layer in HfShape::ffn_widths is not recurrent.
enum class InLayers : uint8_t {
  kAll,
  kWithExperts,
  kWithoutExperts,
  kWithAttention,
  kWithoutAttention,
  kFfnWithoutExperts,  // of HfShape::ffn_widths
  kWithKeys,           // of their own
  kWithValues,
  kFirst,
  kAllButFirst,
  kWithLayerInputs,   // all layers of models that have them
  kWithCorrectScale,  // the same
};

// The places of experts' matrices in the folder; they become one tensor.
enum class ExpertForm : uint8_t {
  kNone,  // the tensor is not one of experts
  kEach,  // in a tensor for each expert, whose name has a second "{}"
  // In one tensor [experts, rows, columns], of biases [experts, rows].
  kStacked,
  // As kStacked, or else the weights of the tensor NAME in MXFP4: NAME_blocks [experts, rows,
  // columns / 32, 16] and NAME_scales [experts, rows, columns / 32], both of bytes.
  kStackedOrMxfp4,
  // Matrices of streams, not of experts: each stream but the first has a tensor of its own, as in
  // kEach.
  kEachStream,
  // No matrices of experts either: each row is a vector of its own in the folder, whose name has a
  // second "{}".
  kEachRow,
  // As kEachRow, with a letter of HfTensor::letters for the second "{}"; the tensor is [columns x 1
  // x 1 x rows] in the GGUF architecture.
  kEachLetter,
  kOfMixes,    // in one tensor with a matrix for each of HfRwkv::mixes
  kFlattened,  // a matrix in the folder whose values are a vector in the GGUF architecture
};

// Says which rows of the folder's matrix become the rows of the tensor. The last three are the
// queries, keys and values of a layer, in the order that RowOrder gives them.
enum class RowPart : uint8_t {
  kAll,
  kFirstHalf,
  kSecondHalf,
  kEvenRows,
  kOddRows,
  kBehindTwo,  // the first two rows are never read
  kQueries,
  kKeys,
  kValues
};

// The order of the rows of a matrix in the GGUF file.
enum class RowOrder : uint8_t {
  kSame,
  // The model rotates pairs (i, i + head_dim / 2) of a head, the GGUF architecture pairs (2i, 2i +
  // 1): within every head, rows 2i and 2i + 1 are the former rows i and i + head_dim / 2.
  kPairsInterleaved,
  // The model keeps the query heads of a kv head, its key and its value together, one kv head after
  // the other; the GGUF architecture has all queries, then all keys, then all values.
  kGroupedQkv,
  kGroupedPairs,  // both
  kTransposed,    // the rows are the columns of the model's matrix, of every expert's alike
  // The model's matrix has the rows of keys, then of values, of each head. The tensor has a matrix
  // for each head: kLatentKeys of its keys, transposed, kLatentValues of its values.
  kLatentKeys,
  kLatentValues,
  // The model keeps the query and key of a key head and the values and gates of its value heads
  // together, one key head after the other; the GGUF architecture has all queries, keys and values,
  // and all gates.
  kDeltaQkv,
  kDeltaGates,
  // The value heads of a key head follow each other in the model; in the GGUF architecture they
  // take turns with the value heads of other key heads. kTiledHeads: a row for each value head;
  // kTiledValues: the rows of each; kTiledQkv: the rows of each, after queries and keys;
  // kTiledColumns: columns.
  kTiledHeads,
  kTiledValues,
  kTiledQkv,
  kTiledColumns,
  // The model has rows for the first tokens only, and takes the first row for the others.
  kFirstBeyond,
};

// How a tensor's values change in conversion.
enum class Values : uint8_t {
  kSame,
  kPlusOne,   // the model multiplies by 1 + weight, the GGUF architecture by the weight
  kUnitRows,  // the model divides each row by its length
  kMinusExp,  // the model has the logarithm of a rate
  kRescaled,  // halved once for every HfRwkv::rescale_every layers before
};

enum class Presence : uint8_t {
  kRequired,
  kOptional,
  kUnlessTied,  // required, but left out where the embedding is used instead
};

struct HfTensor {
  std::string_view hf_name;    // "{}" stands for the number of the layer
  std::string_view gguf_name;  // likewise
  Extent rows = Extent::kNone;
  Extent columns = Extent::kNone;  // kNone for vectors, which have `rows` values
  RowOrder order = RowOrder::kSame;
  Presence presence = Presence::kRequired;
  Values values = Values::kSame;  // kPlusOne for vectors only, kUnitRows for matrices
  InLayers layers = InLayers::kAll;
  ExpertForm experts = ExpertForm::kNone;
  RowPart part = RowPart::kAll;
  std::string_view letters = {};  // of ExpertForm::kEachLetter
};

// The activation of the gates, by the key that names it in config.json.
struct HfActivation {
  std::string_view key = "hidden_act";
  std::span<const std::string_view> names;  // the first is the usual one
};

// A tensor that the folder does not hold: factors computed from the configuration.
struct ComputedTensor {
  std::string name;
  std::vector<float> values;
  int64_t columns = 0;  // 0: it is a vector
};

// The base of rotary embeddings in most classes.
inline constexpr double kUsualRopeBase = 10000.0;

// The metadata and tensors that a class's settings in config.json become.
struct Parameters {
  formats::GgufWriter* writer = nullptr;
  std::string_view arch;  // general.architecture, the prefix of the keys
  double rope_base = 0;   // of the class, for a config.json without one
  std::vector<ComputedTensor> tensors;

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
  double rope_base = kUsualRopeBase;  // where config.json says nothing; 0: there is no rope
  std::span<const HfTensor> tensors;
  // Adds what the keys common to all families leave out.
  Status (*add_parameters)(const JsonObject& config, const HfShape& shape, Parameters& out);
  HfExperts experts = {};
  // Whether the model divides each row of its output by the row's length; null: no.
  bool (*has_unit_output_rows)(const HfShape& shape) = nullptr;
  // Factors of the model that the GGUF architecture has in its weights, by the name of a tensor
  // there: of all its rows in turn, or nothing. Null: there are none.
  Result<std::vector<RowFactor>> (*row_factors)(const JsonObject& config, const HfShape& shape,
                                                std::string_view gguf_name) = nullptr;
  // The "quant_method" of folders with weights that are quantized already, which tensors of the
  // list may be; empty: there are no such folders.
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

// The row for the class that config.json names. kNotSupported for an unknown class, with the known
// ones, for experts that the class does not have, and for weights that are quantized already.
Result<const HfFamily*> FindHfFamily(const JsonObject& config);

// Reads and checks the sizes.
Result<HfShape> ReadHfShape(const HfFamily& family, const JsonObject& config);

// A layer, by its number; experts are not told by the shape.
struct HfLayer {
  int64_t number = 0;
  bool has_experts = false;
};

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
