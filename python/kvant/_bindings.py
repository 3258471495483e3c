"""The C API as ctypes sees it. Written by make_bindings.py from include/kvant/*.h."""
# fmt: off
from ctypes import (CFUNCTYPE, POINTER, Structure, c_char_p, c_double, c_float, c_int32, c_int64, c_size_t, c_uint32, c_uint64,
                    c_void_p)

ABI_VERSION = 1
STATUS = "status"  # a call that returns one

OK = 0
INVALID = 1
NOT_SUPPORTED = 2
OUT_OF_MEMORY = 3
CONTEXT_FULL = 4
IO = 5
CORRUPT = 6
CANCELLED = 7
INTERNAL = 8
BUSY = 9
DEADLINE = 10
ADD_SPECIAL = 1
PARSE_SPECIAL = 2
SHOW_SPECIAL = 4
IGNORE_END = 8
IS_CONTROL = 16
IS_END = 32
STREAM_OPEN = 0
STREAM_END_TOKEN = 1
STREAM_STOP_TEXT = 2
F32 = 0
F16 = 1
Q8 = 2
OFFLOAD_NONE = 0
OFFLOAD_ATTENTION = 1
KV_DEVICE_AUTO = 0
KV_DEVICE_CUDA = 1
KV_DEVICE_CPU = 2
PIN_NONE = 0
PIN_CORES = 1
PIN_LIST = 2
NUMA_NONE = 0
NUMA_DISTRIBUTE = 1
NUMA_ISOLATE = 2
LOGITS_NONE = 0
LOGITS_LAST = 1
LOGITS_ALL = 2
BHSD = 0
KBHSD = 1
BKHSD = 2
GRAMMAR_GBNF = 0
GRAMMAR_REGEX = 1
GRAMMAR_CHOICES = 2
GRAMMAR_JSON_OBJECT = 3
GRAMMAR_JSON_SCHEMA = 4
FINISH_STOP = 0
FINISH_STOP_TEXT = 1
FINISH_LENGTH = 2
FINISH_CONTEXT = 3
FINISH_MEMORY = 4
FINISH_CANCELLED = 5
FINISH_ERROR = 6
FINISH_DEADLINE = 7
FINISH_NO_TOKEN = 8
BEAM_HF = 0
BEAM_CT2 = 1
BEAM_WHISPER = 2
BEAM_OGA = 3
PART_REASONING = 0
PART_CONTENT = 1
CALL_BEGIN = 0
CALL_ARGUMENTS = 1
CALL_END = 2
POOLING_OF_FILE = -1
POOLING_NONE = 0
POOLING_MEAN = 1
POOLING_CLS = 2
POOLING_LAST = 3
POOLING_RANK = 4


kvant_log_function = CFUNCTYPE(None, c_void_p, c_int32, c_void_p, c_size_t)


kvant_interrupt_function = CFUNCTYPE(c_int32, c_void_p)


kvant_progress_function = CFUNCTYPE(c_int32, c_void_p, c_int64, c_int64)


class kvant_model_options(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("read_file", c_int32),
        ("lock_memory", c_int32),
        ("isa", c_char_p),
        ("float_gemm", c_char_p),
        ("pre_tokenizer", c_char_p),
        ("progress", kvant_progress_function),
        ("progress_user", c_void_p),
        ("ignore_keys", c_char_p),
        ("predictors", c_int32),
    ]


class kvant_model_info(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("architecture", c_char_p),
        ("path", c_char_p),
        ("vocab_size", c_int32),
        ("has_encoder", c_int32),
        ("context_length", c_int64),
        ("source_length", c_int64),
        ("decoder_start", c_int32),
        ("cache_layers", c_int32),
        ("parameters", c_uint64),
        ("file_bytes", c_uint64),
        ("fingerprint", c_uint64),
        ("frame_bins", c_int64),
        ("frames", c_int64),
    ]


class kvant_tokenizer_info(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("kind", c_char_p),
        ("vocab_size", c_int32),
        ("bos", c_int32),
        ("eos", c_int32),
        ("eot", c_int32),
        ("unk", c_int32),
        ("sep", c_int32),
        ("pad", c_int32),
        ("mask", c_int32),
        ("cls", c_int32),
        ("add_bos", c_int32),
        ("add_eos", c_int32),
    ]


