// The plan of a model: the operations of one step in order, the values that flow between them, and
// where those values lie in memory. It is built once per model; a step only fills in how many rows
// there are.
//
// Values are matrices whose number of rows is symbolic: the tokens of the step, or the rows whose
// logits are wanted. Values whose lifetimes do not overlap share a slot. A node is a phase of the
// thread team: it is done before the next begins.
//
// Invariants: nodes are const while running; all state of a step is in StepContext; running
// allocates nothing.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "cpu/kernels.h"
#include "engine/graph/rope.h"

namespace kvant::kv {
class StepView;
}

namespace kvant::graph {

using ValueId = int;
inline constexpr ValueId kNoValue = -1;

enum class RowKind : uint8_t {
  kStep,  // one row per token of the step
  kHead,  // one row per token whose logits are computed, in passes of at most kHeadRows
};

// Logit rows computed in one pass over the output matrix.
inline constexpr int64_t kHeadRows = 32;

struct Value {
  std::string name;
  RowKind rows;
  int64_t cols;
  cpu::ActivationKind kind;  // float rows, or records of cpu::ActivationRow
  size_t row_bytes;
  int first_node = -1;  // lifetime, in node order
  int last_node = -1;
  int slot = -1;
};

// The angles of one kind of rotary embedding, for a session's context.
struct RopeAngles {
  std::vector<float> frequencies;  // [n_rot / 2] radians per position
  float amplitude = 1.0f;          // multiplies cosine and sine
};

// What one attention keeps in the cache. Its number in Plan::cache_layers is its cache id.
struct CacheLayer {
  int64_t window = 0;  // positions a query sees, itself included; 0 = all
  int64_t kv_heads = 0;
  int64_t k_dim = 0;
  int64_t v_dim = 0;
  int rope = -1;  // the rotation of its keys: index into Plan::ropes; -1 = none
};

// The largest step of a session; sizes of buffers follow from it.
struct StepLimits {
  int64_t chunk = 0;      // rows
  int64_t context = 0;    // positions
  int64_t sequences = 1;  // that take part
  int64_t shares = 1;     // that a phase is cut into
};

// Everything that differs from step to step.
struct StepContext {
  std::byte* arena = nullptr;
  std::span<const size_t> value_offsets;
  std::span<const Value> values;
  uint64_t run = 0;                    // of the body or the head, counted through the session
  int64_t rows = 0;                    // tokens of the step
  std::span<const int64_t> head;       // the rows whose logits this head pass computes
  std::span<const int32_t> tokens;     // [rows]
  std::span<const int64_t> positions;  // [rows], ascending inside a sequence
  kv::StepView* kv = nullptr;  // null: attention recomputes keys and values of the whole sequence
  std::span<const RopeAngles> ropes;  // in the order of Plan::ropes
  std::byte* scratch = nullptr;       // scratch_bytes per thread
  size_t scratch_bytes = 0;
  std::span<std::byte> shared;  // of all threads while a node runs
  // Counters of what shares of a node have done for each other; zero between nodes.
  std::span<std::atomic<int32_t>> arrivals;  // [limits.shares]
  StepLimits limits;

  int64_t RowCount(ValueId id) const {
    return values[static_cast<size_t>(id)].rows == RowKind::kStep
               ? rows
               : static_cast<int64_t>(head.size());
  }
  std::byte* Bytes(ValueId id) const { return arena + value_offsets[static_cast<size_t>(id)]; }
  float* Floats(ValueId id) const { return reinterpret_cast<float*>(Bytes(id)); }
  size_t RowBytes(ValueId id) const { return values[static_cast<size_t>(id)].row_bytes; }
  int64_t RowFloats(ValueId id) const { return static_cast<int64_t>(RowBytes(id) / sizeof(float)); }
  float* FloatRow(ValueId id, int64_t row) const { return Floats(id) + row * RowFloats(id); }
  // The part of a quantized row of `cols` values that begins at column `col`.
  cpu::ActivationRow RecordAt(ValueId id, int64_t row, int64_t cols, int64_t col) const {
    std::byte* record = Bytes(id) + static_cast<size_t>(row) * RowBytes(id);
    return cpu::ActivationRowAt(record, cols).From(col);
  }
  std::span<std::byte> Scratch(const ThreadPool::Member& member) const {
    return {scratch + scratch_bytes * static_cast<size_t>(member.thread), scratch_bytes};
  }
};

class Node {
 public:
  Node(std::string name, std::vector<ValueId> reads, std::vector<ValueId> writes)
      : name_(std::move(name)), reads_(std::move(reads)), writes_(std::move(writes)) {}
  virtual ~Node() = default;
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  // Computes one of the shares that the work is cut into. Shares are disjoint and may run on any
  // thread at any time of the phase.
  virtual void Run(const StepContext& step, const ThreadPool::Member& member) const = 0;

