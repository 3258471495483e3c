// The calls of kvant/kvant_runner.h on sequences, and on their caches as tensors.
#include "base/counted.h"
#include "engine/capi/handles.h"
#include "engine/generate/logit_check.h"

namespace kvant::capi {
namespace {

Status NoLogits(const Runner& runner, SequenceId sequence) {
  if (!runner.Has(sequence)) {
    return MakeError(ErrorCode::kInvalid, "there is no sequence {}", sequence);
  }
  return MakeError(ErrorCode::kInvalid,
                   "sequence {} has no logits: expected tokens, or kvant_sequence_compute_logits "
                   "after what took them back",
                   sequence);
}

// The values of a shape; kInvalid where it has a size below 0 or too many values.
Result<size_t> ValuesOf(std::span<const int64_t> shape) {
  constexpr int64_t kValuesMax = int64_t{1} << 40;
  int64_t values = 1;
  for (const int64_t size : shape) {
    if (size < 0 || (size > 0 && values > kValuesMax / size)) {
      return MakeError(ErrorCode::kInvalid, "shape: expected sizes of 0 or more, found {}", size);
    }
    values *= size;
  }
  return static_cast<size_t>(values);
}

}  // namespace
}  // namespace kvant::capi

using namespace kvant;
using namespace kvant::capi;

kvant_status kvant_sequence_new(kvant_runner* runner, kvant_sequence* sequence) {
  return CallRunner(runner, [&](Runner& held) -> Status {
    KVANT_TRY(Need(sequence, "sequence"));
    KVANT_ASSIGN(*sequence, held.NewSequence());
    return {};
  });
}

kvant_status kvant_sequence_free(kvant_runner* runner, kvant_sequence sequence) {
  return CallRunner(runner, [&](Runner& held) { return held.FreeSequence(sequence); });
}

kvant_status kvant_sequence_reset(kvant_runner* runner, kvant_sequence sequence) {
  return CallRunner(runner, [&](Runner& held) { return held.Reset(sequence); });
}

int64_t kvant_sequence_length(const kvant_runner* runner, kvant_sequence sequence) {
  if (runner == nullptr || !runner->state->runner->Has(sequence)) return -1;
  return runner->state->runner->length(sequence);
}

const kvant_token* kvant_sequence_tokens(const kvant_runner* runner, kvant_sequence sequence,
                                         size_t* count) {
  std::span<const TokenId> tokens;
  if (runner != nullptr) tokens = runner->state->runner->tokens(sequence);
  if (count != nullptr) *count = tokens.size();
  return tokens.empty() ? nullptr : tokens.data();
}

const float* kvant_sequence_logits(const kvant_runner* runner, kvant_sequence sequence,
                                   size_t* count) {
  std::span<const float> logits;
  if (runner != nullptr) logits = runner->state->runner->logits(sequence);
  if (count != nullptr) *count = logits.size();
  return logits.empty() ? nullptr : logits.data();
}

kvant_status kvant_sequence_copy_logits(const kvant_runner* runner, kvant_sequence sequence,
                                        float* logits, size_t count) {
  return CallRunner(runner, [&](Runner& held) -> Status {
    KVANT_TRY(Need(logits, "logits"));
    const auto found = held.logits(sequence);
    if (found.empty()) return NoLogits(held, sequence);
    if (found.size() != count) {
      return MakeError(ErrorCode::kInvalid, "count: expected {} logits, found {}", found.size(),
                       count);
    }
    std::copy(found.begin(), found.end(), logits);
    return {};
  });
}

kvant_status kvant_sequence_append(kvant_runner* runner, kvant_sequence sequence,
                                   const kvant_token* tokens, size_t count) {
  return CallRunner(runner, [&](Runner& held) -> Status {
    KVANT_ASSIGN(const auto given, Array(tokens, count, "tokens"));
    return held.Append(sequence, given);
  });
}

kvant_status kvant_sequence_append_telling(kvant_runner* runner, kvant_sequence sequence,
                                           const kvant_token* tokens, size_t count,
                                           kvant_progress_function progress, void* user) {
  return CallRunner(runner, [&](Runner& held) -> Status {
    KVANT_ASSIGN(const auto given, Array(tokens, count, "tokens"));
    const auto total = static_cast<int64_t>(count);
    if (held.Has(sequence) && held.length(sequence) + total > held.context()) {
      return MakeError(ErrorCode::kContextFull,
                       "{} tokens do not fit behind the {} of sequence {}: the context has room "
                       "for {}",
                       total, held.length(sequence), sequence, held.context());
    }
    // Chunk by chunk, as one step would cut them.
    const int64_t chunk = held.options().chunk;
    int64_t done = 0;
    do {
      const int64_t piece = std::min(chunk, total - done);
      KVANT_TRY(held.Append(sequence,
                            given.subspan(static_cast<size_t>(done), static_cast<size_t>(piece))));
      done += piece;
      if (progress != nullptr && progress(user, done, total) != 0) return EndedByCallback();
    } while (done < total);
    return {};
  });
}

