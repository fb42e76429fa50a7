// SPDX-License-Identifier: Apache-2.0
#include "fleet/sync/ps_ops.h"

#include <algorithm>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>

#include <ATen/ops/empty.h>

#include "fleet/ops/host_memory.h"
#include "fleet/program/attr_or.h"
#include "fleet/served/rows.h"

namespace fleet::sync {
namespace {

using at::Tensor;
using exec::ExtensionStep;
using ops::FloatsOf;
using ops::IdsOf;
using ops::MutableFloatsOf;
using ops::OnHost;
using program::AttrOr;
using program::Operation;
using served::DenseGradient;
using served::GradientsOfIds;
using served::LookupOptions;
using served::RowsOfIds;
using served::ServedTable;
using StepResult = Result<std::unique_ptr<ExtensionStep>>;

// Where a slot's arguments are among all inputs.
struct SlotRange {
  size_t begin = 0;
  size_t count = 0;
};

SlotRange FindSlot(const std::vector<program::Slot>& slots,
                   std::string_view name) {
  size_t begin = 0;
  for (const program::Slot& slot : slots) {
    if (slot.name == name) return {begin, slot.arguments.size()};
    begin += slot.arguments.size();
  }
  return {};
}

using WeakStorages = std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>>;

WeakStorages StoragesOf(std::span<const Tensor> tensors) {
  WeakStorages storages;
  for (const Tensor& tensor : tensors) {
    storages.push_back(tensor.storage().getWeakStorageImpl());
  }
  return storages;
}

// A weak pointer keeps the address of what it points to from coming again.
bool AreIn(std::span<const Tensor> tensors, const WeakStorages& storages) {
  return std::ranges::equal(tensors, storages,
                            [](const Tensor& tensor, const auto& storage) {
                              return tensor.storage().unsafeGetStorageImpl() ==
                                     storage._unsafe_get_target();
                            });
}

// What all operations on a sparse table say.
struct TableOp {
  TableId table{};
  size_t dim = 0;
  bool old = false;  // ids are [..., 1]
  LookupOptions options;
};

Result<TableOp> ReadTableOp(const Synchronizer& synchronizer,
                            const Operation& op) {
  TableOp read;
  read.table = static_cast<TableId>(AttrOr(op, "table_id", int64_t{-1}));
  const ServedTable* const table = synchronizer.table(read.table);
  if (table == nullptr || !table->sparse) {
    return FailedPrecondition("table ", AttrOr(op, "table_id", int64_t{-1}),
                              " of ", AttrOr(op, "table_name", std::string()),
                              " is not served as a sparse one");
  }
  read.dim = served::DimOf(*table);
  read.old = AttrOr(op, "lookup_table_version",
                    std::string("lookup_table_v2")) == "lookup_table";
  read.options.padding = AttrOr(op, "padding_idx", int64_t{-1});
  read.options.training = !AttrOr(op, "is_test", false);
  return read;
}

class LookupStep final : public ExtensionStep {
 public:
  LookupStep(Synchronizer& synchronizer, const TableOp& op)
      : synchronizer_(synchronizer), op_(op) {}

  Status Run(std::span<const Tensor> inputs,
             std::span<Tensor> outputs) override {
    if (inputs.size() != outputs.size()) {
      return InvalidArgument(inputs.size(), " Ids and ", outputs.size(),
                             " Outputs");
    }
    ids_.clear();
    lists_.clear();
    rows_.resize(inputs.size());
    for (size_t i = 0; i < inputs.size(); ++i) {
      ids_.push_back(OnHost(inputs[i], at::kLong));
      MakeRoom(inputs[i], rows_[i]);
      lists_.push_back({IdsOf(ids_[i]), MutableFloatsOf(rows_[i])});
    }
    const Status fetched = synchronizer_.Fetch(op_.table, lists_, op_.options);
    ids_.clear();
    RETURN_IF_ERROR(fetched);
    for (size_t i = 0; i < inputs.size(); ++i) {
      outputs[i] = inputs[i].device().is_cpu()
                       ? rows_[i]
                       : rows_[i].to(inputs[i].device());
    }
    return OkStatus();
  }

