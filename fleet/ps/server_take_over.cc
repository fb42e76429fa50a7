// SPDX-License-Identifier: Apache-2.0

// How servers go on from the logs of another number of servers. Each of them
// reads all of these logs, into tables as the servers had them, and takes the
// keys that are its own from there, as from a save. The logs are removed when
// all servers have what is theirs; until then this can be begun again.

#include <charconv>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "fleet/base/log.h"
#include "fleet/ps/server_impl.h"

namespace fleet::ps {
namespace {

// In the folder of a log that does not hold all yet.
constexpr char kUnfinished[] = "unfinished";
// There, the rows of the other servers while they are taken over.
constexpr char kRows[] = "taken-over";
// Above the epochs of all servers.
constexpr uint64_t kLastEpoch = uint64_t{1} << 31;

struct Name {
  uint32_t rank = 0;
  uint32_t num_servers = 0;
};

// The numbers in "server.K-of-N".
std::optional<Name> ParseName(std::string_view text) {
  constexpr std::string_view kPrefix = "server.";
  constexpr std::string_view kOf = "-of-";
  const size_t of = text.find(kOf);
  if (!text.starts_with(kPrefix) || of == text.npos) return std::nullopt;
  Name name;
  for (const auto& [number, digits] :
       {std::pair(&name.rank, text.substr(kPrefix.size(), of - kPrefix.size())),
        std::pair(&name.num_servers, text.substr(of + kOf.size()))}) {
    const char* const end = digits.data() + digits.size();
    const auto [stop, error] = std::from_chars(digits.data(), end, *number);
    if (error != std::errc() || stop != end) return std::nullopt;
  }
  return name;
}

// Names those of `num_servers` servers whose logs are not whole.
std::string Missing(const base::Path& parent, uint32_t num_servers) {
  std::string missing;
  for (uint32_t k = 0; k < num_servers; ++k) {
    if (PsServer::LogIsWhole(parent / LogFolderName(k, num_servers))) continue;
    missing += base::Concat(missing.empty() ? "" : ", ", "server ", k);
  }
  return missing;
}

// The numbers of servers, but for `own`, whose logs are in `parent`.
Result<std::set<uint32_t>> OtherNumbers(const base::Path& parent,
                                        uint32_t own) {
  ASSIGN_OR_RETURN(const std::vector<std::string> names,
                   base::ListFolder(parent));
  std::set<uint32_t> numbers;
  for (const std::string& each : names) {
    const std::optional<Name> name = ParseName(each);
    if (name.has_value() && name->num_servers != own) {
      numbers.insert(name->num_servers);
    }
  }
  return numbers;
}

}  // namespace

std::string LogFolderName(uint32_t rank, uint32_t num_servers) {
  return base::Concat("server.", rank, "-of-", num_servers);
}

bool PsServer::LogIsWhole(const base::Path& folder) {
  return LogHolds(folder) && !base::Exists(folder / kUnfinished);
}

Result<uint32_t> PsServer::Impl::FindOtherLogs() const {
  const base::Path folder = options_.log_folder;
  // Who names a folder in another way has no others beside it.
  if (!ParseName(folder.filename().string()).has_value()) return 0;
  ASSIGN_OR_RETURN(const std::set<uint32_t> numbers,
                   OtherNumbers(folder.parent_path(), options_.num_servers));
  uint32_t found = 0;
  std::string missing;
  for (const uint32_t number : numbers) {
    const std::string lacks = Missing(folder.parent_path(), number);
    if (lacks.empty() && found != 0) {
      return FailedPrecondition(
          folder.parent_path().string(), ": logs of ", found, " and of ",
          number, " servers. Remove those that are not to be gone on from");
    }
    if (lacks.empty()) found = number;
    if (!lacks.empty()) {
      missing = base::Concat("of the logs of ", number, " servers, those of ",
                             lacks, " are not there");
    }
  }
  if (found != 0 || missing.empty()) return found;
  return DataLoss(folder.parent_path().string(), ": ", missing,
                  ". Where nothing is to be gone on from, remove them all");
}

Status PsServer::Impl::RemoveOtherLogs() const {
  const base::Path folder = options_.log_folder;
  if (!ParseName(folder.filename().string()).has_value()) return OkStatus();
  const base::Path parent = folder.parent_path();
  // The others have not taken over what is theirs.
  if (!Missing(parent, options_.num_servers).empty()) return OkStatus();
  ASSIGN_OR_RETURN(const std::set<uint32_t> numbers,
                   OtherNumbers(parent, options_.num_servers));
  for (const uint32_t number : numbers) {
    for (uint32_t k = 0; k < number; ++k) {
      std::error_code error;
      std::filesystem::remove_all(parent / LogFolderName(k, number), error);
    }
  }
  return OkStatus();
}

Status PsServer::Impl::TakeOver(uint32_t num_others) {
  const base::Path folder = options_.log_folder;
  const base::Path rows = folder / kRows;
  RETURN_IF_ERROR(base::AtomicWriteFile(folder / kUnfinished, ""));
  // What an attempt before this one has left.
  ASSIGN_OR_RETURN(const std::vector<std::string> names,
                   base::ListFolder(folder));
  for (const std::string& name : names) {
    if (!name.starts_with("log.") && !name.starts_with("base.") &&
        name != kCheckpointFile && name != kRows) {
      continue;
    }
    std::error_code error;
    std::filesystem::remove_all(folder / name, error);
    if (error) {
      return ErrnoStatus(error.value(), "remove " + (folder / name).string());
    }
  }
  RETURN_IF_ERROR(base::MakeFolders(rows));
  table::SavedModel model;
  model.folder = rows;
  model.number = 1;
  model.saves.emplace_back();
  std::map<TableId, std::string> specs;
  std::map<TableId, table::TableCut> cuts;
  for (uint32_t k = 0; k < num_others; ++k) {
    PsServerOptions as_it_was;
    as_it_was.rank = static_cast<int32_t>(k);
    as_it_was.num_servers = num_others;
    as_it_was.num_workers = options_.num_workers;
    as_it_was.epoch = kLastEpoch;
    as_it_was.disk_suffix = base::Concat(".for-", options_.rank);
    const base::Path from = folder.parent_path() / LogFolderName(k, num_others);
    ASSIGN_OR_RETURN(const base::Descriptor lock, LockLog(from, false));
    auto other = std::make_unique<Impl>(as_it_was);
    RETURN_IF_ERROR(other->Recover(from).status());
    Checkpoint checkpoint;
    std::vector<std::string> disks;
    for (const auto& [id, table] : other->tables_.ById()) {
      base::MutexLock saving(other->saving_);
      ASSIGN_OR_RETURN(Checkpoint::Table written,
                       other->WriteTable(rows, id, *table));
      checkpoint.tables.push_back(std::move(written));
    }
    checkpoint.rates = other->tables_.rates();
    for (const ServerTable* table : other->tables_.All()) {
      if (table->sparse == nullptr) continue;
      if (!table->sparse->options().disk.has_value()) continue;
      disks.push_back(table->sparse->options().disk->folder);
    }
    other.reset();
    for (const std::string& disk : disks) {
      std::error_code error;
      std::filesystem::remove_all(disk, error);
    }
    for (Checkpoint::Table& table : checkpoint.tables) {
      specs[table.id] = table.spec;
      model.saves[0].lists.push_back(std::move(table.list));
      // Who sets values does so at all servers before the first push.
      table::TableCut& cut = cuts[table.id];
      cut.initialized = cut.initialized && table.cut.initialized;
      for (const auto& [key, count] : table.cut.candidates) {
        if (table::ServerOfKey(key, options_.num_servers) !=
            static_cast<uint32_t>(options_.rank)) {
          continue;
        }
        cut.candidates.emplace_back(key, count);
      }
    }
    tables_.NoteRatesIfNew(std::move(checkpoint.rates));
  }
  for (const auto& [id, text] : specs) {
    ASSIGN_OR_RETURN(const TableSpec spec, DecodeTableSpec(text));
    ASSIGN_OR_RETURN(ServerTable made, Make(spec));
    if (made.sparse != nullptr) {
      RETURN_IF_ERROR(made.sparse
                          ->Load(model, static_cast<uint32_t>(options_.rank),
                                 options_.num_servers)
                          .status());
      RETURN_IF_ERROR(made.sparse->TakeCut(cuts[id]));
    } else {
      RETURN_IF_ERROR(made.dense->Load(model).status());
      made.dense->TakeCut(cuts[id]);
    }
    RETURN_IF_ERROR(tables_.Add(id, std::move(made)));
  }
  for (const auto& [name, rate] : tables_.rates()) {
    RETURN_IF_ERROR(TellRate(name, rate, nullptr));
  }
  FLEET_LOG(INFO) << "server " << options_.rank << " has taken over "
                  << specs.size() << " tables from the logs of " << num_others
                  << (num_others == 1 ? " server" : " servers");
  return OkStatus();
}

Status PsServer::Impl::FinishTakeOver() {
  const base::Path folder = options_.log_folder;
  RETURN_IF_ERROR(WriteCheckpoint(true).status());
  std::error_code error;
  std::filesystem::remove_all(folder / kRows, error);
  return base::Remove(folder / kUnfinished);
}

}  // namespace fleet::ps
