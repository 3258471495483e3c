// A part of kvant/kvant.h: conversations with a model. A conversation keeps messages and a sequence
// that follows them, so that an answer computes only what is new. Undoing, editing and answering
// again only change messages. A fork shares the cache for what it has in common with its origin.
//
// A conversation and its forks belong to one thread at a time, as their runner does; only
// kvant_conversation_cancel() may be called at any time from any thread. A conversation may outlive
// the objects that it was made from.
#include "kvant/kvant.h"  // first: it includes all parts in their order

#ifndef KVANT_KVANT_CONVERSATION_H_INCLUDED
#define KVANT_KVANT_CONVERSATION_H_INCLUDED

#include "kvant/kvant_generate.h"
#include "kvant/kvant_runner.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct kvant_conversation kvant_conversation;

typedef struct kvant_conversation_options {
  size_t struct_size;
  const kvant_sampling_options* sampling;  // NULL: as the model's file recommends
  const kvant_template_options* render;    // NULL: the defaults
  int64_t max_tokens;                      // of an answer; -1: until an end token or a full context
  const char* const* stop_texts;
  size_t stop_text_count;
  int32_t ignore_end;     // end tokens are never chosen
  int32_t context_shift;  // forget the oldest messages where the context is full
  int32_t beams;  // above 1: an answer is the best text of a search, in so many more sequences
  const kvant_grammar* grammar;  // that answers follow; NULL: none
  // Where `render` has tools: "auto", "none", "required" or the name of a tool; NULL: auto. Calls
  // of an answer are the member tool_calls of its message (kvant_conversation_messages).
  const char* tool_choice;
} kvant_conversation_options;

enum { KVANT_PART_REASONING = 0, KVANT_PART_CONTENT = 1 };
// Text of an answer, without the marks of its parts. A result other than 0 ends the answer.
typedef int32_t (*kvant_answer_function)(void* user, int32_t part, const char* piece, size_t size);

// Something that happens to a call of a tool. Its texts are valid while the function runs.
typedef struct kvant_call_event {
  size_t struct_size;
  int32_t kind;         // KVANT_CALL_BEGIN, KVANT_CALL_ARGUMENTS or KVANT_CALL_END
  int32_t is_complete;  // KVANT_CALL_END: 0 where the answer has ended within the call
  int64_t call;         // its number in the answer, from 0
  const char* text;  // BEGIN: the name; ARGUMENTS: more of the arguments, which are a JSON object
  size_t size;
  const char* id;  // as the model wrote it: at BEGIN where it stands before the arguments, at END
} kvant_call_event;
enum { KVANT_CALL_BEGIN = 0, KVANT_CALL_ARGUMENTS = 1, KVANT_CALL_END = 2 };
// A result other than 0 ends the answer.
typedef int32_t (*kvant_call_function)(void* user, const kvant_call_event* event);

// Receives an answer as it comes; each function may be NULL.
typedef struct kvant_answer_sink {
  size_t struct_size;
  kvant_answer_function on_text;
  kvant_progress_function on_prompt;  // tokens of the prompt that are processed, and all
  void* user;
  kvant_call_function on_call;  // where there are tools
} kvant_answer_sink;

typedef struct kvant_answer_report {
  size_t struct_size;
  int64_t conversation_tokens;  // prompt and answer
  int64_t processed_tokens;     // of the prompt, for this answer
  int64_t reused_tokens;        // of the prompt, which the sequence held already
  int64_t replayed_tokens;      // computed again to go back to those
  int64_t generated_tokens;
  int64_t forgotten_messages;  // for this answer, since the context was full
  int32_t finish_reason;       // kvant_finish_reason
  int32_t shifted;             // in the middle of the answer, the context was full and has moved on
  double prompt_seconds, decode_seconds;
} kvant_answer_report;

typedef struct kvant_conversation_info {
  size_t struct_size;
  int64_t messages;     // without the system's
  int64_t forgotten;    // of these, left out at the beginning
  int64_t held_tokens;  // in the cache
  int64_t context;
} kvant_conversation_info;

KVANT_API kvant_status kvant_conversation_options_default(kvant_conversation_options* options,
                                                          size_t size);
// A conversation in runners of its own; forks and beams open larger ones, whatever the runner's
// options say of sequences. NULL for the template: the model's own; for options: the defaults.
KVANT_API kvant_status kvant_conversation_open(const kvant_model* model,
                                               const kvant_runner_options* runner_options,
                                               const kvant_template* chat_template,
                                               const kvant_conversation_options* options,
                                               kvant_conversation** conversation);