 private:
  // The memory of the run before, if nobody else has it any more.
  void MakeRoom(const Tensor& ids, Tensor& rows) {
    sizes_.assign(ids.sizes().begin(), ids.sizes().end());
    if (op_.old && !sizes_.empty()) sizes_.pop_back();
    sizes_.push_back(static_cast<int64_t>(op_.dim));
    if (rows.defined() && rows.use_count() == 1 &&
        rows.storage().use_count() == 1 && rows.sizes() == sizes_) {
      return;
    }
    rows = at::empty(sizes_, at::kFloat);
  }

  Synchronizer& synchronizer_;
  const TableOp op_;
  std::vector<Tensor> ids_;
  std::vector<Tensor> rows_;
  std::vector<int64_t> sizes_;
  std::vector<RowsOfIds> lists_;
};

class PushStep final : public ExtensionStep {
 public:
  PushStep(Synchronizer& synchronizer, const TableOp& op,
           const Operation& operation)
      : synchronizer_(synchronizer),
        op_(op),
        ids_slot_(FindSlot(operation.inputs, "Ids")),
        gradients_slot_(FindSlot(operation.inputs, "Grads")),
        shows_slot_(FindSlot(operation.inputs, "Shows")),
        clicks_slot_(FindSlot(operation.inputs, "Clicks")) {}

  Status Run(std::span<const Tensor> inputs, std::span<Tensor>) override {
    held_.clear();
    lists_.clear();
    for (size_t i = 0; i < ids_slot_.count; ++i) {
      const Tensor& gradient = inputs[gradients_slot_.begin + i];
      if (!gradient.defined()) continue;
      const Tensor& ids =
          held_.emplace_back(OnHost(inputs[ids_slot_.begin + i], at::kLong));
      GradientsOfIds list;
      list.ids = IdsOf(ids);
      list.gradients =
          FloatsOf(held_.emplace_back(OnHost(gradient, at::kFloat)));
      if (shows_slot_.count > 0) {
        ASSIGN_OR_RETURN(list.shows,
                         PerId(inputs[shows_slot_.begin], list.ids.size()));
        ASSIGN_OR_RETURN(list.clicks, clicks_slot_.count == 0
                                          ? PerId(Tensor(), list.ids.size())
                                          : PerId(inputs[clicks_slot_.begin],
                                                  list.ids.size()));
      }
      lists_.push_back(list);
    }
    const Status offered = synchronizer_.Offer(op_.table, lists_, op_.options);
    held_.clear();
    return offered;
  }

 private:
  // One number for each example becomes one for each of its ids. An undefined
  // tensor: zeros.
  Result<std::span<const float>> PerId(const Tensor& numbers, size_t num_ids) {
    const auto num_examples =
        numbers.defined() ? static_cast<size_t>(numbers.numel()) : size_t{1};
    if (num_examples == 0 || num_ids % num_examples != 0) {
      return InvalidArgument(num_ids, " ids of ", num_examples, " examples");
    }
    const Tensor repeated =
        numbers.defined()
            ? OnHost(numbers, at::kFloat)
                  .reshape({-1, 1})
                  .expand({-1, static_cast<int64_t>(num_ids / num_examples)})
                  .contiguous()
            : at::empty({static_cast<int64_t>(num_ids)}, at::kFloat).zero_();
    return FloatsOf(held_.emplace_back(repeated));
  }

