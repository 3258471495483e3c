// The plan of a model: the operations of one pass in order, the values that flow between them, and
// where those values lie in memory. It is built once per model; a pass only fills in how many rows
// there are.
//
// Values are matrices; how many rows a value has is known when a pass begins, from its row space
// (rows.h). Values whose lifetimes do not overlap share a slot. A plan has stages, which are run
// one after the other: the body once for a pass, then the head once for each 32 rows whose logits
// are wanted. A node is done before the next begins.
//
// Invariants: nodes are const while running; all state of a pass is in PassContext; running
// allocates nothing.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/thread_pool.h"
#include "cpu/activations.h"
#include "cpu/kernels/attention.h"
#include "cpu/kernels/matmul.h"
#include "cpu/kernels/token_count.h"
#include "engine/graph/recurrent/tail.h"
#include "engine/graph/rows.h"
#include "engine/graph/rowwise/rope.h"
#include "engine/graph/work.h"
#include "formats/gguf.h"
#include "kvant/adapter.h"

namespace kvant::cpu {
struct KernelTable;
}  // namespace kvant::cpu

namespace kvant::kv {
class PassView;
class RowBlocks;
}  // namespace kvant::kv

namespace kvant::graph {

class DeviceAttention;
struct ShareNumber;

enum class ValueId : int32_t {};
inline constexpr ValueId kNoValue{-1};

struct Value {
  std::string name;
  RowSpace rows;
  int64_t cols;
  cpu::ActivationKind kind;  // float rows, or records of cpu::ActivationRow
  size_t row_bytes;
  int64_t per_row = 1;  // rows of the value for each row of its space, such as a token's experts
  int first_node = -1;  // lifetime: numbers of nodes, counted through all stages
  int last_node = -1;
  int slot = -1;
};

// The angles of one kind of rotary embedding, for a session's context.
struct RopeAngles {
  std::vector<float> frequencies;  // [n_rot / 2] radians per position
  float amplitude = 1.0f;          // multiplies cosine and sine
};

// The positions whose keys and values a cache layer holds.
enum class Keeps : uint8_t {
  kTokens,   // positions of a sequence's tokens
  kSource,   // positions of its source, for the attention of a decoder's layer
  kEncoder,  // positions of a source while it is encoded, for one layer of the encoder at a time
};

// The rows of one attention in the cache, or of one indexer, which has keys alone, or the state of
// one recurrence. Its number in Plan::cache_layers is its cache id.
struct CacheLayer {
  int64_t window = 0;  // positions a query sees at most, itself included; 0 = all
  int64_t kv_heads = 0;
  int64_t k_dim = 0;
  int64_t v_dim = 0;
  int rope = -1;  // the rotation of its keys: index into Plan::ropes; -1 = none
  cpu::WindowKind window_kind = cpu::WindowKind::kSliding;
  int64_t state_floats = 0;  // of a recurrence, which has none of the above; 0: an attention
  int64_t scan_floats = 0;   // the last of these, which may be kept as F16; an even number
  Keeps keeps = Keeps::kTokens;
  bool latent = false;  // keys begin with their values: latent attention
  // Subtracted from keys that the cache stores as codes with a scale, [kv_heads][k_dim]; empty:
  // nothing is. A softmax over positions does not see it (arch/sublayers/key_offset.h).
  std::vector<float> key_offset = {};
  bool chosen = false;  // attention sees the positions that an indexer chooses

  bool operator==(const CacheLayer&) const = default;
};

// A matrix that is made from one of the file's: its description, as for the file's own, and the
// bytes that the description points to.
struct DerivedMatrix {
  std::string name;
  AlignedBuffer bytes;
  formats::GgufTensor tensor;  // `name` and `data` are filled in by the plan
};

// The largest pass of a runner; sizes of buffers follow from it.
struct PassLimits {
  int64_t chunk = 0;      // most rows
  int64_t context = 0;    // most positions of a sequence
  int64_t sequences = 1;  // most sequences
  int64_t shares = 1;     // that a phase is cut into
  bool kv_cache = false;  // false: the rows of a pass are all tokens of one sequence
  int64_t source = 0;     // most positions of a source; 0: there are no sources
  bool texts = false;     // without a cache: the rows of a pass are those of PassContext::texts

