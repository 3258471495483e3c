#include "tools/terminal/line_editor.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <utility>

#include "tools/terminal/console.h"
#include "tools/terminal/job_control.h"
#include "tools/terminal/text_width.h"

namespace kvant::tools {
namespace {

constexpr int kEscapePauseMs = 50;  // after which an escape byte is the escape key
constexpr int kSignalPollMs = 200;  // in which a signal is noticed that came just before the wait

std::atomic<bool> resized{false};

void OnResize(int /*number*/) { resized.store(true); }

void CatchResize() {
  struct sigaction action {};
  action.sa_handler = OnResize;
  sigaction(SIGWINCH, &action, nullptr);
}

// The longest beginning that all have in common, in whole characters.
std::string CommonBeginning(const std::vector<std::string>& texts) {
  std::string_view common = texts.front();
  for (const std::string& text : texts) {
    const auto end = std::mismatch(common.begin(), common.end(), text.begin(), text.end()).first;
    common = common.substr(0, static_cast<size_t>(end - common.begin()));
  }
  while (!common.empty() && common.size() < texts.front().size() &&
         (static_cast<unsigned char>(texts.front()[common.size()]) & 0xc0) == 0x80) {
    common.remove_suffix(1);
  }
  return std::string(common);
}

}  // namespace

LineEditor::LineEditor(int in, int out, InputHistory* history, Completer complete)
    : in_(in), out_(out), history_(history), complete_(std::move(complete)) {
  tcgetattr(in_, &before_);
  CatchResize();
  FollowStops(in_, before_);
  SetMode(Mode::kSignals);
}

LineEditor::~LineEditor() {
  EndFollowingStops();
  tcsetattr(in_, TCSADRAIN, &before_);
}

void LineEditor::SetMode(Mode mode) {
  termios next = before_;
  next.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO | IEXTEN);
  next.c_iflag &= ~static_cast<tcflag_t>(ICRNL | INLCR);  // Enter is typed ahead, too
  next.c_cc[VMIN] = 1;
  next.c_cc[VTIME] = 0;
  if (mode == Mode::kKeys) {
    next.c_lflag &= ~static_cast<tcflag_t>(ISIG);
    next.c_iflag &= ~static_cast<tcflag_t>(IXON | ISTRIP);
  }
  SetTerminal(next);
}

void LineEditor::Write(std::string_view text) {
  while (!text.empty()) {
    const ssize_t count = write(out_, text.data(), text.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) {
      hung_up_ = true;
      return;
    }
    text.remove_prefix(static_cast<size_t>(count));
  }
}

void LineEditor::ReadSize() {
  winsize size{};
  if (ioctl(out_, TIOCGWINSZ, &size) != 0) return;
  if (size.ws_col > 1) columns_ = size.ws_col;
  if (size.ws_row > 0) lines_ = size.ws_row;
}

LineEditor::End LineEditor::ReadText(const Prompt& prompt, const std::string& initial,
                                     std::string* text) {
  prompt_ = prompt;
  buffer_.Assign(initial);
  typed_.clear();
  entry_ = history_->entries().size();
  first_row_ = 0;
  Begin();
  End end = End::kHungUp;
  bool timed_out = false;
  while (!hung_up_) {
    const auto pause = timed_out ? KeyDecoder::Pause::kYes : KeyDecoder::Pause::kNo;
    if (const auto key = keys_.Take(pause)) {
      if (Obey(*key, &end) == Next::kEnd) break;
      continue;
    }
    Draw();
    if (!AwaitBytes(&timed_out)) {
      end = CancelFlag().load() && SignalExitCode() == 128 + SIGINT ? End::kInterrupted
                                                                    : End::kHungUp;
      break;
    }
  }
  if (hung_up_) end = End::kHungUp;
  if (end != End::kHungUp) DrawLast();
  Write("\x1b[?2004l");
  SetMode(Mode::kSignals);
  *text = buffer_.text();
  return end;
}

// Takes the terminal for keys, on a row of its own.
void LineEditor::Begin() {
  TakeGoneOn();
  drawn_.clear();
  drawn_row_ = drawn_column_ = 0;
  SetMode(Mode::kKeys);
  Write("\x1b[?2004h");
  ReadSize();
  Draw();
}

// Leaves the text as it is on the terminal while the program is stopped.
void LineEditor::Suspend() {
  DrawLast();
  Write("\x1b[?2004l");
  StopByUser();
  Begin();
}

