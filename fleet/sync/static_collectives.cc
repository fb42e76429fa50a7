// SPDX-License-Identifier: Apache-2.0
#include "fleet/sync/static_collectives.h"

#include <algorithm>
#include <optional>
#include <sstream>
#include <string_view>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <c10/util/accumulate.h>

#include "fleet/base/check.h"
#include "fleet/ops/kernel.h"
#include "fleet/program/attr_or.h"
#include "fleet/sync/bucket_exchange.h"
#include "fleet/sync/row_exchange.h"
#include "fleet/sync/state.h"
#include "fleet/sync/static_batch_norm.h"
#include "fleet/sync/tensor_collectives.h"

namespace fleet::sync {
namespace {

using at::Tensor;
using base::Deadline;
using comm::Communicator;
using comm::ReduceOp;
using exec::ExtensionStep;
using program::AttrOr;
using program::Operation;
using StepResult = Result<std::unique_ptr<ExtensionStep>>;

constexpr size_t kCacheLine = 64;

bool SameMemory(const Tensor& a, const Tensor& b) {
  return a.defined() && b.defined() && a.const_data_ptr() == b.const_data_ptr();
}

// Into the variable's memory if it has some, else by giving it the tensor. The
// gradient of a sum is one number seen as many: no memory for others.
void Give(const Tensor& value, Tensor& output) {
  if (output.defined() && output.sizes() == value.sizes() &&
      output.is_non_overlapping_and_dense()) {
    CopyInto(output, value);
  } else {
    output = value;
  }
}

// What a gradient has to be like, on all ranks.
struct GradientType {
  at::ScalarType dtype;
  std::vector<int64_t> sizes;
};

// That `mine`, lines of text, is the same on all ranks.
Status CheckSameText(Communicator& communicator, const std::string& mine,
                     Deadline deadline) {
  ASSIGN_OR_RETURN(auto texts, communicator.AllGatherBytes(
                                   std::as_bytes(std::span(mine)), deadline));
  auto lines = [&](int rank) {
    std::istringstream text(std::string(
        reinterpret_cast<const char*>(texts[rank].data()), texts[rank].size()));
    std::vector<std::string> list;
    for (std::string line; std::getline(text, line);) list.push_back(line);
    return list;
  };
  const std::vector<std::string> first = lines(0);
  for (int rank = 1; rank < communicator.size(); ++rank) {
    const std::vector<std::string> other = lines(rank);
    if (other == first) continue;
    size_t i = 0;
    while (i < first.size() && i < other.size() && first[i] == other[i]) ++i;
    return FailedPrecondition(
        "the program is not the same on all ranks: rank 0 has ",
        i < first.size() ? first[i] : "nothing", " where rank ", rank, " has ",
        i < other.size() ? other[i] : "nothing");
  }
  return OkStatus();
}

}  // namespace

// The gradients of one c_allreduce_start and, unless it is blocking, of its
// c_allreduce_wait.
class StaticCollectives::Bucket final {
 public:
  // `common` is memory of buckets that are needed one at a time; null: this one
  // has its own.
  Bucket(CollectiveGroup group, std::vector<std::string> names,
         std::shared_ptr<Tensor> common)
      : group_(std::move(group)),
        names_(std::move(names)),
        common_(std::move(common)),
        overlap_(Overlaps(*group_.communicator, group_.overlap,
                          group_.ranks_on_host)) {}

  // Before anything else. `updates` is what the ranks compare beside the
  // gradients.
  void set_updates(std::string updates) { updates_ = std::move(updates); }

  // Places for gradients of these types; empty when they are not fixed.
  Result<std::vector<Tensor>> Homes(
      std::span<const program::TensorType> gradients) {
    std::vector<GradientType> types;
    for (const program::TensorType& type : gradients) {
      for (int64_t dim : type.dims) {
        if (dim < 0) return std::vector<Tensor>();
      }
      types.push_back({ops::ToScalarType(type.dtype), type.dims});
    }
    // On a GPU the executor has its own memory.
    if (group_.communicator->on_device()) return std::vector<Tensor>();
    RETURN_IF_ERROR(Fit(types, at::kCPU));
    return views_;
  }