// A conversation in a sequence of this runner. KVANT_OUT_OF_MEMORY where it has no room for one.
KVANT_API kvant_status kvant_conversation_new(kvant_runner* runner,
                                              const kvant_template* chat_template,
                                              const kvant_conversation_options* options,
                                              kvant_conversation** conversation);
KVANT_API void kvant_conversation_free(kvant_conversation* conversation);
// A conversation that goes on from here. `seed` is that of its answers; NULL: the seed of this one,
// so that equal messages get equal answers.
KVANT_API kvant_status kvant_conversation_fork(kvant_conversation* conversation,
                                               const uint64_t* seed, kvant_conversation** fork);
KVANT_API kvant_status kvant_conversation_get_info(const kvant_conversation* conversation,
                                                   kvant_conversation_info* info);

// "": there is no message of the system.
KVANT_API kvant_status kvant_conversation_set_system(kvant_conversation* conversation,
                                                     const char* text, size_t size);
KVANT_API kvant_status kvant_conversation_add_user(kvant_conversation* conversation,
                                                   const char* text, size_t size);
// Messages as a JSON array, with any members that the template knows (tool_calls ...), or none of
// them. Roles are user, assistant, tool, and system for the first message of all.
KVANT_API kvant_status kvant_conversation_add(kvant_conversation* conversation,
                                              const char* messages, size_t size);
// All messages as a JSON array, the system's first.
KVANT_API kvant_status kvant_conversation_messages(const kvant_conversation* conversation,
                                                   char** messages, size_t* size);
// Takes back the last message of the user and all behind it. `text` is what the user said; NULL:
// nobody asks. KVANT_INVALID where there is no such message.
KVANT_API kvant_status kvant_conversation_undo(kvant_conversation* conversation, char** text,
                                               size_t* size);
// Puts a text in place of the last message of the user, and takes back all behind it.
KVANT_API kvant_status kvant_conversation_edit(kvant_conversation* conversation, const char* text,
                                               size_t size);
// Takes the last answer back. KVANT_INVALID where the last message is none.
KVANT_API kvant_status kvant_conversation_drop_answer(kvant_conversation* conversation);
// Leaves no messages but the system's.
KVANT_API kvant_status kvant_conversation_reset(kvant_conversation* conversation);
// Leaves out the oldest exchanges until the rest takes at most half the context. `messages` is how
// many that are; 0 where there is nothing more to leave out.
KVANT_API kvant_status kvant_conversation_forget(kvant_conversation* conversation,
                                                 int64_t* messages);
KVANT_API kvant_status kvant_conversation_set_beams(kvant_conversation* conversation,
                                                    int32_t beams);

// Chooses whether the answers to come call tools. KVANT_INVALID where there are none.
KVANT_API kvant_status kvant_conversation_set_tool_choice(kvant_conversation* conversation,
                                                          const char* tool_choice);
// The grammar that the answers to come follow; NULL: none. KVANT_INVALID for one beside tools that
// answers may call.
KVANT_API kvant_status kvant_conversation_set_grammar(kvant_conversation* conversation,
                                                      const kvant_grammar* grammar);

// Answers the last message. `sink` and `report`, which is zeros after an error, may be NULL. A
// cancelled answer ends as it is, with KVANT_OK and the finish reason KVANT_FINISH_CANCELLED; one
// without any text is no message. KVANT_CONTEXT_FULL where the conversation has no room in the
// context.
KVANT_API kvant_status kvant_conversation_answer(kvant_conversation* conversation,
                                                 const kvant_answer_sink* sink,
                                                 kvant_answer_report* report);
// From any thread: ends the answer under way, or else the next one. In a runner that was given it
// is kvant_runner_cancel().
KVANT_API void kvant_conversation_cancel(kvant_conversation* conversation);

// Messages, tools and grammar go to and come from `path`, the tokens of the cache to and from a
// file beside it with ".kvs" behind its name. `note` tells why tokens could not be saved, or will
// be computed again; "" if neither; it may be NULL. Tools and grammar come from the file where the
// conversation was made with neither. A load that fails leaves the conversation as it was.
KVANT_API kvant_status kvant_conversation_save(const kvant_conversation* conversation,
                                               const char* path, char** note);
KVANT_API kvant_status kvant_conversation_load(kvant_conversation* conversation, const char* path,
                                               char** note);

#ifdef __cplusplus
}
#endif

#endif  // KVANT_KVANT_CONVERSATION_H_INCLUDED
