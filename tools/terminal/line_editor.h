// Reads a text from a terminal: typed, edited, pasted, of one line or several, with a history and
// completion.
//
// It draws for itself, on as many rows as the text takes, and draws again when the terminal changes
// its size. Debian's libedit has no bracketed paste and cannot draw a text of several lines again,
// GNU readline is under a license that kvant could not take over, and linenoise counts the columns
// of emoji wrongly and knows no resizing; so it is our own, with widths by utf8proc.
//
// While a LineEditor lives, the terminal neither echoes nor collects lines: what is typed during an
// answer waits for the next ReadText. Ctrl+C and Ctrl+Z are signals then, and keys in ReadText.
#pragma once

#include <termios.h>

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "tools/terminal/edit_buffer.h"
#include "tools/terminal/input_history.h"
#include "tools/terminal/key_input.h"

namespace kvant::tools {

// The texts that may replace the bytes from `begin` to the cursor.
struct Completion {
  size_t begin = 0;
  std::vector<std::string> candidates;
};
using Completer = std::function<Completion(std::string_view before_cursor)>;

class LineEditor {
 public:
  enum class End : uint8_t {
    kText,
    kInterrupted,  // Ctrl+C
    kEndOfInput,   // Ctrl+D on an empty text
    kHungUp,       // the terminal is gone, or a signal asks the program to end
  };

  // `in` and `out` are a terminal. `history` must outlive the editor.
  LineEditor(int in, int out, InputHistory* history, Completer complete);
  ~LineEditor();  // gives the terminal the settings that it had
  LineEditor(const LineEditor&) = delete;
  LineEditor& operator=(const LineEditor&) = delete;

  // Reads a text into `text`, which begins as `initial`. `prompt` is plain text of one line;
  // `style` and `style_end` are what a terminal obeys before and behind it, or "".
  struct Prompt {
    std::string text = "> ";
    std::string style = {};
    std::string style_end = {};
  };
  End ReadText(const Prompt& prompt, const std::string& initial, std::string* text);

 private:
  enum class Next : uint8_t { kGoOn, kEnd };

  void Begin();
  void Suspend();
  Next Obey(const Key& key, End* end);
  bool Edit(const Key& key);
  Next Accept(End* end);
  void Complete();
  void Up();
  void Down();
  void ShowHistory(size_t entry);
  bool AwaitBytes(bool* timed_out);
  void ReadSize();
  void Draw();
  void DrawLast();
  std::string RowText(const EditLayout::Row& row, size_t number) const;
  EditLayout Layout() const;
  std::string ToFirstRow() const;
  size_t TextWidth() const;
  void Write(std::string_view text);
  enum class Mode : uint8_t { kKeys, kSignals };
  void SetMode(Mode mode);

  int in_;
  int out_;
  InputHistory* history_;
  Completer complete_;
  termios before_{};
  KeyDecoder keys_;
  EditBuffer buffer_;
  Prompt prompt_;
  std::string erased_;    // for Ctrl+Y
  std::string typed_;     // the text as it was before the history was looked into
  size_t entry_ = 0;      // of the history; its size is the text itself
  size_t columns_ = 80;   // of the terminal
  size_t lines_ = 24;     // of the terminal
  size_t first_row_ = 0;  // that is shown, where not all fit on the screen
  // The present screen: the columns of each row, and the cursor.
  std::vector<size_t> drawn_;
  size_t drawn_row_ = 0;
  size_t drawn_column_ = 0;
  bool hung_up_ = false;
};

}  // namespace kvant::tools