  // Begins an exchange that Wait() ends. With `blocking`, it is done on return.
  Status Start(std::span<const Tensor> gradients, ReduceOp op, bool blocking) {
    Communicator& communicator = *group_.communicator;
    // The exchange of a run that was given up may still go on.
    RETURN_IF_ERROR(Wait());
    if (gradients.size() == 1 && gradients[0].layout() == at::kSparse) {
      return ExchangeOne(gradients[0], op);
    }
    rows_ = Tensor();
    if (!Fits(gradients)) {
      std::vector<GradientType> types;
      for (const Tensor& gradient : gradients) {
        if (gradient.layout() != at::kStrided) {
          return InvalidArgument("a bucket takes dense gradients only");
        }
        types.push_back({gradient.scalar_type(), gradient.sizes().vec()});
      }
      RETURN_IF_ERROR(Fit(types, gradients[0].device()));
    }
    for (size_t i = 0; i < gradients.size(); ++i) {
      CopyInto(views_[i], gradients[i]);
    }
    return exchange_.Start(communicator, values_, memory_, op, deadline(),
                           overlap_ && !blocking);
  }

  // Until what was started is done.
  Status Wait() {
    return exchange_.Wait(*group_.communicator, group_.interrupt);
  }

  void Give(std::span<Tensor> outputs) const {
    if (rows_.defined()) {
      outputs[0] = rows_;
      return;
    }
    for (size_t i = 0; i < outputs.size() && i < views_.size(); ++i) {
      if (common_ != nullptr && !outputs[i].defined()) {
        outputs[i] = views_[i].clone();  // another bucket comes here soon
      } else {
        sync::Give(views_[i], outputs[i]);
      }
    }
  }

 private:
  Deadline deadline() const { return Deadline::After(group_.timeout); }

  bool Fits(std::span<const Tensor> gradients) const {
    if (views_.size() != gradients.size()) return false;
    for (size_t i = 0; i < gradients.size(); ++i) {
      if (views_[i].sizes() != gradients[i].sizes() ||
          views_[i].scalar_type() != gradients[i].scalar_type() ||
          views_[i].device() != gradients[i].device()) {
        return false;
      }
    }
    return true;
  }

  // Makes views_ for these types, if they are not there. All ranks come here
  // alike: when they meet the bucket first.
  Status Fit(const std::vector<GradientType>& types, at::Device device) {
    const bool there = std::equal(
        types.begin(), types.end(), views_.begin(), views_.end(),
        [&](const GradientType& type, const Tensor& view) {
          return view.scalar_type() == type.dtype &&
                 view.sizes() == type.sizes && view.device() == device;
        });
    if (there) return OkStatus();
    Communicator& communicator = *group_.communicator;
    RETURN_IF_ERROR(CheckSameText(communicator, Describe(types), deadline()));
    const at::ScalarType dtype = types[0].dtype;
    const size_t element_size = c10::elementSize(dtype);
    const size_t line = kCacheLine / element_size;
    std::vector<size_t> offsets, counts;
    size_t total = 0;
    for (const GradientType& type : types) {
      if (type.dtype != dtype) {
        return InvalidArgument("a bucket takes gradients of one type only");
      }
      offsets.push_back(total);
      counts.push_back(c10::multiply_integers(type.sizes));
      total += (counts.back() + line - 1) / line * line;
    }
    const size_t byte_size = total * element_size;
    ASSIGN_OR_RETURN(
        memory_, AllocateTensor(communicator, byte_size, device, deadline()));
    if (common_ != nullptr) {
      // All ranks allocate, whatever each of them has in common.
      if (!common_->defined() || common_->nbytes() < byte_size) {
        *common_ = memory_;
      }
      memory_ = common_->narrow(0, 0, static_cast<int64_t>(byte_size));
    }
    values_ = memory_.view(dtype);
    views_.clear();
    for (size_t i = 0; i < types.size(); ++i) {
      views_.push_back(values_
                           .narrow(0, static_cast<int64_t>(offsets[i]),
                                   static_cast<int64_t>(counts[i]))
                           .view(types[i].sizes));
    }
    return OkStatus();
  }

