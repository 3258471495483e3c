#include "tools/terminal/job_control.h"

#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>

namespace kvant::tools {
namespace {

constexpr useconds_t kStopPollUs = 1000;

// Handlers read these. New settings are written into the half that no handler reads.
termios outside_settings;
termios inside_settings[2];
std::atomic<int> inside_half{-1};  // -1: there are none
std::atomic<int> followed_terminal{-1};
std::atomic<bool> gone_on{false};

static_assert(std::atomic<int>::is_always_lock_free, "used in signal handlers");

void TakeTerminal() {
  const int terminal = followed_terminal.load();
  const int half = inside_half.load();
  if (terminal >= 0 && half >= 0) tcsetattr(terminal, TCSANOW, &inside_settings[half]);
  gone_on.store(true);
}

void OnGoOn(int /*number*/) {
  const int error = errno;
  TakeTerminal();
  errno = error;
}

// Stops by the default action, which takes effect where the signal is let through.
void OnStop(int number) {
  const int error = errno;
  const int terminal = followed_terminal.load();
  if (terminal >= 0) tcsetattr(terminal, TCSANOW, &outside_settings);
  struct sigaction plain {};
  plain.sa_handler = SIG_DFL;
  struct sigaction ours {};
  sigaction(number, &plain, &ours);
  raise(number);
  sigset_t stop;
  sigset_t before;
  sigemptyset(&stop);
  sigaddset(&stop, number);
  pthread_sigmask(SIG_UNBLOCK, &stop, &before);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  sigaction(number, &ours, nullptr);
  TakeTerminal();  // also where nobody could continue the program, so that it was not stopped
  errno = error;
}

void Handle(int number, void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  sigaction(number, &action, nullptr);
}

}  // namespace

void FollowStops(int terminal, const termios& outside) {
  outside_settings = outside;
  inside_half.store(-1);
  followed_terminal.store(terminal);
  struct sigaction before {};
  sigaction(SIGTSTP, nullptr, &before);
  if (before.sa_handler != SIG_IGN) Handle(SIGTSTP, OnStop);
  Handle(SIGCONT, OnGoOn);
}

void EndFollowingStops() {
  followed_terminal.store(-1);
  struct sigaction before {};
  sigaction(SIGTSTP, nullptr, &before);
  if (before.sa_handler == OnStop) Handle(SIGTSTP, SIG_DFL);
  Handle(SIGCONT, SIG_DFL);
}

void SetTerminal(const termios& inside) {
  const int next = inside_half.load() == 0 ? 1 : 0;
  inside_settings[next] = inside;
  inside_half.store(next);
  tcsetattr(followed_terminal.load(), TCSADRAIN, &inside);
}

void StopByUser() {
  struct sigaction action {};
  sigaction(SIGTSTP, nullptr, &action);
  if (action.sa_handler != OnStop) return;
  gone_on.store(false);
  kill(0, SIGTSTP);
  // Another thread may have taken the signal.
  while (!gone_on.load()) usleep(kStopPollUs);
}

bool TakeGoneOn() { return gone_on.exchange(false); }

}  // namespace kvant::tools
