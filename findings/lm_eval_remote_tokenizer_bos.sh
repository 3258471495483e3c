# Python packages lm_eval 0.4.13, tokenizers 0.22.1 and transformers 4.57.1 of PyPI, with a server of three answers
# that stands for any server with OpenAI's interface.
#
# The model "local-completions" with add_bos_token=True, as Gemma and Llama need it. Good guess: each request begins with
# BOS, whoever turns texts into tokens. Seen: it does with tokenizer_backend=huggingface. With tokenizer_backend=remote
# the flag is taken without a word and has no effect. The default, auto, takes remote where the server has
# /tokenizer_info, so that scores change with the endpoints of a server.
source "$(dirname "$0")/common.bash"

python_with 'lm_eval[api]==0.4.13' tokenizers==0.22.1 transformers==4.57.1
cat >script.py <<'END'
import http.server
import json
import threading

from lm_eval.api.instance import Instance
from lm_eval.models.openai_completions import LocalCompletionsAPI
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

words = {"<s>": 0, "one": 1, "two": 2}
tokenizer = Tokenizer(models.WordLevel(words, unk_token="one"))
tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="<s>").save_pretrained("words")
prompts = []


class Answers(http.server.BaseHTTPRequestHandler):
    def send(self, value):
        data = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self):
        self.send({"bos_token": "<s>", "eos_token": "<s>"})

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path == "/tokenize":
            self.send({"tokens": [words.get(word, 1) for word in body["prompt"].split()]})
            return
        prompts.append(body["prompt"][0])
        count = len(prompts[-1]) + 1
        lists = {"token_logprobs": [-1.0] * count, "top_logprobs": [{"a": -1.0}] * count}
        self.send({"choices": [{"index": 0, "logprobs": lists}]})

    def log_message(self, *_):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answers)
threading.Thread(target=server.serve_forever, daemon=True).start()
for backend in ("huggingface", "remote", "auto"):
    model = LocalCompletionsAPI(base_url=f"http://127.0.0.1:{server.server_port}/v1/completions", model="m", add_bos_token=True,
                                tokenizer="words" if backend == "huggingface" else None, tokenizer_backend=backend)
    model.loglikelihood([Instance("loglikelihood", {}, ("one", " two"), 0)], disable_tqdm=True)
for prompt in prompts:
    print(*prompt)
END
HF_HUB_OFFLINE=1 "$python" script.py >output 2>/dev/null
expect "huggingface" "0 1 2" "$(sed -n 1p output)"
expect "remote" "1 2" "$(sed -n 2p output)"
expect "auto" "1 2" "$(sed -n 3p output)"