  std::string Describe(const std::vector<GradientType>& types) const {
    std::ostringstream text;
    if (!updates_.empty()) text << "the updates [" << updates_ << "]\n";
    for (size_t i = 0; i < types.size(); ++i) {
      text << "the gradient " << names_[i] << ' '
           << c10::toString(types[i].dtype) << ' '
           << program::ToString(types[i].sizes) << '\n';
    }
    return text.str();
  }

  // Rows: their number differs from rank to rank.
  Status ExchangeOne(const Tensor& gradient, ReduceOp op) {
    if (op != ReduceOp::kMean) {
      return Unimplemented("gradients in rows are averaged, not added up");
    }
    std::vector<Tensor> gradients = {gradient};
    RETURN_IF_ERROR(
        ExchangeRows(*group_.communicator, {gradient}, gradients, deadline()));
    rows_ = gradients[0];
    return OkStatus();
  }

  const CollectiveGroup group_;
  const std::vector<std::string> names_;
  const std::shared_ptr<Tensor> common_;
  const bool overlap_;
  std::string updates_;
  Tensor memory_;
  Tensor values_;              // the same memory, by its type
  std::vector<Tensor> views_;  // of values_, by gradient
  Tensor rows_;                // the last sparse one
  BucketExchange exchange_;
};

namespace {

using Bucket = StaticCollectives::Bucket;

class StartStep final : public ExtensionStep {
 public:
  StartStep(std::shared_ptr<Bucket> bucket, const Operation& op)
      : bucket_(std::move(bucket)),
        op_(AttrOr(op, "average", false) ? ReduceOp::kMean : ReduceOp::kSum),
        blocking_(AttrOr(op, "blocking", false)) {
    bucket_->set_updates(AttrOr(op, "updates", std::string()));
  }

  Result<std::vector<Tensor>> Homes(
      std::span<const program::TensorType> inputs) override {
    return bucket_->Homes(inputs);
  }

  Status Run(std::span<const Tensor> inputs,
             std::span<Tensor> outputs) override {
    RETURN_IF_ERROR(bucket_->Start(inputs, op_, blocking_));
    if (blocking_) {
      bucket_->Give(outputs);
      return OkStatus();
    }
    // Nobody reads them before the end, but they have to be something.
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (!outputs[i].defined()) outputs[i] = inputs[i];
    }
    return OkStatus();
  }

 private:
  const std::shared_ptr<Bucket> bucket_;
  const ReduceOp op_;
  const bool blocking_;
};

class WaitStep final : public ExtensionStep {
 public:
  explicit WaitStep(std::shared_ptr<Bucket> bucket)
      : bucket_(std::move(bucket)) {}

  Status Run(std::span<const Tensor>, std::span<Tensor> outputs) override {
    RETURN_IF_ERROR(bucket_->Wait());
    bucket_->Give(outputs);
    return OkStatus();
  }

 private:
  const std::shared_ptr<Bucket> bucket_;
};

class BroadcastStateStep final : public ExtensionStep {
 public:
  BroadcastStateStep(CollectiveGroup group, const Operation& op)
      : group_(std::move(group)),
        names_(op.input("X")),
        root_(static_cast<int>(AttrOr(op, "root", int64_t{0}))) {}