class kvant_template_options(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("add_generation_prompt", c_int32),
        ("enable_thinking", c_int32),
        ("tools", c_char_p),
        ("variables", c_char_p),
        ("now", c_int64),
    ]


class kvant_runner_options(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("context", c_int64),
        ("sequences", c_int64),
        ("chunk", c_int64),
        ("threads", c_int32),
        ("kv_cache", c_int32),
        ("k_type", c_int32),
        ("v_type", c_int32),
        ("source_k_type", c_int32),
        ("source_v_type", c_int32),
        ("state_type", c_int32),
        ("strict", c_int32),
        ("prefix_cache", c_int32),
        ("kv_commit", c_int32),
        ("kv_rotation", c_int32),
        ("kv_check", c_int32),
        ("kv_poison", c_int32),
        ("kv_bytes_max", c_uint64),
        ("state_checkpoints", c_int64),
        ("state_log", c_int64),
        ("offload", c_int32),
        ("kv_device", c_int32),
        ("pin", c_int32),
        ("numa", c_int32),
        ("cpus", c_void_p),
        ("cpu_count", c_size_t),
        ("prefix_bytes_max", c_uint64),
    ]


class kvant_memory_plan(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("weights", c_uint64),
        ("kv", c_uint64),
        ("activations", c_uint64),
        ("logits", c_uint64),
        ("encoder", c_uint64),
        ("total", c_uint64),
    ]


class kvant_runner_stats(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("kv_bytes_used", c_uint64),
        ("kv_bytes_peak", c_uint64),
        ("kv_bytes_committed", c_uint64),
        ("kv_bytes_capacity", c_uint64),
        ("kv_bytes_written", c_uint64),
        ("kv_bytes_copied", c_uint64),
        ("kv_blocks_taken", c_uint64),
        ("kv_blocks_copied", c_uint64),
        ("rewinds", c_uint64),
        ("replays", c_uint64),
        ("tokens_processed", c_uint64),
        ("tokens_replayed", c_uint64),
        ("tokens_scanned", c_uint64),
        ("tokens_reused", c_uint64),
        ("passes", c_uint64),
        ("encoder_passes", c_uint64),
        ("sequences", c_int64),
        ("snapshots", c_int64),
        ("prefix_bytes", c_uint64),
    ]


class kvant_step_input(Structure):
    _fields_ = [
        ("sequence", c_int32),
        ("logits", c_int32),
        ("tokens", c_void_p),
        ("count", c_size_t),
    ]


kvant_row_function = CFUNCTYPE(c_int32, c_void_p, c_size_t, c_int64, c_void_p, c_size_t)


class kvant_score_text(Structure):
    _fields_ = [
        ("tokens", c_void_p),
        ("count", c_size_t),
        ("first", c_size_t),
        ("log_probs", c_void_p),
        ("likeliest", c_void_p),
        ("source", c_void_p),
        ("source_count", c_size_t),
    ]


class kvant_tensor(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("name", c_char_p),
        ("dims", c_size_t),
        ("shape", c_void_p),
        ("values", c_void_p),
        ("count", c_size_t),
    ]


kvant_encoded_function = CFUNCTYPE(c_int32, c_void_p, c_void_p, c_size_t)


class kvant_grammar_options(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("kind", c_int32),
        ("text", c_char_p),
        ("text_size", c_size_t),
        ("choices", POINTER(c_char_p)),
        ("choice_count", c_size_t),
        ("json_compact", c_int32),
        ("json_allows_unknown", c_int32),
        ("trigger_words", POINTER(c_char_p)),
        ("trigger_word_count", c_size_t),
        ("trigger_tokens", c_void_p),
        ("trigger_token_count", c_size_t),
        ("trigger_patterns", POINTER(c_char_p)),
        ("trigger_pattern_count", c_size_t),
        ("trigger_full_patterns", POINTER(c_char_p)),
        ("trigger_full_pattern_count", c_size_t),
    ]


class kvant_logit_bias(Structure):
    _fields_ = [
        ("token", c_int32),
        ("bias", c_float),
    ]