kvant_status kvant_sequence_generate(kvant_runner* runner, kvant_sequence sequence,
                                     kvant_sampler* sampler, kvant_token* token) {
  return CallRunner(runner, [&](Runner& held) -> Status {
    KVANT_TRY(Need(sampler, "sampler"));
    KVANT_TRY(Need(token, "token"));
    const auto logits = held.logits(sequence);
    if (logits.empty()) return NoLogits(held, sequence);
    if (held.length(sequence) >= held.context()) {
      return MakeError(ErrorCode::kContextFull,
                       "sequence {} has {}: the context has no room for another", sequence,
                       Counted(held.length(sequence), "token"));
    }
    KVANT_TRY(CheckRow(*sampler, logits.size()));
    KVANT_TRY(CheckLogitsAreNumbers(
        logits, {held.name(), held.length(sequence) - 1, held.tokens(sequence).back()}));
    KVANT_ASSIGN(*token, sampler->sampler.Sample(logits));
    sampler->sampler.Accept(*token);
    return held.Append(sequence, {token, 1});
  });
}

kvant_status kvant_sequence_reuse_prefix(kvant_runner* runner, kvant_sequence sequence,
                                         const kvant_token* prompt, size_t count, int64_t* reused) {
  return CallRunner(runner, [&](Runner& held) -> Status {
    KVANT_TRY(Need(reused, "reused"));
    KVANT_ASSIGN(const auto given, Array(prompt, count, "prompt"));
    KVANT_ASSIGN(*reused, held.ReusePrefix(sequence, given));
    return {};
  });
}

kvant_status kvant_sequence_fork(kvant_runner* runner, kvant_sequence sequence,
                                 kvant_sequence* copy) {
  return CallRunner(runner, [&](Runner& held) -> Status {
    KVANT_TRY(Need(copy, "copy"));
    KVANT_ASSIGN(*copy, held.Fork(sequence));
    return {};
  });
}

kvant_status kvant_sequence_reorder(kvant_runner* runner, const kvant_sequence* sequences,
                                    const int32_t* parents, size_t count) {
  return CallRunner(runner, [&](Runner& held) -> Status {
    KVANT_ASSIGN(const auto given, Array(sequences, count, "sequences"));
    KVANT_ASSIGN(const auto from, Array(parents, count, "parents"));
    return held.Reorder(given, from);
  });
}

kvant_status kvant_sequence_rewind(kvant_runner* runner, kvant_sequence sequence, int64_t length,
                                   int32_t replay) {
  return CallRunner(runner, [&](Runner& held) {
    return held.Rewind(sequence, length, replay != 0 ? Replay::kAllowed : Replay::kForbidden);
  });
}

kvant_status kvant_sequence_compute_logits(kvant_runner* runner, kvant_sequence sequence) {
  return CallRunner(runner, [&](Runner& held) { return held.ComputeLogits(sequence); });
}

kvant_status kvant_sequence_prune(kvant_runner* runner, kvant_sequence sequence, int64_t keep_first,
                                  int64_t keep_last, int32_t move) {
  return CallRunner(runner, [&](Runner& held) {
    return held.Prune(sequence, keep_first, keep_last,
                      move != 0 ? PrunePositions::kMoved : PrunePositions::kKept);
  });
}

// ---- Tensors ------------------------------------------------------------------------------------

kvant_status kvant_tensors_export(kvant_runner* runner, const kvant_sequence* sequences,
                                  size_t count, kvant_kv_layout layout, kvant_tensors** tensors) {
  return CallRunner(runner, [&](Runner& held) -> Status {
    KVANT_TRY(Need(tensors, "tensors"));
    KVANT_TRY(CheckChoice(static_cast<int64_t>(layout), KVANT_BKHSD, "layout"));
    KVANT_ASSIGN(const auto given, Array(sequences, count, "sequences"));
    KVANT_ASSIGN(KvTensors found, held.Export(given, static_cast<KvLayout>(layout)));
    return Give(tensors, std::make_unique<kvant_tensors>(kvant_tensors{std::move(found)}));
  });
}