// Waits for bytes, redrawing where the terminal changes its size. False where there will be none.
bool LineEditor::AwaitBytes(bool* timed_out) {
  *timed_out = false;
  while (true) {
    if (CancelFlag().load()) return false;
    if (TakeGoneOn()) Begin();
    if (resized.exchange(false)) {
      ReadSize();
      Draw();
    }
    pollfd wait = {in_, POLLIN, 0};
    const int ready = poll(&wait, 1, keys_.empty() ? kSignalPollMs : kEscapePauseMs);
    if (ready < 0 && errno == EINTR) continue;
    if (ready < 0) return false;
    if (ready == 0 && keys_.empty()) continue;
    if (ready == 0) {
      *timed_out = true;
      return true;
    }
    char bytes[4096];
    const ssize_t count = read(in_, bytes, sizeof(bytes));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    keys_.Feed({bytes, static_cast<size_t>(count)});
    return true;
  }
}

// ---- Keys ---------------------------------------------------------------------------------------

LineEditor::Next LineEditor::Obey(const Key& key, End* end) {
  switch (key.kind) {
    case KeyKind::kEnter: return Accept(end);
    case KeyKind::kInterrupt: *end = End::kInterrupted; return Next::kEnd;
    case KeyKind::kEndOfInput:
      if (buffer_.text().empty()) {
        *end = End::kEndOfInput;
        return Next::kEnd;
      }
      buffer_.Delete();
      return Next::kGoOn;
    case KeyKind::kTab: Complete(); return Next::kGoOn;
    case KeyKind::kUp: Up(); return Next::kGoOn;
    case KeyKind::kDown: Down(); return Next::kGoOn;
    case KeyKind::kSuspend: Suspend(); return Next::kGoOn;
    case KeyKind::kClearScreen:
      Write("\x1b[H\x1b[2J");
      drawn_.clear();
      drawn_row_ = drawn_column_ = 0;
      return Next::kGoOn;
    default: Edit(key); return Next::kGoOn;
  }
}

// Keys that change the text or move the cursor in it.
bool LineEditor::Edit(const Key& key) {
  switch (key.kind) {
    case KeyKind::kText:
    case KeyKind::kPaste: buffer_.Insert(key.text); return true;
    case KeyKind::kNewLine: buffer_.Insert("\n"); return true;
    case KeyKind::kBackspace: buffer_.Backspace(); return true;
    case KeyKind::kDelete: buffer_.Delete(); return true;
    case KeyKind::kLeft: buffer_.Left(); return true;
    case KeyKind::kRight: buffer_.Right(); return true;
    case KeyKind::kHome: buffer_.LineBegin(); return true;
    case KeyKind::kEnd: buffer_.LineEnd(); return true;
    case KeyKind::kWordLeft: buffer_.WordLeft(); return true;
    case KeyKind::kWordRight: buffer_.WordRight(); return true;
    case KeyKind::kEraseToEnd: erased_ = buffer_.EraseToLineEnd(); return true;
    case KeyKind::kEraseToBegin: erased_ = buffer_.EraseToLineBegin(); return true;
    case KeyKind::kEraseWord: erased_ = buffer_.EraseWord(); return true;
    case KeyKind::kInsertErased: buffer_.Insert(erased_); return true;
    default: return false;
  }
}

// Enter sends the text, unless a backslash before it asks for another line.
LineEditor::Next LineEditor::Accept(End* end) {
  if (buffer_.before_cursor().ends_with('\\')) {
    buffer_.ReplaceBefore(buffer_.cursor() - 1, "\n");
    return Next::kGoOn;
  }
  *end = End::kText;
  return Next::kEnd;
}

void LineEditor::Complete() {
  const Completion found = complete_(buffer_.before_cursor());
  if (found.candidates.empty() || found.begin > buffer_.cursor()) return;
  const std::string common = CommonBeginning(found.candidates);
  if (common.size() > buffer_.cursor() - found.begin) {
    buffer_.ReplaceBefore(found.begin, common);
    return;
  }
  if (found.candidates.size() < 2) return;
  // The candidates come below the text, which is drawn again behind them.
  DrawLast();
  std::string lines;
  for (const std::string& candidate : found.candidates) {
    lines += std::string(CutToColumns(Visible(candidate), columns_ - 1)) + "\r\n";
  }
  Write(lines);
  drawn_.clear();
  drawn_row_ = drawn_column_ = 0;
}

