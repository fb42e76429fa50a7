// SPDX-License-Identifier: Apache-2.0
#include "fleet/parameter_server.h"

#include <algorithm>
#include <utility>

#include <ATen/ops/empty.h>

#include "fleet/base/log.h"
#include "fleet/cluster/environment.h"
#include "fleet/ops/host_memory.h"
#include "fleet/saved/load_variable.h"

namespace fleet {
namespace {

using base::Deadline;
using ops::FloatsOf;
using ops::MutableFloatsOf;

// Writes into `env` what `options` wish and it does not say.
void TakeWishes(const ServerOptions& options, const cluster::Role& role,
                cluster::Environment& env) {
  if (options.durability.has_value()) {
    const std::string wish = ps::ToString(*options.durability);
    const auto [said, is_new] = env.emplace("FLEET_PS_DURABILITY", wish);
    if (!is_new && said->second != wish) {
      FLEET_LOG(WARNING) << "server " << role.index
                         << ": this program asks for durability " << wish
                         << ", but FLEET_PS_DURABILITY=" << said->second
                         << " is set, and counts";
    }
  }
  if (!options.log_folder.empty()) {
    env.emplace("FLEET_PS_LOG_DIR", options.log_folder);
  }
}

}  // namespace

Result<std::unique_ptr<ParameterServer>> ParameterServer::Start(
    const cluster::Role& role, const ServerOptions& options) {
  cluster::Environment env = cluster::ReadEnvironment();
  TakeWishes(options, role, env);
  ASSIGN_OR_RETURN(ps::ServeOptions serve, ps::ReadServeOptions(role, env));
  if (!options.load_folder.empty()) {
    serve.server.load_folder = options.load_folder;
    serve.server.load_only = options.load_only;
    serve.server.load_otherwise =
        [folder = options.load_folder, rank = serve.server.rank,
         num_servers = serve.server.num_servers](table::SparseTable* sparse,
                                                 table::DenseTable* dense) {
          return saved::LoadVariable(folder, static_cast<uint32_t>(rank),
                                     num_servers, sparse, dense);
        };
  }
  serve.interrupt = options.interrupt;
  ASSIGN_OR_RETURN(std::unique_ptr<ps::Serving> serving,
                   ps::Serving::Start(serve));
  return std::unique_ptr<ParameterServer>(
      new ParameterServer(std::move(serving)));
}

Result<std::unique_ptr<ParameterWorker>> ParameterWorker::Make(
    std::unique_ptr<ps::PsClient> client, const cluster::Role& role,
    const WorkerOptions& options, std::chrono::milliseconds timeout) {
  std::unique_ptr<ParameterWorker> worker(
      new ParameterWorker(std::move(client), role, options, timeout));
  served::SynchronizerOptions sync;
  sync.mode = options.mode;
  sync.worker = role.index;
  sync.num_workers = role.worker_num;
  sync.geo_steps = options.geo_steps;
  sync.max_merge = options.max_merge;
  sync.queue_size = options.queue_size;
  sync.timeout = timeout;
  sync.interrupt = options.interrupt;
  ASSIGN_OR_RETURN(worker->synchronizer_,
                   served::Synchronizer::Make(*worker->client_, {}, sync));
  worker->programs_ = std::make_shared<sync::ServedPrograms>(
      *worker->synchronizer_, worker->homes_);
  return worker;
}

ParameterWorker::~ParameterWorker() = default;

Status ParameterWorker::Serve(const std::vector<plan::ServedTable>& tables) {
  std::vector<ps::TableSpec> specs;
  for (const plan::ServedTable& table : tables) specs.push_back(table.spec);
  RETURN_IF_ERROR(client_->CreateTables(specs, deadline()));
  RETURN_IF_ERROR(synchronizer_->AddTables(tables));
  base::MutexLock lock(mutex_);
  for (const plan::ServedTable& table : tables) {
    const bool known = std::any_of(tables_.begin(), tables_.end(),
                                   [&](const plan::ServedTable& other) {
                                     return other.spec.id == table.spec.id;
                                   });
    if (!known) tables_.push_back(table);
  }
  return OkStatus();
}

Status ParameterWorker::EndSteps() {
  if (options_.mode != plan::PsMode::kSync) return OkStatus();
  RETURN_IF_ERROR(synchronizer_->EndPass());
  return synchronizer_->PullDense(homes_.values());
}

Status ParameterWorker::Barrier(const std::string& name) {
  RETURN_IF_ERROR(EndSteps().WithContext(base::Concat("barrier ", name)));
  return client_->Barrier(name, deadline());
}

Result<std::vector<std::string>> ParameterWorker::AllGather(
    const std::string& name, std::string_view bytes) {
  RETURN_IF_ERROR(EndSteps().WithContext(base::Concat("gather ", name)));
  return client_->AllGather(name, bytes, deadline());
}

Status ParameterWorker::Flush() {
  return synchronizer_->Flush(homes_.values());
}

Status ParameterWorker::Finish() {
  base::MutexLock lock(finish_mutex_);
  if (!finished_.has_value()) {
    Status finished = synchronizer_->Stop(homes_.values());
    if (finished.ok()) finished = client_->Stop(deadline());
    finished_ = std::move(finished);
  }
  return *finished_;
}

Status ParameterWorker::BeginCut() {
  RETURN_IF_ERROR(Flush());
  base::MutexLock lock(cut_mutex_);
  if (cut_.has_value()) {
    return FailedPrecondition("worker ", role_.index,
                              " saves already: a second cut inside of one");
  }
  ASSIGN_OR_RETURN(cut_, client_->BeginCut(deadline()));
  return OkStatus();
}

Status ParameterWorker::EndCut() {
  base::MutexLock lock(cut_mutex_);
  if (!cut_.has_value()) return OkStatus();
  const uint64_t cut = *cut_;
  cut_.reset();
  Status outcome = client_->EndCut(cut);
  const Status saved = FinishSave();
  return outcome.ok() ? saved : outcome;
}

Status ParameterWorker::FinishSave() {
  if (!begun_save_.has_value()) return OkStatus();
  ps::PsClient::BegunSave save = std::move(*begun_save_);
  begun_save_.reset();
  return client_->FinishSave(std::move(save), deadline());
}

Status ParameterWorker::Save(const std::string& folder,
                             const SaveOptions& options) {
  ps::PsClient::SaveOptions save;
  save.kind = options.kind;
  save.text = options.text;
  save.remove_older = options.remove_older;
  {
    base::MutexLock lock(cut_mutex_);
    if (cut_.has_value()) {
      // Servers write one at a time.
      RETURN_IF_ERROR(FinishSave());
      ASSIGN_OR_RETURN(begun_save_,
                       client_->BeginSave(folder, save, deadline()));
      return OkStatus();
    }
  }
  RETURN_IF_ERROR(Flush());
  return client_->Save(folder, save, deadline());
}

Status ParameterWorker::Load(const std::string& folder) {
  return client_->Load(folder, deadline());
}

Status ParameterWorker::SetRate(const std::string& name, double rate) {
  return client_->SetRate(name, rate, deadline());
}

Result<uint64_t> ParameterWorker::Shrink(uint32_t max_unseen_days) {
  uint64_t gone = 0;
  for (const plan::ServedTable& table : tables()) {
    if (!table.sparse) continue;
    ASSIGN_OR_RETURN(
        const uint64_t rows,
        client_->Shrink(table.spec.id, max_unseen_days, deadline()));
    gone += rows;
  }
  return gone;
}

Result<uint64_t> ParameterWorker::Shrink(const std::string& parameter,
                                         uint32_t max_unseen_days) {
  ASSIGN_OR_RETURN(const plan::ServedTable table, FindTable(parameter));
  return client_->Shrink(table.spec.id, max_unseen_days, deadline());
}

Result<at::Tensor> ParameterWorker::PullDense(const std::string& parameter) {
  ASSIGN_OR_RETURN(const plan::ServedTable table, FindTable(parameter));
  at::Tensor values = at::empty(table.shape, at::kFloat);
  RETURN_IF_ERROR(
      client_->PullDense(table.spec.id, MutableFloatsOf(values), deadline()));
  return values;
}

Result<at::Tensor> ParameterWorker::PullRows(const std::string& parameter,
                                             const std::vector<int64_t>& ids) {
  ASSIGN_OR_RETURN(const plan::ServedTable table, FindTable(parameter));
  if (!table.sparse) {
    return InvalidArgument("parameter ", parameter,
                           " has no rows: it is dense");
  }
  at::Tensor rows = at::empty(
      {static_cast<int64_t>(ids.size()), table.shape.back()}, at::kFloat);
  const std::vector<table::Key> keys(ids.begin(), ids.end());
  RETURN_IF_ERROR(client_->Pull(table.spec.id, keys, MutableFloatsOf(rows),
                                {.training = false}, deadline()));
  return rows;
}

Status ParameterWorker::AssignDense(const std::string& parameter,
                                    const at::Tensor& values) {
  ASSIGN_OR_RETURN(const plan::ServedTable table, FindTable(parameter));
  const at::Tensor floats = ops::OnHost(values, at::kFloat);
  return client_->AssignDense(table.spec.id, FloatsOf(floats), deadline());
}

void ParameterWorker::BeginThreads(int count) {
  synchronizer_->BeginThreads(count);
}

void ParameterWorker::EndThread() { synchronizer_->EndThread(); }

Status ParameterWorker::EndPass(exec::Scope& scope) {
  RETURN_IF_ERROR(synchronizer_->EndPass());
  if (options_.mode != plan::PsMode::kSync) return OkStatus();
  for (const plan::ServedTable& table : tables()) {
    at::Tensor* const here =
        table.sparse ? nullptr : scope.Find(table.parameter);
    if (here == nullptr || !here->defined()) continue;
    ASSIGN_OR_RETURN(const at::Tensor values, PullDense(table.parameter));
    here->copy_(values.reshape(here->sizes()));
  }
  return OkStatus();
}

served::SynchronizerStats ParameterWorker::stats() const {
  return synchronizer_->stats();
}

Result<table::SparseTableStats> ParameterWorker::TableStats(
    const std::string& parameter) {
  ASSIGN_OR_RETURN(const plan::ServedTable table, FindTable(parameter));
  return client_->Stats(table.spec.id, deadline());
}

std::vector<plan::ServedTable> ParameterWorker::tables() const {
  base::MutexLock lock(mutex_);
  return tables_;
}

Result<plan::ServedTable> ParameterWorker::FindTable(
    const std::string& parameter) const {
  base::MutexLock lock(mutex_);
  for (const plan::ServedTable& table : tables_) {
    if (table.parameter == parameter) return table;
  }
  return NotFound("parameter ", parameter, " is not on the servers");
}

table::TableId ParameterWorker::next_table_id() const {
  base::MutexLock lock(mutex_);
  uint32_t next = 0;
  for (const plan::ServedTable& table : tables_) {
    next = std::max(next, static_cast<uint32_t>(table.spec.id) + 1);
  }
  return static_cast<table::TableId>(next);
}

}  // namespace fleet