kvant_status kvant_tensors_import(kvant_runner* runner, const kvant_tensors* tensors,
                                  kvant_kv_layout layout, kvant_sequence** sequences,
                                  size_t* count) {
  return CallRunner(runner, [&](Runner& held) -> Status {
    KVANT_TRY(Need(tensors, "tensors"));
    KVANT_TRY(Need(sequences, "sequences"));
    KVANT_TRY(Need(count, "count"));
    KVANT_TRY(CheckChoice(static_cast<int64_t>(layout), KVANT_BKHSD, "layout"));
    KVANT_ASSIGN(const auto made, held.Import(tensors->tensors, static_cast<KvLayout>(layout)));
    *sequences = Copy<kvant_sequence>(made);
    *count = made.size();
    return {};
  });
}

kvant_status kvant_tensors_new(const kvant_token* tokens, size_t batch, size_t length,
                               kvant_tensors** tensors) {
  return Call(nullptr, [&]() -> Status {
    KVANT_TRY(Need(tensors, "tensors"));
    const int64_t shape[] = {static_cast<int64_t>(batch), static_cast<int64_t>(length)};
    KVANT_ASSIGN(const size_t all, ValuesOf(shape));
    KVANT_ASSIGN(const auto given, Array(tokens, all, "tokens"));
    auto handle = std::make_unique<kvant_tensors>();
    for (size_t i = 0; i < batch; ++i) {
      const auto row = given.subspan(i * length, length);
      handle->tensors.tokens.emplace_back(row.begin(), row.end());
    }
    return Give(tensors, std::move(handle));
  });
}

kvant_status kvant_tensors_add(kvant_tensors* tensors, const char* name, const int64_t* shape,
                               size_t dims, const float* values) {
  return Call(tensors, [&]() -> Status {
    KVANT_TRY(Need(tensors, "tensors"));
    KVANT_TRY(Need(name, "name"));
    KVANT_ASSIGN(const auto sizes, Array(shape, dims, "shape"));
    KVANT_ASSIGN(const size_t count, ValuesOf(sizes));
    KVANT_ASSIGN(const auto given, Array(values, count, "values"));
    tensors->tensors.tensors.push_back(
        {name, {sizes.begin(), sizes.end()}, {given.begin(), given.end()}});
    return {};
  });
}

void kvant_tensors_free(kvant_tensors* tensors) { Free(tensors); }

size_t kvant_tensors_count(const kvant_tensors* tensors) {
  return tensors == nullptr ? 0 : tensors->tensors.tensors.size();
}

kvant_status kvant_tensors_get(const kvant_tensors* tensors, size_t index, kvant_tensor* tensor) {
  return Call(tensors, [&]() -> Status {
    KVANT_TRY(Need(tensors, "tensors"));
    const auto& all = tensors->tensors.tensors;
    if (index >= all.size()) {
      return MakeError(ErrorCode::kInvalid, "index: expected less than {}, found {}", all.size(),
                       index);
    }
    const KvTensor& found = all[index];
    const kvant_tensor values = {0,
                                 found.name.c_str(),
                                 found.shape.size(),
                                 found.shape.data(),
                                 found.values.data(),
                                 found.values.size()};
    return WriteStruct(tensor, values, "tensor");
  });
}

const kvant_token* kvant_tensors_tokens(const kvant_tensors* tensors, size_t sequence,
                                        size_t* count) {
  if (count != nullptr) *count = 0;
  if (tensors == nullptr || sequence >= tensors->tensors.tokens.size()) return nullptr;
  const auto& tokens = tensors->tensors.tokens[sequence];
  if (count != nullptr) *count = tokens.size();
  return tokens.data();
}

kvant_status kvant_tensors_write(const kvant_tensors* tensors, const char* path) {
  return Call(tensors, [&]() -> Status {
    KVANT_TRY(Need(tensors, "tensors"));
    KVANT_TRY(Need(path, "path"));
    return WriteKvTensors(path, tensors->tensors);
  });
}

kvant_status kvant_tensors_read(const char* path, kvant_tensors** tensors) {
  return Call(nullptr, [&]() -> Status {
    KVANT_TRY(Need(path, "path"));
    KVANT_TRY(Need(tensors, "tensors"));
    KVANT_ASSIGN(KvTensors read, ReadKvTensors(path));
    return Give(tensors, std::make_unique<kvant_tensors>(kvant_tensors{std::move(read)}));
  });
}