class kvant_sampling_options(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("samplers", c_char_p),
        ("seed", c_uint64),
        ("has_seed", c_int32),
        ("repeat_last_n", c_int32),
        ("repeat_penalty", c_float),
        ("presence_penalty", c_float),
        ("frequency_penalty", c_float),
        ("dry_multiplier", c_float),
        ("dry_base", c_float),
        ("dry_allowed_length", c_int32),
        ("dry_penalty_last_n", c_int32),
        ("top_n_sigma", c_float),
        ("top_k", c_int32),
        ("typical", c_float),
        ("top_p", c_float),
        ("min_p", c_float),
        ("xtc_probability", c_float),
        ("xtc_threshold", c_float),
        ("temperature", c_float),
        ("dynatemp_range", c_float),
        ("dynatemp_exponent", c_float),
        ("min_keep", c_int32),
        ("mirostat", c_int32),
        ("mirostat_tau", c_float),
        ("mirostat_eta", c_float),
        ("adaptive_target", c_float),
        ("adaptive_decay", c_float),
        ("logit_bias", POINTER(kvant_logit_bias)),
        ("logit_bias_count", c_size_t),
        ("dry_breakers", POINTER(c_char_p)),
        ("dry_breaker_count", c_size_t),
    ]


class kvant_text(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("request", c_int64),
        ("sample", c_int32),
        ("finish_reason", c_int32),
        ("status", c_int32),
        ("error", c_char_p),
        ("seed", c_uint64),
        ("tokens", c_void_p),
        ("count", c_size_t),
        ("text", c_void_p),
        ("size", c_size_t),
        ("prompt_tokens", c_int64),
        ("decode_tokens", c_int64),
        ("drafted_tokens", c_int64),
        ("accepted_tokens", c_int64),
        ("prompt_seconds", c_double),
        ("decode_seconds", c_double),
        ("log_probs", c_void_p),
        ("top_tokens", c_void_p),
        ("top_log_probs", c_void_p),
        ("top_count", c_size_t),
    ]


class kvant_request(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("prompt", c_void_p),
        ("prompt_count", c_size_t),
        ("sampling", POINTER(kvant_sampling_options)),
        ("samples", c_int32),
        ("priority", c_int32),
        ("max_tokens", c_int64),
        ("stop_texts", POINTER(c_char_p)),
        ("stop_text_count", c_size_t),
        ("ignore_end", c_int32),
        ("show_special", c_int32),
        ("echo", c_int32),
        ("sequence", c_int32),
        ("held", c_int64),
        ("shift_keep", c_int64),
        ("draft_tokens", c_int64),
        ("user", c_void_p),
        ("on_text", CFUNCTYPE(c_int32, c_void_p, c_int64, c_int32, c_void_p, c_size_t)),
        ("on_prompt", CFUNCTYPE(c_int32, c_void_p, c_int64, c_int32, c_int64)),
        ("on_logits", CFUNCTYPE(c_int32, c_void_p, c_int64, c_int32, c_void_p, c_size_t, c_void_p, c_size_t)),
        ("on_end", CFUNCTYPE(c_int32, c_void_p, POINTER(kvant_text))),
        ("log_probs", c_int32),
        ("seconds_max", c_double),
        ("grammar", c_void_p),
    ]


class kvant_batch_options(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("prompt_slice", c_int64),
        ("requests_max", c_int64),
        ("stall_seconds", c_double),
        ("ageing_seconds", c_double),
    ]


class kvant_batch_counters(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("waiting", c_int64),
        ("preempted", c_int64),
        ("running", c_int64),
        ("submitted", c_uint64),
        ("ended", c_uint64),
        ("failed", c_uint64),
        ("cancelled", c_uint64),
        ("preemptions", c_uint64),
        ("rounds", c_uint64),
        ("tokens_prefilled", c_uint64),
        ("tokens_reused", c_uint64),
        ("tokens_generated", c_uint64),
        ("prefill_seconds", c_double),
        ("decode_seconds", c_double),
        ("blocks_used", c_int64),
        ("blocks_shared", c_int64),
        ("blocks_free", c_int64),
    ]


