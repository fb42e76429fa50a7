// SPDX-License-Identifier: Apache-2.0

#include "fleet/launch/process.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <optional>
#include <unistd.h>

#include "fleet/base/descriptor.h"
#include "fleet/launch/guard.h"

namespace fleet::launch {
namespace {

bool IsProgram(const std::string& path) {
  std::error_code error;
  return std::filesystem::is_regular_file(path, error) &&
         access(path.c_str(), X_OK) == 0;
}

// As a shell finds it.
std::optional<std::string> FindInPath(const std::string& name,
                                      const cluster::Environment& env) {
  std::string_view path = cluster::Find(env, "PATH").value_or("/usr/bin:/bin");
  while (true) {
    const size_t colon = path.find(':');
    const std::string_view folder = path.substr(0, colon);
    std::string candidate =
        (folder.empty() ? "." : std::string(folder)) + "/" + name;
    if (IsProgram(candidate)) return candidate;
    if (colon == path.npos) return std::nullopt;
    path.remove_prefix(colon + 1);
  }
}

Result<std::string> FindProgram(const std::string& name,
                                const cluster::Environment& env) {
  if (name.find('/') != name.npos) {
    if (IsProgram(name)) return name;
    return NotFound(name, access(name.c_str(), F_OK) == 0
                              ? ": not executable"
                              : ": no such program");
  }
  if (auto found = FindInPath(name, env)) return *found;
  if (IsProgram(name)) return "./" + name;
  return NotFound(name, ": no such program, here or in PATH");
}

Result<std::string> FindPython(const cluster::Environment& env,
                               std::string_view invoked_as) {
  if (const auto named = cluster::Find(env, "FLEET_PYTHON");
      named && !named->empty()) {
    Result<std::string> found = FindProgram(std::string(*named), env);
    if (found.ok()) return found;
    return found.status().WithContext("FLEET_PYTHON");
  }
  const size_t slash = invoked_as.rfind('/');
  if (slash != invoked_as.npos) {
    const std::string beside(invoked_as.substr(0, slash + 1));
    for (const char* name : {"python", "python3"}) {
      if (IsProgram(beside + name)) return beside + name;
    }
  }
  return FindProgram("python3", env);
}

std::vector<char*> Pointers(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  pointers.reserve(texts.size() + 1);
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

// In the child. Only what is safe after fork.
[[noreturn]] void Execute(const char* program, char** arguments, char** env,
                          pid_t parent, int null_fd, int log_fd,
                          int listen_fd) {
  LeaveGuard(parent);
  if (dup2(null_fd, STDIN_FILENO) < 0 || dup2(log_fd, STDOUT_FILENO) < 0 ||
      dup2(log_fd, STDERR_FILENO) < 0 ||
      (listen_fd >= 0 && fcntl(listen_fd, F_SETFD, 0) < 0)) {
    _exit(126);
  }
  // Not the p-forms: they have a shell read what is no program, say one for
  // another kind of machine.
  execve(program, arguments, env);
  const char* const hint =
      errno == ENOEXEC
          ? " (neither a program for this machine nor a script whose first "
            "line begins with #!)"
          : "";
  const char* parts[] = {"fleetrun: cannot start ", program, ": ",
                         strerrordesc_np(errno),    hint,    "\n"};
  for (const char* part : parts) {
    if (write(STDERR_FILENO, part, std::strlen(part)) < 0) break;
  }
  _exit(127);
}

}  // namespace

Result<Command> CommandFor(const std::string& script,
                           const std::vector<std::string>& script_arguments,
                           const cluster::Environment& env,
                           std::string_view invoked_as) {
  Command command;
  if (script.ends_with(".py")) {
    if (access(script.c_str(), R_OK) != 0) {
      return ErrnoStatus(errno, "can't open file '" + script + "'");
    }
    ASSIGN_OR_RETURN(command.program, FindPython(env, invoked_as));
    command.arguments = {command.program, "-u", script};
  } else {
    ASSIGN_OR_RETURN(command.program, FindProgram(script, env));
    command.arguments = {script};
  }
  command.arguments.insert(command.arguments.end(), script_arguments.begin(),
                           script_arguments.end());
  return command;
}

Result<Command> ServerCommandFor(const std::string& program,
                                 const cluster::Environment& env,
                                 std::string_view invoked_as) {
  if (program.find('/') == program.npos) {
    // Where it was started from, and where that may be a link to.
    std::error_code error;
    const std::filesystem::path real =
        std::filesystem::read_symlink("/proc/self/exe", error);
    for (const std::filesystem::path& fleetrun :
         {std::filesystem::path(invoked_as), real}) {
      if (!fleetrun.has_parent_path()) continue;
      const std::string beside = fleetrun.parent_path() / program;
      if (IsProgram(beside)) return Command{beside, {beside}};
    }
  }
  Result<Command> command = CommandFor(program, {}, env, invoked_as);
  if (command.ok()) return command;
  return command.status().WithContext("--server_program");
}

Result<pid_t> StartProcess(const Command& command, cluster::Environment env,
                           int log_fd, int listen_fd) {
  if (listen_fd >= 0) env["FLEET_LISTEN_FD"] = std::to_string(listen_fd);
  std::vector<std::string> variables;
  for (const auto& [name, value] : env) variables.push_back(name + "=" + value);
  std::vector<std::string> arguments = command.arguments;
  const std::vector<char*> argv = Pointers(arguments);
  const std::vector<char*> envp = Pointers(variables);
  const base::Descriptor null(open("/dev/null", O_RDONLY | O_CLOEXEC));
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child < 0) return ErrnoStatus(errno, "fork");
  if (child == 0) {
    Execute(command.program.c_str(), const_cast<char**>(argv.data()),
            const_cast<char**>(envp.data()), parent, null.get(), log_fd,
            listen_fd);
  }
  // The child does it too; whoever is first, a signal to the group arrives.
  setpgid(child, child);
  return child;
}

}  // namespace fleet::launch
