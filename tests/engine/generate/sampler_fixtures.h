// The candidates that llama.cpp's samplers leave (tests/reference/samplers.json, written by
// make_sampler_cases.py), and those that a chain of kvant leaves, stage by stage.
#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <type_traits>
#include <vector>

#include "engine/generate/samplers/stage.h"
#include "kvant/model.h"
#include "kvant/random.h"
#include "kvant/sampler.h"
#include "tests/shared_data.h"

namespace kvant::sampler_fixtures {

using nlohmann::json;
using LogitRow = std::vector<float>;
using Tokens = std::vector<TokenId>;
using Chances = std::map<TokenId, double>;

inline const json& Fixtures() {
  static const json fixtures = [] {
    std::ifstream stream(test::SourcePath("tests/reference/samplers.json"));
    return json::parse(stream);
  }();
  return fixtures;
}

inline const Model& Shakespeare() {
  static const auto model = *Model::Open(test::SourcePath("models/shakespeare/shakespeare.gguf"));
  return *model;
}

// Nothing is on but what the fixture names.
inline SamplingOptions FixtureOptions(const json& named) {
  SamplingOptions o;
  const auto take = [&](const char* name, auto& target) {
    if (named.contains(name)) target = named[name].get<std::remove_reference_t<decltype(target)>>();
  };
  o.top_k = 0;
  o.top_p = 1;
  o.min_p = 0;
  o.temperature = 1;
  o.seed = 5;
  take("repeat_penalty", o.repeat_penalty);
  take("repeat_last_n", o.repeat_last_n);
  take("presence_penalty", o.presence_penalty);
  take("frequency_penalty", o.frequency_penalty);
  take("dry_multiplier", o.dry_multiplier);
  take("dry_base", o.dry_base);
  take("dry_allowed_length", o.dry_allowed_length);
  take("dry_penalty_last_n", o.dry_penalty_last_n);
  take("dry_sequence_breakers", o.dry_sequence_breakers);
  take("top_n_sigma", o.top_n_sigma);
  take("top_k", o.top_k);
  take("typical", o.typical);
  take("top_p", o.top_p);
  take("min_p", o.min_p);
  take("xtc_probability", o.xtc_probability);
  take("xtc_threshold", o.xtc_threshold);
  take("temperature", o.temperature);
  take("dynatemp_range", o.dynatemp_range);
  take("dynatemp_exponent", o.dynatemp_exponent);
  take("min_keep", o.min_keep);
  take("mirostat", o.mirostat);
  take("mirostat_tau", o.mirostat_tau);
  take("mirostat_eta", o.mirostat_eta);
  take("adaptive_target", o.adaptive_target);
  take("adaptive_decay", o.adaptive_decay);
  if (named.contains("samplers")) o.samplers = *ParseSamplers(named["samplers"].get<std::string>());
  if (o.adaptive_target >= 0) o.samplers = {"adaptive_p"};
  return o;
}

inline std::vector<std::string> ChainNames(const SamplingOptions& options) {
  if (options.samplers.has_value()) return *options.samplers;
  std::vector<std::string> names;
  for (const SamplerRow* row : AllSamplers()) {
    if (row->order == SamplerRow::Order::kDefault) names.emplace_back(row->name);
  }
  return names;
}

// The chances of the tokens behind the chain, stage by stage.
inline Chances ChainChances(const SamplingOptions& options, const LogitRow& logits,
                            const Tokens& accepted) {
  Candidates candidates(logits.size(), logits.size());
  Xoshiro256 random(1);
  candidates.Start(logits);
  const SamplerSetup setup{options, logits.size(), &Shakespeare().tokenizer()};
  for (const std::string& name : ChainNames(options)) {
    auto stage = FindSampler(name)->make(setup);
    EXPECT_TRUE(stage.ok());
    if (!stage.ok() || *stage == nullptr) continue;
    for (const TokenId id : accepted) (*stage)->Accept(id, TokenFrom::kText);
    if (FindSampler(name)->kind != SamplerRow::Kind::kLogits) candidates.MakeList();
    (*stage)->Apply(candidates, random);
  }
  EXPECT_TRUE(candidates.MakeList());
  candidates.ComputeWeights();
  Chances out;
  for (size_t i = 0; i < candidates.size(); ++i) {
    out[candidates[i].id] =
        static_cast<double>(candidates[i].weight) / static_cast<double>(candidates.weight_total());
  }
  return out;
}

}  // namespace kvant::sampler_fixtures
