"""A tokenizer of one token a byte and a few control tokens, in the form of Hugging Face folders: byte-level BPE without merges."""
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast


def byte_names():
    """How a byte-level vocabulary writes the bytes 0 to 255: printable ones are themselves, the others follow from U+0100."""
    plain = {*range(33, 127), *range(161, 173), *range(174, 256)}
    others = iter(range(256, 512))
    return [chr(b) if b in plain else chr(next(others)) for b in range(256)]


def make(controls, **settings):
    """The ids of bytes are in the order of their names; control tokens follow."""
    vocabulary = {name: i for i, name in enumerate(sorted(byte_names()))}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in controls])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, clean_up_tokenization_spaces=False, **settings)


def ids_of_bytes(tokenizer):
    return [tokenizer.convert_tokens_to_ids(name) for name in byte_names()]
