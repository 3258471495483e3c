// The model families that kvant knows, one line each: the name of a file in
// engine/arch/families and of its namespace. This is the only place that lists them.

KVANT_FAMILY(llama)
KVANT_FAMILY(phi3)
KVANT_FAMILY(gemma3)
KVANT_FAMILY(qwen2)
KVANT_FAMILY(qwen3)
KVANT_FAMILY(gemma2)
KVANT_FAMILY(gemma)
KVANT_FAMILY(phi2)
KVANT_FAMILY(olmo2)
KVANT_FAMILY(olmo)
KVANT_FAMILY(smollm3)
KVANT_FAMILY(granite)
KVANT_FAMILY(command_r)
KVANT_FAMILY(cohere2)
KVANT_FAMILY(exaone4)
KVANT_FAMILY(starcoder2)
