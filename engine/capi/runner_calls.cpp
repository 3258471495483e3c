// The calls of kvant/kvant_runner.h on runners as a whole: options, steps, scores, files, sources.
#include <iterator>

#include "engine/capi/handles.h"
#include "engine/evaluate/text_scores.h"
#include "engine/run/session_settings.h"
#include "kvant/memory_plan.h"

namespace kvant::capi {
namespace {

kvant_runner_options InC(const SessionOptions& options) {
  kvant_runner_options out = {};
  out.struct_size = sizeof(out);
  for (const SessionSetting& setting : AllSessionSettings()) {
    setting.field.in_c.set(out, setting.field.ours.get(options));
  }
  out.cpus = options.placement.cpus.data();
  out.cpu_count = options.placement.cpus.size();
  return out;
}

kvant_runner_stats InC(const RunnerStats& stats) {
  kvant_runner_stats out = {};
  out.kv_bytes_used = stats.kv_bytes_used;
  out.kv_bytes_peak = stats.kv_bytes_peak;
  out.kv_bytes_committed = stats.kv_bytes_committed;
  out.kv_bytes_capacity = stats.kv_bytes_capacity;
  out.kv_bytes_written = stats.kv_bytes_written;
  out.kv_bytes_copied = stats.kv_bytes_copied;
  out.kv_blocks_taken = stats.kv_blocks_taken;
  out.kv_blocks_copied = stats.kv_blocks_copied;
  out.rewinds = stats.rewinds;
  out.replays = stats.replays;
  out.tokens_processed = stats.tokens_processed;
  out.tokens_replayed = stats.tokens_replayed;
  out.tokens_scanned = stats.tokens_scanned;
  out.tokens_reused = stats.tokens_reused;
  out.passes = stats.passes;
  out.encoder_passes = stats.encoder_passes;
  out.sequences = stats.sequences;
  out.snapshots = stats.snapshots;
  out.prefix_bytes = stats.prefix_bytes;
  return out;
}

// The options of a call that encodes: `rows` and `user` are the caller's function and its argument.
SourceOptions EncodingFor(const Runner& runner, kvant_encoded_function rows, void* user) {
  SourceOptions options;
  options.cancel = runner.options().cancel;
  if (rows == nullptr) return options;
  options.rows = [rows, user](std::span<const float> encoded) -> Status {
    if (rows(user, encoded.data(), encoded.size()) == 0) return {};
    return EndedByCallback();
  };
  return options;
}

}  // namespace

Result<SessionOptions> ReadRunner(const kvant_runner_options* given) {
  KVANT_ASSIGN(const auto in, ReadStruct(given, InC(SessionOptions()), "runner options"));
  SessionOptions out;
  for (const SessionSetting& setting : AllSessionSettings()) {
    const SessionSetting::Field& field = setting.field;
    const int64_t number = field.in_c.get(in);
    if (field.kind == SessionSetting::Kind::kChoice && !(field.may_lack && number == -1)) {
      KVANT_TRY(CheckChoice(number, std::ssize(field.choices) - 1, setting.name));
    }
    field.ours.set(out, number);
  }
  KVANT_ASSIGN(const auto cpus, Array(in.cpus, in.cpu_count, "cpus"));
  out.placement.cpus.assign(cpus.begin(), cpus.end());
  return out;
}

}  // namespace kvant::capi

using namespace kvant;
using namespace kvant::capi;

kvant_status kvant_runner_options_default(kvant_runner_options* options, size_t size) {
  return FillDefault(options, size, InC(SessionOptions()));
}

kvant_status kvant_plan_memory(const kvant_model* model, const kvant_runner_options* options,
                               kvant_memory_plan* plan) {
  return Call(model, [&]() -> Status {
    KVANT_TRY(Need(model, "model"));
    KVANT_ASSIGN(const auto wanted, ReadRunner(options));
    KVANT_ASSIGN(const MemoryPlan found, PlanMemory(*model->model, wanted));
    const kvant_memory_plan values = {
        0, found.weights, found.kv, found.activations, found.logits, found.encoder, found.total()};
    return WriteStruct(plan, values, "plan");
  });
}

