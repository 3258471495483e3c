// kvant seq: runs a program of operations on token sequences and prints a line of JSON for each. So
// calls of Runner can be tried, and failures repeated, from the shell.
#include "base/result.h"
#include "kvant/runner.h"
#include "tools/commands.h"
#include "tools/options/groups/idle_options.h"
#include "tools/options/groups/model_group.h"
#include "tools/options/groups/session_group.h"
#include "tools/options/groups/text_group.h"
#include "tools/seq/seq_program.h"
#include "tools/terminal/console.h"

namespace kvant::tools {
namespace {

constexpr HelpText kSeqHelp = {
    "MODEL -f PROGRAM [OPTIONS]",
    "Runs one operation per line on named sequences in one KV cache, and prints a line of JSON\n"
    "for each. The line repeats the operation; for each sequence in it, it has the length, the\n"
    "likeliest next token and a hash of the logits. Equal hashes mean equal bits. # begins a\n"
    "comment. The first line that fails ends the program and changes nothing.\n"
    "\n"
    "  new A                   makes an empty sequence; see also free A, reset A\n"
    "  encode S \"text\"         encodes a source of an encoder-decoder; also encode S 1 15 27,\n"
    "                          and encode S frames FILE.npy for a model that reads sound. new A\n"
    "                          S makes a sequence that reads S, forget S lets S go\n"
    "  append A 1 15 27        appends tokens, by id; append A \"text\" tokenizes a text\n"
    "  step A 15 16 B 27       appends tokens to several sequences in one step\n"
    "  generate A 10           appends ten tokens, each the likeliest\n"
    "  fork A B                makes B, a copy of A\n"
    "  reorder A B C : 2 2 0   A and B become copies of C (number 2), C of A (number 0)\n"
    "  rewind A 12             keeps the first twelve tokens\n"
    "  prune A 4 100           keeps the first 4 and the last 100 tokens; with `moved` at the\n"
    "                          end, the last ones move to earlier positions\n"
    "  snapshot A S            remembers A as S; see also restore A S, drop S\n"
    "  save FILE A B           saves sequences to a file; load FILE A B loads them\n"
    "  export FILE bhsd A B    writes keys and values as safetensors; also kbhsd, bkhsd;\n"
    "                          import FILE bhsd A B reads them\n"
    "  logits A 5              prints the five likeliest tokens\n"
    "  tokens A                prints the ids of all tokens\n"
    "  stats                   prints memory and work so far\n"
    "  check                   checks the invariants of the cache",
    "  kvant seq model.gguf -f program.txt\n"
    "  printf 'new A\\nappend A \"Once\"\\ngenerate A 5\\n' | kvant seq model.gguf -\n",
};

constexpr int64_t kSequencesDefault = 16;

struct SeqOptions {
  ModelGroup model;
  TextGroup program;
  SessionGroup session;
  int64_t sequences = kSequencesDefault;
};

Status RunProgram(const SeqOptions& options, const Positionals& positionals, ResultStream& out) {
  KVANT_ASSIGN(const auto text, options.program.Read(positionals));
  if (!text.has_value()) {
    return MakeError(ErrorCode::kInvalid, "no program given: use -f FILE, or - for standard input");
  }
  KVANT_ASSIGN(SessionOptions session_options, options.session.Options());
  session_options.sequences = options.sequences;
  KVANT_ASSIGN(const auto model, Model::Open(positionals.model, options.model.Options()));
  KVANT_ASSIGN(const auto runner, options.session.OpenRunner(model, session_options));
  return RunSequenceProgram(*text, *runner, model->tokenizer(),
                            [&out](const std::string& line) { return out.Write(line); });
}

}  // namespace

int SeqCommand(CommandLine& line) {
  SeqOptions options;
  OptionList list;
  options.program.Add(list, "Program", "program");
  list.Integer("--sequences", &options.sequences, {1, 4096}, "Most sequences at the same time");
  options.session.settings.Add(list, SessionTopic::kPrefixes);
  options.model.AddPath(list);
  options.model.AddPre(list);
  options.model.AddLoading(list);
  options.session.Add(list, SessionUse::kTexts, "the length the model was trained for");
  AddIdleOptions(list);
  if (const auto code = line.Parse(list, kSeqHelp)) return *code;
  Positionals positionals;
  if (const auto code = TakePositionals(line, options.model, ModelNeed::kRequired,
                                        StdinUse::kAccepted, &positionals)) {
    return *code;
  }
  ResultStream out;
  const Status status = RunProgram(options, positionals, out);
  if (!status.ok()) return Fail(status.error());
  return out.Finish(kExitDone);
}

}  // namespace kvant::tools
