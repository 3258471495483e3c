// The objects that a runner is made of, each of which needs the ones before it.
#pragma once

#include <memory>

#include "engine/run/core.h"
#include "engine/run/executor.h"
#include "engine/run/predictor.h"
#include "engine/run/sequences.h"
#include "engine/run/sources.h"
#include "engine/run/stepper.h"

namespace kvant::run {

struct Engine {
  // Takes the memory of the cache and of passes. kOutOfMemory; kInvalid for impossible options.
  static Result<std::unique_ptr<Engine>> Create(std::shared_ptr<const Model> model,
                                                const SessionOptions& asked);

  std::unique_ptr<Core> core;
  std::unique_ptr<Sources> sources;
  std::unique_ptr<Sequences> sequences;
  std::unique_ptr<Executor> executor;
  std::unique_ptr<Stepper> stepper;
  std::unique_ptr<Predictor> predictor;
};

}  // namespace kvant::run
