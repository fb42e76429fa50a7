// SPDX-License-Identifier: Apache-2.0

#include "fleet/table/saved_table.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <sstream>
#include <utility>

#include "fleet/base/crc32c.h"

namespace fleet::table {
namespace {

constexpr std::string_view kMagic = "FLEETROW";
constexpr uint32_t kVersion = 1;
// Rows of a block: enough that its checksum costs nothing, few enough that a
// reader needs little memory.
constexpr size_t kBlockRows = 4096;
// What no header reaches.
constexpr uint32_t kMaxTextSize = 1 << 20;
constexpr uint32_t kMaxRowFloats = 1 << 24;

// The head of a file. Behind it the two texts and the checksum of all three.
struct Head {
  char magic[8];
  uint32_t version;
  uint32_t dim;
  uint32_t row_floats;
  uint32_t table_size;
  uint32_t layout_size;
  uint32_t zero;
  uint64_t num_rows;
  uint64_t num_erased;
};
static_assert(sizeof(Head) == 48);

// The head of a block. Behind it `count` keys, then their rows.
struct BlockHead {
  uint32_t count;
  uint32_t checksum;  // of keys and rows
};

template <typename T>
std::span<const std::byte> BytesOf(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

// Reads a file from front to back; what is missing is DataLoss.
class Input final {
 public:
  static Result<Input> Open(const base::Path& path) {
    std::FILE* file = std::fopen(path.c_str(), "rb");
    if (file == nullptr) return ErrnoStatus(errno, path.string());
    return Input(path, file);
  }

  Status Read(std::span<std::byte> into, std::string_view what) {
    const size_t got = std::fread(into.data(), 1, into.size(), file_.get());
    if (got == into.size()) {
      at_ += got;
      return OkStatus();
    }
    if (std::ferror(file_.get()) != 0) {
      return ErrnoStatus(errno, path_.string());
    }
    return Damaged("it ends after ", at_ + got, " bytes, in ", what);
  }

  Status ExpectEnd() {
    if (std::fgetc(file_.get()) == EOF) return OkStatus();
    return Damaged("more than its ", at_, " bytes");
  }

  template <typename... Parts>
  Status Damaged(const Parts&... parts) const {
    return DataLoss(path_.string(), ": ", parts...);
  }

 private:
  struct Closer {
    void operator()(std::FILE* file) const { (void)std::fclose(file); }
  };
  Input(base::Path path, std::FILE* file)
      : path_(std::move(path)), file_(file) {
    // Blocks are read whole; a buffer between would only copy.
    (void)std::setvbuf(file, nullptr, _IONBF, 0);
  }

  base::Path path_;
  std::unique_ptr<std::FILE, Closer> file_;
  uint64_t at_ = 0;
};

Result<RowsHeader> ReadHeader(Input& in) {
  Head head;
  RETURN_IF_ERROR(
      in.Read(std::as_writable_bytes(std::span(&head, 1)), "its head"));
  if (std::string_view(head.magic, 8) != kMagic) {
    return in.Damaged("no file of table rows");
  }
  if (head.version != kVersion) {
    return in.Damaged("version ", head.version, ", and this is ", kVersion);
  }
  if (head.table_size > kMaxTextSize || head.layout_size > kMaxTextSize ||
      head.row_floats > kMaxRowFloats || head.dim > head.row_floats) {
    return in.Damaged("its head makes no sense");
  }
  RowsHeader header;
  header.table.resize(head.table_size);
  header.layout.resize(head.layout_size);
  RETURN_IF_ERROR(
      in.Read(std::as_writable_bytes(std::span(header.table)), "its head"));
  RETURN_IF_ERROR(
      in.Read(std::as_writable_bytes(std::span(header.layout)), "its head"));
  uint32_t checksum = 0;
  RETURN_IF_ERROR(
      in.Read(std::as_writable_bytes(std::span(&checksum, 1)), "its head"));
  uint32_t real = base::Crc32c(BytesOf(head));
  real = base::Crc32c(header.table, real);
  real = base::Crc32c(header.layout, real);
  if (checksum != real) return in.Damaged("its head is damaged");
  header.dim = head.dim;
  header.row_floats = head.row_floats;
  header.num_rows = head.num_rows;
  header.num_erased = head.num_erased;
  return header;
}

Status ReadBlocks(Input& in, const RowsHeader& header, uint64_t num_keys,
                  size_t row_floats, const VisitRows& visit) {
  std::vector<Key> keys;
  std::vector<float> rows;
  Key last = 0;
  for (uint64_t done = 0; done < num_keys; done += keys.size()) {
    const std::string where = base::Concat("key ", done, " of ", num_keys);
    BlockHead head;
    RETURN_IF_ERROR(
        in.Read(std::as_writable_bytes(std::span(&head, 1)), where));
    if (head.count == 0 || head.count > kBlockRows ||
        head.count > num_keys - done) {
      return in.Damaged("a block of ", head.count, " rows at ", where);
    }
    keys.resize(head.count);
    rows.resize(head.count * row_floats);
    RETURN_IF_ERROR(in.Read(std::as_writable_bytes(std::span(keys)), where));
    RETURN_IF_ERROR(in.Read(std::as_writable_bytes(std::span(rows)), where));
    const uint32_t checksum =
        base::Crc32c(std::as_bytes(std::span(rows)),
                     base::Crc32c(std::as_bytes(std::span(keys))));
    if (checksum != head.checksum) {
      return in.Damaged("the block at ", where, " is damaged");
    }
    if (row_floats > 0) {
      for (size_t i = 0; i < keys.size(); ++i) {
        if ((done > 0 || i > 0) && keys[i] <= last) {
          return in.Damaged("keys do not ascend at ", where);
        }
        last = keys[i];
      }
    }
    RETURN_IF_ERROR(visit(header, keys, rows));
  }
  return OkStatus();
}

std::string ListName(const std::string& table, const SaveId& id) {
  return base::Concat(table, ".", id.number, ".", id.server, "-of-",
                      id.num_servers, ".list");
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
  in >> word >> word >> word;  // fleet save 1
  in >> word;
  in.get();
  std::getline(in, list.table);
  in >> word >> list.id.number >> word >> kind >> word >> list.id.server >>
      of >> list.id.num_servers >> word >> list.step;
  list.id.kind = kind == "base" ? SaveKind::kBase : SaveKind::kDelta;
  while (in >> word) {
    SaveList::File file;
    in >> file.byte_size >> file.checksum;
    in.get();
    std::getline(in, file.name);
    list.files.push_back(std::move(file));
  }
  return list;
}

// The number in TABLE.NUMBER.I-of-N...; false for other names.
bool ParseName(const std::string& name, const std::string& table,
               uint64_t* number) {
  if (!name.starts_with(table + ".")) return false;
  unsigned long long value = 0;
  unsigned i = 0;
  unsigned n = 0;
  int used = 0;
  if (std::sscanf(name.c_str() + table.size() + 1, "%llu.%u-of-%u.%n", &value,
                  &i, &n, &used) != 3 ||
      used == 0) {
    return false;
  }
  *number = value;
  return true;
}

}  // namespace

RowsWriter::RowsWriter(base::AtomicFile file, const RowsHeader& header)
    : file_(std::move(file)), header_(header) {}

Result<RowsWriter> RowsWriter::Create(const base::Path& path,
                                      const RowsHeader& header) {
  ASSIGN_OR_RETURN(base::AtomicFile file, base::AtomicFile::Create(path));
  RowsWriter writer(std::move(file), header);
  Head head{};
  kMagic.copy(head.magic, 8);
  head.version = kVersion;
  head.dim = header.dim;
  head.row_floats = header.row_floats;
  head.table_size = static_cast<uint32_t>(header.table.size());
  head.layout_size = static_cast<uint32_t>(header.layout.size());
  head.num_rows = header.num_rows;
  head.num_erased = header.num_erased;
  RETURN_IF_ERROR(writer.Append(BytesOf(head)));
  RETURN_IF_ERROR(writer.Append(std::as_bytes(std::span(header.table))));
  RETURN_IF_ERROR(writer.Append(std::as_bytes(std::span(header.layout))));
  const uint32_t checksum = writer.checksum_;
  RETURN_IF_ERROR(writer.Append(BytesOf(checksum)));
  return writer;
}

Status RowsWriter::Append(std::span<const std::byte> bytes) {
  checksum_ = base::Crc32c(bytes, checksum_);
  return file_.Append(bytes);
}

Status RowsWriter::AddRow(Key key, std::span<const float> row) {
  keys_.push_back(key);
  rows_.insert(rows_.end(), row.begin(), row.end());
  ++num_added_;
  // Erased keys are blocks of their own.
  if (keys_.size() == kBlockRows || num_added_ == header_.num_rows) {
    return EndBlock();
  }
  return OkStatus();
}

Status RowsWriter::AddErased(Key key) {
  keys_.push_back(key);
  ++num_added_;
  if (keys_.size() == kBlockRows) return EndBlock();
  return OkStatus();
}

Status RowsWriter::EndBlock() {
  if (keys_.empty()) return OkStatus();
  BlockHead head;
  head.count = static_cast<uint32_t>(keys_.size());
  head.checksum = base::Crc32c(std::as_bytes(std::span(rows_)),
                               base::Crc32c(std::as_bytes(std::span(keys_))));
  RETURN_IF_ERROR(Append(BytesOf(head)));
  RETURN_IF_ERROR(Append(std::as_bytes(std::span(keys_))));
  RETURN_IF_ERROR(Append(std::as_bytes(std::span(rows_))));
  keys_.clear();
  rows_.clear();
  return OkStatus();
}

Status RowsWriter::Commit() {
  RETURN_IF_ERROR(EndBlock());
  if (num_added_ != header_.num_rows + header_.num_erased) {
    return Internal(file_.path().string(), ": ", num_added_, " rows of ",
                    header_.num_rows + header_.num_erased);
  }
  return file_.Commit();
}

Status ReadRows(const base::Path& path, const VisitRows& visit) {
  ASSIGN_OR_RETURN(Input in, Input::Open(path));
  ASSIGN_OR_RETURN(const RowsHeader header, ReadHeader(in));
  RETURN_IF_ERROR(
      ReadBlocks(in, header, header.num_rows, header.row_floats, visit));
  RETURN_IF_ERROR(ReadBlocks(in, header, header.num_erased, 0, visit));
  return in.ExpectEnd();
}

std::string RowsFileName(const std::string& table, const SaveId& id,
                         uint32_t shard) {
  return base::Concat(table, ".", id.number, ".", id.server, "-of-",
                      id.num_servers, ".", shard, ".rows");
}

Status WriteSaveList(const base::Path& folder, const SaveList& list) {
  std::string text = base::Concat(
      "fleet save 1\ntable ", list.table, "\nnumber ", list.id.number,
      "\nkind ", KindName(list.id.kind), "\nserver ", list.id.server, " of ",
      list.id.num_servers, "\nstep ", list.step, "\n");
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
  for (const std::string& name : names) {
    uint64_t number = 0;
    if (!name.ends_with(".list") || !ParseName(name, table, &number)) continue;
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
  // Lists first: a save without its lists is none, one without its rows is
  // damaged.
  for (const bool lists : {true, false}) {
    for (const std::string& name : names) {
      uint64_t its_number = 0;
      if (!ParseName(name, table, &its_number) || its_number >= number) {
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