void LineEditor::Up() {
  const EditLayout layout = Layout();
  if (layout.cursor_row > 0) {
    const EditLayout::Row& row = layout.rows[layout.cursor_row - 1];
    buffer_.MoveTo(PlaceInRow(buffer_.text(), row, layout.cursor_column));
    return;
  }
  if (entry_ > 0) ShowHistory(entry_ - 1);
}

void LineEditor::Down() {
  const EditLayout layout = Layout();
  if (layout.cursor_row + 1 < layout.rows.size()) {
    const EditLayout::Row& row = layout.rows[layout.cursor_row + 1];
    buffer_.MoveTo(PlaceInRow(buffer_.text(), row, layout.cursor_column));
    return;
  }
  if (entry_ < history_->entries().size()) ShowHistory(entry_ + 1);
}

void LineEditor::ShowHistory(size_t entry) {
  const auto& entries = history_->entries();
  if (entry_ == entries.size()) typed_ = buffer_.text();
  entry_ = entry;
  buffer_.Assign(entry == entries.size() ? typed_ : entries[entry]);
}

// ---- Drawing ------------------------------------------------------------------------------------

// The last column stays free, so that the terminal never goes on to the next row by itself.
size_t LineEditor::TextWidth() const {
  const size_t taken = TextColumns(prompt_.text) + 1;
  return columns_ > taken + 2 ? columns_ - taken : 2;
}

EditLayout LineEditor::Layout() const { return LayOut(buffer_, TextWidth()); }

// Moves from the drawn cursor to the first row. Where the terminal has become narrower, it is taken
// to have wrapped the rows that were wider.
std::string LineEditor::ToFirstRow() const {
  size_t up = drawn_column_ / columns_;
  for (size_t row = 0; row < drawn_row_ && row < drawn_.size(); ++row) {
    up += std::max<size_t>(1, (drawn_[row] + columns_ - 1) / columns_);
  }
  up = std::min(up, lines_ - 1);
  return up == 0 ? "\r" : fmt::format("\r\x1b[{}A", up);
}

std::string LineEditor::RowText(const EditLayout::Row& row, size_t number) const {
  const std::string& text = buffer_.text();
  std::string out = number == 0 ? prompt_.style + prompt_.text + prompt_.style_end
                                : std::string(TextColumns(prompt_.text), ' ');
  for (size_t at = row.begin; at < row.end;) {
    const TextCluster cluster = ClusterAt(text, at);
    out += Visible(std::string_view(text).substr(at, cluster.end - at));
    at = cluster.end;
  }
  return out;
}

void LineEditor::Draw() {
  const EditLayout layout = Layout();
  const size_t shown_max = std::max<size_t>(1, lines_ - 1);
  const size_t first_max = layout.rows.size() - std::min(layout.rows.size(), shown_max);
  first_row_ = std::min({first_row_, layout.cursor_row, first_max});
  if (layout.cursor_row >= first_row_ + shown_max) first_row_ = layout.cursor_row - shown_max + 1;
  const size_t end = std::min(layout.rows.size(), first_row_ + shown_max);
  std::string out = ToFirstRow() + "\x1b[J";
  const size_t indent = TextColumns(prompt_.text);
  drawn_.clear();
  for (size_t row = first_row_; row < end; ++row) {
    const EditLayout::Row& place = layout.rows[row];
    if (row > first_row_) out += "\r\n";
    out += RowText(place, row);
    const std::string_view text = std::string_view(buffer_.text());
    drawn_.push_back(indent + TextColumns(text.substr(place.begin, place.end - place.begin)));
  }
  drawn_row_ = layout.cursor_row - first_row_;
  drawn_column_ = indent + layout.cursor_column;
  const size_t up = end - 1 - layout.cursor_row;
  if (up > 0) out += fmt::format("\x1b[{}A", up);
  out += fmt::format("\r\x1b[{}C", drawn_column_);
  Write(out);
}

// Shows the text to its end, however long, and leaves the cursor on the row behind it.
void LineEditor::DrawLast() {
  const EditLayout layout = Layout();
  std::string out = ToFirstRow() + "\x1b[J";
  for (size_t row = 0; row < layout.rows.size(); ++row) {
    out += RowText(layout.rows[row], row) + "\r\n";
  }
  Write(out);
}

}  // namespace kvant::tools
