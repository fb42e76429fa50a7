// SPDX-License-Identifier: Apache-2.0

#include "fleet/table/save_manifest.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <utility>

#include "fleet/base/crc32c.h"
#include "fleet/base/file_name.h"
#include "fleet/base/log.h"

namespace fleet::table {
namespace {

constexpr std::string_view kFirstLine = "fleet manifest 1";
constexpr std::string_view kPrefix = "save.";
constexpr std::string_view kSuffix = ".manifest";

// Saves that one may build on: beyond it the manifests are a circle, or nobody
// would wait for so many files.
constexpr size_t kMaxDeltas = 100'000;

std::string ManifestName(uint64_t number) {
  return base::Concat(kPrefix, number, kSuffix);
}

// Lines hold names and bytes of any kind.
std::string Escape(std::string_view text) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string escaped;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte < 0x7f && c != '%') {
      escaped += c;
      continue;
    }
    escaped += '%';
    escaped += kDigits[byte >> 4];
    escaped += kDigits[byte & 15];
  }
  return escaped;
}

bool Unescape(std::string_view text, std::string& plain) {
  plain.clear();
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      plain += text[i];
      continue;
    }
    unsigned value = 0;
    if (i + 2 >= text.size()) return false;
    const char* const end = text.data() + i + 3;
    if (std::from_chars(text.data() + i + 1, end, value, 16).ptr != end) {
      return false;
    }
    plain += static_cast<char>(value);
    i += 2;
  }
  return true;
}

template <typename T>
bool ParseNumber(std::string_view text, T& value) {
  const char* const end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, value);
  return error == std::errc() && at == end;
}

// Cuts what is before the first space off.
std::string_view TakeWord(std::string_view& text) {
  const size_t end = std::min(text.find(' '), text.size());
  const std::string_view word = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return word;
}

// Reads line by line, and remembers the first that makes no sense.
class Lines final {
 public:
  explicit Lines(std::string_view text) : text_(text) {}

  bool at_end() const { return text_.empty() || failed_; }
  // The word that the next line begins with.
  std::string_view next() const {
    std::string_view rest = text_.substr(0, text_.find('\n'));
    return at_end() ? std::string_view() : TakeWord(rest);
  }
  // What follows `word` in the next line, which must begin with it.
  std::string_view Take(std::string_view word) {
    ++number_;
    const size_t end = std::min(text_.find('\n'), text_.size());
    std::string_view line = text_.substr(0, end);
    text_.remove_prefix(std::min(end + 1, text_.size()));
    if (TakeWord(line) != word) Fail();
    return line;
  }
  template <typename T>
  void TakeNumber(std::string_view word, T& value) {
    if (!ParseNumber(Take(word), value)) Fail();
  }
  void TakeText(std::string_view word, std::string& text) {
    if (!Unescape(Take(word), text)) Fail();
  }
  void Fail() {
    if (!failed_) bad_line_ = number_;
    failed_ = true;
  }
  Status status() const {
    if (!failed_) return OkStatus();
    return DataLoss("line ", bad_line_, " makes no sense");
  }

 private:
  std::string_view text_;
  size_t number_ = 0;
  size_t bad_line_ = 0;
  bool failed_ = false;
};

std::string TextOf(const SaveList& list) {
  std::string text =
      base::Concat("table ", Escape(list.table), "\nstep ", list.step, "\n");
  if (list.time > 0) text += base::Concat("time ", list.time, "\n");
  for (const SaveList::File& file : list.files) {
    text += base::Concat("file ", file.byte_size, " ", file.checksum, " ",
                         Escape(file.name), "\n");
  }
  return text;
}

SaveList TakeList(Lines& lines) {
  SaveList list;
  lines.TakeText("table", list.table);
  lines.TakeNumber("step", list.step);
  if (lines.next() == "time") lines.TakeNumber("time", list.time);
  while (lines.next() == "file") {
    std::string_view line = lines.Take("file");
    SaveList::File file;
    if (!ParseNumber(TakeWord(line), file.byte_size) ||
        !ParseNumber(TakeWord(line), file.checksum) ||
        !Unescape(line, file.name)) {
      lines.Fail();
    }
    // Files of a save lie in its folder, and nowhere else.
    if (file.name.empty() || file.name.find('/') != std::string::npos) {
      lines.Fail();
    }
    list.files.push_back(std::move(file));
  }
  return list;
}

