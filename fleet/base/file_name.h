// SPDX-License-Identifier: Apache-2.0

// Names that users or peers chose (of tables, of parameters) as names of files.
// Pure and thread-safe.

#ifndef FLEET_BASE_FILE_NAME_H_
#define FLEET_BASE_FILE_NAME_H_

#include <optional>
#include <string>
#include <string_view>

namespace fleet::base {

// The name of a file that stands for `name` in a folder: one part of a path,
// which leads nowhere else and is not hidden. Different names have different
// files. A slash, a zero byte, a dot at the beginning, and a percent sign
// before two hexadecimal digits become "%" and two such digits ("enc/w" is
// "enc%2Fw"); all other names are their own files' names.
std::string FileNameOf(std::string_view name);

// The name that FileNameOf was given.
std::string NameOfFile(std::string_view file_name);

// The file that AtomicFile (file_system.h) was writing under this temporary
// name; nothing for other names. When its process has died, it is of no use to
// anybody.
std::optional<std::string> NameUnderConstruction(std::string_view name);

}  // namespace fleet::base

#endif  // FLEET_BASE_FILE_NAME_H_
