// kvant seq: a program of operations on token sequences, a line of JSON for each. What programs of
// the library do with Runner can be tried, and failures repeated, from the shell.
#include "base/result.h"
#include "kvant/runner.h"
#include "tools/commands.h"
#include "tools/options/common_options.h"
#include "tools/seq/seq_program.h"
#include "tools/terminal/console.h"

namespace kvant::tools {
namespace {

constexpr HelpText kSeqHelp = {
    "MODEL -f PROGRAM [OPTIONS]",
    "Runs one operation per line on named sequences in one KV cache, and prints a line of JSON\n"
    "for each. It has the operation and, of the sequences that were touched, the length, the\n"
    "likeliest next token and a hash of the logits. Equal hashes mean equal bits. # begins a\n"
    "comment. The first line that fails ends the program; nothing it touched has changed.\n"
    "\n"
    "  new A                   an empty sequence; free A, reset A\n"
    "  encode S \"text\"         a source of an encoder-decoder, or encode S 1 15 27; new A S is "
    "a\n"
    "                          sequence that reads it, forget S lets it go; of a model that\n"
    "                          reads sound encode S frames FILE.npy\n"
    "  append A 1 15 27        new tokens, by id; append A \"text\" tokenizes\n"
    "  step A 15 16 B 27       new tokens of several, in one step\n"
    "  generate A 10           ten tokens, each the likeliest\n"
    "  fork A B                B becomes a copy of A\n"
    "  reorder A B C : 2 2 0   A and B become what C was, C what A was\n"
    "  rewind A 12             the first twelve tokens stay\n"
    "  prune A 4 100           all but the first 4 and the last 100 are forgotten; with `moved` "
    "at\n"
    "                          the end the last ones move to earlier positions\n"
    "  snapshot A S            remembers A as S; restore A S, drop S\n"
    "  save FILE A B           to a file; load FILE A B\n"
    "  export FILE bhsd A B    keys and values as safetensors; also kbhsd, bkhsd; import FILE "
    "bhsd A B\n"
    "  logits A 5              the five likeliest tokens\n"
    "  tokens A                ids of all tokens\n"
    "  stats                   memory and work so far\n"
    "  check                   the invariants of the cache",
    "  kvant seq model.gguf -f program.txt\n"
    "  printf 'new A\\nappend A \"Once\"\\ngenerate A 5\\n' | kvant seq model.gguf -\n",
};

constexpr int64_t kSequencesDefault = 16;

struct SeqOptions {
  ModelGroup model;
  TextGroup program;
  SessionGroup session;
  int64_t sequences = kSequencesDefault;
  bool prefix_cache = false;
};

Status RunProgram(const SeqOptions& options, const Positionals& positionals, ResultStream& out) {
  KVANT_ASSIGN(const auto text, options.program.Read(positionals));
  if (!text.has_value()) {
    return MakeError(ErrorCode::kInvalid, "no program given: use -f FILE, or - for standard input");
  }
  KVANT_ASSIGN(SessionOptions session_options, options.session.Options());
  session_options.sequences = options.sequences;
  session_options.prefix_cache = options.prefix_cache;
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
  list.Integer("--sequences", &options.sequences, {1, 4096}, "Sequences at the same time, at most");
  list.Flag("--prefix-cache", &options.prefix_cache,
            "Take the cache of earlier sequences that began with the same tokens");
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
