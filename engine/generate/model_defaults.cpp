// The defaults that a model's file gives for options that its user has not chosen (kvant/model.h).
#include "base/result.h"
#include "engine/generate/model_generation.h"
#include "engine/generate/model_sampling.h"
#include "kvant/model.h"

namespace kvant {

SamplingOptions Model::DefaultSampling() const {
  const ModelSampling model = ReadModelSampling(file());
  SamplingOptions options;
  for (const ModelSampling::Setting& entry : model.settings) {
    entry.setting->Set(options, entry.value);
  }
  options.samplers = model.samplers;
  return options;
}

Result<BeamOptions> Model::DefaultSearch() const {
  KVANT_ASSIGN(ModelGeneration model, ReadModelGeneration(file()));
  model.options.end_tokens = tokenizer().special().end_of_generation;
  return std::move(model.options);
}

}  // namespace kvant
