// The calls of kvant/kvant_generate.h on beam searches.
#include <iterator>

#include "engine/capi/handles.h"
#include "engine/option_field.h"
#include "kvant/beam_generator.h"
#include "kvant/beam_search.h"
#include "kvant/model_defaults.h"

namespace kvant::capi {
namespace {

using In = kvant_beam_options;
using Of = BeamOptions;

#define KVANT_COPIED(field) kCopied<&Of::field, &In::field>
constexpr CopiedField<Of, In> kBeamFields[] = {
    KVANT_COPIED(beams),
    KVANT_COPIED(num_return),
    KVANT_COPIED(scoring),
    KVANT_COPIED(early_stopping),
    KVANT_COPIED(patience),
    KVANT_COPIED(ct2_length_counts_end),
    KVANT_COPIED(ct2_prompt_in_result),
    KVANT_COPIED(groups),
    KVANT_COPIED(diversity_penalty),
    KVANT_COPIED(max_new_tokens),
    KVANT_COPIED(max_length),
    KVANT_COPIED(min_length),
    KVANT_COPIED(min_new_tokens),
    KVANT_COPIED(repetition_penalty),
    KVANT_COPIED(no_repeat_ngram),
    KVANT_COPIED(renormalize),
    KVANT_COPIED(sample),
    KVANT_COPIED(temperature),
    KVANT_COPIED(top_k),
    KVANT_COPIED(top_p),
    KVANT_COPIED(seed),
};
#undef KVANT_COPIED

// These functions copy by hand what may lack and what is a list.
static_assert(std::size(kBeamFields) == CountFields<Of>() - 7,
              "a field of BeamOptions is not copied");
static_assert(std::size(kBeamFields) == CountFields<In>() - 16,
              "a field of kvant_beam_options is not copied");

// The options in C, without lists of words; arrays are those of `options`.
kvant_beam_options BeamsInC(const BeamOptions& options) {
  kvant_beam_options out = {};
  out.struct_size = sizeof(out);
  for (const auto& field : kBeamFields) field.to_c(options, out);
  out.has_length_penalty = options.length_penalty.has_value() ? 1 : 0;
  out.length_penalty = options.length_penalty.value_or(1.0f);
  out.forced_bos = options.forced_bos.value_or(-1);
  const auto put = [](const std::vector<TokenId>& from, const kvant_token*& data, size_t& count) {
    data = from.empty() ? nullptr : from.data();
    count = from.size();
  };
  put(options.end_tokens, out.end_tokens, out.end_token_count);
  put(options.forced_eos, out.forced_eos, out.forced_eos_count);
  put(options.suppress, out.suppress, out.suppress_count);
  put(options.begin_suppress, out.begin_suppress, out.begin_suppress_count);
  return out;
}

kvant_hypothesis HypothesisInC(const BeamHypothesis& found) {
  kvant_hypothesis out = {};
  out.struct_size = sizeof(out);
  out.tokens = found.ids.data();
  out.log_probs = found.log_probs.data();
  out.count = found.ids.size();
  out.sum = found.sum;
  out.score = found.score;
  out.ended = found.ended ? 1 : 0;
  return out;
}

Result<LogitOptions> ReadBeamLogits(const kvant_beam_options* given) {
  KVANT_ASSIGN(const auto in, ReadStruct(given, In{}, "beam options"));
  LogitOptions out;
  out.grammar = GrammarOf(in.grammar);
  return out;
}

}  // namespace

Result<BeamOptions> ReadBeams(const kvant_beam_options* given) {
  KVANT_ASSIGN(const auto in, ReadStruct(given, BeamsInC({}), "beam options"));
  BeamOptions out;
  KVANT_TRY(CheckChoice(in.scoring, KVANT_BEAM_OGA, "scoring"));
  KVANT_TRY(CheckChoice(in.early_stopping, 2, "early_stopping"));
  for (const auto& field : kBeamFields) field.from_c(in, out);
  if (in.has_length_penalty != 0) out.length_penalty = in.length_penalty;
  if (in.forced_bos >= 0) out.forced_bos = in.forced_bos;
  const auto take = [](const kvant_token* data, size_t count, const char* name,
                       std::vector<TokenId>& to) -> Status {
    KVANT_ASSIGN(const auto tokens, Array(data, count, name));
    to.assign(tokens.begin(), tokens.end());
    return {};
  };
  KVANT_TRY(take(in.end_tokens, in.end_token_count, "end_tokens", out.end_tokens));
  KVANT_TRY(take(in.forced_eos, in.forced_eos_count, "forced_eos", out.forced_eos));
  KVANT_TRY(take(in.suppress, in.suppress_count, "suppress", out.suppress));
  KVANT_TRY(take(in.begin_suppress, in.begin_suppress_count, "begin_suppress", out.begin_suppress));
  KVANT_ASSIGN(const auto words, Array(in.bad_words, in.bad_word_count, "bad_words"));
  KVANT_ASSIGN(const auto sizes, Array(in.bad_word_sizes, in.bad_word_count, "bad_word_sizes"));
  for (size_t i = 0; i < words.size(); ++i) {
    KVANT_TRY(take(words[i], sizes[i], "bad_words", out.bad_words.emplace_back()));
  }
  return out;
}

}  // namespace kvant::capi