std::string_view KindName(SaveKind kind) {
  return kind == SaveKind::kBase ? "base" : "delta";
}

// The number in save.NUMBER.manifest.
std::optional<uint64_t> NumberOfManifest(std::string_view name) {
  if (!name.starts_with(kPrefix) || !name.ends_with(kSuffix) ||
      name.size() <= kPrefix.size() + kSuffix.size()) {
    return std::nullopt;
  }
  name.remove_prefix(kPrefix.size());
  name.remove_suffix(kSuffix.size());
  uint64_t number = 0;
  if (!ParseNumber(name, number) || number == 0) return std::nullopt;
  return number;
}

// The number in TABLE.NUMBER.I-of-N.list and TABLE.NUMBER.I-of-N.K.rows.
std::optional<uint64_t> NumberOfFile(std::string_view name) {
  auto take_last = [&name]() -> std::string_view {
    const size_t dot = name.rfind('.');
    if (dot == std::string_view::npos) return {};
    const std::string_view last = name.substr(dot + 1);
    name = name.substr(0, dot);
    return last;
  };
  const std::string_view ending = take_last();
  uint64_t number = 0;
  if (ending == "rows") {
    if (!ParseNumber(take_last(), number)) return std::nullopt;
  } else if (ending != "list") {
    return std::nullopt;
  }
  const std::string_view part = take_last();
  const size_t of = part.find("-of-");
  if (of == std::string_view::npos ||
      !ParseNumber(part.substr(0, of), number) ||
      !ParseNumber(part.substr(of + 4), number) ||
      !ParseNumber(take_last(), number)) {
    return std::nullopt;
  }
  return number;
}

Result<uint32_t> ChecksumOfFile(const base::Path& path) {
  struct Closer {
    void operator()(std::FILE* file) const { (void)std::fclose(file); }
  };
  const std::unique_ptr<std::FILE, Closer> file(std::fopen(path.c_str(), "rb"));
  if (file == nullptr) return ErrnoStatus(errno, path.string());
  (void)std::setvbuf(file.get(), nullptr, _IONBF, 0);
  std::vector<std::byte> part(size_t{1} << 20);
  uint32_t checksum = 0;
  while (true) {
    const size_t got = std::fread(part.data(), 1, part.size(), file.get());
    if (std::ferror(file.get()) != 0) return ErrnoStatus(errno, path.string());
    if (got == 0) return checksum;
    checksum = base::Crc32c(std::span(part).first(got), checksum);
  }
}

Status CheckFile(const base::Path& folder, const SaveList::File& file,
                 CheckFiles check) {
  const base::Path path = folder / file.name;
  ASSIGN_OR_RETURN(const uint64_t byte_size, base::FileSize(path));
  if (byte_size != file.byte_size) {
    return DataLoss(path.string(), ": ", byte_size,
                    " bytes, and its manifest says ", file.byte_size);
  }
  if (check == CheckFiles::kBySize) return OkStatus();
  ASSIGN_OR_RETURN(const uint32_t checksum, ChecksumOfFile(path));
  if (checksum == file.checksum) return OkStatus();
  return DataLoss(path.string(), ": its checksum does not fit");
}

// The manifests of a folder, each read once.
class Manifests final {
 public:
  static Result<Manifests> In(const base::Path& folder) {
    Manifests all(folder);
    ASSIGN_OR_RETURN(const std::vector<std::string> names,
                     base::ListFolder(folder));
    for (const std::string& name : names) {
      if (const auto number = NumberOfManifest(name)) {
        all.numbers_.push_back(*number);
      } else {
        all.has_lists_ |= name.ends_with(".list") && NumberOfFile(name);
      }
    }
    std::sort(all.numbers_.rbegin(), all.numbers_.rend());
    return all;
  }

