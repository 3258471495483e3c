// Export and import of caches as tensors, one row of one head at a time.
#include "kvant/kv_tensors.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/result.h"
#include "cpu/kernels/rope.h"
#include "cpu/kernels/table.h"
#include "engine/kv/kv_rows.h"
#include "engine/run/engine.h"

namespace kvant {
namespace {

enum class Side : uint8_t { kKey, kValue };
constexpr std::array kSides = {Side::kKey, Side::kValue};

// The place of one layer's keys or values in the tensor that holds them.
struct Place {
  KvLayout layout;
  Side side;
  int64_t batch, heads, positions, dim;

  std::string Name(int layer) const {
    if (layout != KvLayout::kBhsd) return fmt::format("past_{}", layer);
    return fmt::format("past_key_values.{}.{}", layer, side == Side::kKey ? "key" : "value");
  }
  std::vector<int64_t> Shape() const {
    switch (layout) {
      case KvLayout::kBhsd: return {batch, heads, positions, dim};
      case KvLayout::kKbhsd: return {2, batch, heads, positions, dim};
      case KvLayout::kBkhsd: return {batch, 2, heads, positions, dim};
    }
    return {};
  }
  // The index, among the tensor's values, of the first value of a row.
  size_t Row(int64_t b, int64_t head, int64_t position) const {
    const int64_t half = side == Side::kKey ? 0 : 1;
    const int64_t outer = layout == KvLayout::kBhsd    ? b
                          : layout == KvLayout::kKbhsd ? half * batch + b
                                                       : b * 2 + half;
    return static_cast<size_t>(((outer * heads + head) * positions + position) * dim);
  }
};

// The numbers of a row; 0 for the values of an indexer, which has none.
int64_t DimOf(const kv::GroupShape& shape, Side side) {
  return side == Side::kKey ? shape.k_dim : shape.v_dim;
}

Place PlaceOf(const kv::GroupShape& shape, KvLayout layout, Side side, int64_t batch,
              int64_t positions) {
  return {layout, side, batch, shape.kv_heads, positions, DimOf(shape, side)};
}

int64_t Elements(std::span<const int64_t> shape) {
  int64_t count = 1;
  for (const int64_t n : shape) count *= n;
  return count;
}

// How many positions of a layer the next token of a sequence of this length sees.
int64_t PositionsNeeded(const kv::GroupShape& shape, int64_t length) {
  return length - shape.FirstVisible(length);
}

Status CheckLayout(const kv::Cache& cache, KvLayout layout) {
  for (const kv::GroupId group : cache.group_ids()) {
    const kv::GroupShape& shape = cache.shape(group);
    if (shape.holds_states()) {
      return MakeError(ErrorCode::kNotSupported,
                       "the states of recurrent layers have no form as tensors of keys and values");
    }
    if (layout != KvLayout::kBhsd && shape.k_dim != shape.v_dim) {
      return MakeError(ErrorCode::kNotSupported,
                       "keys of {} and values of {} dimensions do not fit one tensor: use bhsd",
                       shape.k_dim, shape.v_dim);
    }
  }
  return {};
}

// ---- Rows ---------------------------------------------------------------------------------------

// A cache layer, and how its keys are rearranged.
struct Layer {
  Layer(const kv::Cache& cache_in, const Model& model, int number_in)
      : cache(cache_in), kernels(model.kernels()), number(number_in) {
    const graph::Plan& plan = model.plan();
    const int rope_index = plan.cache_layers()[static_cast<size_t>(number)].rope;
    if (rope_index < 0) return;
    const graph::RopeSpec& rope = plan.ropes()[static_cast<size_t>(rope_index)];
    if (rope.style == cpu::RopeStyle::kInterleaved) pairs = static_cast<size_t>(rope.n_rot / 2);
  }
  kv::GroupId group() const { return cache.group_of_layer(number); }
  const kv::GroupShape& shape() const { return cache.shape(group()); }