struct kvant_beam_search {
  kvant::BeamSearch search;
  size_t vocab;
  std::vector<kvant::BeamHypothesis> results;
  kvant::BeamHypothesis live;
};

using namespace kvant;
using namespace kvant::capi;

kvant_status kvant_beam_options_default(kvant_beam_options* options, size_t size) {
  return FillDefault(options, size, BeamsInC({}));
}

kvant_status kvant_beam_options_of_model(const kvant_model* model, kvant_beam_options* options,
                                         size_t size) {
  return Call(model, [&]() -> Status {
    KVANT_TRY(Need(model, "model"));
    const Result<ModelGeneration>& search = model->model->defaults().search;
    if (!search.ok()) return search.error();
    return Fill(options, size, BeamsInC(search->options));
  });
}

kvant_status kvant_beam_search_new(int32_t vocab_size, const kvant_beam_options* options,
                                   kvant_beam_search** search) {
  return Call(nullptr, [&]() -> Status {
    KVANT_TRY(Need(search, "search"));
    *search = nullptr;
    if (vocab_size < 1) {
      return MakeError(ErrorCode::kInvalid, "vocab_size: expected 1 or more, found {}", vocab_size);
    }
    KVANT_ASSIGN(const BeamOptions wanted, ReadBeams(options));
    KVANT_ASSIGN(const LogitOptions logits, ReadBeamLogits(options));
    KVANT_ASSIGN(BeamSearch made, BeamSearch::Create(wanted, vocab_size, logits));
    return Give(search, std::make_unique<kvant_beam_search>(kvant_beam_search{
                            std::move(made), static_cast<size_t>(vocab_size), {}, {}}));
  });
}

void kvant_beam_search_free(kvant_beam_search* search) { Free(search); }

kvant_status kvant_beam_search_start(kvant_beam_search* search, const kvant_token* prompt,
                                     size_t count) {
  return Call(search, [&]() -> Status {
    KVANT_TRY(Need(search, "search"));
    KVANT_ASSIGN(const auto given, Array(prompt, count, "prompt"));
    return search->search.Start(given);
  });
}

kvant_status kvant_beam_search_step(kvant_beam_search* search, const float* const* rows,
                                    size_t count, size_t vocab) {
  return Call(search, [&]() -> Status {
    KVANT_TRY(Need(search, "search"));
    KVANT_ASSIGN(const auto given, Array(rows, count, "rows"));
    std::vector<std::span<const float>> logits;
    for (const float* row : given) {
      KVANT_ASSIGN(const auto checked, Array(row, vocab, "rows"));
      logits.push_back(checked);
    }
    return search->search.Step(logits);
  });
}

kvant_status kvant_beam_search_step_of(kvant_beam_search* search, kvant_runner* runner,
                                       const kvant_sequence* sequences, size_t count) {
  return Call(search, [&]() -> Status {
    KVANT_TRY(Need(search, "search"));
    KVANT_TRY(Need(runner, "runner"));
    return OnRunner(runner->state, [&](Runner& held) -> Status {
      KVANT_ASSIGN(const auto given, Array(sequences, count, "sequences"));
      std::vector<std::span<const float>> logits;
      for (const kvant_sequence sequence : given) logits.push_back(held.logits(sequence));
      return search->search.Step(logits);
    });
  });
}