  Synchronizer& synchronizer_;
  const TableOp op_;
  const SlotRange ids_slot_;
  const SlotRange gradients_slot_;
  const SlotRange shows_slot_;
  const SlotRange clicks_slot_;
  std::vector<Tensor> held_;
  std::vector<GradientsOfIds> lists_;
};

Result<std::vector<TableId>> ReadTables(const Synchronizer& synchronizer,
                                        const Operation& op) {
  std::vector<TableId> tables;
  for (int64_t id : AttrOr(op, "table_ids", std::vector<int64_t>())) {
    tables.push_back(static_cast<TableId>(id));
    const ServedTable* const table = synchronizer.table(tables.back());
    if (table == nullptr || table->sparse) {
      return FailedPrecondition("table ", id, " is not served as a dense one");
    }
  }
  return tables;
}

class SendStep final : public ExtensionStep {
 public:
  SendStep(Synchronizer& synchronizer, std::vector<TableId> tables)
      : synchronizer_(synchronizer), tables_(std::move(tables)) {}

  Status Run(std::span<const Tensor> inputs, std::span<Tensor>) override {
    if (inputs.size() != tables_.size()) {
      return InvalidArgument(inputs.size(), " gradients for ", tables_.size(),
                             " tables");
    }
    held_.clear();
    gradients_.clear();
    for (size_t i = 0; i < inputs.size(); ++i) {
      const Tensor& held = held_.emplace_back(OnHost(inputs[i], at::kFloat));
      gradients_.push_back({tables_[i], FloatsOf(held)});
    }
    const Status offered = synchronizer_.OfferDense(gradients_);
    held_.clear();
    return offered;
  }

 private:
  Synchronizer& synchronizer_;
  const std::vector<TableId> tables_;
  std::vector<Tensor> held_;
  std::vector<DenseGradient> gradients_;
};

// Gives the memory of the parameters, which are outputs and, in most programs,
// inputs as well.
class ValuesStep : public ExtensionStep {
 public:
  ValuesStep(Synchronizer& synchronizer, std::vector<TableId> tables)
      : synchronizer_(synchronizer), tables_(std::move(tables)) {}

  Status Run(std::span<const Tensor> inputs,
             std::span<Tensor> outputs) override {
    if (outputs.size() != tables_.size()) {
      return InvalidArgument(outputs.size(), " parameters for ", tables_.size(),
                             " tables");
    }
    held_.clear();
    values_.clear();
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (!outputs[i].defined()) MakeOutput(inputs, i, outputs[i]);
      const Tensor& held = held_.emplace_back(OnHost(outputs[i], at::kFloat));
      values_.push_back({tables_[i], MutableFloatsOf(held)});
    }
    Status ended = End(outputs, values_);
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (!held_[i].is_same(outputs[i]) && ended.ok()) {
        outputs[i].copy_(held_[i]);
      }
    }
    held_.clear();
    return ended;
  }

 protected:
  // `values` are those of `parameters`, in the host's memory.
  virtual Status End(std::span<const Tensor> parameters,
                     std::span<const DenseValues> values) = 0;

  Synchronizer& synchronizer_;
  const std::vector<TableId> tables_;

 private:
  void MakeOutput(std::span<const Tensor> inputs, size_t i, Tensor& output) {
    if (i < inputs.size() && inputs[i].defined()) {
      output = inputs[i];
    } else {
      output = at::empty(synchronizer_.table(tables_[i])->shape, at::kFloat);
    }
  }

  std::vector<Tensor> held_;
  std::vector<DenseValues> values_;
};

// ps_init. What startup fills is not what the scope keeps.
class InitializeStep final : public ValuesStep {
 public:
  using ValuesStep::ValuesStep;

 private:
  Status End(std::span<const Tensor>,
             std::span<const DenseValues> values) override {
    return synchronizer_.Initialize(values);
  }
};

class EndOfStep final : public ValuesStep {
 public:
  // Tells `homes` where the parameters are, and `memories` which values.
  EndOfStep(Synchronizer& synchronizer, DenseHomes& homes,
            DenseMemories& memories, std::vector<TableId> tables)
      : ValuesStep(synchronizer, std::move(tables)),
        homes_(homes),
        memories_(memories) {}

