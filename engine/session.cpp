// Running a plan: buffers, steps, the cache transaction around each, and the head over the rows
// that want logits.
#include "engine/session.h"

#include <algorithm>
#include <array>
#include <optional>

#include "base/aligned_buffer.h"
#include "base/check.h"
#include "base/thread_pool.h"
#include "engine/arch/arch_spec.h"
#include "engine/graph/plan.h"
#include "engine/kv/kv_cache.h"

namespace kvant {
namespace {

constexpr int64_t kContextMax = int64_t{1} << 30;
constexpr int kThreadsMax = 1024;

// Bytes of weights times rows below which one thread runs a step alone. So much takes it well under
// a millisecond; sharing would gain some hundred microseconds on an idle machine and lose far more
// on a busy one, where every barrier waits for a thread that is not running. A number of threads
// that the caller asked for is kept to.
constexpr uint64_t kAloneWork = uint64_t{4} << 20;

// The options with every default filled in.
Result<SessionOptions> Resolve(const Model& model, SessionOptions options) {
  if (options.context == 0) options.context = model.context_length();
  if (options.context < 1 || options.context > kContextMax) {
    return MakeError(ErrorCode::kInvalid, "context: expected 1 to {} positions, found {}",
                     kContextMax, options.context);
  }
  if (options.threads == 0) options.threads = DefaultThreadCount();
  if (options.threads < 1 || options.threads > kThreadsMax) {
    return MakeError(ErrorCode::kInvalid, "threads: expected 1 to {}, found {}", kThreadsMax,
                     options.threads);
  }
  if (options.chunk < 1) {
    return MakeError(ErrorCode::kInvalid, "chunk: expected at least 1 token, found {}",
                     options.chunk);
  }
  // Without a cache a step is the whole sequence.
  options.chunk = options.kv_cache ? std::min(options.chunk, options.context) : options.context;
  return options;
}

// Layers with the same window, heads and dimensions share a group.
std::vector<kv::GroupShape> GroupLayers(const arch::ArchSpec& spec, const SessionOptions& options) {
  std::vector<kv::GroupShape> groups;
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    const arch::LayerSpec& layer = spec.layers[i];
    const auto same = [&layer](const kv::GroupShape& group) {
      return group.window == layer.window && group.kv_heads == layer.kv_heads &&
             group.k_dim == layer.k_dim && group.v_dim == layer.v_dim;
    };
    auto group = std::find_if(groups.begin(), groups.end(), same);
    if (group == groups.end()) {
      groups.push_back({layer.window,
                        static_cast<int>(layer.kv_heads),
                        static_cast<int>(layer.k_dim),
                        static_cast<int>(layer.v_dim),
                        options.k_type,
                        options.v_type,
                        {}});
      group = groups.end() - 1;
    }
    group->layers.push_back(static_cast<int>(i));
  }
  return groups;
}

kv::CacheOptions CacheOptionsFor(const Model& model, const SessionOptions& options) {
  return {GroupLayers(model.spec(), options), options.context, options.chunk};
}

}  // namespace

Result<cpu::KvElement> ParseKvType(std::string_view name) {
  if (name == "f32") return cpu::KvElement::kF32;
  if (name == "f16") return cpu::KvElement::kF16;
  return MakeError(ErrorCode::kInvalid, "KV cache type: expected f32 or f16, found \"{}\"", name);
}

Result<MemoryPlan> PlanMemory(const Model& model, const SessionOptions& wanted) {
  KVANT_ASSIGN(const SessionOptions options, Resolve(model, wanted));
  MemoryPlan plan;
  for (const formats::GgufTensor& tensor : model.file().tensors())
    plan.weights += tensor.size_bytes;
  if (options.kv_cache) {
    const kv::CacheOptions cache = CacheOptionsFor(model, options);
    for (const kv::GroupShape& shape : cache.groups) {
      const int64_t rows =
          kv::Cache::BlocksNeeded(shape, options.context, options.chunk) * kv::kBlockTokens;
      plan.groups.push_back({static_cast<int>(shape.layers.size()), shape.window, shape.kv_heads,
                             shape.k_dim, shape.v_dim, rows,
                             shape.bytes_per_token() * static_cast<uint64_t>(rows),
                             shape.bytes_per_token()});
    }
    plan.kv = kv::Cache::BytesNeeded(cache);
  }
  const graph::ArenaLayout layout = model.plan().Layout(options.chunk);
  plan.logits = layout.head_bytes;
  plan.activations = layout.bytes - layout.head_bytes +
                     model.plan().ScratchBytes({options.chunk, options.context}) *
                         static_cast<uint64_t>(options.threads);
  return plan;
}

struct Session::State {
  State(std::shared_ptr<const Model> model_in, const SessionOptions& options_in)
      : model(std::move(model_in)), options(options_in), pool(options_in.threads) {
    for (const auto& tensor : model->file().tensors()) weight_bytes += tensor.size_bytes;
  }