size_t kvant_beam_search_rows(const kvant_beam_search* search) {
  return search == nullptr ? 0 : static_cast<size_t>(search->search.rows());
}

const int32_t* kvant_beam_search_parents(const kvant_beam_search* search, size_t* count) {
  std::span<const int32_t> parents;
  if (search != nullptr) parents = search->search.parents();
  if (count != nullptr) *count = parents.size();
  return parents.data();
}

const kvant_token* kvant_beam_search_tokens(const kvant_beam_search* search, size_t* count) {
  std::span<const TokenId> tokens;
  if (search != nullptr) tokens = search->search.tokens();
  if (count != nullptr) *count = tokens.size();
  return tokens.data();
}

kvant_status kvant_beam_search_results(kvant_beam_search* search, size_t* count) {
  return Call(search, [&]() -> Status {
    KVANT_TRY(Need(search, "search"));
    KVANT_TRY(Need(count, "count"));
    search->results = search->search.Results();
    *count = search->results.size();
    return {};
  });
}

kvant_status kvant_beam_search_result(kvant_beam_search* search, size_t index,
                                      kvant_hypothesis* hypothesis) {
  return Call(search, [&]() -> Status {
    KVANT_TRY(Need(search, "search"));
    if (index >= search->results.size()) {
      return MakeError(ErrorCode::kInvalid,
                       "index: expected less than the {} that kvant_beam_search_results found, "
                       "found {}",
                       search->results.size(), index);
    }
    return WriteStruct(hypothesis, HypothesisInC(search->results[index]), "hypothesis");
  });
}

kvant_status kvant_beam_search_live(kvant_beam_search* search, size_t row,
                                    kvant_hypothesis* hypothesis) {
  return Call(search, [&]() -> Status {
    KVANT_TRY(Need(search, "search"));
    if (row >= search->search.tokens().size()) {
      return MakeError(ErrorCode::kInvalid, "row: expected less than {}, found {}",
                       search->search.tokens().size(), row);
    }
    search->live = search->search.Live(row);
    return WriteStruct(hypothesis, HypothesisInC(search->live), "hypothesis");
  });
}

kvant_status kvant_runner_search(kvant_runner* runner, const kvant_beam_prompt* prompts,
                                 size_t count, const kvant_beam_options* options,
                                 kvant_beam_step_function on_step,
                                 kvant_hypothesis_function on_hypothesis, void* user) {
  return CallRunner(runner, [&](Runner& held) -> Status {
    KVANT_TRY(Need(reinterpret_cast<const void*>(on_hypothesis), "on_hypothesis"));
    KVANT_ASSIGN(const auto given, Array(prompts, count, "prompts"));
    BeamGenerateOptions wanted;
    KVANT_ASSIGN(wanted.search, ReadBeams(options));
    KVANT_ASSIGN(wanted.logits, ReadBeamLogits(options));
    std::vector<std::vector<TokenId>> texts, sources;
    for (const kvant_beam_prompt& prompt : given) {
      KVANT_ASSIGN(const auto tokens, Array(prompt.tokens, prompt.count, "prompts"));
      KVANT_ASSIGN(const auto source, Array(prompt.source, prompt.source_count, "source"));
      texts.emplace_back(tokens.begin(), tokens.end());
      sources.emplace_back(source.begin(), source.end());
    }
    if (held.model().has_encoder()) wanted.sources = sources;
    wanted.cancel = held.options().cancel;
    if (on_step != nullptr) {
      wanted.on_step = [&](size_t prompt, const BeamSearch& search) {
        const int32_t answer = on_step(user, prompt, search.generated());
        return answer == 0 ? BeamStep::kGoOn
                           : (answer == 1 ? BeamStep::kEndRequest : BeamStep::kEndAll);
      };
    }
    KVANT_ASSIGN(const auto found, GenerateBeams(held, texts, wanted));
    bool cancelled = false;
    for (size_t i = 0; i < found.size(); ++i) {
      cancelled = cancelled || found[i].cancelled;
      for (size_t rank = 0; rank < found[i].hypotheses.size(); ++rank) {
        const kvant_hypothesis hypothesis = HypothesisInC(found[i].hypotheses[rank]);
        on_hypothesis(user, i, rank, &hypothesis);
      }
    }
    if (!cancelled) return {};
    return MakeError(ErrorCode::kCancelled, "cancelled");
  });
}