class kvant_beam_options(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("beams", c_int32),
        ("num_return", c_int32),
        ("scoring", c_int32),
        ("early_stopping", c_int32),
        ("has_length_penalty", c_int32),
        ("length_penalty", c_float),
        ("patience", c_float),
        ("ct2_length_counts_end", c_int32),
        ("groups", c_int32),
        ("diversity_penalty", c_float),
        ("max_new_tokens", c_int64),
        ("max_length", c_int64),
        ("min_length", c_int64),
        ("min_new_tokens", c_int64),
        ("repetition_penalty", c_float),
        ("no_repeat_ngram", c_int32),
        ("forced_bos", c_int32),
        ("renormalize", c_int32),
        ("sample", c_int32),
        ("temperature", c_float),
        ("top_k", c_int32),
        ("top_p", c_float),
        ("seed", c_uint64),
        ("end_tokens", c_void_p),
        ("end_token_count", c_size_t),
        ("forced_eos", c_void_p),
        ("forced_eos_count", c_size_t),
        ("suppress", c_void_p),
        ("suppress_count", c_size_t),
        ("begin_suppress", c_void_p),
        ("begin_suppress_count", c_size_t),
        ("bad_words", POINTER(POINTER(c_int32))),
        ("bad_word_sizes", c_void_p),
        ("bad_word_count", c_size_t),
        ("ct2_prompt_in_result", c_int32),
        ("grammar", c_void_p),
    ]


class kvant_hypothesis(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("tokens", c_void_p),
        ("log_probs", c_void_p),
        ("count", c_size_t),
        ("sum", c_float),
        ("score", c_float),
        ("ended", c_int32),
    ]


class kvant_beam_prompt(Structure):
    _fields_ = [
        ("tokens", c_void_p),
        ("count", c_size_t),
        ("source", c_void_p),
        ("source_count", c_size_t),
    ]


kvant_beam_step_function = CFUNCTYPE(c_int32, c_void_p, c_size_t, c_int64)


kvant_hypothesis_function = CFUNCTYPE(None, c_void_p, c_size_t, c_size_t, POINTER(kvant_hypothesis))


class kvant_conversation_options(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("sampling", POINTER(kvant_sampling_options)),
        ("render", POINTER(kvant_template_options)),
        ("max_tokens", c_int64),
        ("stop_texts", POINTER(c_char_p)),
        ("stop_text_count", c_size_t),
        ("ignore_end", c_int32),
        ("context_shift", c_int32),
        ("beams", c_int32),
        ("grammar", c_void_p),
        ("tool_choice", c_char_p),
    ]


kvant_answer_function = CFUNCTYPE(c_int32, c_void_p, c_int32, c_void_p, c_size_t)


class kvant_call_event(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("kind", c_int32),
        ("is_complete", c_int32),
        ("call", c_int64),
        ("text", c_void_p),
        ("size", c_size_t),
        ("id", c_char_p),
    ]


kvant_call_function = CFUNCTYPE(c_int32, c_void_p, POINTER(kvant_call_event))


class kvant_answer_sink(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("on_text", kvant_answer_function),
        ("on_prompt", kvant_progress_function),
        ("user", c_void_p),
        ("on_call", kvant_call_function),
    ]


class kvant_answer_report(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("conversation_tokens", c_int64),
        ("processed_tokens", c_int64),
        ("reused_tokens", c_int64),
        ("replayed_tokens", c_int64),
        ("generated_tokens", c_int64),
        ("forgotten_messages", c_int64),
        ("finish_reason", c_int32),
        ("shifted", c_int32),
        ("prompt_seconds", c_double),
        ("decode_seconds", c_double),
    ]


class kvant_conversation_info(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("messages", c_int64),
        ("forgotten", c_int64),
        ("held_tokens", c_int64),
        ("context", c_int64),
    ]


class kvant_embed_options(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("threads", c_int32),
        ("pooling", c_int32),
        ("context", c_int64),
        ("batch_tokens", c_int64),
        ("pin", c_int32),
        ("numa", c_int32),
        ("cpus", c_void_p),
        ("cpu_count", c_size_t),
    ]


class kvant_embedder_info(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("pooling", c_int32),
        ("threads", c_int32),
        ("dim", c_int64),
        ("context", c_int64),
        ("labels", c_int64),
        ("weight_bytes", c_uint64),
        ("activation_bytes", c_uint64),
        ("default_prompt", c_char_p),
    ]


class kvant_vector_options(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("normalize", c_double),
        ("dimensions", c_int64),
        ("truncate", c_int32),
        ("prompt_name", c_char_p),
        ("prefix", c_char_p),
    ]


class kvant_embed_text(Structure):
    _fields_ = [
        ("text", c_void_p),
        ("size", c_size_t),
        ("tokens", c_void_p),
        ("count", c_size_t),
        ("types", c_void_p),
    ]