  const kv::Cache& cache;
  const cpu::KernelTable& kernels;
  int number;
  // The pairs (2i, 2i + 1) of a key that the rope rotates; in tensors pair i is values i and i +
  // pairs.
  size_t pairs = 0;
};

void ReadSequence(const Layer& layer, const kv::Sequence& sequence, const Place& place, int64_t b,
                  float* values) {
  std::vector<float> vector(static_cast<size_t>(place.dim));
  for (int head = 0; head < place.heads; ++head) {
    for (int64_t i = 0; i < place.positions; ++i) {
      const int64_t position = sequence.length - place.positions + i;
      const kv::TableEntry& entry = *kv::EntryAt(sequence.tables[layer.group()], position);
      const auto load = place.side == Side::kKey ? kv::LoadKey : kv::LoadValue;
      load(layer.cache, layer.kernels, {{layer.number, head}, entry, position}, vector.data());
      float* row = values + place.Row(b, head, i);
      std::copy(vector.begin(), vector.end(), row);
      for (size_t pair = 0; place.side == Side::kKey && pair < layer.pairs; ++pair) {
        row[pair] = vector[2 * pair];
        row[pair + layer.pairs] = vector[2 * pair + 1];
      }
    }
  }
}

void WriteSequence(const Layer& layer, const kv::Sequence& sequence, const Place& place, int64_t b,
                   const float* values) {
  std::vector<float> vector(static_cast<size_t>(place.dim));
  for (int head = 0; head < place.heads; ++head) {
    for (int64_t i = 0; i < place.positions; ++i) {
      const int64_t position = sequence.length - place.positions + i;
      const kv::TableEntry& entry = *kv::EntryAt(sequence.tables[layer.group()], position);
      const float* row = values + place.Row(b, head, i);
      vector.assign(row, row + place.dim);
      for (size_t pair = 0; place.side == Side::kKey && pair < layer.pairs; ++pair) {
        vector[2 * pair] = row[pair];
        vector[2 * pair + 1] = row[pair + layer.pairs];
      }
      const auto store = place.side == Side::kKey ? kv::StoreKey : kv::StoreValue;
      store(layer.cache, layer.kernels, {{layer.number, head}, entry, position}, vector.data());
    }
  }
}

// The tensors leave out what a decoder keeps of a source, so a model must not have one.
Status CheckNoSource(const Model& model) {
  if (!model.has_encoder()) return {};
  return MakeError(ErrorCode::kNotSupported,
                   "export and import: expected a model without an encoder, found {}",
                   model.architecture());
}

// Ids of rows mean nothing to another runner.
Status CheckNoRows(const Model& model, const char* what, std::span<const TokenId> tokens) {
  const TokenId vocab = model.vocab_size();
  const auto row = std::ranges::find_if(tokens, [&](TokenId token) { return token >= vocab; });
  if (row == tokens.end()) return {};
  return MakeError(ErrorCode::kNotSupported,
                   "{}: token {}: expected an id from 0 to {}, found {}, the id of a row", what,
                   row - tokens.begin(), vocab - 1, *row);
}

}  // namespace

// ---- Export -------------------------------------------------------------------------------------

Result<KvTensors> Runner::Export(std::span<const SequenceId> ids, KvLayout layout) const {
  KVANT_TRY(CheckNoSource(*engine_->core->model));
  const run::Core& core = *engine_->core;
  if (!core.cache.has_value()) {
    return MakeError(ErrorCode::kNotSupported, "export: there is no KV cache");
  }
  const kv::Cache& cache = *core.cache;
  KVANT_TRY(CheckLayout(cache, layout));
  KvTensors out;
  std::vector<const kv::Sequence*> sequences;
  for (const SequenceId id : ids) {
    KVANT_ASSIGN(const run::SequenceState* const state, engine_->sequences->Get(id));
    if (!sequences.empty() && state->kv.length != sequences.front()->length) {
      return MakeError(ErrorCode::kInvalid,
                       "export: expected sequences of one length, found {} and {} tokens",
                       sequences.front()->length, state->kv.length);
    }
    if (!state->kv.pruned.empty()) {
      return MakeError(ErrorCode::kNotSupported, "export: sequence {} has pruned positions", id);
    }
    if (state->adapters != nullptr) {
      return MakeError(ErrorCode::kNotSupported, "export: sequence {} uses adapters", id);
    }
    KVANT_TRY(CheckNoRows(*core.model, "export", state->tokens));
    sequences.push_back(&state->kv);
    out.tokens.push_back(state->tokens);
  }
  if (sequences.empty()) return MakeError(ErrorCode::kInvalid, "export: no sequences given");
  const int64_t length = sequences.front()->length;
  const int64_t batch = std::ssize(sequences);
  for (int number = 0; number < std::ssize(core.model->plan().cache_layers()); ++number) {
    const Layer layer(cache, *core.model, number);
    const int64_t positions = PositionsNeeded(layer.shape(), length);
    for (const Side side : kSides) {
      const Place place = PlaceOf(layer.shape(), layout, side, batch, positions);
      if (place.dim == 0) continue;
      if (layout == KvLayout::kBhsd || side == Side::kKey) {
        KvTensor& tensor = out.tensors.emplace_back();
        tensor.name = place.Name(number);
        tensor.shape = place.Shape();
        tensor.values.resize(static_cast<size_t>(Elements(tensor.shape)));
      }
      for (int64_t b = 0; b < batch; ++b) {
        ReadSequence(layer, *sequences[static_cast<size_t>(b)], place, b,
                     out.tensors.back().values.data());
      }
    }
  }
  KVANT_TRY(cache.status());
  return out;
}

// ---- Import -------------------------------------------------------------------------------------

namespace {

// The tensor with one side of a layer, and where that side lies in it.
struct Found {
  const KvTensor* tensor;
  Place place;
};

Result<Found> FindLayer(const KvTensors& in, KvLayout layout, Side side, int layer,
                        const kv::GroupShape& shape, int64_t length) {
  const int64_t needed = PositionsNeeded(shape, length);
  Place place = PlaceOf(shape, layout, side, std::ssize(in.tokens), needed);
  const std::string name = place.Name(layer);
  const KvTensor* tensor = in.Find(name);
  if (tensor == nullptr) return MakeError(ErrorCode::kInvalid, "import: no tensor {}", name);
  if (tensor->shape.size() >= 2) {
    place.positions = std::clamp(tensor->shape[tensor->shape.size() - 2], needed, length);
  }
  const std::vector<int64_t> expected = place.Shape();
  if (tensor->shape != expected || std::ssize(tensor->values) != Elements(expected)) {
    return MakeError(ErrorCode::kInvalid, "import: tensor {}: expected the shape [{}], found [{}]",
                     name, fmt::join(expected, ", "), fmt::join(tensor->shape, ", "));
  }
  return Found{tensor, place};
}

// The first position that the tensors have; all layers of a group must agree on it.
Result<IdVector<kv::GroupId, int64_t>> FirstPositions(const run::Core& core, const KvTensors& in,
                                                      KvLayout layout) {
  const kv::Cache& cache = *core.cache;
  const int64_t length = std::ssize(in.tokens.front());
  IdVector<kv::GroupId, int64_t> first(cache.groups(), -1);
  for (int layer = 0; layer < std::ssize(core.model->plan().cache_layers()); ++layer) {
    const kv::GroupId group = cache.group_of_layer(layer);
    for (const Side side : kSides) {
      if (DimOf(cache.shape(group), side) == 0) continue;
      KVANT_ASSIGN(const Found found,
                   FindLayer(in, layout, side, layer, cache.shape(group), length));
      int64_t& begin = first[group];
      if (begin >= 0 && begin != length - found.place.positions) {
        return MakeError(ErrorCode::kInvalid,
                         "import: tensor {}: expected {} positions as in other layers, found {}",
                         found.tensor->name, length - begin, found.place.positions);
      }
      begin = length - found.place.positions;
    }
  }
  return first;
}

// Gives an empty sequence the tokens and the cache rows of sequence number `b` of the tensors.
Status TakeTensors(run::Core& core, const KvTensors& in, KvLayout layout, int64_t b,
                   run::SequenceState& state) {
  kv::Cache& cache = *core.cache;
  const std::vector<TokenId>& ids = in.tokens[static_cast<size_t>(b)];
  const int64_t length = std::ssize(ids);
  KVANT_ASSIGN(const auto first, FirstPositions(core, in, layout));
  KVANT_TRY(cache.Adopt(state.kv, length, first));
  for (int number = 0; number < std::ssize(core.model->plan().cache_layers()); ++number) {
    const Layer layer(cache, *core.model, number);
    for (const Side side : kSides) {
      if (DimOf(layer.shape(), side) == 0) continue;
      KVANT_ASSIGN(const Found found, FindLayer(in, layout, side, number, layer.shape(), length));
      WriteSequence(layer, state.kv, found.place, b, found.tensor->values.data());
    }
  }
  state.tokens.assign(ids.begin(), ids.end());  // none is a row's
  state.origin = length == 0 ? run::Origin::kTokens : run::Origin::kImported;
  return cache.status();
}

}  // namespace

Result<std::vector<SequenceId>> Runner::Import(const KvTensors& in, KvLayout layout) {
  KVANT_TRY(CheckNoSource(*engine_->core->model));
  run::Core& core = *engine_->core;
  run::Sequences& sequences = *engine_->sequences;
  if (!core.cache.has_value()) {
    return MakeError(ErrorCode::kNotSupported, "import: there is no KV cache");
  }
  KVANT_TRY(CheckLayout(*core.cache, layout));
  if (in.tokens.empty()) return MakeError(ErrorCode::kInvalid, "import: no sequences");
  for (const std::vector<TokenId>& ids : in.tokens) {
    if (ids.size() != in.tokens.front().size()) {
      return MakeError(ErrorCode::kInvalid,
                       "import: expected sequences of one length, found {} and {} tokens",
                       in.tokens.front().size(), ids.size());
    }
    if (!ids.empty()) KVANT_TRY(run::CheckTokens(core, 0, ids));
    KVANT_TRY(CheckNoRows(*core.model, "import", ids));
  }
  std::vector<SequenceId> made;
  Status status;
  for (int64_t b = 0; b < std::ssize(in.tokens) && status.ok(); ++b) {
    const auto id = sequences.New();
    status = id.ok() ? TakeTensors(core, in, layout, b, *sequences.Find(*id)) : Status(id.error());
    if (id.ok()) made.push_back(*id);
  }
  if (!status.ok()) {
    for (const SequenceId id : made) KVANT_TRY(FreeSequence(id));
    return status.error();
  }
  KVANT_TRY(sequences.CheckIfAsked());
  return made;
}

}  // namespace kvant
