// SPDX-License-Identifier: Apache-2.0
#include "fleet/data/pipe_command.h"

#include <cctype>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

namespace fleet::data {
namespace {

// What a shell would act on where it is not quoted, and inside of "".
constexpr std::string_view kShellOnly = "|&;<>()$`*?[{~#\n";
constexpr std::string_view kShellOnlyInQuotes = "$`";

std::string Quoted(std::string_view text) {
  std::string quoted = "'";
  for (char c : text) {
    if (c == '\'') {
      quoted += "'\\''";
    } else {
      quoted += c;
    }
  }
  return quoted + "'";
}

Status NeedsShell(std::string_view command, std::string_view what) {
  return InvalidArgument(
      "pipe_command: '", what, "' in `", command,
      "` needs a shell, and the command is started without one; write: sh -c ",
      Quoted(command));
}

// Reads one quoted part that begins at command[i], and leaves i behind it.
Status TakeQuoted(std::string_view command, size_t& i, std::string& word) {
  const char quote = command[i++];
  for (; i < command.size() && command[i] != quote; ++i) {
    char c = command[i];
    if (quote == '"') {
      if (kShellOnlyInQuotes.find(c) != std::string_view::npos) {
        return NeedsShell(command, std::string_view(&c, 1));
      }
      if (c == '\\' && i + 1 < command.size() &&
          std::string_view("\"\\$`").find(command[i + 1]) !=
              std::string_view::npos) {
        c = command[++i];
      }
    }
    word += c;
  }
  if (i == command.size()) {
    return InvalidArgument("pipe_command: a quote ", quote, " in `", command,
                           "` does not end");
  }
  ++i;
  return OkStatus();
}

bool IsBlank(char c) { return c == ' ' || c == '\t'; }

// "NAME=value" before a command is a shell's way to set a variable.
bool IsAssignment(std::string_view word) {
  const size_t equals = word.find('=');
  if (equals == std::string_view::npos || equals == 0) return false;
  for (char c : word.substr(0, equals)) {
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '_') return false;
  }
  return true;
}

struct SpawnSettings {
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;

  SpawnSettings() {
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attributes);
    // Python ignores SIGPIPE, and what is ignored stays so in a new program: it
    // would write on after we are gone.
    sigset_t signals;
    sigemptyset(&signals);
    posix_spawnattr_setsigmask(&attributes, &signals);
    sigaddset(&signals, SIGPIPE);
    posix_spawnattr_setsigdefault(&attributes, &signals);
    posix_spawnattr_setflags(&attributes,
                             POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  }
  ~SpawnSettings() {
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
  }
};

Status MakePipe(base::Descriptor& read_end, base::Descriptor& write_end) {
  int fds[2];
  if (pipe2(fds, O_CLOEXEC) != 0) return ErrnoStatus(errno, "pipe");
  read_end = base::Descriptor(fds[0]);
  write_end = base::Descriptor(fds[1]);
  return OkStatus();
}

}  // namespace

Result<std::vector<std::string>> SplitCommand(std::string_view command) {
  std::vector<std::string> words;
  size_t i = 0;
  while (true) {
    while (i < command.size() && IsBlank(command[i])) ++i;
    if (i == command.size()) break;
    std::string word;
    const size_t begin = i;
    while (i < command.size() && !IsBlank(command[i])) {
      const char c = command[i];
      if (c == '\'' || c == '"') {
        RETURN_IF_ERROR(TakeQuoted(command, i, word));
        continue;
      }
      // A number sign or a tilde inside of a word is one.
      const bool only_first = c == '#' || c == '~';
      if (kShellOnly.find(c) != std::string_view::npos &&
          (!only_first || i == begin)) {
        return NeedsShell(command,
                          c == '\n' ? "a new line" : std::string_view(&c, 1));
      }
      if (c == '\\' && i + 1 < command.size()) ++i;
      word += command[i++];
    }
    if (words.empty() && IsAssignment(word)) {
      return NeedsShell(command, word);
    }
    words.push_back(std::move(word));
  }
  if (words.empty()) {
    return InvalidArgument(
        "pipe_command: it is empty; `cat` reads files as "
        "they are");
  }
  return words;
}

