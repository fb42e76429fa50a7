// SPDX-License-Identifier: Apache-2.0

#include "fleet/table/saved_table.h"

#include <cstdio>
#include <map>
#include <sstream>
#include <utility>

#include "fleet/base/crc32c.h"
#include "fleet/base/file_name.h"
#include "fleet/table/table_name.h"

namespace fleet::table {
namespace {

std::string ListName(const std::string& table, const SaveId& id) {
  return base::Concat(base::FileNameOf(table), ".", id.number, ".", id.server,
                      "-of-", id.num_servers, ".list");
}

std::string_view KindName(SaveKind kind) {
  return kind == SaveKind::kBase ? "base" : "delta";
}

Result<SaveList> ReadSaveList(const base::Path& path) {
  ASSIGN_OR_RETURN(std::string text, base::ReadFile(path));
  auto damaged = [&](std::string_view why) {
    return DataLoss(path.string(), ": ", why);
  };
  const size_t end = text.rfind("end ");
  if (end == std::string::npos) return damaged("it is truncated");
  const std::string crc = base::Concat(
      "end ", base::Crc32c(std::string_view(text).substr(0, end)), "\n");
  if (text.substr(end) != crc) return damaged("its checksum does not fit");
  std::istringstream in(text.substr(0, end));
  SaveList list;
  std::string word;
  std::string kind;
  std::string of;
  std::string save;
  std::string version;
  in >> word >> save >> version;
  if (word != "fleet" || save != "save" || version != "1") {
    return damaged("it is no list of version 1");
  }
  in >> word;
  in.get();
  std::getline(in, list.table);
  in >> word >> list.id.number >> word >> kind >> word >> list.id.server >>
      of >> list.id.num_servers >> word >> list.step;
  list.id.kind = kind == "base" ? SaveKind::kBase : SaveKind::kDelta;
  if (!in || list.id.num_servers == 0) return damaged("it makes no sense");
  while (in >> word) {
    if (word == "time") {
      in >> list.time;
    } else {
      SaveList::File file;
      in >> file.byte_size >> file.checksum;
      in.get();
      std::getline(in, file.name);
      // The files of a save lie beside its list, and nowhere else.
      if (word != "file" || file.name.find('/') != std::string::npos) {
        return damaged("it makes no sense");
      }
      list.files.push_back(std::move(file));
    }
    if (!in) return damaged("it makes no sense");
  }
  return list;
}

// The number in TABLE.NUMBER.I-of-N...; false for other names. `file` is
// FileNameOf the table.
bool ParseName(const std::string& name, const std::string& file,
               uint64_t* number) {
  if (!name.starts_with(file + ".")) return false;
  unsigned long long value = 0;
  unsigned i = 0;
  unsigned n = 0;
  int used = 0;
  if (std::sscanf(name.c_str() + file.size() + 1, "%llu.%u-of-%u.%n", &value,
                  &i, &n, &used) != 3 ||
      used == 0) {
    return false;
  }
  *number = value;
  return true;
}

}  // namespace

std::string RowsFileName(const std::string& table, const SaveId& id,
                         uint32_t shard) {
  return base::Concat(base::FileNameOf(table), ".", id.number, ".", id.server,
                      "-of-", id.num_servers, ".", shard, ".rows");
}

Status WriteSaveList(const base::Path& folder, const SaveList& list) {
  RETURN_IF_ERROR(CheckTableName(list.table));
  std::string text = base::Concat(
      "fleet save 1\ntable ", list.table, "\nnumber ", list.id.number,
      "\nkind ", KindName(list.id.kind), "\nserver ", list.id.server, " of ",
      list.id.num_servers, "\nstep ", list.step, "\n");
  if (list.time > 0) text += base::Concat("time ", list.time, "\n");
  for (const SaveList::File& file : list.files) {
    text += base::Concat("file ", file.byte_size, " ", file.checksum, " ",
                         file.name, "\n");
  }
  text += base::Concat("end ", base::Crc32c(text), "\n");
  return base::AtomicWriteFile(folder / ListName(list.table, list.id), text);
}

Result<std::vector<SaveList>> FindSave(const base::Path& folder,
                                       const std::string& table) {
  ASSIGN_OR_RETURN(const std::vector<std::string> names,
                   base::ListFolder(folder));
  std::map<uint64_t, std::vector<SaveList>> saves;
  const std::string file = base::FileNameOf(table);
  for (const std::string& name : names) {
    uint64_t number = 0;
    if (!name.ends_with(".list") || !ParseName(name, file, &number)) continue;
    ASSIGN_OR_RETURN(SaveList list, ReadSaveList(folder / name));
    saves[number].push_back(std::move(list));
  }
  std::string incomplete;
  std::vector<SaveList> found;
  // A delta behind a gap does not count.
  bool gap = false;
  for (auto& [number, lists] : saves) {
    const uint32_t num_servers = lists.front().id.num_servers;
    bool complete = lists.size() == num_servers;
    for (const SaveList& list : lists) {
      complete = complete && list.id.num_servers == num_servers &&
                 list.id.kind == lists.front().id.kind;
    }
    const bool is_base = lists.front().id.kind == SaveKind::kBase;
    if (!complete) {
      incomplete += base::Concat("; save ", number, " has the lists of ",
                                 lists.size(), " of ", num_servers, " servers");
      gap = gap || !is_base;
      continue;
    }
    if (is_base) {
      found.clear();
      gap = false;
    }
    if (!is_base && (found.empty() || gap)) continue;
    found.insert(found.end(), std::make_move_iterator(lists.begin()),
                 std::make_move_iterator(lists.end()));
  }
  if (found.empty()) {
    return NotFound(folder.string(), ": no complete save of table ", table,
                    incomplete);
  }
  return found;
}

Status RemoveOlderSaves(const base::Path& folder, const std::string& table,
                        uint64_t number) {
  ASSIGN_OR_RETURN(const std::vector<std::string> names,
                   base::ListFolder(folder));
  const std::string file = base::FileNameOf(table);
  // Lists first: a save without its lists is none, one without its rows is
  // damaged.
  for (const bool lists : {true, false}) {
    for (const std::string& name : names) {
      uint64_t its_number = 0;
      if (!ParseName(name, file, &its_number) || its_number >= number) {
        continue;
      }
      if (name.ends_with(".list") != lists) continue;
      if (!lists && !name.ends_with(".rows")) continue;
      Status removed = base::Remove(folder / name);
      // Another server may have removed it already.
      if (!removed.ok() && removed.code() != StatusCode::kNotFound) {
        return removed;
      }
    }
  }
  return OkStatus();
}

}  // namespace fleet::table