  // Most positions that a row sees.
  int64_t positions() const { return context > source ? context : source; }
};

// The keys and values that the layers of a decoder make of a source, where there is no cache: the
// pass of the encoder writes them, and the pass over the tokens reads them.
struct UncachedSource {
  int64_t positions = 0;
  // The rows by cache id, [positions][kv_heads * (k_dim + v_dim)]: the keys of all heads, then
  // their values. Empty for layers that keep no positions of a source.
  std::vector<std::vector<float>> layers;
};

// The rows that a text has in a pass over several texts.
struct TextRows {
  int64_t first_row = 0;
  int64_t rows = 0;
};

class Node;

// The beginning of a thread's scratch memory: which matrix product it has arranged activations for.
struct alignas(64) ScratchRecord {
  uint64_t product = 0;  // PassContext::run and the node's number, in one
  cpu::ArrangedActivations arranged;
};

// Everything that differs from pass to pass.
struct PassContext {
  std::byte* arena = nullptr;
  std::span<const size_t> value_offsets;
  std::span<const Value> values;
  uint64_t run = 0;                    // stages that have been run so far
  RowCounts rows;                      // of the pass, and of the run of the head under way
  std::span<const int64_t> head;       // the rows of the pass whose logits the head computes now
  std::span<const int32_t> tokens;     // [rows]; empty where frames are read
  std::span<const float> frames;       // [values of a frame][rows of kFrames]
  std::span<const int64_t> positions;  // [rows], ascending inside a sequence
  kv::PassView* kv = nullptr;  // null: attention recomputes keys and values of the whole sequence
  DeviceAttention* device = nullptr;  // of the layers whose blocks are a device's; null: none
  UncachedSource* source = nullptr;   // without a cache; null: there is no source
  // Texts whose rows attend to those of their own text only, without a cache; empty: the rows are
  // all of one sequence.
  std::span<const TextRows> texts;
  std::span<const int32_t> token_types;  // [rows], the segments of tokens; empty: all are 0
  // Has the rows whose ids are behind the vocabulary; null: there are none.
  const kv::RowBlocks* row_blocks = nullptr;
  std::span<const RopeAngles> ropes;  // in the order of Plan::ropes
  std::byte* scratch = nullptr;       // scratch_bytes for each thread; zeros before the first pass
  size_t scratch_bytes = 0;           // Plan::ScratchBytes
  std::span<std::byte> shared;        // of all threads while a node runs
  // How many slices of each attention task are done, so that the thread that finishes the last one
  // merges them. Zero between nodes.
  std::span<std::atomic<int32_t>> arrivals;  // [limits.shares]
  std::span<const TailRows> tails;           // of the pass's parts; empty: there are no logs
  // By part: rows of positions before, for layers that predict further tokens. One row, of the
  // position before the part's first, or in their own plans one for each row; empty: none is known.
  std::span<const std::span<const float>> hidden;
  // The adapters of each row of the pass, [rows]; empty: no row uses any.
  std::span<const std::span<const AdapterUse>> adapters;
  PassLimits limits;

  // Whether a device stores what this cache layer keeps, and attends to it.
  bool OnDevice(int cache_id) const;
  // The adapters of a row of a space whose rows are those of the pass, or of the head.
  std::span<const AdapterUse> AdaptersOf(RowSpace space, int64_t row) const {
    if (adapters.empty()) return {};
    const int64_t of_pass = space == RowSpace::kHead ? head[static_cast<size_t>(row)] : row;
    return adapters[static_cast<size_t>(of_pass)];
  }
  const Value& ValueOf(ValueId id) const { return values[static_cast<size_t>(id)]; }
  int64_t RowCount(ValueId id) const { return rows[ValueOf(id).rows] * ValueOf(id).per_row; }
  cpu::TokenCount TokenCount(ValueId id) const { return rows.tokens(ValueOf(id).rows); }
  std::byte* Bytes(ValueId id) const { return arena + value_offsets[static_cast<size_t>(id)]; }
  float* Floats(ValueId id) const { return reinterpret_cast<float*>(Bytes(id)); }
  size_t RowBytes(ValueId id) const { return ValueOf(id).row_bytes; }
  int64_t RowFloats(ValueId id) const { return static_cast<int64_t>(RowBytes(id) / sizeof(float)); }
  float* FloatRow(ValueId id, int64_t row) const { return Floats(id) + row * RowFloats(id); }
  // A quantized row of `cols` values, from column `col` on.
  cpu::ActivationRow RecordAt(ValueId id, int64_t row, int64_t cols, int64_t col) const {
    std::byte* record = Bytes(id) + static_cast<size_t>(row) * RowBytes(id);
    return cpu::ActivationRowAt(record, cols).From(col);
  }
  // Column `col` of a row of `cols` columns of a value that holds records.
  struct RecordColumn {
    ValueId id;
    int64_t row;
    int64_t cols;
    int64_t col;
  };
  // Writes `count` values to a record from a column on, in the form that products with as many
  // tokens as the value has read.
  void Quantize(const cpu::KernelTable& kernels, const float* from, int64_t count,
                const RecordColumn& to) const;
  std::span<std::byte> Scratch(const ThreadPool::Member& member) const {
    return ThreadScratch(member).subspan(sizeof(ScratchRecord));
  }
  // The activations that the thread has arranged in its scratch for this node, in this run of the
  // stage; empty where it has arranged none yet.
  cpu::ArrangedActivations& Arranged(const ThreadPool::Member& member, const Node& node) const;