Result<std::unique_ptr<PipeProcess>> PipeProcess::Start(
    const std::vector<std::string>& words, const std::string& file) {
  const base::Descriptor input(open(file.c_str(), O_RDONLY | O_CLOEXEC));
  if (!input.valid()) return ErrnoStatus(errno, file);
  std::unique_ptr<PipeProcess> process(new PipeProcess());
  for (const std::string& word : words) {
    process->name_ += (process->name_.empty() ? "`" : " ") + word;
  }
  process->name_ += "`";
  base::Descriptor output;
  base::Descriptor errors;
  RETURN_IF_ERROR(MakePipe(process->output_, output));
  RETURN_IF_ERROR(MakePipe(process->errors_, errors));
  fcntl(process->errors_.get(), F_SETFL, O_NONBLOCK);

  SpawnSettings settings;
  posix_spawn_file_actions_adddup2(&settings.actions, input.get(),
                                   STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&settings.actions, output.get(),
                                   STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&settings.actions, errors.get(),
                                   STDERR_FILENO);
  std::vector<std::string> copies = words;
  std::vector<char*> arguments;
  arguments.reserve(copies.size() + 1);
  for (std::string& word : copies) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  const int error =
      posix_spawnp(&process->pid_, arguments[0], &settings.actions,
                   &settings.attributes, arguments.data(), environ);
  if (error != 0) {
    process->pid_ = -1;
    return ErrnoStatus(error, "pipe_command: cannot start " + process->name_);
  }
  // Without it (a kernel before 5.3) the end is waited for without `stop`.
  process->handle_ = base::Descriptor(
      static_cast<int>(syscall(SYS_pidfd_open, process->pid_, 0)));
  return process;
}

PipeProcess::~PipeProcess() {
  if (pid_ < 0) return;
  kill(pid_, SIGKILL);
  while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

Result<size_t> PipeProcess::Read(std::span<char> into, const StopSignal& stop) {
  while (output_.valid()) {
    RETURN_IF_ERROR(stop.WaitReadable(output_.get(), errors_.get()));
    ReadErrors();
    pollfd ready{output_.get(), POLLIN, 0};
    if (poll(&ready, 1, 0) <= 0) continue;
    const ssize_t count = read(output_.get(), into.data(), into.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return ErrnoStatus(errno, "read from " + name_);
    if (count > 0) return static_cast<size_t>(count);
    (void)output_.Close();
  }
  RETURN_IF_ERROR(WaitForEnd(stop));
  return size_t{0};
}

// All that is there, without waiting.
void PipeProcess::ReadErrors() {
  constexpr size_t kMaxSaid = 2000;
  char text[4096];
  while (errors_.valid()) {
    const ssize_t count = read(errors_.get(), text, sizeof(text));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) return;
    if (count <= 0) {
      (void)errors_.Close();
      return;
    }
    (void)!write(STDERR_FILENO, text, static_cast<size_t>(count));
    said_.append(text, static_cast<size_t>(count));
    if (said_.size() > kMaxSaid) said_.erase(0, said_.size() - kMaxSaid);
  }
}

Status PipeProcess::WaitForEnd(const StopSignal& stop) {
  if (pid_ < 0) return OkStatus();
  // It may go on after it closed its output, and children of it may hold its
  // standard error when it is gone.
  while (handle_.valid()) {
    RETURN_IF_ERROR(stop.WaitReadable(handle_.get(), errors_.get()));
    ReadErrors();
    pollfd ended{handle_.get(), POLLIN, 0};
    if (poll(&ended, 1, 0) > 0) break;
  }
  int outcome = 0;
  while (waitpid(pid_, &outcome, 0) < 0) {
    if (errno == EINTR) continue;
    pid_ = -1;
    return ErrnoStatus(errno, "wait for " + name_);
  }
  pid_ = -1;
  ReadErrors();
  if (WIFEXITED(outcome) && WEXITSTATUS(outcome) == 0) return OkStatus();
  const std::string how =
      WIFSIGNALED(outcome)
          ? base::Concat("was killed by signal ", WTERMSIG(outcome), " (",
                         sigabbrev_np(WTERMSIG(outcome)), ")")
          : base::Concat("ended with exit status ", WEXITSTATUS(outcome));
  while (!said_.empty() && said_.back() == '\n') said_.pop_back();
  return FailedPrecondition("pipe_command ", name_, " ", how,
                            said_.empty() ? "" : "; it said:\n", said_);
}

}  // namespace fleet::data
