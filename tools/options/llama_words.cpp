// Sources: common/arg.cpp, the tools' own parsers and the README files of llama.cpp, late 2025.
#include "tools/options/llama_words.h"

#include <algorithm>
#include <array>

namespace kvant::tools {
namespace {

// `words` are separated by commas; one that ends in '*' stands for all that begin so. `command`, if
// it is not empty, is the only one for which the row holds; such rows come first.
struct Advice {
  std::string_view words;
  std::string_view command;
  std::string_view text;
};

constexpr std::string_view kServes = "'kvant serve' is the server, and has it";
constexpr std::string_view kEmbeds =
    "'kvant embed' turns texts into vectors, and 'kvant rerank' orders documents";
constexpr std::string_view kNoImages = "images and sound are not there yet";
constexpr std::string_view kNoVoices = "models that speak are not there yet";
constexpr std::string_view kNoTasks = "such tasks are not there yet";
constexpr std::string_view kNoRotations =
    "other rotations than the model file names are not there yet";
constexpr std::string_view kNoDownloads =
    "downloads are not there yet: fetch the file first, for example with 'hf download'";
constexpr std::string_view kDrafts =
    "--draft MODEL of 'kvant run' and 'kvant chat' guesses several tokens at once";
constexpr std::string_view kDraftSettings = "--draft-tokens is what can be set of a draft";
constexpr std::string_view kManyTexts =
    "'kvant run --prompts FILE' generates several texts at once";

constexpr std::array kOptionAdvice = {
    // Conversations
    Advice{"-no-cnv,--no-conversation", "chat", "'kvant run' continues a text"},
    Advice{"-cnv,--conversation,-i,--interactive,-if,--interactive-first", "run",
           "'kvant chat' holds conversations, and --chat answers one message"},
    Advice{"-cnv,--conversation,-i,--interactive,-if,--interactive-first", "",
           "'kvant chat' holds conversations"},
    Advice{"-mli,--multiline-input", "",
           "'kvant chat' holds conversations; Alt+Enter begins another line there"},
    Advice{"-st,--single-turn", "run",
           "--chat answers one message, and 'kvant chat --single-turn' ends after one answer"},
    Advice{"--in-prefix*,--in-suffix", "",
           "the model's chat template writes what is around a message; --chat-template takes "
           "another one"},
    Advice{"--chat-template-kwargs,--reasoning*,-sys,--system-prompt*,--chat-template*", "",
           "'kvant run --chat' and 'kvant chat' have it"},
    Advice{"--prefill-assistant,--no-prefill-assistant,--skip-chat-parsing", "",
           "an answer begins where the template ends; thoughts are told from it by --reasoning"},
    Advice{"-ag,--agent,--mcp-*,--ui-mcp-proxy", "", "a chat calls no tools"},
    // Several texts, drafts
    Advice{"-np,--parallel,-ns,--sequences", "", kManyTexts},
    Advice{"-lcs,-lcd,--lookup-cache-*", "run", "--draft ngram guesses from the text itself"},
    Advice{"-lcs,-lcd,--lookup-cache-*", "chat", "--draft ngram guesses from the text itself"},
    Advice{"--draft-*,--spec-*", "run", kDraftSettings},
    Advice{"--draft-*,--spec-*", "chat", kDraftSettings},
    Advice{"-lcs,-lcd,--lookup-cache-*,-md,--model-draft,--draft*,--spec-*", "", kDrafts},
    Advice{"--session*,--prompt-cache*", "chat", "/save and --load keep conversations"},
    Advice{"--keep", "chat", "--context-shift keeps the system's message"},
    // The model
    Advice{"--override-kv", "",
           "'kvant quantize IN OUT COPY --override-kv KEY=TYPE:VALUE' makes a file with it"},
    Advice{"--outfile,-o,--output", "convert", "OUT.gguf is the second argument"},
    Advice{"--split-max-size,--split-max-tensors", "", "'kvant split' cuts a model into shards"},
    Advice{"--check-tensors", "", "'kvant inspect MODEL --check-tensors' looks for wrong values"},
    Advice{"--list-devices", "", "'kvant inspect --devices' lists CUDA devices"},
    Advice{"--rpc", "", "other machines are not used"},
    Advice{"-hf*,--hf-*,-mu,--model-url,-dr,--docker-repo,-mmu,--mmproj-url,-cl,--cache-list,"
           "--gpt-oss-*",
           "", kNoDownloads},
    Advice{"--lora*", "", "LoRA adapters are not there yet"},
    Advice{"--control-vector*", "", "control vectors are not there yet"},
    Advice{"--rope-*,--yarn-*", "", kNoRotations},
    Advice{"-gan,-gaw,--grp-attn-*", "", "such extensions of the context are not there yet"},
    // Constraints, other inputs and outputs
    Advice{"-mm,--mmproj,--image*,--audio*", "", kNoImages},
    Advice{"-mv,--model-vocoder,--tts-*", "", kNoVoices},
    Advice{"--infill,--spm-infill,--fim-*", "", "'kvant serve' fills gaps, at /infill"},
    Advice{"--embd-*,--embedding*,--rerank*,--pooling,--attention", "", kEmbeds},
    Advice{"-ptc,--print-token-count", "", "--json counts the tokens"},
    Advice{"--verbose-prompt", "chat", "/show and --stats tell of the conversation"},
    Advice{"--verbose-prompt", "", "--echo shows the prompt"},
    Advice{"-sp,--special", "chat", "control tokens are no part of a message"},
    Advice{"-bf,--binary-file", "", "-f reads a file as it is"},
    Advice{"-C,-Cb,-Cd,--cpu-mask*,-Cr,-Crb,-Crd,--cpu-range*", "",
           "--pin takes a mask or a list of CPUs"},
    Advice{"--license", "", "kvant is under the MIT license; 'kvant --version' lists libraries"},
    // Programs
    Advice{"-a,--alias", "run", kServes},
    Advice{"--stdin", "tokenize", "- reads standard input"},
    Advice{"--no-bos", "tokenize", "no BOS is added unless --bos is given"},
    Advice{"--show-count", "tokenize", "--json counts the ids"},
    Advice{"-ofreq,--output-frequency,--save-frequency", "imatrix",
           "the file is written once, at the end"},
    Advice{"--show-statistics", "imatrix", "--show prints what a file holds"},
    Advice{"--include-weights,--exclude-weights,--prune-layers", "quantize",
           "such choices of weights are not there yet"},
    Advice{"--tensor-type-file", "quantize", "--tensor gives a type, once for each pattern"},
    Advice{"--xxh64,--all,--sha1,--sha256,--uuid", "hash", "XXH64 is the hash that it prints"},
    Advice{"--print-supported-models", "convert", "--help lists the models"},
    Advice{"--remote", "convert", kNoDownloads},
    Advice{"--merge", "split", "'kvant merge' joins shards"},
    Advice{"--split", "split", "this command does nothing else"},
    Advice{"--hellaswag*,--winogrande*,--multiple-choice*", "", kNoTasks},
    Advice{"--version", "", "'kvant --version' shows it"},
    Advice{"--completion-bash", "", "the packages bring completions for bash and zsh"},
    Advice{"--ssl-*", "serve", "a proxy in front does that; --host FILE.sock is for one"},
    Advice{"--path,--media-path,--webui-*,--ui-*", "serve",
           "the page is a part of the program, and --no-page turns it off"},
    Advice{"--models-max", "serve", "--memory-max says how many models are loaded"},
    Advice{"--models-preset*", "serve", "options hold for all models of --models"},
    Advice{"--no-models-autoload", "serve", "a request loads its model"},
    Advice{"--slot-prompt-*,-sps", "serve", "beginnings of prompts are known to all slots"},
    Advice{"--no-slots", "serve", "/slots is always there"},
    Advice{"--spm-infill", "serve", "the text before a gap comes first"},
    Advice{"-to,--timeout", "serve", "--write-timeout is for clients that read slowly"},
    Advice{"--sleep-idle-seconds", "serve", "an idle server computes nothing"},
    Advice{"--host,--port,--api-*,--threads-http,--metrics,--slots,--no-slots,--props", "",
           kServes},
    Advice{"--path,--ssl-*,-to,--timeout,--slot-*,-sps,--webui*,--no-webui,--media-path,--models-*,"
           "--sleep-idle-seconds",
           "", "'kvant serve' is the server"},
};

constexpr std::array kCommandAdvice = {
    Advice{"server,llama-server,api", "", "'kvant serve' is the server"},
    Advice{"rpc-server", "", "other machines are not used"},
    Advice{"main,cli,llama,llama-cli", "", "'kvant chat' talks, and 'kvant run' continues a text"},
    Advice{"talk,ask,llama-run,llama-simple-chat,simple-chat", "", "'kvant chat' talks"},
    Advice{"complete,completion,generate,llama-completion,llama-simple,simple", "",
           "'kvant run' continues a text"},
    Advice{"parallel,batched,llama-parallel,llama-batched", "", kManyTexts},
    Advice{"speculative*,lookup*,llama-speculative*,llama-lookup*", "", kDrafts},
    Advice{"benchmark,llama-bench,llama-batched-bench,batched-bench", "",
           "'kvant bench' measures the speed"},
    Advice{"quant,llama-quantize", "", "'kvant quantize' makes a model smaller"},
    Advice{"ppl,llama-perplexity", "", "'kvant perplexity' measures it"},
    Advice{"llama-imatrix", "", "'kvant imatrix' collects it"},
    Advice{"detokenize", "", "'kvant tokenize --decode' turns ids into text"},
    Advice{"llama-tokenize", "", "'kvant tokenize' turns text into ids"},
    Advice{"gguf-split,llama-gguf-split", "",
           "'kvant split' cuts a model into shards, and 'kvant merge' joins them"},
    Advice{"gguf-hash,llama-gguf-hash", "", "'kvant hash' prints and checks hashes"},
    Advice{"info,show,gguf,gguf-dump,gguf_dump.py,llama-gguf", "",
           "'kvant inspect' shows what is in a file"},
    Advice{"convert_hf_to_gguf*,convert-hf-to-gguf*", "",
           "'kvant convert' makes a GGUF file of a folder"},
    Advice{"llama-embedding,llama-retrieval,embedding", "", kEmbeds},
    Advice{"mtmd,llama-mtmd-cli,llama-llava-cli", "", kNoImages},
    Advice{"tts,llama-tts", "", kNoVoices},
    Advice{"train,finetune,llama-finetune,llama-export-lora,llama-cvector-generator", "",
           "training and adapters are not there yet"},
    Advice{"pull,download,llama-pull", "",
           "downloads are not there yet; 'hf download' fetches a file"},
    Advice{"list,ls,ps,models,tags", "",
           "there is no store of models: each command takes the path of a GGUF file, or the name "
           "of a model that comes along"},
    Advice{"rm,remove,delete,cp,create,push,stop,login,signin", "",
           "there is no store of models: each command takes the path of a GGUF file"},
};

// Names under which other programs fetch models.
constexpr std::array kModelAdvice = {
    Advice{"http://*,https://*,hf.co/*,huggingface.co/*,hf:*,hf://*,ollama://*,docker://*,"
           "ms://*,modelscope://*,file://*",
           "", kNoDownloads},
};

bool IsOneOf(std::string_view word, std::string_view words) {
  while (!words.empty()) {
    std::string_view one = words.substr(0, words.find(','));
    words.remove_prefix(std::min(words.size(), one.size() + 1));
    const bool family = one.ends_with('*');
    if (family) one.remove_suffix(1);
    if (family ? word.starts_with(one) : word == one) return true;
  }
  return false;
}

template <size_t kRows>
std::string_view Find(const std::array<Advice, kRows>& rows, std::string_view command,
                      std::string_view word) {
  for (const Advice& row : rows) {
    if (!row.command.empty() && row.command != command) continue;
    if (IsOneOf(word, row.words)) return row.text;
  }
  return "";
}

}  // namespace

const std::vector<DashWord>& DashWords() {
  static const std::vector<DashWord> words = {
      {"-ctk", "--cache-type-k"},
      {"-ctv", "--cache-type-v"},
      {"-ngl", "--n-gpu-layers"},
      {"-fa", "--flash-attn"},
      {"-ub", "--ubatch-size"},
      {"-pg", "--prompt-gen"},
      {"-oe", "--output-err"},
      {"-mmp", "--mmap"},
      {"-md", "--model-draft"},
      {"-tb", "--threads-batch"},
      {"-cnv", "--conversation"},
      {"-no-cnv", "--no-conversation"},
      {"-if", "--interactive-first"},
      {"-mli", "--multiline-input"},
      {"-np", "--parallel"},
      {"-sp", "--special"},
      {"-co", "--color"},
      {"-mg", "--main-gpu"},
      {"-sm", "--split-mode"},
      {"-ts", "--tensor-split"},
      {"-dev", "--device"},
      {"-ngld", "--n-gpu-layers-draft"},
      {"-nkvo", "--no-kv-offload"},
      {"-lv", "--log-verbosity"},
      {"-ot", "--override-tensor"},
      {"-otd", "--override-tensor-draft"},
      {"-devd", "--device-draft"},
      {"-cmoe", "--cpu-moe"},
      {"-cmoed", "--cpu-moe-draft"},
      {"-ncmoe", "--n-cpu-moe"},
      {"-ncmoed", "--n-cpu-moe-draft"},
      {"-fit", "--fit"},
      {"-fitt", "--fit-target"},
      {"-fitc", "--fit-ctx"},
      {"-kvo", "--kv-offload"},
      {"-nopo", "--no-op-offload"},
      {"-kvu", "--kv-unified"},
      {"-no-kvu", "--no-kv-unified"},
      {"-nr", "--no-repack"},
      {"-cb", "--cont-batching"},
      {"-nocb", "--no-cont-batching"},
      {"-dt", "--defrag-thold"},
      {"-dio", "--direct-io"},
      {"-ndio", "--no-direct-io"},
      {"-bs", "--backend-sampling"},
      {"-st", "--single-turn"},
      {"-sys", "--system-prompt"},
      {"-rea", "--reasoning"},
      {"-jf", "--json-schema-file"},
      {"-lm", "--load-mode"},
      {"-cram", "--cache-ram"},
      {"-ctxcp", "--ctx-checkpoints"},
      {"-cd", "--ctx-size-draft"},
      {"-td", "--threads-draft"},
      {"-tbd", "--threads-batch-draft"},
      {"-ctkd", "--cache-type-k-draft"},
      {"-ctvd", "--cache-type-v-draft"},
      {"-embd", "--embeddings"},
      {"-cpent", "--checkpoint-every-n-tokens"},
      {"-sysf", "--system-prompt-file"},
  };
  return words;
}

const std::vector<IdleOption>& IdleOptions() {
  static constexpr const char* kCpu = "the model runs on the CPU";
  static constexpr const char* kPlain = "the text goes to stdout as it is, all else to stderr";
  static constexpr const char* kPriority = "threads have the priority of the program";
  static constexpr const char* kDraft = "a draft takes threads, context and types of the model";
  static constexpr const char* kServer = "only a server would need it";
  static const std::vector<IdleOption> options = {
      {"--n-gpu-layers,--gpu-layers", true, kCpu},
      {"--n-gpu-layers-draft,--gpu-layers-draft", true, kCpu},
      {"--main-gpu", true, kCpu},
      {"--split-mode", true, kCpu},
      {"--tensor-split", true, kCpu},
      {"--device,--device-draft", true, kCpu},
      {"--override-tensor,--override-tensor-draft", true, kCpu},
      {"--cpu-moe,--cpu-moe-draft", false, kCpu},
      {"--n-cpu-moe,--n-cpu-moe-draft", true, kCpu},
      {"--threads-draft,--threads-batch-draft,--ctx-size-draft,--cache-type-k-draft,"
       "--cache-type-v-draft",
       true, kDraft},
      {"--draft-min,--draft-n-min,--spec-draft-n-min,--draft-p-min,--spec-draft-p-min,"
       "--draft-p-split",
       true, "guesses are made as long as they save time", IdleIn::kTexts},
      {"--no-kv-offload,--kv-offload", false, kCpu},
      {"--op-offload,--no-op-offload,--no-host,--backend-sampling", false, kCpu},
      {"--fit,--fit-target,--fit-ctx", true, "-c and --kv-type set what memory a run takes"},
      {"--flash-attn", false, "attention is always computed this way"},
      {"--kv-unified,--no-kv-unified", false, "all sequences share one cache"},
      {"--swa-full", false, "the cache keeps what the windows of the layers see"},
      {"--defrag-thold", true, "the cache has no gaps to close"},
      {"--cache-reuse,--cache-ram", true, kServer, IdleIn::kNotServe},
      {"--cache-reuse,--cache-ram", true, "see --prefix-budget", IdleIn::kServe},
      {"--threads-http", true, "one thread reads requests", IdleIn::kServe},
      {"--metrics,--slots,--props,--cache-prompt", false, "this is always so", IdleIn::kServe},
      {"--webui,--ui", false, "the page is there unless --no-page is given", IdleIn::kServe},
      {"--reasoning-format", true, "thoughts are in reasoning_content", IdleIn::kServe},
      {"--ctx-checkpoints,--swa-checkpoints,--checkpoint-every-n-tokens", true,
       "see --state-checkpoints"},
      {"--repack,--no-repack", false, "weights are used as they lie in the file"},
      {"--direct-io,--no-direct-io", false, "files are mapped, or read with --no-mmap"},
      {"--mmap", false, "files are mapped unless --no-mmap is given", IdleIn::kTexts},
      {"--no-mmproj,--mmproj-offload,--no-mmproj-offload", false, "there are no images"},
      {"--offline", false, "kvant opens no network connection"},
      {"-b,--batch-size", true, "see --chunk"},
      {"--cont-batching,--no-cont-batching", false, "texts join a batch as others end"},
      {"--threads-batch", true, "prompts are computed by the threads of -t"},
      {"--prio,--prio-batch,--poll,--poll-batch", true, kPriority},
      {"--cpu-strict,--cpu-strict-batch", true, "see --pin"},
      {"--no-warmup,--warmup", false, "nothing is computed in advance"},
      {"--log-disable,--no-perf,--perf,--show-timings,--no-show-timings", false,
       "there is no such log; -q leaves out progress and speeds"},
      {"--embeddings", false, "texts are measured", IdleIn::kBench},
      {"--delay", true, "tests follow each other at once", IdleIn::kBench},
      {"-v,--verbose,--log-verbose", false, "see --log kv for what can be watched"},
      {"--log-verbosity,--verbosity", true, "see --log kv for what can be watched"},
      {"--log-colors,--log-prefix,--log-timestamps,--color,--simple-io", false, kPlain},
      {"--no-display-prompt,--display-prompt", false, "the prompt is shown only with --echo"},
      {"--no-context-shift", false, "contexts are shifted only with --context-shift or --keep"},
      {"--no-escape", false, "escapes are read only with -e"},
      {"--jinja,--no-jinja", false, "chat templates are always read as Jinja"},
      {"--reasoning-format", true, "--reasoning shows or hides the thoughts of a model",
       IdleIn::kChat},
      {"--reasoning-format", true, "the text is shown as the model writes it", IdleIn::kOthers},
      {"--no-conversation", false, "prompts are continued as they are, unless --chat is given",
       IdleIn::kOthers},
      {"-i,--interactive,--conversation,--interactive-first", false, "this command always talks",
       IdleIn::kChat},
      {"--multiline-input", false, "Alt+Enter or a backslash begins another line", IdleIn::kChat},
  };
  return options;
}

std::string_view OptionAdvice(std::string_view command, std::string_view option) {
  return Find(kOptionAdvice, command, option.substr(0, option.find('=')));
}

std::string_view CommandAdvice(std::string_view word) {
  const std::string_view advice = Find(kCommandAdvice, "", word);
  return advice.empty() ? ModelAdvice(word) : advice;
}

std::string_view ModelAdvice(std::string_view name) { return Find(kModelAdvice, "", name); }

}  // namespace kvant::tools