 private:
  std::span<std::byte> ThreadScratch(const ThreadPool::Member& member) const {
    return {scratch + scratch_bytes * static_cast<size_t>(member.thread), scratch_bytes};
  }
};

// How many threads compute a node.
enum class Width : uint8_t {
  kOne,   // one thread, in the phase before, so that the node costs no barrier of its own
  kTeam,  // all threads, in a phase of its own
};
// The width of a node that does a few operations per value, row by row: kOne for a single row, and
// where the work takes less time than a barrier.
Width WidthOfRows(int64_t rows, int64_t cols);

class Node {
 public:
  Node(std::string name, std::vector<ValueId> reads, std::vector<ValueId> writes)
      : name_(std::move(name)), reads_(std::move(reads)), writes_(std::move(writes)) {}
  virtual ~Node() = default;
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  // Computes one of the shares that the work is cut into. Shares are disjoint and may run on any
  // thread at any time of the phase.
  virtual void Run(const PassContext& pass, const ThreadPool::Member& member) const = 0;

  // The operation and its kernels: "matmul q4_0 int8 avx512vnni [2048 x 3072]".
  virtual std::string Describe() const = 0;

  // The number of threads that the node is worth in a pass with these rows.
  virtual Width WidthOf(const RowCounts& rows) const {
    (void)rows;
    return Width::kTeam;
  }
  // Adds what it reads and multiplies in such a pass.
  virtual void AddWork(const PassShape& pass, Work& work) const {
    (void)pass;
    (void)work;
  }
  // The pieces of work, alike, that its shares take stretches of, in a pass of these rows.
  virtual int64_t UnitsOf(const PassShape& pass) const { return pass.rows[rows()]; }
  // The work of each of `shares` shares of a pass.
  virtual std::vector<ShareWork> SharesOf(const PassShape& pass, int64_t shares) const;
  // Calls visit for the weight rows that a share reads in each pass of few tokens; for none, where
  // the rows differ from pass to pass.
  using RowVisit = std::function<void(const formats::GgufTensor& matrix, const Range& rows)>;
  virtual void VisitOwnedRows(const ShareNumber& share, const RowVisit& visit) const {
    (void)share;
    (void)visit;
  }
  // Floats of a row that it keeps in logs of states (engine/graph/recurrent/tail.h); 0: it changes
  // no state.
  virtual int64_t TailFloats() const { return 0; }
  // Computes a share of the state after the rows of a log, for the only part of the pass, whose
  // state before the log's rows is the state before `range`. Run keeps the log's rows, from float
  // tail_offset() on.
  virtual void ScanAgain(const PassContext& pass, const TailRange& range,
                         const ThreadPool::Member& member) const {
    (void)pass;
    (void)range;
    (void)member;
  }
  // The matrices that it multiplies with.
  virtual std::vector<const formats::GgufTensor*> Matrices() const { return {}; }

  // Private memory of a thread while this node runs.
  virtual size_t ScratchBytes(const PassLimits& limits) const {
    (void)limits;
    return 0;
  }

  // Memory of all threads together while this node runs.
  virtual size_t SharedBytes(const PassLimits& limits) const {
    (void)limits;
    return 0;
  }

  // Memory of a device for what its thread blocks leave to be merged, where it computes this node.
  virtual size_t DeviceBytes(const PassLimits& limits) const {
    (void)limits;
    return 0;
  }

  const std::string& name() const { return name_; }
  const std::vector<ValueId>& reads() const { return reads_; }
  const std::vector<ValueId>& writes() const { return writes_; }
  int number() const { return number_; }  // in the plan
  int64_t tail_offset() const { return tail_offset_; }
  // The row space of the values that the node writes, or of the values that it reads if it writes
  // none.
  RowSpace rows() const { return rows_; }

 private:
  friend class Plan;

