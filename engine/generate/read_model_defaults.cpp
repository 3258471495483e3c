// Reads the defaults of a model's file (kvant/model_defaults.h) when the model is opened.
#include "engine/generate/model_generation.h"
#include "engine/generate/model_sampling.h"
#include "formats/gguf.h"
#include "kvant/model.h"
#include "kvant/model_defaults.h"

namespace kvant {

void Model::ReadDefaults() {
  auto defaults = std::make_shared<ModelDefaults>();
  const ModelSampling sampling = ReadModelSampling(file());
  for (const ModelSampling::Setting& entry : sampling.settings) {
    entry.setting->Set(defaults->sampling, entry.value);
    defaults->sampling_numbers.push_back({entry.setting->name, entry.value});
  }
  defaults->sampling.samplers = sampling.samplers;
  const auto& ends = tokenizer().special().end_of_generation;
  defaults->end_tokens.assign(ends.begin(), ends.end());
  defaults->search = ReadModelGeneration(file());
  if (defaults->search.ok()) defaults->search->options.end_tokens = defaults->end_tokens;
  const auto chat_template = file().GetString("tokenizer.chat_template");
  if (chat_template.ok()) defaults->chat_template = *chat_template;
  defaults_ = std::move(defaults);
}

}  // namespace kvant
