// The places of the chain of logit stages, in order: the name of a constant in
// engine/generate/logit_stages. This is the only place that lists them.

KVANT_LOGIT_STAGE(kFunctionLogitStage)
KVANT_LOGIT_STAGE(kProcessorLogitStages)
KVANT_LOGIT_STAGE(kBiasLogitStage)
KVANT_LOGIT_STAGE(kGrammarLogitStage)
KVANT_LOGIT_STAGE(kAddedLogitStages)
