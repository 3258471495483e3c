"""kvant: a CPU-first inference engine for GGUF models.

    import kvant
    with kvant.Model("model.gguf") as model:
        print(kvant.generate(model, "Once upon a time", max_tokens=50, temperature=0).text)

generate(), stream() and beam_search() write texts for any number of prompts, Conversation talks. embed() and rerank() make vectors of
texts and scores of documents. Generator has the object model of ONNX Runtime GenAI.
Below them lie Runner and Sequence: the cache with forks, exact rewind, snapshots, files, arrays. Errors are exceptions of
kvant.errors. Objects are freed by close(), by `with`, or with their last reference, in any order.
"""
from ._library import VERSION as __version__
from ._library import set_log
from .conversation import AnswerEvent, AnswerReport, Conversation
from .embed import Embedder, Ranked, embed, rerank
from .errors import (BusyError, CancelledError, ContextFullError, CorruptError, DeadlineError, InternalError, InvalidError, IoError, KvantError,
                     NotSupportedError, OutOfMemoryError)
from .generate import BeamOptions, Generated, Hypothesis, Piece, TextStream, beam_search, generate, stream
from .generator import Generator, GeneratorSnapshot
from .generator_params import GeneratorParams, set_log_options
from .grammar import Grammar
from .model import ChatTemplate, Config, Metadata, Model, ModelInfo, Tokenizer, TokenizerStream
from .runner import PastKeyValues, Rows, Runner, Score, Sequence, Snapshot, Source, plan_memory
from .sampling import Sampler, SamplingOptions

__all__ = [
    "AnswerEvent", "AnswerReport", "BeamOptions", "BusyError", "CancelledError", "ChatTemplate", "Config", "ContextFullError", "Conversation", "CorruptError",
    "DeadlineError", "Embedder", "Generated", "Generator", "GeneratorParams", "GeneratorSnapshot", "Grammar", "Hypothesis", "InternalError", "InvalidError", "IoError",
    "KvantError", "Metadata", "Model", "ModelInfo",
    "NotSupportedError", "OutOfMemoryError", "PastKeyValues", "Piece", "Ranked", "Rows", "Runner", "Sampler", "SamplingOptions", "Score", "Sequence",
    "Snapshot", "Source", "TextStream", "Tokenizer", "TokenizerStream", "__version__", "beam_search", "embed", "generate", "plan_memory", "rerank",
    "set_log", "set_log_options", "stream",
]
