// The computation of a model, as data: stacks of layers, layers of sublayers. A family's function
// (engine/arch/family.h) makes it from a file's metadata; engine/arch/build_plan.h makes a plan
// from it and from the file's tensors.
//
//   stream = norm(input.scale * embedding[token] + positions[position]), or of frames of features
//     in place of the embedding (engine/arch/sublayers/frame_input.h)
//   for each sublayer of each layer:
//     stream += residual_scale * norm_after(block(norm_before(stream)))
//     stream = norm_of_sum(stream)
//   or, with hyper-connections (engine/arch/sublayers/hyper_streams.h), several streams of which
//     the block reads a mean, and to each of which a share of block(mean) is added
//   behind each layer: stream *= output_scale
//   logits = cap(scale * (output . final_norm(stream) + bias))
//
// Every size in it has been checked against a limit that keeps products of sizes far from overflow.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.h"
#include "cpu/kernels/activation.h"
#include "engine/arch/metadata.h"
#include "engine/arch/norm.h"
#include "engine/arch/sublayers/attention.h"
#include "engine/arch/sublayers/channel_mix.h"
#include "engine/arch/sublayers/cross_attention.h"
#include "engine/arch/sublayers/delta_net.h"
#include "engine/arch/sublayers/experts.h"
#include "engine/arch/sublayers/ffn_and_experts.h"
#include "engine/arch/sublayers/frame_input.h"
#include "engine/arch/sublayers/gated_ffn.h"
#include "engine/arch/sublayers/hyper_streams.h"
#include "engine/arch/sublayers/indexer.h"
#include "engine/arch/sublayers/kda.h"
#include "engine/arch/sublayers/latent_attention.h"
#include "engine/arch/sublayers/laurel.h"
#include "engine/arch/sublayers/layer_input.h"
#include "engine/arch/sublayers/mamba1.h"
#include "engine/arch/sublayers/mamba2.h"
#include "engine/arch/sublayers/ngram_input.h"
#include "engine/arch/sublayers/plain_ffn.h"
#include "engine/arch/sublayers/rwkv6_mix.h"
#include "engine/arch/sublayers/rwkv7_mix.h"
#include "engine/arch/sublayers/short_conv.h"
#include "engine/arch/sublayers/streams.h"
#include "engine/graph/rowwise/rope.h"
#include "formats/gguf.h"
#include "kvant/pooling.h"