  // Newest first.
  const std::vector<uint64_t>& numbers() const { return numbers_; }
  // Whether there is something of the time before manifests.
  bool has_lists() const { return has_lists_; }

  bool IsOfJob(uint64_t number, const std::string& job) {
    const Result<SaveManifest>& manifest = Read(number);
    return !job.empty() && manifest.ok() && manifest->job == job;
  }

  // The save and what it builds on. DataLoss or NotFound names what is wrong.
  Result<SavedModel> Open(uint64_t number, CheckFiles check) {
    SavedModel model;
    model.folder = folder_;
    model.number = number;
    for (uint64_t next = number; next != 0;) {
      const Result<SaveManifest>& manifest = Read(next);
      RETURN_IF_ERROR(manifest.status());
      model.saves.push_back(*manifest);
      next = manifest->since;
      if (model.saves.size() > kMaxDeltas) {
        return DataLoss(Path(number).string(), ": it builds on too many saves");
      }
    }
    std::reverse(model.saves.begin(), model.saves.end());
    for (const SaveManifest& save : model.saves) {
      RETURN_IF_ERROR(CheckFilesOf(save, check));
    }
    return model;
  }

 private:
  explicit Manifests(base::Path folder) : folder_(std::move(folder)) {}

  base::Path Path(uint64_t number) const {
    return folder_ / ManifestName(number);
  }

  const Result<SaveManifest>& Read(uint64_t number) {
    const auto [it, is_new] = read_.try_emplace(number, SaveManifest());
    if (is_new) it->second = ReadOne(number);
    return it->second;
  }

  Result<SaveManifest> ReadOne(uint64_t number) const {
    ASSIGN_OR_RETURN(const std::string text, base::ReadFile(Path(number)));
    Result<SaveManifest> manifest = DecodeManifest(text);
    if (!manifest.ok()) {
      return manifest.status().WithContext(Path(number).string());
    }
    if (manifest->number != number) {
      return DataLoss(Path(number).string(), ": it is that of save ",
                      manifest->number);
    }
    return manifest;
  }

  // A file that several saves build on is read once.
  Status CheckFilesOf(const SaveManifest& save, CheckFiles check) {
    auto& known = check == CheckFiles::kByChecksum ? whole_ : sized_;
    const auto [it, is_new] = known.try_emplace(save.number);
    if (!is_new) return it->second;
    for (const SaveList& list : save.lists) {
      for (const SaveList::File& file : list.files) {
        it->second = CheckFile(folder_, file, check);
        if (!it->second.ok()) return it->second;
      }
    }
    return OkStatus();
  }

  base::Path folder_;
  std::vector<uint64_t> numbers_;
  bool has_lists_ = false;
  std::map<uint64_t, Result<SaveManifest>> read_;
  std::map<uint64_t, Status> whole_;
  std::map<uint64_t, Status> sized_;
};

}  // namespace

uint64_t SaveManifest::byte_size() const {
  uint64_t sum = 0;
  for (const SaveList& list : lists) {
    for (const SaveList::File& file : list.files) sum += file.byte_size;
  }
  return sum;
}

std::string Encode(const SaveList& list) { return TextOf(list); }

Result<SaveList> DecodeSaveList(std::string_view text) {
  Lines lines(text);
  SaveList list = TakeList(lines);
  if (!lines.at_end()) lines.Fail();
  RETURN_IF_ERROR(lines.status());
  return list;
}