  Status Run(std::span<const Tensor> inputs,
             std::span<Tensor> outputs) override {
    std::vector<NamedTensor> state;
    for (size_t i = 0; i < inputs.size(); ++i) {
      state.push_back({names_[i], inputs[i]});
    }
    const Deadline deadline = Deadline::After(group_.timeout);
    RETURN_IF_ERROR(
        CheckSameOnAllRanks(*group_.communicator, "variable", state, deadline));
    RETURN_IF_ERROR(
        BroadcastTensors(*group_.communicator, state, root_, deadline));
    for (size_t i = 0; i < outputs.size(); ++i) Give(inputs[i], outputs[i]);
    return OkStatus();
  }

 private:
  const CollectiveGroup group_;
  const std::vector<std::string> names_;
  const int root_;
};

// One tensor in, one out: `call(communicator, x, deadline)` returns what comes
// out.
template <class Call>
class PlainStep final : public ExtensionStep {
 public:
  PlainStep(CollectiveGroup group, Call call)
      : group_(std::move(group)), call_(std::move(call)) {}

  Status Run(std::span<const Tensor> inputs,
             std::span<Tensor> outputs) override {
    if (inputs.size() != outputs.size()) {
      return InvalidArgument(inputs.size(), " inputs and ", outputs.size(),
                             " outputs");
    }
    for (size_t i = 0; i < inputs.size(); ++i) {
      // In place, a reduction needs no memory of its own.
      const bool in_place = SameMemory(inputs[i], outputs[i]);
      ASSIGN_OR_RETURN(
          Tensor result,
          call_(*group_.communicator, in_place ? outputs[i] : inputs[i],
                in_place, Deadline::After(group_.timeout)));
      Give(result, outputs[i]);
    }
    return OkStatus();
  }

 private:
  const CollectiveGroup group_;
  const Call call_;
};

template <class Call>
StepResult MakePlain(CollectiveGroup group, Call call) {
  return StepResult(std::unique_ptr<ExtensionStep>(
      std::make_unique<PlainStep<Call>>(std::move(group), std::move(call))));
}

StepResult MakeReduction(CollectiveGroup group, ReduceOp op) {
  return MakePlain(std::move(group),
                   [op](Communicator& c, const Tensor& x, bool in_place,
                        Deadline deadline) -> Result<Tensor> {
                     Tensor result = in_place ? x : x.clone();
                     RETURN_IF_ERROR(AllReduce(c, result, op, deadline));
                     return result;
                   });
}

StepResult MakeBroadcast(CollectiveGroup group, int root) {
  return MakePlain(std::move(group),
                   [root](Communicator& c, const Tensor& x, bool in_place,
                          Deadline deadline) -> Result<Tensor> {
                     Tensor result = in_place ? x : x.clone();
                     RETURN_IF_ERROR(Broadcast(c, result, root, deadline));
                     return result;
                   });
}

StepResult MakeAllGather(CollectiveGroup group) {
  return MakePlain(std::move(group),
                   [](Communicator& c, const Tensor& x, bool,
                      Deadline deadline) -> Result<Tensor> {
                     ASSIGN_OR_RETURN(std::vector<Tensor> parts,
                                      AllGather(c, x, deadline));
                     return at::cat(parts, 0);
                   });
}

StepResult MakeReduceScatter(CollectiveGroup group) {
  return MakePlain(
      std::move(group),
      [](Communicator& c, const Tensor& x, bool,
         Deadline deadline) -> Result<Tensor> {
        if (x.dim() == 0 || x.size(0) % c.size() != 0) {
          return InvalidArgument("the first dimension of X is no multiple of ",
                                 c.size(), " ranks");
        }
        const std::vector<Tensor> parts = x.chunk(c.size(), 0);
        Tensor result = parts[c.rank()].clone();
        RETURN_IF_ERROR(
            ReduceScatter(c, parts, result, ReduceOp::kSum, deadline));
        return result;
      });
}

// Here every call is complete when it returns.
StepResult MakeSync(CollectiveGroup group) {
  return MakePlain(std::move(group),
                   [](Communicator&, const Tensor& x, bool,
                      Deadline) -> Result<Tensor> { return x; });
}

std::optional<ReduceOp> ReductionOf(std::string_view type) {
  if (type == "c_allreduce_sum") return ReduceOp::kSum;
  if (type == "c_allreduce_max") return ReduceOp::kMax;
  if (type == "c_allreduce_min") return ReduceOp::kMin;
  if (type == "c_allreduce_prod") return ReduceOp::kProduct;
  return std::nullopt;
}

}  // namespace