namespace kvant::arch {

using graph::RopeSpec;

// The kinds of sublayers. Each alternative is a struct in engine/arch/sublayers with its sizes and
// a function AddNodes.
using Block =
    std::variant<Attention, CrossAttention, LatentAttention, GatedFfn, PlainFfn, Experts,
                 FfnAndExperts, LayerInput, NgramInput, PredictStreams, CorrectStreams, Laurel,
                 ShortConv, DeltaNet, Kda, Mamba1, Mamba2, Rwkv6Mix, Rwkv7Mix, ChannelMix>;

struct Sublayer {
  std::optional<Norm> norm_before;
  Block block;
  std::optional<Norm> norm_after = {};   // of what the block adds to the stream
  float residual_scale = 1;              // multiplies what is added
  std::optional<Norm> norm_of_sum = {};  // of the stream, when it has been added
  // In place of norm_after: the norm of what the block gives and the stream together.
  std::optional<Norm> norm_with_stream = {};
  // The name of a hyper-connection, of which the block reads the mean, in place of all norms.
  // Empty: the block has none, and adds to the streams of a stack with hyper-connections itself.
  std::string_view connection = {};
};

// Says which stream the sublayers of a layer read.
enum class Flow : uint8_t {
  kSequential,  // each what those before it have added to
  kParallel,    // all the stream as it enters the layer
  // All but the last the stream as it enters the layer, the last one what they have added to.
  kParallelMixers,
};

struct LayerSpec {
  std::vector<Sublayer> sublayers;  // in the order in which they add to the stream
  Flow flow = Flow::kSequential;
  // The name of a number that the stream is multiplied by behind the layer, in files that have it.
  std::string_view output_scale = {};
};

// The rows that enter the first layer.
struct Input {
  std::string_view tensor = "token_embd";  // [vocab rows x dim]
  float scale = 1;
  std::string_view positions = {};  // the name of the learned positions [context rows x dim]
  // The name of learned rows by the segment of a token [segments rows x dim]; a file may lack them.
  std::string_view token_types = {};
  std::optional<Norm> norm = {};
};

// The logits. The matrix is the input's where the file has none of its own; its bias is
// `tensor`.bias in either case.
struct Output {
  std::string_view tensor = "output";  // [vocab rows x dim]
  float scale = 1;                     // multiplies the logits
  float cap = 0;                       // logit = cap * tanh(logit / cap); 0 = no cap
};

// Layers behind a stack's last that guess the tokens after the next one (multi-token prediction,
// DeepSeek-V3, arXiv 2412.19437). The first of them has the row
//   eh_proj . [enorm(embedding[token]), hnorm(h of the position before)]
// at each position, where h are the stack's rows; what the layer makes of it, normed, gives the
// logits of the token after `token`. Guessing on, h are the rows of the layer before, or its own.
// Tensors of layer 3: blk.3.nextn.{eh_proj, enorm, hnorm}, and, where they are not the model's,
// nextn.{embed_tokens, shared_head_norm, shared_head_head}.
struct Predictors {
  size_t count = 0;  // while a family reads: so many of Stack::layers, the last ones
  std::vector<LayerSpec> layers = {};
  bool reads_normed = true;  // h are rows behind the last norm, or else before it
  // Kind and epsilon of the norm of their results; nothing: those of the stack's final norm.
  std::optional<Norm> head_norm = {};
};

// Layers that one stream of rows goes through.
struct Stack {
  std::string_view layer_prefix = "blk";  // tensors of layer 3 are named "blk.3. ..."
  int64_t dim = 0;                        // of the stream
  Input input;
  std::optional<LayerInputs> layer_inputs = {};
  std::optional<Streams> streams = {};  // beside the one of the formula above
  std::optional<HyperStreams> hyper = {};
  std::vector<LayerSpec> layers;
  Norm final_norm;
  Output output;
  Predictors predictors = {};
};

// Reads a source, all positions of which see each other, before the decoder writes.
struct Encoder {
  Stack stack;  // its output is the final norm of the stream
  // Frames that the encoder's stream is made from instead of tokens; source_max is then the exact
  // number of positions of every source.
  std::optional<FrameInput> frames = {};
  int64_t vocab = 0;       // rows of its embedding, which may be the decoder's
  int64_t source_max = 0;  // positions of a source
  // The token that the decoder's text begins with, where the file says it.
  std::optional<int64_t> first_token = {};
};

inline constexpr size_t kDenseLayers = 2;
// Says what becomes of the rows of a text in a model that is asked for vectors or scores; tensors
// say the rest (engine/arch/embedding_head.h).
struct Embedding {
  std::optional<Pooling> pooling = {};         // as the file says
  Pooling classifier_pooling = Pooling::kCls;  // of rows that a classifier reads
  // Whether the classifier's first matrix reads each row, and the pooled ones are those behind it.
  bool classifies_rows = false;
  cpu::Activation classifier_activation = cpu::Activation::kTanh;
  // Behind the dense layers of a vector; nothing: none.
  std::array<std::optional<cpu::Activation>, kDenseLayers> dense_activations = {};
};

struct ModelSpec {
  std::string_view family;      // general.architecture
  int64_t vocab = 0;            // rows of the embedding; 0 if the file has none
  int64_t context_train = 0;    // positions that the model was trained for
  int64_t context_max = 0;      // positions that it has learned, and beyond which it has none; 0 =
                                // no such limit
  std::vector<RopeSpec> ropes;  // Attention::rope counts them
  std::vector<Stack> stacks;    // a decoder is one stack; empty: there is an encoder or embedder
  std::optional<Encoder> encoder = {};
  // Gives rows of texts and no logits: an embedding model, or a reranker. Then there are no stacks
  // and no encoder.
  std::optional<Stack> embedder = {};
  Embedding embedding = {};
};

// The stack that reads the model's texts first: an embedder, an encoder or a decoder.
const Stack& FirstStack(const ModelSpec& spec);

// Reads and checks the metadata of a file. kNotSupported for an unknown architecture, with the list
// of known ones, and for features that its family lacks, keys that nobody reads included
// (engine/arch/keys/check_keys.h) unless they are among `ignored_keys`; kCorrupt for missing or
// contradicting keys. Where predicting layers are to be read, a file without any is kNotSupported.
Result<ModelSpec> ReadSpec(const formats::GgufFile& file,
                           std::span<const std::string> ignored_keys = {},
                           PredictingLayers predicting = PredictingLayers::kLeftOut);

}  // namespace kvant::arch
