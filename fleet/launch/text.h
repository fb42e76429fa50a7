// SPDX-License-Identifier: Apache-2.0

// What fleetrun shows to people, as texts. Pure and thread-safe, but for the
// clock in LogLine.

#ifndef FLEET_LAUNCH_TEXT_H_
#define FLEET_LAUNCH_TEXT_H_

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fleet/cluster/endpoint.h"

namespace fleet::launch {

// `lines` ("key: value\n"...) between two rules.
std::string Banner(std::string_view lines);

// "name=value name=value" on one line; of a long value its end.
std::string VariableLine(
    const std::vector<std::pair<std::string, std::string>>& variables);

// The table of environment variables, every line indented by 4.
std::string VariableTable(
    const std::vector<std::pair<std::string, std::string>>& variables);

// What endpoints.log holds.
std::string EndpointsLog(const std::vector<cluster::Endpoint>& workers);

// "INFO 2021-05-06 11:32:50,806 launch.cc:42] text\n", in local time.
std::string LogLine(std::string_view severity, std::string_view file, int line,
                    std::string_view text);

// The end of a log that says what went wrong: its last 20 lines, and more when
// a Python traceback begins before them, up to 100. `log` may begin in the
// middle of a line; at most its last 100 lines are looked at.
std::vector<std::string> LastLines(std::string_view log);

// "exit code 3", "SIGKILL (signal 9)", from what waitpid gave.
std::string DescribeExit(int wait_status);
// What a shell would say: the code, or 128 + signal.
int ExitCode(int wait_status);

}  // namespace fleet::launch

#endif  // FLEET_LAUNCH_TEXT_H_