std::string Encode(const SaveManifest& manifest) {
  std::string text =
      base::Concat(kFirstLine, "\nnumber ", manifest.number, "\nkind ",
                   KindName(manifest.kind), "\nsince ", manifest.since,
                   "\nview ", manifest.view, "\njob ", Escape(manifest.job),
                   "\nservers ", manifest.num_servers(), "\n");
  for (const auto& [worker, incarnation] : manifest.incarnations) {
    text += base::Concat("worker ", worker, " ", incarnation, "\n");
  }
  for (uint32_t server = 0; server < manifest.num_servers(); ++server) {
    text += base::Concat("server ", server, "\n");
    if (server < manifest.epochs.size()) {
      text += base::Concat("epoch ", manifest.epochs[server], "\n");
    }
    if (!manifest.ledgers[server].empty()) {
      text += base::Concat("ledger ", Escape(manifest.ledgers[server]), "\n");
    }
    for (const SaveList& list : manifest.lists) {
      if (list.id.server == server) text += TextOf(list);
    }
  }
  return text + base::Concat("end ", base::Crc32c(text), "\n");
}

Result<SaveManifest> DecodeManifest(std::string_view text) {
  const size_t end = text.rfind("end ");
  if (end == std::string_view::npos) return DataLoss("it is truncated");
  const std::string_view body = text.substr(0, end);
  if (text.substr(end) != base::Concat("end ", base::Crc32c(body), "\n")) {
    return DataLoss("its checksum does not fit");
  }
  if (!body.starts_with(base::Concat(kFirstLine, "\n"))) {
    return DataLoss("it is no manifest of version 1");
  }
  Lines lines(body);
  (void)lines.Take("fleet");
  SaveManifest manifest;
  std::string kind;
  uint32_t num_servers = 0;
  lines.TakeNumber("number", manifest.number);
  lines.TakeText("kind", kind);
  lines.TakeNumber("since", manifest.since);
  lines.TakeNumber("view", manifest.view);
  lines.TakeText("job", manifest.job);
  lines.TakeNumber("servers", num_servers);
  manifest.kind = kind == "base" ? SaveKind::kBase : SaveKind::kDelta;
  // A save builds on an earlier one, so that there is no circle.
  const bool builds_on_one = manifest.since != 0;
  if ((kind != "base" && kind != "delta") || manifest.number == 0 ||
      builds_on_one != (kind == "delta") || manifest.since >= manifest.number ||
      num_servers == 0) {
    lines.Fail();
  }
  while (lines.next() == "worker") {
    std::string_view line = lines.Take("worker");
    uint32_t worker = 0;
    uint64_t incarnation = 0;
    if (!ParseNumber(TakeWord(line), worker) ||
        !ParseNumber(line, incarnation) ||
        !manifest.incarnations.emplace(worker, incarnation).second) {
      lines.Fail();
    }
  }
  for (uint32_t server = 0; server < num_servers && !lines.at_end(); ++server) {
    uint32_t said = 0;
    lines.TakeNumber("server", said);
    if (said != server) lines.Fail();
    // All have one, or none.
    if (lines.next() == "epoch" && manifest.epochs.size() == server) {
      lines.TakeNumber("epoch", manifest.epochs.emplace_back());
    } else if (!manifest.epochs.empty()) {
      lines.Fail();
    }
    std::string& ledger = manifest.ledgers.emplace_back();
    if (lines.next() == "ledger") lines.TakeText("ledger", ledger);
    while (lines.next() == "table") {
      SaveList list = TakeList(lines);
      list.id = {manifest.number, manifest.kind, server, num_servers};
      manifest.lists.push_back(std::move(list));
    }
  }
  if (!lines.at_end() || manifest.ledgers.size() != num_servers) lines.Fail();
  RETURN_IF_ERROR(lines.status());
  return manifest;
}

Status WriteManifest(const base::Path& folder, const SaveManifest& manifest) {
  return base::AtomicWriteFile(folder / ManifestName(manifest.number),
                               Encode(manifest));
}

Result<std::vector<SaveList>> SavedModel::ListsOf(
    const std::string& table) const {
  if (number == 0) return FindSave(folder, table);
  std::vector<SaveList> found;
  for (const SaveManifest& save : saves) {
    for (const SaveList& list : save.lists) {
      if (list.table == table) found.push_back(list);
    }
  }
  if (!found.empty()) return found;
  return NotFound(folder.string(), ": save ", number, " has no table ", table);
}