  Status Prepare();
  Status CheckTokens(std::span<const TokenId> ids) const;
  // Takes the logits of `count` rows of a head pass; the first belongs to token `index` of the
  // call.
  using PassSink = std::function<Status(int64_t index, int64_t count)>;
  Status Process(std::span<const TokenId> ids, int64_t first, const PassSink& sink);
  std::span<const float> PassRow(int64_t row) const;
  Status RunStep(std::span<const TokenId> ids);
  Status RunHead(int64_t first, int64_t count);
  Status RunNodes(const std::vector<std::unique_ptr<graph::Node>>& nodes);

  std::shared_ptr<const Model> model;
  SessionOptions options;
  ThreadPool pool;
  graph::ArenaLayout layout;
  AlignedBuffer arena;
  AlignedBuffer scratch;
  std::vector<graph::RopeAngles> ropes;
  std::optional<kv::Cache> cache;
  std::optional<kv::StepView> view;
  kv::Sequence sequence;           // its length also counts without a cache
  std::vector<TokenId> tokens;     // all processed, and those of the step under way
  std::vector<int64_t> positions;  // 0, 1, 2 ... up to the context
  graph::StepContext step;
  std::span<const float> logits;
  uint64_t weight_bytes = 0;
  bool may_run_alone = false;  // the number of threads is ours to choose
  // Member 0 polls the cancel flag before a barrier and everybody reads the answer after it. Two
  // slots in turn, so that the next answer is not written while a slow member still reads this one.
  std::array<bool, 2> stopped{};
};

Status Session::State::Prepare() {
  const graph::Plan& plan = model->plan();
  const graph::StepLimits limits{options.chunk, options.context};
  layout = plan.Layout(options.chunk);
  KVANT_ASSIGN(arena, AlignedBuffer::Allocate(layout.bytes, "activations"));
  const size_t scratch_bytes = plan.ScratchBytes(limits);
  KVANT_ASSIGN(scratch, AlignedBuffer::Allocate(
                            scratch_bytes * static_cast<size_t>(options.threads), "scratch"));
  for (const arch::RopeSpec& rope : model->spec().ropes)
    ropes.push_back({rope.Frequencies(options.context), rope.amplitude});
  tokens.reserve(static_cast<size_t>(options.context));
  positions.resize(static_cast<size_t>(options.context));
  for (size_t i = 0; i < positions.size(); ++i) positions[i] = static_cast<int64_t>(i);
  if (options.kv_cache) {
    KVANT_ASSIGN(cache, kv::Cache::Create(CacheOptionsFor(*model, options)));
    view.emplace(*cache);
    sequence = cache->NewSequence();
  }
  step.arena = arena.data();
  step.value_offsets = layout.value_offsets;
  step.values = plan.values();
  step.ropes = ropes;
  step.scratch = scratch.data();
  step.scratch_bytes = scratch_bytes;
  step.kv = view.has_value() ? &*view : nullptr;
  return {};
}

Status Session::State::CheckTokens(std::span<const TokenId> ids) const {
  if (ids.empty()) return MakeError(ErrorCode::kInvalid, "no tokens to process");
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || ids[i] >= model->vocab_size()) {
      return MakeError(ErrorCode::kInvalid, "token {}: expected an id from 0 to {}, found {}", i,
                       model->vocab_size() - 1, ids[i]);
    }
  }
  const int64_t total = sequence.length + static_cast<int64_t>(ids.size());
  if (total > options.context) {
    return MakeError(ErrorCode::kContextFull, "{} tokens after {} do not fit the context of {}",
                     ids.size(), sequence.length, options.context);
  }
  return {};
}

// Runs nodes on the whole team with a barrier after each. kCancelled leaves buffers half written,
// which is harmless.
Status Session::State::RunNodes(const std::vector<std::unique_ptr<graph::Node>>& nodes) {
  bool cancelled = false;
  const auto run = [&](const ThreadPool::Member& member) {
    for (size_t i = 0; i < nodes.size(); ++i) {
      nodes[i]->Run(step, member);
      if (member.index == 0) {
        stopped[i % 2] =
            options.cancel != nullptr && options.cancel->load(std::memory_order_relaxed);
      }
      member.Barrier();
      if (stopped[i % 2]) {
        if (member.index == 0) cancelled = true;
        return;
      }
    }
  };
  const bool alone = may_run_alone && weight_bytes * static_cast<uint64_t>(step.rows) < kAloneWork;
  alone ? pool.RunAlone(run) : pool.Run(run);
  if (cancelled) return MakeError(ErrorCode::kCancelled, "cancelled");
  return {};
}