  std::string name_;
  std::vector<ValueId> reads_;
  std::vector<ValueId> writes_;
  RowSpace rows_ = RowSpace::kPass;
  int number_ = 0;
  int64_t tail_offset_ = 0;
};

using NodeList = std::vector<std::unique_ptr<Node>>;

// Where values lie in the arena of a runner, for the most rows of each row space.
struct ArenaLayout {
  std::vector<size_t> value_offsets;
  size_t bytes = 0;
  ByRowSpace<size_t> bytes_of;  // what each row space takes of `bytes`
};

// The names of the plan that computes the logits of tokens, and of the one that encodes a source.
inline constexpr std::string_view kDecodePlan = "decode";
inline constexpr std::string_view kEncodePlan = "encode";
// The name of the plan that makes rows and vectors of texts.
inline constexpr std::string_view kEmbedPlan = "embed";
// The names of the plans that guess tokens behind the next one: of each layer that does so.
inline constexpr std::array<std::string_view, 4> kDraftPlans = {"draft", "draft.1", "draft.2",
                                                                "draft.3"};

class Plan {
 public:
  explicit Plan(std::string_view name = kDecodePlan) : name_(name) {}

  ValueId AddValue(std::string name, RowSpace rows, int64_t cols, cpu::ActivationKind kind,
                   int64_t per_row = 1);
  // Appends the node to a stage.
  void AddNode(Stage stage, std::unique_ptr<Node> node);
  // Puts a node in the place of the stage's last one, which is the plan's last and keeps no rows in
  // logs of states.
  void ReplaceLast(Stage stage, std::unique_ptr<Node> node);
  void SetLogits(ValueId logits) { logits_ = logits; }
  void SetEncoded(ValueId encoded) { encoded_ = encoded; }
  // Return the number of what they add: a cache id, or an index for CacheLayer::rope.
  int AddCacheLayer(const CacheLayer& layer);
  // The number of an equal one.
  std::optional<int> FindCacheLayer(const CacheLayer& layer) const;
  int AddRope(RopeSpec rope);

  // Takes a matrix that is not in the file as the plan needs it.
  const formats::GgufTensor* AddMatrix(DerivedMatrix matrix);

  // One of the matrices of a tensor that has several, [cols x rows x matrices].
  const formats::GgufTensor* AddPart(const formats::GgufTensor& tensor, int64_t index);

  // Computes lifetimes and slots; no value or node may be added afterwards.
  void Finish();

  ArenaLayout Layout(int64_t chunk) const;
  size_t ScratchBytes(const PassLimits& limits) const;  // of one thread, a multiple of 64
  size_t SharedBytes(const PassLimits& limits) const;   // of all threads
  size_t DeviceBytes(const PassLimits& limits) const;   // of a device

  // The floats that a log keeps of a row, for all nodes.
  int64_t tail_floats() const { return tail_floats_; }

  // The bytes of all matrices that are not in the file.
  size_t derived_bytes() const;

  const std::string& name() const { return name_; }
  std::span<const Value> values() const { return values_; }
  const NodeList& nodes(Stage stage) const { return stages_[static_cast<size_t>(stage)]; }
  ValueId logits() const { return logits_; }
  // For kEncodePlan and kEmbedPlan: the rows behind the last norm, as floats. For other plans, if
  // there are layers that predict further tokens: the rows that these read.
  ValueId encoded() const { return encoded_; }
  std::span<const CacheLayer> cache_layers() const { return cache_layers_; }
  std::span<const RopeSpec> ropes() const { return ropes_; }

  // The work of all stages, each run once.
  Work WorkOf(const PassShape& pass) const;
  // How many phases the team goes through in one run of the stage: its nodes of width kTeam.
  int64_t CountPhases(Stage stage, const RowCounts& rows) const;

  std::string Describe() const;

 private:
  struct Slot {
    RowSpace rows;
    size_t row_bytes;
    int last_node;
  };

  Value& ValueOf(ValueId id) { return values_[static_cast<size_t>(id)]; }
  void FindLifetimes();
  Slot& SlotFor(Value& value);

  std::string name_;
  std::vector<Value> values_;
  std::vector<Slot> slots_;
  std::array<NodeList, kStageCount> stages_;
  std::vector<CacheLayer> cache_layers_;
  std::vector<RopeSpec> ropes_;
  std::vector<std::unique_ptr<DerivedMatrix>> matrices_;
  std::vector<std::unique_ptr<formats::GgufTensor>> parts_;
  ValueId logits_ = kNoValue;
  ValueId encoded_ = kNoValue;
  int64_t tail_floats_ = 0;
};

}  // namespace kvant::graph
