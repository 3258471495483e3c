# Python package transformers 4.57.1 of PyPI.
#
# A configuration of EmbeddingGemma (Gemma3TextConfig with use_bidirectional_attention) is saved and read again. Good guess: it is
# the same configuration. Seen: each time that the configuration is read, sliding_window becomes half of it plus one, and that is what
# is saved. A model that was saved twice attends to a quarter of the positions, without a word.
source "$(dirname "$0")/common.bash"

python_with transformers==4.57.1

cat >windows.py <<'END'
from transformers import Gemma3TextConfig

config = Gemma3TextConfig(sliding_window=512, use_bidirectional_attention=True)
windows = [config.sliding_window]
for _ in range(3):
    config.save_pretrained("saved")
    config = Gemma3TextConfig.from_pretrained("saved")
    windows.append(config.sliding_window)
causal = Gemma3TextConfig(sliding_window=512)
causal.save_pretrained("causal")
print(*windows, "causal", Gemma3TextConfig.from_pretrained("causal").sliding_window)
END

expect "window of 512, as made and after each of three times of saving" "257 129 65 33 causal 512" "$("$python" windows.py 2>/dev/null)"
