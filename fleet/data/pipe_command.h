// SPDX-License-Identifier: Apache-2.0

// A command between a file and the parser: it gets the file as its standard
// input, and what it writes is read. It is started without a shell.

#ifndef FLEET_DATA_PIPE_COMMAND_H_
#define FLEET_DATA_PIPE_COMMAND_H_

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <sys/types.h>
#include <vector>

#include "fleet/base/status.h"
#include "fleet/data/stop_signal.h"

namespace fleet::data {

// The words of `command`, with the quotes ' and " and the backslash as a shell
// reads them. InvalidArgument for what only a shell would do (|, >, $, *, ...),
// with the command to write instead; for a quote that does not end; for none.
Result<std::vector<std::string>> SplitCommand(std::string_view command);

// The process that a command makes for one file. One thread.
class PipeProcess final {
 public:
  // NotFound when there is no such program or file.
  static Result<std::unique_ptr<PipeProcess>> Start(
      const std::vector<std::string>& words, const std::string& file);
  PipeProcess(const PipeProcess&) = delete;
  PipeProcess& operator=(const PipeProcess&) = delete;
  // Kills it if it runs.
  ~PipeProcess();

  // What it writes next; 0 at the end, when it has ended with exit status 0.
  // Else FailedPrecondition, with its status or signal and the end of what it
  // wrote to its standard error, which is passed on to ours as it comes. Waits
  // as long as the command does; `stop` ends the wait.
  Result<size_t> Read(std::span<char> into, const StopSignal& stop);

 private:
  PipeProcess() = default;
  void ReadErrors();
  Status WaitForEnd(const StopSignal& stop);

  std::string name_;         // for messages
  pid_t pid_ = -1;           // -1: it has ended
  base::Descriptor handle_;  // a pidfd
  base::Descriptor output_;
  base::Descriptor errors_;
  std::string said_;  // the end of its standard error
};

}  // namespace fleet::data

#endif  // FLEET_DATA_PIPE_COMMAND_H_
