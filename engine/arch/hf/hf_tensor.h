// A tensor of a Hugging Face model class, as data: its names in the folder and in the GGUF file,
// its sizes, and the order and change of its rows and values.
#pragma once

#include <cstdint>
#include <string_view>

namespace kvant::arch {

// A dimension of a tensor in terms of the shape. Where one is 0, the model has no such tensor.
enum class Extent : uint8_t {
  kNone,  // no such dimension: the tensor is a vector
  kDim,
  kVocab,
  kFfn,
  kTwoFfn,  // gate, then up
  kHalfFfn,
  kQRows,      // heads * head_dim
  kKvRows,     // kv_heads * head_dim
  kValueRows,  // kv_heads * v_dim
  kHeadDim,
  kQkvRows,  // q, then k, then v
  kOne,
  kExperts,
  kExpertFfn,
  kTwoExpertFfn,  // gate, then up
  kSharedFfn,
  kTwoSharedFfn,  // gate, then up
  kHeads,         // rows of a matrix with one for each query head
  kKvHeads,       // rows of a matrix with one for each kv head
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
  // Indexers:
  kIndexHeads,
  kIndexHeadDim,
  kIndexQRows,  // index_heads * index_dim
  kThreeDims,
  kTwoDims,
  kConvTaps,       // of a matrix that the folder has as [rows, 1, taps]
  kConvTapsApart,  // likewise; the GGUF architecture has it as [taps x 1 x rows]
  kTwoQRows,       // a query and a gate for each head
  kGateRows,       // a gate for each head, or for each value of its result
  // Inputs by the token:
  kLayerInput,
  kAllLayerInputs,  // of all layers
  // Several streams:
  kStreams,
  kStreamPairs,
  kLaurel,
  kAllStreams,  // streams * dim
  kHyperRank,   // of hyper-connections
  // Hashed n-grams:
  kNgramColumns,  // of all rows of a token
  kNgramRowDim,
  kNgramRows,
  kNgramTaps,  // as kConvTaps
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
  // Encoders of texts:
  kSegments,
  kLabels,
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
  kWithIndexer,       // HfShape::index_layers
  kWithNgrams,        // HfShape::ngrams
};

// The places of experts' matrices in the folder; they become one tensor.
enum class ExpertForm : uint8_t {
  kNone,  // the tensor is not one of experts
  kEach,  // in a tensor for each expert, whose name has a second "{}"
  // In one tensor [experts, rows, columns], of biases [experts, rows].
  kStacked,
  kJoined,  // in one tensor [experts * rows, columns]
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
  // One matrix whose rows are in several tensors, HfNgrams::shards, whose names have a second "{}".
  kShards,
};

// Says which rows of the folder's matrix become the rows of the tensor. kQueries, kKeys and kValues
// are those of a layer, in the order that RowOrder gives them.
enum class RowPart : uint8_t {
  kAll,
  kFirstHalf,
  kSecondHalf,
  kEvenRows,
  kOddRows,
  kBehindTwo,     // the first two rows are never read
  kBehindUnread,  // nor are the first HfShape::unread_positions
  kQueries,
  kKeys,
  kValues,
  // An indexer's queries and the key behind them.
  kIndexQueries,
  kIndexKey,
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
  kExp,       // likewise; the GGUF architecture has no sign
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

}  // namespace kvant::arch