# Name: what it returns, what it takes.
FUNCTIONS = {
    "kvant_abi_version": (c_uint32, []),
    "kvant_version": (c_char_p, []),
    "kvant_status_name": (c_char_p, [c_int32]),
    "kvant_last_error": (c_char_p, [c_void_p]),
    "kvant_free": (None, [c_void_p]),
    "kvant_set_log": (None, [kvant_log_function, c_void_p]),
    "kvant_set_interrupt": (None, [kvant_interrupt_function, c_void_p]),
    "kvant_model_options_default": (STATUS, [POINTER(kvant_model_options), c_size_t]),
    "kvant_model_open": (STATUS, [c_char_p, POINTER(kvant_model_options), POINTER(c_void_p)]),
    "kvant_model_free": (None, [c_void_p]),
    "kvant_model_get_info": (STATUS, [c_void_p, POINTER(kvant_model_info)]),
    "kvant_model_metadata_key": (c_char_p, [c_void_p, c_size_t]),
    "kvant_model_metadata": (STATUS, [c_void_p, c_char_p, POINTER(c_void_p), c_void_p]),
    "kvant_tokenizer_of_model": (STATUS, [c_void_p, POINTER(c_void_p)]),
    "kvant_tokenizer_open": (STATUS, [c_char_p, POINTER(c_void_p)]),
    "kvant_tokenizer_free": (None, [c_void_p]),
    "kvant_tokenizer_get_info": (STATUS, [c_void_p, POINTER(kvant_tokenizer_info)]),
    "kvant_tokenizer_encode": (STATUS, [c_void_p, c_char_p, c_size_t, c_uint32, POINTER(POINTER(c_int32)), c_void_p]),
    "kvant_tokenizer_prompt": (STATUS, [c_void_p, c_char_p, c_size_t, POINTER(POINTER(c_int32)), c_void_p]),
    "kvant_tokenizer_decode": (STATUS, [c_void_p, c_void_p, c_size_t, c_uint32, POINTER(c_void_p), c_void_p]),
    "kvant_tokenizer_token_bytes": (STATUS, [c_void_p, c_int32, c_uint32, POINTER(c_void_p), c_void_p]),
    "kvant_tokenizer_piece": (c_void_p, [c_void_p, c_int32, c_void_p]),
    "kvant_tokenizer_flags": (c_uint32, [c_void_p, c_int32]),
    "kvant_text_stream_new": (STATUS, [c_void_p, POINTER(c_char_p), c_size_t, c_uint32, POINTER(c_void_p)]),
    "kvant_text_stream_free": (None, [c_void_p]),
    "kvant_text_stream_push": (STATUS, [c_void_p, c_int32, POINTER(c_void_p), c_void_p, c_void_p]),
    "kvant_text_stream_finish": (STATUS, [c_void_p, POINTER(c_void_p), c_void_p]),
    "kvant_template_options_default": (STATUS, [POINTER(kvant_template_options), c_size_t]),
    "kvant_template_of_model": (STATUS, [c_void_p, POINTER(c_void_p)]),
    "kvant_template_named": (STATUS, [c_void_p, c_char_p, POINTER(c_void_p)]),
    "kvant_template_parse": (STATUS, [c_void_p, c_char_p, c_char_p, c_size_t, POINTER(c_void_p)]),
    "kvant_template_free": (None, [c_void_p]),
    "kvant_template_render": (STATUS, [c_void_p, c_char_p, c_size_t, POINTER(kvant_template_options), POINTER(c_void_p), c_void_p]),
    "kvant_template_tokens": (STATUS, [c_void_p, c_char_p, c_size_t, POINTER(kvant_template_options), POINTER(POINTER(c_int32)), c_void_p]),
    "kvant_runner_options_default": (STATUS, [POINTER(kvant_runner_options), c_size_t]),
    "kvant_plan_memory": (STATUS, [c_void_p, POINTER(kvant_runner_options), POINTER(kvant_memory_plan)]),
    "kvant_runner_new": (STATUS, [c_void_p, POINTER(kvant_runner_options), POINTER(c_void_p)]),
    "kvant_runner_free": (None, [c_void_p]),
    "kvant_runner_get_options": (STATUS, [c_void_p, POINTER(kvant_runner_options)]),
    "kvant_runner_get_stats": (STATUS, [c_void_p, POINTER(kvant_runner_stats)]),
    "kvant_runner_cancel": (None, [c_void_p]),
    "kvant_runner_resume": (None, [c_void_p]),
    "kvant_runner_set_kv_log": (STATUS, [c_void_p, kvant_log_function, c_void_p]),
    "kvant_runner_check": (STATUS, [c_void_p]),
    "kvant_sequence_new": (STATUS, [c_void_p, c_void_p]),
    "kvant_sequence_free": (STATUS, [c_void_p, c_int32]),
    "kvant_sequence_reset": (STATUS, [c_void_p, c_int32]),
    "kvant_sequence_length": (c_int64, [c_void_p, c_int32]),
    "kvant_sequence_tokens": (c_void_p, [c_void_p, c_int32, c_void_p]),
    "kvant_sequence_logits": (c_void_p, [c_void_p, c_int32, c_void_p]),
    "kvant_sequence_copy_logits": (STATUS, [c_void_p, c_int32, c_void_p, c_size_t]),
    "kvant_sequence_append": (STATUS, [c_void_p, c_int32, c_void_p, c_size_t]),
    "kvant_sequence_append_telling": (STATUS, [c_void_p, c_int32, c_void_p, c_size_t, kvant_progress_function, c_void_p]),
    "kvant_sequence_generate": (STATUS, [c_void_p, c_int32, c_void_p, c_void_p]),
    "kvant_sequence_reuse_prefix": (STATUS, [c_void_p, c_int32, c_void_p, c_size_t, c_void_p]),
    "kvant_sequence_fork": (STATUS, [c_void_p, c_int32, c_void_p]),
    "kvant_sequence_reorder": (STATUS, [c_void_p, c_void_p, c_void_p, c_size_t]),
    "kvant_sequence_rewind": (STATUS, [c_void_p, c_int32, c_int64, c_int32]),
    "kvant_sequence_compute_logits": (STATUS, [c_void_p, c_int32]),
    "kvant_sequence_prune": (STATUS, [c_void_p, c_int32, c_int64, c_int64, c_int32]),
    "kvant_runner_step": (STATUS, [c_void_p, POINTER(kvant_step_input), c_size_t, kvant_row_function, c_void_p]),
    "kvant_runner_score": (STATUS, [c_void_p, POINTER(kvant_score_text), c_size_t]),
    "kvant_snapshot_take": (STATUS, [c_void_p, c_int32, c_void_p]),
    "kvant_snapshot_restore": (STATUS, [c_void_p, c_int32, c_int32]),
    "kvant_snapshot_drop": (STATUS, [c_void_p, c_int32]),
    "kvant_runner_save": (STATUS, [c_void_p, c_char_p, c_void_p, c_size_t]),
    "kvant_runner_load": (STATUS, [c_void_p, c_char_p, POINTER(POINTER(c_int32)), c_void_p]),
    "kvant_tensors_export": (STATUS, [c_void_p, c_void_p, c_size_t, c_int32, POINTER(c_void_p)]),
    "kvant_tensors_import": (STATUS, [c_void_p, c_void_p, c_int32, POINTER(POINTER(c_int32)), c_void_p]),
    "kvant_tensors_new": (STATUS, [c_void_p, c_size_t, c_size_t, POINTER(c_void_p)]),
    "kvant_tensors_add": (STATUS, [c_void_p, c_char_p, c_void_p, c_size_t, c_void_p]),
    "kvant_tensors_free": (None, [c_void_p]),
    "kvant_tensors_count": (c_size_t, [c_void_p]),
    "kvant_tensors_get": (STATUS, [c_void_p, c_size_t, POINTER(kvant_tensor)]),
    "kvant_tensors_tokens": (c_void_p, [c_void_p, c_size_t, c_void_p]),
    "kvant_tensors_write": (STATUS, [c_void_p, c_char_p]),
    "kvant_tensors_read": (STATUS, [c_char_p, POINTER(c_void_p)]),
    "kvant_runner_add_rows": (STATUS, [c_void_p, c_void_p, c_size_t, c_void_p]),
    "kvant_runner_free_rows": (STATUS, [c_void_p, c_int32]),
    "kvant_source_new": (STATUS, [c_void_p, c_void_p, c_size_t, kvant_encoded_function, c_void_p, c_void_p]),
    "kvant_source_new_of_frames": (STATUS, [c_void_p, c_void_p, c_size_t, kvant_encoded_function, c_void_p, c_void_p]),
    "kvant_source_free": (STATUS, [c_void_p, c_int32]),
    "kvant_sequence_new_of_source": (STATUS, [c_void_p, c_int32, c_void_p]),
    "kvant_sequence_set_source": (STATUS, [c_void_p, c_int32, c_int32]),
    "kvant_grammar_options_default": (STATUS, [POINTER(kvant_grammar_options), c_size_t]),
    "kvant_grammar_new": (STATUS, [c_void_p, POINTER(kvant_grammar_options), POINTER(c_void_p)]),
    "kvant_grammar_free": (None, [c_void_p]),
    "kvant_sampling_options_default": (STATUS, [POINTER(kvant_sampling_options), c_size_t]),
    "kvant_sampling_options_of_model": (STATUS, [c_void_p, POINTER(kvant_sampling_options), c_size_t]),
    "kvant_sampler_new": (STATUS, [c_void_p, c_int32, POINTER(kvant_sampling_options), POINTER(c_void_p)]),
    "kvant_sampler_clone": (STATUS, [c_void_p, POINTER(c_void_p)]),
    "kvant_sampler_free": (None, [c_void_p]),
    "kvant_sampler_sample": (STATUS, [c_void_p, c_void_p, c_size_t, c_void_p]),
    "kvant_sampler_accept": (STATUS, [c_void_p, c_void_p, c_size_t]),
    "kvant_sampler_forbid": (STATUS, [c_void_p, c_int32]),
    "kvant_sampler_set_grammar": (STATUS, [c_void_p, c_void_p]),
    "kvant_sampler_seed": (c_uint64, [c_void_p]),
    "kvant_request_default": (STATUS, [POINTER(kvant_request), c_size_t]),
    "kvant_batch_options_default": (STATUS, [POINTER(kvant_batch_options), c_size_t]),
    "kvant_batch_new": (STATUS, [c_void_p, c_void_p, POINTER(kvant_batch_options), POINTER(c_void_p)]),
    "kvant_batch_free": (None, [c_void_p]),
    "kvant_batch_add": (STATUS, [c_void_p, POINTER(kvant_request), c_void_p]),
    "kvant_batch_cancel": (STATUS, [c_void_p, c_int64]),
    "kvant_batch_poll": (STATUS, [c_void_p, c_void_p]),
    "kvant_batch_get_counters": (STATUS, [c_void_p, POINTER(kvant_batch_counters)]),
    "kvant_batch_run": (STATUS, [c_void_p]),
    "kvant_beam_options_default": (STATUS, [POINTER(kvant_beam_options), c_size_t]),
    "kvant_beam_options_of_model": (STATUS, [c_void_p, POINTER(kvant_beam_options), c_size_t]),
    "kvant_beam_search_new": (STATUS, [c_int32, POINTER(kvant_beam_options), POINTER(c_void_p)]),
    "kvant_beam_search_free": (None, [c_void_p]),
    "kvant_beam_search_start": (STATUS, [c_void_p, c_void_p, c_size_t]),
    "kvant_beam_search_step": (STATUS, [c_void_p, POINTER(POINTER(c_float)), c_size_t, c_size_t]),
    "kvant_beam_search_step_of": (STATUS, [c_void_p, c_void_p, c_void_p, c_size_t]),
    "kvant_beam_search_rows": (c_size_t, [c_void_p]),
    "kvant_beam_search_parents": (c_void_p, [c_void_p, c_void_p]),
    "kvant_beam_search_tokens": (c_void_p, [c_void_p, c_void_p]),
    "kvant_beam_search_results": (STATUS, [c_void_p, c_void_p]),
    "kvant_beam_search_result": (STATUS, [c_void_p, c_size_t, POINTER(kvant_hypothesis)]),
    "kvant_beam_search_live": (STATUS, [c_void_p, c_size_t, POINTER(kvant_hypothesis)]),
    "kvant_runner_search": (STATUS, [c_void_p, POINTER(kvant_beam_prompt), c_size_t, POINTER(kvant_beam_options), kvant_beam_step_function, kvant_hypothesis_function, c_void_p]),
    "kvant_options_overlay": (STATUS, [c_char_p, c_size_t, POINTER(kvant_runner_options), POINTER(kvant_sampling_options), POINTER(kvant_beam_options), POINTER(c_char_p), c_void_p]),
    "kvant_conversation_options_default": (STATUS, [POINTER(kvant_conversation_options), c_size_t]),
    "kvant_conversation_open": (STATUS, [c_void_p, POINTER(kvant_runner_options), c_void_p, POINTER(kvant_conversation_options), POINTER(c_void_p)]),
    "kvant_conversation_new": (STATUS, [c_void_p, c_void_p, POINTER(kvant_conversation_options), POINTER(c_void_p)]),
    "kvant_conversation_free": (None, [c_void_p]),
    "kvant_conversation_fork": (STATUS, [c_void_p, c_void_p, POINTER(c_void_p)]),
    "kvant_conversation_get_info": (STATUS, [c_void_p, POINTER(kvant_conversation_info)]),
    "kvant_conversation_set_system": (STATUS, [c_void_p, c_char_p, c_size_t]),
    "kvant_conversation_add_user": (STATUS, [c_void_p, c_char_p, c_size_t]),
    "kvant_conversation_add": (STATUS, [c_void_p, c_char_p, c_size_t]),
    "kvant_conversation_messages": (STATUS, [c_void_p, POINTER(c_void_p), c_void_p]),
    "kvant_conversation_undo": (STATUS, [c_void_p, POINTER(c_void_p), c_void_p]),
    "kvant_conversation_edit": (STATUS, [c_void_p, c_char_p, c_size_t]),
    "kvant_conversation_drop_answer": (STATUS, [c_void_p]),
    "kvant_conversation_reset": (STATUS, [c_void_p]),
    "kvant_conversation_forget": (STATUS, [c_void_p, c_void_p]),
    "kvant_conversation_set_beams": (STATUS, [c_void_p, c_int32]),
    "kvant_conversation_set_tool_choice": (STATUS, [c_void_p, c_char_p]),
    "kvant_conversation_set_grammar": (STATUS, [c_void_p, c_void_p]),
    "kvant_conversation_answer": (STATUS, [c_void_p, POINTER(kvant_answer_sink), POINTER(kvant_answer_report)]),
    "kvant_conversation_cancel": (None, [c_void_p]),
    "kvant_conversation_save": (STATUS, [c_void_p, c_char_p, POINTER(c_char_p)]),
    "kvant_conversation_load": (STATUS, [c_void_p, c_char_p, POINTER(c_char_p)]),
    "kvant_embed_options_default": (STATUS, [POINTER(kvant_embed_options), c_size_t]),
    "kvant_vector_options_default": (STATUS, [POINTER(kvant_vector_options), c_size_t]),
    "kvant_embedder_new": (STATUS, [c_void_p, POINTER(kvant_embed_options), POINTER(c_void_p)]),
    "kvant_embedder_free": (None, [c_void_p]),
    "kvant_embedder_get_info": (STATUS, [c_void_p, POINTER(kvant_embedder_info)]),
    "kvant_embedder_prompt_name": (c_char_p, [c_void_p, c_size_t]),
    "kvant_embedder_prompt_text": (c_char_p, [c_void_p, c_size_t]),
    "kvant_embedder_label": (c_char_p, [c_void_p, c_size_t]),
    "kvant_embedder_tokens": (STATUS, [c_void_p, c_char_p, c_size_t, POINTER(kvant_vector_options), POINTER(POINTER(c_int32)), c_void_p]),
    "kvant_embedder_pair_tokens": (STATUS, [c_void_p, c_char_p, c_size_t, c_char_p, c_size_t, c_int32, POINTER(POINTER(c_int32)), POINTER(POINTER(c_int32)), c_void_p]),
    "kvant_embedder_embed": (STATUS, [c_void_p, POINTER(kvant_embed_text), c_size_t, POINTER(kvant_vector_options), c_void_p, POINTER(POINTER(c_float)), c_void_p]),
    "kvant_embedder_rank": (STATUS, [c_void_p, c_char_p, c_size_t, POINTER(kvant_embed_text), c_size_t, c_int32, c_int32, c_void_p]),
    "kvant_embedder_logits": (STATUS, [c_void_p, POINTER(kvant_embed_text), c_size_t, c_int32, POINTER(POINTER(c_float)), c_void_p]),
    "kvant_embedder_cancel": (None, [c_void_p]),
}