StaticCollectives::StaticCollectives(GroupSource source)
    : source_(std::move(source)) {}
StaticCollectives::~StaticCollectives() = default;

const std::vector<std::string>& StaticCollectives::Types() {
  static const std::vector<std::string> types = {
      "c_allreduce_start", "c_allreduce_wait",    "c_broadcast_state",
      "c_allreduce_sum",   "c_allreduce_max",     "c_allreduce_min",
      "c_allreduce_prod",  "c_broadcast",         "c_allgather",
      "c_reducescatter",   "c_sync_comm_stream",  "c_sync_calc_stream",
      "sync_batch_norm",   "sync_batch_norm_grad"};
  return types;
}

void StaticCollectives::AddTo(exec::Executor& executor) {
  for (const std::string& type : Types()) {
    executor.AddExtension(type, shared_from_this());
  }
}

std::shared_ptr<Bucket> StaticCollectives::BucketOf(
    const CollectiveGroup& group, const Operation& op) {
  // On a GPU the executor has its own memory.
  const bool brief = AttrOr(op, "brief", false) &&
                     AttrOr(op, "blocking", false) &&
                     !group.communicator->on_device();
  std::string names = brief ? "brief\n" : "";
  for (const std::string& name : op.input("X")) names += name + '\n';
  base::MutexLock lock(mutex_);
  std::shared_ptr<Bucket>& bucket = buckets_[{group.communicator, names}];
  if (bucket != nullptr) return bucket;
  std::shared_ptr<Tensor> common;
  if (brief) {
    std::shared_ptr<Tensor>& known = common_[group.communicator];
    if (known == nullptr) known = std::make_shared<Tensor>();
    common = known;
  }
  bucket = std::make_shared<Bucket>(group, op.input("X"), std::move(common));
  return bucket;
}

StepResult StaticCollectives::Prepare(const Operation& op) {
  ASSIGN_OR_RETURN(CollectiveGroup group,
                   source_(AttrOr(op, "ring_id", int64_t{0})));
  FLEET_CHECK(group.communicator != nullptr);
  const std::string& type = op.type;
  if (type == "c_allreduce_start") {
    if (op.input("X").empty()) return InvalidArgument("a bucket of nothing");
    return StepResult(std::make_unique<StartStep>(BucketOf(group, op), op));
  }
  if (type == "c_allreduce_wait") {
    return StepResult(std::make_unique<WaitStep>(BucketOf(group, op)));
  }
  if (type == "c_broadcast_state") {
    return StepResult(std::make_unique<BroadcastStateStep>(group, op));
  }
  if (std::optional<ReduceOp> reduction = ReductionOf(type)) {
    return MakeReduction(group, *reduction);
  }
  if (type == "c_broadcast") {
    return MakeBroadcast(group,
                         static_cast<int>(AttrOr(op, "root", int64_t{0})));
  }
  if (type == "c_allgather") return MakeAllGather(group);
  if (type == "c_reducescatter") return MakeReduceScatter(group);
  if (type == "c_sync_comm_stream" || type == "c_sync_calc_stream") {
    return MakeSync(group);
  }
  if (type == "sync_batch_norm" || type == "sync_batch_norm_grad") {
    return PrepareSyncBatchNorm(*group.communicator, group.timeout, op);
  }
  return NotFound("no collective is called ", type);
}

}  // namespace fleet::sync
