// The calls of kvant/kvant_generate.h on samplers, and their options.
#include "engine/capi/handles.h"
#include "engine/generate/logit_stages/stage_row.h"
#include "engine/generate/samplers/stage.h"
#include "kvant/logit_chain.h"

namespace kvant::capi {
namespace {

// Calls visit(setting) for the number of each sampler's option.
template <class Visit>
void VisitSettings(const Visit& visit) {
  for (const SamplerRow* row : AllSamplers()) {
    for (const SamplerSetting& setting : row->settings) visit(setting);
  }
}

}  // namespace

kvant_sampling_options SamplingInC(const SamplingOptions& options) {
  kvant_sampling_options out = {};
  out.struct_size = sizeof(out);
  VisitSettings([&](const SamplerSetting& setting) { setting.CopyToC(options, out); });
  out.min_keep = options.min_keep;
  return out;
}

Result<std::vector<std::string>> ReadTexts(const char* const* texts, size_t count,
                                           std::string_view name) {
  KVANT_ASSIGN(const auto given, Array(texts, count, name));
  std::vector<std::string> out;
  for (const char* text : given) {
    KVANT_TRY(Need(text, name));
    out.emplace_back(text);
  }
  return out;
}

Result<SamplingOptions> ReadSampling(const kvant_sampling_options* given) {
  KVANT_ASSIGN(const auto in, ReadStruct(given, SamplingInC({}), "sampling options"));
  SamplingOptions out;
  VisitSettings([&](const SamplerSetting& setting) { setting.CopyFromC(in, out); });
  out.min_keep = in.min_keep;
  if (in.samplers != nullptr) {
    KVANT_ASSIGN(out.samplers, ParseSamplers(in.samplers));
  }
  if (in.has_seed != 0) out.seed = in.seed;
  KVANT_ASSIGN(const auto biases, Array(in.logit_bias, in.logit_bias_count, "logit_bias"));
  for (const kvant_logit_bias& bias : biases) out.logit_bias.push_back({bias.token, bias.bias});
  if (in.dry_breakers == nullptr) return out;
  KVANT_ASSIGN(out.dry_sequence_breakers,
               ReadTexts(in.dry_breakers, in.dry_breaker_count, "dry_breakers"));
  return out;
}

}  // namespace kvant::capi

using namespace kvant;
using namespace kvant::capi;

kvant_status kvant_sampling_options_default(kvant_sampling_options* options, size_t size) {
  return FillDefault(options, size, SamplingInC({}));
}

kvant_status kvant_sampling_options_of_model(const kvant_model* model,
                                             kvant_sampling_options* options, size_t size) {
  return Call(model, [&]() -> Status {
    KVANT_TRY(Need(model, "model"));
    return Fill(options, size, model->sampling);
  });
}

kvant_status kvant_sampler_new(const kvant_tokenizer* tokenizer, int32_t vocab_size,
                               const kvant_sampling_options* options, kvant_sampler** sampler) {
  return Call(nullptr, [&]() -> Status {
    KVANT_TRY(Need(sampler, "sampler"));
    *sampler = nullptr;
    if (vocab_size < 1) {
      return MakeError(ErrorCode::kInvalid, "vocab_size: expected 1 or more, found {}", vocab_size);
    }
    KVANT_ASSIGN(const SamplingOptions wanted, ReadSampling(options));
    const Tokenizer* words = tokenizer == nullptr ? nullptr : tokenizer->tokenizer.get();
    KVANT_ASSIGN(Sampler made, Sampler::Create(wanted, vocab_size, words));
    return Give(sampler, std::make_unique<kvant_sampler>(
                             kvant_sampler{std::move(made), static_cast<size_t>(vocab_size)}));
  });
}

kvant_status kvant_sampler_clone(const kvant_sampler* sampler, kvant_sampler** copy) {
  return Call(sampler, [&]() -> Status {
    KVANT_TRY(Need(sampler, "sampler"));
    KVANT_TRY(Need(copy, "copy"));
    return Give(copy, std::make_unique<kvant_sampler>(*sampler));
  });
}

void kvant_sampler_free(kvant_sampler* sampler) { Free(sampler); }

kvant_status kvant_sampler_sample(kvant_sampler* sampler, const float* logits, size_t count,
                                  kvant_token* token) {
  return Call(sampler, [&]() -> Status {
    KVANT_TRY(Need(sampler, "sampler"));
    KVANT_TRY(Need(token, "token"));
    KVANT_ASSIGN(const auto row, Array(logits, count, "logits"));
    KVANT_TRY(CheckRow(*sampler, row.size()));
    KVANT_ASSIGN(*token, sampler->sampler.Sample(row));
    return {};
  });
}

kvant_status kvant_sampler_accept(kvant_sampler* sampler, const kvant_token* tokens, size_t count) {
  return Call(sampler, [&]() -> Status {
    KVANT_TRY(Need(sampler, "sampler"));
    KVANT_ASSIGN(const auto given, Array(tokens, count, "tokens"));
    for (const kvant_token token : given) sampler->sampler.Accept(token);
    return {};
  });
}

kvant_status kvant_sampler_forbid(kvant_sampler* sampler, kvant_token token) {
  return Call(sampler, [&]() -> Status {
    KVANT_TRY(Need(sampler, "sampler"));
    if (token < 0 || static_cast<size_t>(token) >= sampler->vocab) {
      return MakeError(ErrorCode::kInvalid, "token: expected 0 to {}, found {}", sampler->vocab - 1,
                       token);
    }
    sampler->sampler.Forbid(token);
    return {};
  });
}

kvant_status kvant_sampler_set_grammar(kvant_sampler* sampler, const kvant_grammar* grammar) {
  return Call(sampler, [&]() -> Status {
    KVANT_TRY(Need(sampler, "sampler"));
    LogitOptions options;
    options.grammar = GrammarOf(grammar);
    LogitChain stages = sampler->sampler.logits();
    stages.DropRequest();
    KVANT_TRY(stages.Add({.vocab = sampler->vocab, .logits = &options}));
    sampler->sampler.logits() = std::move(stages);
    return {};
  });
}

uint64_t kvant_sampler_seed(const kvant_sampler* sampler) {
  return sampler == nullptr ? 0 : sampler->sampler.seed();
}