// One transaction: afterwards the sequence holds `ids` too, or is unchanged.
Status Session::State::RunStep(std::span<const TokenId> ids) {
  const int64_t count = static_cast<int64_t>(ids.size());
  const size_t before = static_cast<size_t>(sequence.length);
  if (cache.has_value()) {
    KVANT_TRY(cache->Reserve(sequence, count));
    view->Set(sequence);
  }
  tokens.insert(tokens.end(), ids.begin(), ids.end());
  const size_t first = cache.has_value() ? before : 0;
  step.tokens = std::span(tokens).subspan(first);
  step.positions = std::span(positions).subspan(first, step.tokens.size());
  step.rows = static_cast<int64_t>(step.tokens.size());
  const Status status = RunNodes(model->plan().body());
  if (!status.ok()) {
    if (cache.has_value()) cache->Rollback(sequence);
    tokens.resize(before);
    return status;
  }
  if (cache.has_value()) {
    cache->Commit(sequence);
  } else {
    sequence.length += count;
  }
  return {};
}

// Logits of rows [first, first + count) of the last step, count <= kHeadRows.
Status Session::State::RunHead(int64_t first, int64_t count) {
  step.head_first = first;
  step.head_rows = count;
  return RunNodes(model->plan().head());
}

// Logits are computed for the tokens from number `first` on.
Status Session::State::Process(std::span<const TokenId> ids, int64_t first, const PassSink& sink) {
  KVANT_TRY(CheckTokens(ids));
  logits = {};
  const int64_t total = static_cast<int64_t>(ids.size());
  for (int64_t done = 0; done < total;) {
    const int64_t count = std::min(options.chunk, total - done);
    KVANT_TRY(RunStep(ids.subspan(static_cast<size_t>(done), static_cast<size_t>(count))));
    // The step's rows end with the new tokens; without a cache older ones come before them.
    const int64_t older = step.rows - count;
    for (int64_t row = std::max<int64_t>(first - done, 0); row < count;) {
      const int64_t pass = std::min(graph::kHeadRows, count - row);
      KVANT_TRY(RunHead(older + row, pass));
      if (sink) KVANT_TRY(sink(done + row, pass));
      logits = PassRow(pass - 1);
      row += pass;
    }
    done += count;
  }
  return {};
}

std::span<const float> Session::State::PassRow(int64_t row) const {
  return {step.FloatRow(model->plan().logits(), row), static_cast<size_t>(model->vocab_size())};
}

Session::Session(std::unique_ptr<State> state) : state_(std::move(state)) {}

Session::~Session() = default;

Result<std::unique_ptr<Session>> Session::Create(std::shared_ptr<const Model> model,
                                                 const SessionOptions& options) {
  KVANT_CHECK(model != nullptr);
  KVANT_ASSIGN(const SessionOptions resolved, Resolve(*model, options));
  auto state = std::make_unique<State>(std::move(model), resolved);
  state->may_run_alone = options.threads == 0;
  KVANT_TRY(state->Prepare());
  return std::unique_ptr<Session>(new Session(std::move(state)));
}

Status Session::Append(std::span<const TokenId> tokens) {
  return state_->Process(tokens, static_cast<int64_t>(tokens.size()) - 1, nullptr);
}

Status Session::AppendAll(std::span<const TokenId> tokens, const LogitRow& row) {
  return state_->Process(tokens, 0, [&](int64_t, int64_t count) -> Status {
    for (int64_t i = 0; i < count; ++i) KVANT_TRY(row(state_->PassRow(i)));
    return {};
  });
}

Status Session::AppendScoring(std::span<const TokenId> tokens, int64_t first,
                              const LogitRowFunction& row) {
  return state_->Process(tokens, first, [&](int64_t index, int64_t count) -> Status {
    state_->pool.Run([&](const ThreadPool::Member& member) {
      for (int64_t i = member.index; i < count; i += member.count) {
        row(index + i, state_->PassRow(i));
      }
    });
    return {};
  });
}

std::span<const float> Session::logits() const { return state_->logits; }

int64_t Session::length() const { return state_->sequence.length; }

int64_t Session::context() const { return state_->options.context; }

std::span<const TokenId> Session::tokens() const { return state_->tokens; }

int Session::threads() const { return state_->options.threads; }

Status Session::Rewind(int64_t length) {
  State& state = *state_;
  if (state.cache.has_value()) {
    KVANT_TRY(state.cache->Rewind(state.sequence, length));
  } else {
    if (length < 0 || length > state.sequence.length) {
      return MakeError(ErrorCode::kInvalid, "rewind to {}: the sequence has {} tokens", length,
                       state.sequence.length);
    }
    state.sequence.length = length;
  }
  state.tokens.resize(static_cast<size_t>(length));
  state.logits = {};
  return {};
}

uint64_t Session::kv_bytes_used() const {
  return state_->cache.has_value() ? state_->cache->bytes_used() : 0;
}

}  // namespace kvant