kvant_status kvant_runner_new(const kvant_model* model, const kvant_runner_options* options,
                              kvant_runner** runner) {
  return Call(model, [&]() -> Status {
    KVANT_TRY(Need(model, "model"));
    KVANT_TRY(Need(runner, "runner"));
    *runner = nullptr;
    KVANT_ASSIGN(SessionOptions wanted, ReadRunner(options));
    auto state = std::make_shared<RunnerState>();
    state->model = model->model;
    wanted.cancel = &state->cancel;
    KVANT_ASSIGN(state->runner, Runner::Create(model->model, wanted));
    return Give(runner, std::make_unique<kvant_runner>(kvant_runner{std::move(state)}));
  });
}

void kvant_runner_free(kvant_runner* runner) { Free(runner); }

kvant_status kvant_runner_get_options(const kvant_runner* runner, kvant_runner_options* options) {
  return Call(runner, [&]() -> Status {
    KVANT_TRY(Need(runner, "runner"));
    return WriteStruct(options, InC(runner->state->runner->options()), "options");
  });
}

kvant_status kvant_runner_get_stats(const kvant_runner* runner, kvant_runner_stats* stats) {
  return CallRunner(runner, [&](Runner& held) -> Status {
    return WriteStruct(stats, InC(held.stats()), "stats");
  });
}

void kvant_runner_cancel(kvant_runner* runner) {
  if (runner != nullptr) runner->state->cancel = true;
}

void kvant_runner_resume(kvant_runner* runner) {
  if (runner != nullptr) runner->state->cancel = false;
}

kvant_status kvant_runner_set_kv_log(kvant_runner* runner, kvant_log_function function,
                                     void* user) {
  return CallRunner(runner, [&](Runner& held) -> Status {
    Runner::LogSink sink;
    if (function != nullptr) {
      sink = [function, user](std::string_view line) {
        function(user, 1, line.data(), line.size());
      };
    }
    held.SetKvLog(std::move(sink));
    return {};
  });
}

kvant_status kvant_runner_check(kvant_runner* runner) {
  return CallRunner(runner, [&](Runner& held) { return held.Check(); });
}

kvant_status kvant_runner_step(kvant_runner* runner, const kvant_step_input* inputs, size_t count,
                               kvant_row_function rows, void* user) {
  return CallRunner(runner, [&](Runner& held) -> Status {
    KVANT_ASSIGN(const auto given, Array(inputs, count, "inputs"));
    std::vector<StepInput> step;
    for (const kvant_step_input& input : given) {
      KVANT_ASSIGN(const auto tokens, Array(input.tokens, input.count, "tokens"));
      KVANT_TRY(CheckChoice(input.logits, KVANT_LOGITS_ALL, "logits"));
      step.push_back({input.sequence, tokens, static_cast<Logits>(input.logits)});
    }
    StepOptions options;
    if (rows != nullptr) {
      options.rows = [&](size_t input, int64_t token, std::span<const float> logits) -> Status {
        if (rows(user, input, token, logits.data(), logits.size()) == 0) return {};
        return EndedByCallback();
      };
    }
    return held.Step(step, options);
  });
}

kvant_status kvant_runner_score(kvant_runner* runner, const kvant_score_text* texts, size_t count) {
  return CallRunner(runner, [&](Runner& held) -> Status {
    KVANT_ASSIGN(const auto given, Array(texts, count, "texts"));
    std::vector<evaluate::ScoredText> wanted;
    for (const kvant_score_text& text : given) {
      KVANT_ASSIGN(const auto tokens, Array(text.tokens, text.count, "tokens"));
      KVANT_ASSIGN(const auto source, Array(text.source, text.source_count, "source"));
      const size_t scored = text.count > text.first ? text.count - text.first : 0;
      evaluate::ScoredText out{.tokens = tokens, .first = text.first, .source = source};
      if (text.log_probs != nullptr) out.log_probs = {text.log_probs, scored};
      if (text.likeliest != nullptr) out.likeliest = {text.likeliest, scored};
      wanted.push_back(out);
    }
    return evaluate::ScoreTexts(held, wanted);
  });
}

// ---- Snapshots and files ------------------------------------------------------------------------