 private:
  Status End(std::span<const Tensor> parameters,
             std::span<const DenseValues> values) override {
    if (!AreIn(parameters, storages_)) Meet(parameters, values);
    return synchronizer_.EndStep(values, memory_.get());
  }
  // Where they are changes seldom.
  void Meet(std::span<const Tensor> parameters,
            std::span<const DenseValues> values) {
    storages_ = StoragesOf(parameters);
    memory_ = memories_.Find(parameters);
    for (size_t i = 0; i < parameters.size(); ++i) {
      if (parameters[i].const_data_ptr() == values[i].values.data()) {
        homes_.Set(tables_[i], parameters[i]);
      }
    }
  }

  DenseHomes& homes_;
  DenseMemories& memories_;
  WeakStorages storages_;
  std::shared_ptr<HeldValues> memory_;
};

class NothingStep final : public ExtensionStep {
 public:
  Status Run(std::span<const Tensor>, std::span<Tensor>) override {
    return OkStatus();
  }
};

}  // namespace

void DenseHomes::Set(TableId table, const Tensor& tensor) {
  base::MutexLock lock(mutex_);
  tensors_[table] = tensor;
}

std::vector<DenseValues> DenseHomes::values() const {
  base::MutexLock lock(mutex_);
  std::vector<DenseValues> values;
  for (const auto& [table, tensor] : tensors_) {
    values.push_back({table, MutableFloatsOf(tensor)});
  }
  return values;
}

std::shared_ptr<HeldValues> DenseMemories::Find(
    std::span<const Tensor> tensors) {
  base::MutexLock lock(mutex_);
  std::erase_if(memories_, [](const Memory& memory) {
    return std::ranges::any_of(
        memory.storages, [](const auto& storage) { return storage.expired(); });
  });
  for (const Memory& memory : memories_) {
    if (AreIn(tensors, memory.storages)) return memory.held;
  }
  return memories_
      .emplace_back(StoragesOf(tensors), std::make_shared<HeldValues>())
      .held;
}

size_t DenseMemories::size() const {
  base::MutexLock lock(mutex_);
  return memories_.size();
}

const std::vector<std::string>& ServedPrograms::Types() {
  static const std::vector<std::string> types = {"distributed_lookup_table",
                                                 "distributed_push_sparse",
                                                 "send",
                                                 "send_barrier",
                                                 "recv",
                                                 "geo_step",
                                                 "ps_init",
                                                 "fake_init"};
  return types;
}

void ServedPrograms::AddTo(exec::Executor& executor) {
  for (const std::string& type : Types()) {
    executor.AddExtension(type, shared_from_this());
  }
}

StepResult ServedPrograms::Prepare(const Operation& op) {
  if (op.type == "fake_init") {
    return StepResult(std::make_unique<NothingStep>());
  }
  if (op.type == "distributed_lookup_table" ||
      op.type == "distributed_push_sparse") {
    ASSIGN_OR_RETURN(const TableOp table, ReadTableOp(synchronizer_, op));
    if (op.type == "distributed_lookup_table") {
      return StepResult(std::make_unique<LookupStep>(synchronizer_, table));
    }
    return StepResult(std::make_unique<PushStep>(synchronizer_, table, op));
  }
  ASSIGN_OR_RETURN(std::vector<TableId> tables, ReadTables(synchronizer_, op));
  if (op.type == "send") {
    return StepResult(
        std::make_unique<SendStep>(synchronizer_, std::move(tables)));
  }
  if (op.type == "send_barrier" || op.type == "recv" || op.type == "geo_step") {
    return StepResult(std::make_unique<EndOfStep>(
        synchronizer_, homes_, memories_, std::move(tables)));
  }
  if (op.type == "ps_init") {
    return StepResult(
        std::make_unique<InitializeStep>(synchronizer_, std::move(tables)));
  }
  return NotFound("no operation with servers is called ", op.type);
}

}  // namespace fleet::sync