  // The operation and its kernels: "matmul q4_0 int8 avx512vnni [2048 x 3072]".
  virtual std::string Describe() const = 0;

  // Private memory of a thread while this node runs.
  virtual size_t ScratchBytes(const StepLimits& limits) const {
    (void)limits;
    return 0;
  }

  // Memory of all threads together while this node runs.
  virtual size_t SharedBytes(const StepLimits& limits) const {
    (void)limits;
    return 0;
  }

  // Another one for every run of every node of a plan, and not 0.
  uint64_t RunNumber(const StepContext& step) const {
    return (step.run + 1) << kNumberBits | static_cast<uint64_t>(number_);
  }

  const std::string& name() const { return name_; }
  const std::vector<ValueId>& reads() const { return reads_; }
  const std::vector<ValueId>& writes() const { return writes_; }

 private:
  friend class Plan;
  static constexpr int kNumberBits = 20;

  std::string name_;
  std::vector<ValueId> reads_;
  std::vector<ValueId> writes_;
  int number_ = 0;  // in the plan
};

// Where the values of a session lie, for given maximal row counts.
struct ArenaLayout {
  std::vector<size_t> value_offsets;
  size_t bytes = 0;
  size_t head_bytes = 0;  // the part of `bytes` that head rows (logits) take
};

class Plan {
 public:
  // Body: everything per token of a step. Head: from the final norm to the logits.
  ValueId AddValue(std::string name, RowKind rows, int64_t cols, cpu::ActivationKind kind);
  void AddBodyNode(std::unique_ptr<Node> node);
  void AddHeadNode(std::unique_ptr<Node> node);
  void SetLogits(ValueId logits) { logits_ = logits; }
  // Return the number of what they add: a cache id, or an index for CacheLayer::rope.
  int AddCacheLayer(const CacheLayer& layer);
  int AddRope(RopeSpec rope);

  // Computes lifetimes and slots; no value or node may be added afterwards.
  void Finish();

  ArenaLayout Layout(int64_t chunk) const;
  size_t ScratchBytes(const StepLimits& limits) const;  // of one thread, a multiple of 64
  size_t SharedBytes(const StepLimits& limits) const;   // of all threads

  std::span<const Value> values() const { return values_; }
  const std::vector<std::unique_ptr<Node>>& body() const { return body_; }
  const std::vector<std::unique_ptr<Node>>& head() const { return head_; }
  ValueId logits() const { return logits_; }
  std::span<const CacheLayer> cache_layers() const { return cache_layers_; }
  std::span<const RopeSpec> ropes() const { return ropes_; }

  std::string Describe() const;

 private:
  void Add(std::unique_ptr<Node> node, std::vector<std::unique_ptr<Node>>& nodes);

  struct Slot {
    RowKind rows;
    size_t row_bytes;
    int last_node;
  };

  std::vector<Value> values_;
  std::vector<Slot> slots_;
  std::vector<std::unique_ptr<Node>> body_;
  std::vector<std::unique_ptr<Node>> head_;
  std::vector<CacheLayer> cache_layers_;
  std::vector<RopeSpec> ropes_;
  ValueId logits_ = kNoValue;
};

}  // namespace kvant::graph