uint64_t SavedModel::base_byte_size() const {
  return saves.empty() ? 0 : saves.front().byte_size();
}

uint64_t SavedModel::deltas_byte_size() const {
  uint64_t sum = 0;
  for (size_t i = 1; i < saves.size(); ++i) sum += saves[i].byte_size();
  return sum;
}

bool WantsNewBase(const SavedModel& model) {
  constexpr size_t kDeltas = 100;
  return model.deltas_byte_size() > model.base_byte_size() / 6 ||
         model.saves.size() > kDeltas;
}

Result<SavedModel> FindModel(const base::Path& folder, CheckFiles check,
                             const WhichSave& which) {
  ASSIGN_OR_RETURN(Manifests manifests, Manifests::In(folder));
  std::string damaged;
  for (const uint64_t number : manifests.numbers()) {
    if (number > which.at_most && !manifests.IsOfJob(number, which.or_of_job)) {
      continue;
    }
    Result<SavedModel> model = manifests.Open(number, check);
    if (model.ok()) return model;
    FLEET_LOG(WARNING) << folder.string() << ": save " << number
                       << " is left out, " << model.status();
    damaged += base::Concat("; save ", number, ": ", model.status().message());
  }
  if (manifests.has_lists()) return OpenModel(folder, 0);
  if (damaged.empty()) return NotFound(folder.string(), ": no complete save");
  return DataLoss(folder.string(), ": no save is whole", damaged);
}

Result<SavedModel> OpenModel(const base::Path& folder, uint64_t number) {
  if (number == 0) {
    SavedModel model;
    model.folder = folder;
    return model;
  }
  ASSIGN_OR_RETURN(Manifests manifests, Manifests::In(folder));
  return manifests.Open(number, CheckFiles::kBySize);
}

Result<uint64_t> HighestSaveNumber(const base::Path& folder) {
  ASSIGN_OR_RETURN(const std::vector<std::string> names,
                   base::ListFolder(folder));
  uint64_t highest = 0;
  for (const std::string& name : names) {
    const std::optional<uint64_t> of_manifest = NumberOfManifest(name);
    highest =
        std::max(highest, of_manifest.value_or(NumberOfFile(name).value_or(0)));
  }
  return highest;
}

Status RemoveSavesBefore(const base::Path& folder, uint64_t number) {
  ASSIGN_OR_RETURN(Manifests manifests, Manifests::In(folder));
  std::set<uint64_t> kept;
  bool has_older = false;
  for (const uint64_t older : manifests.numbers()) {
    if (older >= number) continue;
    const Result<SavedModel> model = manifests.Open(older, CheckFiles::kBySize);
    if (!model.ok()) continue;
    for (const SaveManifest& save : model->saves) kept.insert(save.number);
    has_older = true;
    break;
  }
  // What is of the time before manifests is then the older one.
  if (!has_older && manifests.has_lists()) return OkStatus();
  ASSIGN_OR_RETURN(const std::vector<std::string> names,
                   base::ListFolder(folder));
  auto remove = [&](bool files) -> Status {
    for (const std::string& name : names) {
      const std::optional<uint64_t> its =
          files ? NumberOfFile(name) : NumberOfManifest(name);
      if (!its.has_value() || *its >= number || kept.contains(*its)) continue;
      const Status removed = base::Remove(folder / name);
      if (!removed.ok() && removed.code() != StatusCode::kNotFound) {
        return removed;
      }
    }
    return OkStatus();
  };
  // What saves were writing when their servers were killed.
  for (const std::string& name : names) {
    const auto file = base::NameUnderConstruction(name);
    if (!file.has_value()) continue;
    const std::optional<uint64_t> of_manifest = NumberOfManifest(*file);
    if (of_manifest.value_or(NumberOfFile(*file).value_or(number)) < number) {
      (void)base::Remove(folder / name);
    }
  }
  // Manifests first: a save without its manifest is none, one without its rows
  // is damaged.
  RETURN_IF_ERROR(remove(false));
  return remove(true);
}

}  // namespace fleet::table