kvant_status kvant_snapshot_take(kvant_runner* runner, kvant_sequence sequence,
                                 kvant_snapshot* snapshot) {
  return CallRunner(runner, [&](Runner& held) -> Status {
    KVANT_TRY(Need(snapshot, "snapshot"));
    KVANT_ASSIGN(*snapshot, held.TakeSnapshot(sequence));
    return {};
  });
}

kvant_status kvant_snapshot_restore(kvant_runner* runner, kvant_sequence sequence,
                                    kvant_snapshot snapshot) {
  return CallRunner(runner, [&](Runner& held) { return held.Restore(sequence, snapshot); });
}

kvant_status kvant_snapshot_drop(kvant_runner* runner, kvant_snapshot snapshot) {
  return CallRunner(runner, [&](Runner& held) { return held.DropSnapshot(snapshot); });
}

kvant_status kvant_runner_save(kvant_runner* runner, const char* path,
                               const kvant_sequence* sequences, size_t count) {
  return CallRunner(runner, [&](Runner& held) -> Status {
    KVANT_TRY(Need(path, "path"));
    KVANT_ASSIGN(const auto given, Array(sequences, count, "sequences"));
    return held.Save(path, given);
  });
}

kvant_status kvant_runner_load(kvant_runner* runner, const char* path, kvant_sequence** sequences,
                               size_t* count) {
  return CallRunner(runner, [&](Runner& held) -> Status {
    KVANT_TRY(Need(path, "path"));
    KVANT_TRY(Need(sequences, "sequences"));
    KVANT_TRY(Need(count, "count"));
    KVANT_ASSIGN(const auto loaded, held.Load(path));
    *sequences = Copy<kvant_sequence>(loaded);
    *count = loaded.size();
    return {};
  });
}

// ---- Sources ------------------------------------------------------------------------------------

kvant_status kvant_source_new(kvant_runner* runner, const kvant_token* tokens, size_t count,
                              kvant_encoded_function rows, void* user, kvant_source* source) {
  return CallRunner(runner, [&](Runner& held) -> Status {
    KVANT_TRY(Need(source, "source"));
    KVANT_ASSIGN(const auto given, Array(tokens, count, "tokens"));
    KVANT_ASSIGN(*source, held.Encode(given, EncodingFor(held, rows, user)));
    return {};
  });
}

kvant_status kvant_source_new_of_frames(kvant_runner* runner, const float* frames, size_t count,
                                        kvant_encoded_function rows, void* user,
                                        kvant_source* source) {
  return CallRunner(runner, [&](Runner& held) -> Status {
    KVANT_TRY(Need(source, "source"));
    KVANT_ASSIGN(const auto given, Array(frames, count, "frames"));
    KVANT_ASSIGN(*source, held.EncodeFrames(given, EncodingFor(held, rows, user)));
    return {};
  });
}

kvant_status kvant_runner_add_rows(kvant_runner* runner, const float* rows, size_t count,
                                   kvant_token* first) {
  return CallRunner(runner, [&](Runner& held) -> Status {
    KVANT_TRY(Need(first, "first"));
    KVANT_ASSIGN(const auto given, Array(rows, count, "rows"));
    KVANT_ASSIGN(const RowIds ids, held.AddRows(given));
    *first = ids.first;
    return {};
  });
}

kvant_status kvant_runner_free_rows(kvant_runner* runner, kvant_token first) {
  return CallRunner(runner, [&](Runner& held) { return held.FreeRows(first); });
}

kvant_status kvant_source_free(kvant_runner* runner, kvant_source source) {
  return CallRunner(runner, [&](Runner& held) { return held.FreeSource(source); });
}

kvant_status kvant_sequence_new_of_source(kvant_runner* runner, kvant_source source,
                                          kvant_sequence* sequence) {
  return CallRunner(runner, [&](Runner& held) -> Status {
    KVANT_TRY(Need(sequence, "sequence"));
    KVANT_ASSIGN(*sequence, held.NewSequence(source));
    return {};
  });
}

kvant_status kvant_sequence_set_source(kvant_runner* runner, kvant_sequence sequence,
                                       kvant_source source) {
  return CallRunner(runner, [&](Runner& held) { return held.SetSource(sequence, source); });
}
