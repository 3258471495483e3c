// Runs the built program as a user would: arguments, standard input, and what comes out of it.
//
// A run that takes longer than a minute is killed and fails its test.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <string>
#include <vector>

#include "tests/this_build.h"

extern char** environ;

namespace kvant::test {

struct ProgramRun {
  std::string out;
  std::string error;
  int code = -1;  // exit code, or 128 + the signal that ended it

  size_t error_lines() const {
    return static_cast<size_t>(std::count(error.begin(), error.end(), '\n'));
  }
};

struct ProgramInput {
  std::string text = {};                   // standard input
  std::string stdout_path = {};            // standard output goes here instead of into `out`
  int interrupt_after_ms = 0;              // send SIGINT after so long
  size_t interrupt_after_error_bytes = 0;  // and so much on standard error
};

inline bool HaveProgram() { return *kProgramPath != '\0' && access(kProgramPath, X_OK) == 0; }

// Feeds `in`, collects `out` and `error` until both are closed.
inline void Converse(int in, int out, int error, const ProgramInput& input, pid_t child,
                     ProgramRun* run) {
  const auto start = std::chrono::steady_clock::now();
  size_t written = 0;
  constexpr int64_t kLimitMs = 240'000;
  bool interrupted = input.interrupt_after_ms == 0 && input.interrupt_after_error_bytes == 0;
  while (out >= 0 || error >= 0) {
    const auto elapsed = std::chrono::duration_cast<std::chrono::milliseconds>(
        std::chrono::steady_clock::now() - start);
    if (!interrupted && elapsed.count() >= input.interrupt_after_ms &&
        run->error.size() >= input.interrupt_after_error_bytes) {
      kill(child, SIGINT);
      interrupted = true;
    }
    if (elapsed.count() > kLimitMs) {
      ADD_FAILURE() << "the program runs for more than four minutes";
      kill(child, SIGKILL);
      break;
    }
    if (in >= 0 && written == input.text.size()) {
      close(in);
      in = -1;
    }
    pollfd fds[] = {{in, POLLOUT, 0}, {out, POLLIN, 0}, {error, POLLIN, 0}};
    poll(fds, 3, 10);
    if (in >= 0 && (fds[0].revents & (POLLOUT | POLLERR)) != 0) {
      const ssize_t count = write(in, input.text.data() + written, input.text.size() - written);
      written = count < 0 ? input.text.size() : written + static_cast<size_t>(count);
    }
    const auto drain = [](int& fd, short revents, std::string& into) {
      if (fd < 0 || (revents & (POLLIN | POLLHUP)) == 0) return;
      char buffer[65536];
      const ssize_t count = read(fd, buffer, sizeof(buffer));
      if (count > 0) {
        into.append(buffer, static_cast<size_t>(count));
      } else {
        close(fd);
        fd = -1;
      }
    };
    drain(out, fds[1].revents, run->out);
    drain(error, fds[2].revents, run->error);
  }
  for (const int fd : {in, out, error}) {
    if (fd >= 0) close(fd);
  }
}

inline ProgramRun Run(const char* path, std::vector<std::string> arguments,
                      const ProgramInput& input) {
  std::signal(SIGPIPE, SIG_IGN);
  arguments.insert(arguments.begin(), path);
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  int in[2], out[2], error[2];
  ProgramRun run;
  if (pipe2(in, O_CLOEXEC) != 0 || pipe2(out, O_CLOEXEC) != 0 || pipe2(error, O_CLOEXEC) != 0) {
    ADD_FAILURE() << "no pipes";
    return run;
  }
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, in[0], 0);
  if (input.stdout_path.empty()) {
    posix_spawn_file_actions_adddup2(&actions, out[1], 1);
  } else {
    posix_spawn_file_actions_addopen(&actions, 1, input.stdout_path.c_str(), O_WRONLY, 0);
  }
  posix_spawn_file_actions_adddup2(&actions, error[1], 2);
  posix_spawnattr_t attributes;  // signals as a shell would leave them, also under nohup
  posix_spawnattr_init(&attributes);
  sigset_t defaults;
  sigemptyset(&defaults);
  for (const int number : {SIGHUP, SIGINT, SIGQUIT, SIGPIPE, SIGTERM}) {
    sigaddset(&defaults, number);
  }
  posix_spawnattr_setsigdefault(&attributes, &defaults);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
  pid_t child = 0;
  const int spawned = posix_spawn(&child, path, &actions, &attributes, argv.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  for (const int fd : {in[0], out[1], error[1]}) close(fd);
  if (spawned != 0) {
    ADD_FAILURE() << "cannot start " << path;
    for (const int fd : {in[1], out[0], error[0]}) close(fd);
    return run;
  }
  fcntl(in[1], F_SETFL, O_NONBLOCK);
  Converse(in[1], out[0], error[0], input, child, &run);
  int status = 0;
  waitpid(child, &status, 0);
  run.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return run;
}

inline ProgramRun RunProgram(const std::vector<std::string>& arguments,
                             const ProgramInput& input = {}) {
  return Run(kProgramPath, arguments, input);
}

// A line of bash, for pipes; $KVANT is the program. The code is that of the first failing part.
inline ProgramRun RunShell(const std::string& script) {
  const std::string setup = std::string("set -o pipefail; KVANT='") + kProgramPath + "'; ";
  return Run("/bin/bash", {"-c", setup + script}, {});
}

}  // namespace kvant::test

#define KVANT_SKIP_WITHOUT_PROGRAM() \
  if (!::kvant::test::HaveProgram()) GTEST_SKIP() << "the program is not built"
