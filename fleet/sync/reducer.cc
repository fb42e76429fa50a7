// SPDX-License-Identifier: Apache-2.0
#include "fleet/sync/reducer.h"

#include <algorithm>
#include <optional>
#include <unordered_set>
#include <utility>

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/variable.h>

#include "fleet/ops/aten_error.h"
#include "fleet/ops/eager/backward.h"
#include "fleet/sync/bucket_exchange.h"
#include "fleet/sync/bucket_plan.h"
#include "fleet/sync/row_exchange.h"
#include "fleet/sync/tensor_collectives.h"

namespace fleet::sync {
namespace {

using at::Tensor;
using base::Deadline;
using comm::Communicator;
using comm::ReduceOp;

// The largest bucket where backward itself does the exchange: such a bucket is
// still in the last-level cache, beside those of the other ranks, when it is
// full. Larger ones would come back from memory.
constexpr size_t kBucketBytesInCache = size_t{12} << 20;

}  // namespace

ExchangeError::ExchangeError(Status status)
    : std::runtime_error(status.message()), status_(std::move(status)) {}

class Reducer::Impl final : public std::enable_shared_from_this<Impl> {
 public:
  Impl(Communicator& communicator, ReducerOptions options)
      : communicator_(communicator),
        options_(std::move(options)),
        overlap_(
            Overlaps(communicator, options_.overlap, options_.ranks_on_host)) {}

  Status Start(std::vector<NamedTensor> parameters,
               std::vector<NamedTensor> buffers);
  void RemoveHooks();

  void set_sync(bool sync) { sync_ = sync; }
  bool sync() const { return sync_; }
  Status JoinGradients();
  Status Join();
  Status SynchronizeState(int root);
  Stats stats() const { return stats_; }
  // Null for a parameter without one.
  static Impl* Of(const Tensor& parameter);

 private:
  class Hook;
  class Round;

  // One parameter that gets gradients.
  struct Slot {
    std::string name;
    Tensor parameter;
    Tensor view;        // of the bucket; undefined for sparse gradients
    size_t bucket = 0;  // that it holds up
    bool contiguous = false;
    bool reached = false;  // in this round
    bool unsent = false;   // in a backward before, without an exchange
  };

  struct Bucket {
    Tensor memory;
    Tensor values;  // the same memory, by its type
    std::vector<size_t> slots;
    size_t missing = 0;  // of its slots, in this round
    BucketExchange exchange;
  };

  Status Check(const std::vector<NamedTensor>& parameters) const;
  Status MakeBuckets();
  Status MakeBucket(const BucketPlan& plan, bool last);
  void AddHooks();
  Deadline deadline() const {
    return Deadline::After(options_.timeout.value_or(std::chrono::minutes(30)));
  }

  // What hooks call. They throw.
  bool Take(Slot& slot, const Tensor& gradient);
  Tensor Place(const Slot& slot) const;
  void Accumulated(Slot& slot);
  void Refuse(const std::string& name) const;
  void Ready(Slot& slot);

  // The parts of a round, in their order.
  void Begin();
  Status SendReady();
  Status Send(Bucket& bucket);
  void WriteFlags(bool active);
  Status Finish();
  void FillUnreached();
  Status WaitForBuckets();
  std::vector<float> ReadFlags() const;
  void AssignGradients(const std::vector<float>& flags);
  Status ExchangeSparse(const std::vector<float>& flags, bool active);
  void Reset();

  Result<bool> TakePart();

  Communicator& communicator_;
  const ReducerOptions options_;
  const bool overlap_;
  bool sync_ = true;
  std::vector<NamedTensor> state_;  // parameters, then buffers
  size_t num_parameters_ = 0;
  std::vector<Slot> slots_;     // never grows once there are hooks
  std::vector<size_t> sparse_;  // positions in slots_
  std::vector<Bucket> buckets_;
  // At the end of the last bucket: for each slot whether this rank reached it,
  // and whether this rank has not joined.
  Tensor flags_;

  bool in_round_ = false;
  size_t next_ = 0;            // bucket to be sent
  size_t num_reached_ = 0;     // in this round
  int64_t active_rounds_ = 0;  // since the last Join
  Stats stats_;
};

// A round that backward did not bring to its end was given up: the callback,
// which alone owns it, is dropped then.
class Reducer::Impl::Round final {
 public:
  explicit Round(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
  Round(const Round&) = delete;
  ~Round() {
    if (impl_ != nullptr) impl_->Reset();
  }

  void Finish() {
    const std::shared_ptr<Impl> impl = std::move(impl_);
    Status status = impl->Finish();
    impl->Reset();
    if (!status.ok()) throw ExchangeError(std::move(status));
  }

 private:
  std::shared_ptr<Impl> impl_;
};

class Reducer::Impl::Hook final : public ops::GradientSink {
 public:
  // Without a slot, for a parameter that should get no gradient.
  Hook(Impl& impl, Slot* slot, std::string name)
      : impl_(impl), slot_(slot), name_(std::move(name)) {}

  Impl& impl() const { return impl_; }

  Tensor Place() override {
    return slot_ == nullptr ? Tensor() : impl_.Place(*slot_);
  }
  bool Take(const Tensor& gradient) override {
    return slot_ != nullptr && impl_.Take(*slot_, gradient);
  }
  void operator()(const Tensor&) override {
    if (slot_ == nullptr) impl_.Refuse(name_);
    impl_.Accumulated(*slot_);
  }

 private:
  Impl& impl_;
  Slot* const slot_;
  const std::string name_;
};

// ---- Setting up

Status Reducer::Impl::Start(std::vector<NamedTensor> parameters,
                            std::vector<NamedTensor> buffers) {
  // A parameter under two names is one.
  std::unordered_set<c10::TensorImpl*> seen;
  std::erase_if(parameters, [&](const NamedTensor& named) {
    return !seen.insert(named.tensor.unsafeGetTensorImpl()).second;
  });
  RETURN_IF_ERROR(Check(parameters));
  if (communicator_.size() > 1) {
    RETURN_IF_ERROR(CheckSameOnAllRanks(communicator_, "parameter", parameters,
                                        deadline()));
    RETURN_IF_ERROR(
        CheckSameOnAllRanks(communicator_, "buffer", buffers, deadline()));
  }
  state_ = parameters;
  num_parameters_ = parameters.size();
  state_.insert(state_.end(), buffers.begin(), buffers.end());
  RETURN_IF_ERROR(SynchronizeState(0));
  if (communicator_.size() == 1 && !options_.even_alone) return OkStatus();
  for (NamedTensor& named : parameters) {
    if (!named.tensor.requires_grad()) continue;
    if (named.sparse) sparse_.push_back(slots_.size());
    slots_.push_back({named.name, named.tensor});
  }
  if (!slots_.empty()) RETURN_IF_ERROR(MakeBuckets());
  AddHooks();
  return OkStatus();
}

Status Reducer::Impl::Check(const std::vector<NamedTensor>& parameters) const {
  std::optional<at::Device> device;
  for (const auto& [name, tensor, sparse] : parameters) {
    if (!tensor.defined() || !tensor.is_leaf() ||
        tensor.layout() != at::kStrided) {
      return InvalidArgument("parameter '", name, "' is not a dense leaf");
    }
    if (!tensor.requires_grad()) continue;
    RETURN_IF_ERROR(ToDataType(tensor.scalar_type())
                        .status()
                        .WithContext("parameter '" + name + "'"));
    if (communicator_.size() > 1 && !tensor.device().is_cpu() &&
        !communicator_.on_device()) {
      return InvalidArgument("parameter '", name, "' is on ",
                             tensor.device().str(), ", where the communicator ",
                             communicator_.name(), " (",
                             communicator_.backend(),
                             ") does not work; FLEET_COMM=nccl gives one that "
                             "does");
    }
    if (device.has_value() && *device != tensor.device()) {
      return InvalidArgument("parameter '", name, "' is on ",
                             tensor.device().str(), ", others are on ",
                             device->str());
    }
    device = tensor.device();
    if (sparse && tensor.dim() == 0) {
      return InvalidArgument("parameter '", name, "' has no rows");
    }
  }
  return OkStatus();
}

Status Reducer::Impl::MakeBuckets() {
  std::vector<Gradient> sizes;
  std::vector<size_t> dense;  // positions in slots_
  for (size_t i = 0; i < slots_.size(); ++i) {
    if (std::find(sparse_.begin(), sparse_.end(), i) != sparse_.end()) continue;
    const Tensor& parameter = slots_[i].parameter;
    sizes.push_back({static_cast<size_t>(parameter.numel()),
                     ToDataType(parameter.scalar_type()).value()});
    dense.push_back(i);
  }
  const size_t bucket_bytes =
      overlap_ ? options_.bucket_bytes
               : std::min(options_.bucket_bytes, kBucketBytesInCache);
  std::vector<BucketPlan> plans =
      PlanBuckets(sizes, {bucket_bytes, options_.last_bucket_bytes});
  if (plans.empty()) plans.emplace_back();  // for the flags alone
  for (BucketPlan& plan : plans) {
    for (size_t& parameter : plan.parameters) parameter = dense[parameter];
    RETURN_IF_ERROR(MakeBucket(plan, &plan == &plans.back()));
  }
  // Their flags have to be known before the last bucket leaves.
  for (size_t i : sparse_) {
    slots_[i].bucket = buckets_.size() - 1;
    buckets_.back().slots.push_back(i);
  }
  Reset();
  stats_.num_buckets = static_cast<int>(buckets_.size());
  return OkStatus();
}

Status Reducer::Impl::MakeBucket(const BucketPlan& plan, bool last) {
  const size_t num_flags = last ? slots_.size() + 1 : 0;
  const size_t count = plan.count + num_flags;
  const at::ScalarType type = ToScalarType(plan.type);
  // Not views to autograd, which would not let optimizers detach them.
  const at::AutoDispatchBelowADInplaceOrView plain;
  Bucket bucket;
  ASSIGN_OR_RETURN(
      bucket.memory,
      AllocateTensor(communicator_, count * comm::ByteSize(plan.type),
                     slots_[0].parameter.device(), deadline()));
  bucket.values = bucket.memory.view(type);
  for (size_t i = 0; i < plan.parameters.size(); ++i) {
    Slot& slot = slots_[plan.parameters[i]];
    slot.bucket = buckets_.size();
    const Tensor& parameter = slot.parameter;
    const auto offset = static_cast<int64_t>(plan.offsets[i]);
    slot.view = bucket.values.narrow(0, offset, parameter.numel());
    // In the order of the parameter's memory, as optimizers like it.
    slot.view = parameter.is_non_overlapping_and_dense()
                    ? slot.view.as_strided(parameter.sizes(),
                                           parameter.strides(), offset)
                    : slot.view.view(parameter.sizes());
    slot.contiguous = slot.view.is_contiguous();
  }
  bucket.slots = plan.parameters;
  if (last) {
    flags_ = bucket.values.narrow(0, static_cast<int64_t>(plan.count),
                                  static_cast<int64_t>(num_flags));
  }
  buckets_.push_back(std::move(bucket));
  return OkStatus();
}

void Reducer::Impl::AddHooks() {
  size_t next_slot = 0;
  for (size_t i = 0; i < num_parameters_; ++i) {
    const auto& [name, parameter, sparse] = state_[i];
    Slot* slot = parameter.requires_grad() ? &slots_[next_slot++] : nullptr;
    torch::autograd::impl::set_post_acc_grad_hooks(
        parameter, std::make_unique<Hook>(*this, slot, name));
  }
}

void Reducer::Impl::RemoveHooks() {
  for (size_t i = 0; i < num_parameters_; ++i) {
    auto& hook = torch::autograd::impl::post_acc_grad_hooks(state_[i].tensor);
    // It may be that of a later Reducer.
    auto* ours = dynamic_cast<Hook*>(hook.get());
    if (ours != nullptr && &ours->impl() == this) hook.reset();
  }
}

Reducer::Impl* Reducer::Impl::Of(const Tensor& parameter) {
  if (!parameter.defined()) return nullptr;
  auto* hook = dynamic_cast<Hook*>(
      torch::autograd::impl::post_acc_grad_hooks(parameter).get());
  return hook == nullptr ? nullptr : &hook->impl();
}

// ---- Gradients arrive

Tensor Reducer::Impl::Place(const Slot& slot) const {
  if (!slot.contiguous || slot.parameter.grad().defined() ||
      (in_round_ && slot.bucket < next_)) {
    return Tensor();
  }
  return slot.view;
}

bool Reducer::Impl::Take(Slot& slot, const Tensor& gradient) {
  const Tensor& view = slot.view;
  if (!view.defined() || slot.parameter.grad().defined() ||
      !slot.parameter.requires_grad() || gradient.layout() != at::kStrided ||
      gradient.scalar_type() != view.scalar_type() ||
      gradient.sizes() != view.sizes() || (in_round_ && slot.bucket < next_)) {
    return false;
  }
  if (gradient.const_data_ptr() == view.const_data_ptr()) {
    ++stats_.in_place;
  } else {
    ++stats_.copied;
    CopyInto(view, gradient);
  }
  slot.parameter.mutable_grad() = view;
  Ready(slot);
  return true;
}

void Reducer::Impl::Accumulated(Slot& slot) {
  Tensor& grad = slot.parameter.mutable_grad();
  if (slot.view.defined()) {
    if (grad.layout() == at::kStrided &&
        grad.const_data_ptr() == slot.view.const_data_ptr()) {
      ++stats_.in_place;
    } else if (!(in_round_ && slot.bucket < next_)) {
      ++stats_.copied;
      CopyInto(slot.view, grad);
      grad = slot.view;
    }
  }
  Ready(slot);
}

void Reducer::Impl::Refuse(const std::string& name) const {
  throw ExchangeError(FailedPrecondition(
      "parameter '", name,
      "' got a gradient, but asked for none when the model was distributed; "
      "distribute the model again after such a change"));
}

void Reducer::Impl::Ready(Slot& slot) {
  if (!sync_) {
    slot.unsent = true;
    return;
  }
  if (!in_round_) Begin();
  if (slot.bucket < next_) {
    throw ExchangeError(FailedPrecondition(
        "parameter '", slot.name,
        "' got a second gradient in one backward, when its first was already "
        "exchanged; run this backward in no_sync"));
  }
  if (slot.reached) return;
  slot.reached = true;
  ++num_reached_;
  if (--buckets_[slot.bucket].missing > 0) return;
  if (Status status = SendReady(); !status.ok()) {
    throw ExchangeError(std::move(status));
  }
}

// ---- A round

void Reducer::Impl::Begin() {
  // A round that was given up may still travel.
  if (Status status = WaitForBuckets(); !status.ok()) {
    throw ExchangeError(std::move(status));
  }
  in_round_ = true;
  ++stats_.rounds;
  auto round = std::make_shared<Round>(shared_from_this());
  ops::AtEndOfBackward([round = std::move(round)] { round->Finish(); });
}

Status Reducer::Impl::SendReady() {
  while (next_ < buckets_.size() && buckets_[next_].missing == 0) {
    if (next_ + 1 == buckets_.size()) WriteFlags(/*active=*/true);
    ++next_;
    RETURN_IF_ERROR(Send(buckets_[next_ - 1]));
  }
  return OkStatus();
}

Status Reducer::Impl::Send(Bucket& bucket) {
  // Behind the last bucket there is nothing left that could go on meanwhile.
  return bucket.exchange.Start(communicator_, bucket.values, bucket.memory,
                               ReduceOp::kMean, deadline(),
                               overlap_ && &bucket != &buckets_.back());
}

void Reducer::Impl::WriteFlags(bool active) {
  const size_t n = slots_.size();
  auto flag = [&](size_t i) {
    return i == n ? active : active && (slots_[i].reached || slots_[i].unsent);
  };
  if (flags_.device().is_cpu() && flags_.scalar_type() == at::kFloat) {
    float* flags = flags_.mutable_data_ptr<float>();
    for (size_t i = 0; i <= n; ++i) flags[i] = flag(i) ? 1.0f : 0.0f;
    return;
  }
  Tensor flags = at::empty({static_cast<int64_t>(n + 1)}, at::kFloat);
  for (size_t i = 0; i <= n; ++i) {
    flags.mutable_data_ptr<float>()[i] = flag(i) ? 1.0f : 0.0f;
  }
  const at::NoGradGuard no_grad;
  flags_.copy_(flags);
}

Status Reducer::Impl::Finish() {
  const at::NoGradGuard no_grad;
  try {
    const bool all_reached = num_reached_ == slots_.size();
    if (!all_reached) FillUnreached();
    RETURN_IF_ERROR(SendReady());
    RETURN_IF_ERROR(WaitForBuckets());
    ++active_rounds_;
    if (all_reached && sparse_.empty()) return OkStatus();
    const std::vector<float> flags = ReadFlags();
    if (!all_reached) AssignGradients(flags);
    return ExchangeSparse(flags, /*active=*/true);
  } catch (const c10::Error& error) {
    return ops::FromException(error);
  }
}

void Reducer::Impl::FillUnreached() {
  for (Slot& slot : slots_) {
    if (slot.reached || !slot.view.defined()) continue;
    const Tensor& grad = slot.parameter.grad();
    if (!grad.defined()) {
      slot.view.zero_();
    } else {
      CopyInto(slot.view, grad);
    }
  }
  for (Bucket& bucket : buckets_) bucket.missing = 0;
}

Status Reducer::Impl::WaitForBuckets() {
  Status first;
  if (!overlap_) return first;
  for (Bucket& bucket : buckets_) {
    Status status = bucket.exchange.Wait(communicator_, options_.interrupt);
    if (first.ok()) first = std::move(status);
  }
  return first;
}

// More than zero for what some rank set.
std::vector<float> Reducer::Impl::ReadFlags() const {
  const Tensor flags = flags_.to(at::kCPU, at::kFloat).contiguous();
  const float* data = flags.const_data_ptr<float>();
  return std::vector<float>(data, data + flags.numel());
}

void Reducer::Impl::AssignGradients(const std::vector<float>& flags) {
  for (size_t i = 0; i < slots_.size(); ++i) {
    Slot& slot = slots_[i];
    if (slot.view.defined() && !slot.reached && flags[i] > 0) {
      slot.parameter.mutable_grad() = slot.view;
    }
  }
}

Status Reducer::Impl::ExchangeSparse(const std::vector<float>& flags,
                                     bool active) {
  std::vector<size_t> used;
  std::vector<Tensor> like, gradients;
  for (size_t i : sparse_) {
    if (flags[i] <= 0) continue;
    used.push_back(i);
    like.push_back(slots_[i].parameter.detach());
    gradients.push_back(active ? slots_[i].parameter.grad() : Tensor());
  }
  RETURN_IF_ERROR(ExchangeRows(communicator_, like, gradients, deadline()));
  for (size_t i = 0; i < used.size(); ++i) {
    slots_[used[i]].parameter.mutable_grad() = gradients[i];
  }
  return OkStatus();
}

void Reducer::Impl::Reset() {
  for (Bucket& bucket : buckets_) bucket.missing = bucket.slots.size();
  for (Slot& slot : slots_) {
    slot.unsent = slot.unsent && in_round_ && next_ < buckets_.size();
    slot.reached = false;
  }
  in_round_ = false;
  next_ = 0;
  num_reached_ = 0;
}

// A round without a backward.
Status Reducer::Impl::JoinGradients() {
  if (in_round_) return FailedPrecondition("a step inside of backward");
  // What was set to none since is given up.
  const bool some = std::ranges::any_of(slots_, [](const Slot& slot) {
    return slot.unsent && slot.parameter.grad().defined();
  });
  if (!some) return OkStatus();
  RETURN_IF_ERROR(WaitForBuckets());
  in_round_ = true;
  ++stats_.rounds;
  Status status = Finish();
  Reset();
  return status;
}

// ---- Ranks without data

// One round with zeros. False when no rank had data.
Result<bool> Reducer::Impl::TakePart() {
  for (Bucket& bucket : buckets_) {
    bucket.values.zero_();
    if (&bucket == &buckets_.back()) WriteFlags(/*active=*/false);
    RETURN_IF_ERROR(Send(bucket));
  }
  RETURN_IF_ERROR(WaitForBuckets());
  const std::vector<float> flags = ReadFlags();
  if (flags.back() <= 0) return false;
  RETURN_IF_ERROR(ExchangeSparse(flags, /*active=*/false));
  return true;
}

Status Reducer::Impl::Join() {
  if (in_round_) return FailedPrecondition("join inside of backward");
  if (buckets_.empty()) return OkStatus();
  const at::NoGradGuard no_grad;
  try {
    while (true) {
      ASSIGN_OR_RETURN(bool some_had_data, TakePart());
      if (!some_had_data) break;
    }
    // The lowest of the ranks that trained longest.
    const int size = communicator_.size();
    int64_t last = active_rounds_ * size + (size - 1 - communicator_.rank());
    active_rounds_ = 0;
    Tensor longest = at::empty({1}, at::kLong);
    *longest.mutable_data_ptr<int64_t>() = last;
    RETURN_IF_ERROR(
        AllReduce(communicator_, longest, ReduceOp::kMax, deadline()));
    last = *longest.const_data_ptr<int64_t>();
    return SynchronizeState(static_cast<int>(size - 1 - last % size));
  } catch (const c10::Error& error) {
    return ops::FromException(error);
  }
}

Status Reducer::Impl::SynchronizeState(int root) {
  return BroadcastTensors(communicator_, state_, root, deadline());
}

// ---- The face

Result<std::unique_ptr<Reducer>> Reducer::Make(
    Communicator& communicator, std::vector<NamedTensor> parameters,
    std::vector<NamedTensor> buffers, ReducerOptions options) {
  auto impl = std::make_shared<Impl>(communicator, std::move(options));
  Status status = impl->Start(std::move(parameters), std::move(buffers));
  if (!status.ok()) return status.WithContext("data parallel");
  return std::unique_ptr<Reducer>(new Reducer(std::move(impl)));
}

Reducer::Reducer(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
Reducer::~Reducer() { impl_->RemoveHooks(); }

void Reducer::set_sync(bool sync) { impl_->set_sync(sync); }
bool Reducer::sync() const { return impl_->sync(); }
Status Reducer::JoinGradients(std::span<const Tensor> parameters) {
  const Impl* before = nullptr;  // neighbours are mostly of the same one
  for (const Tensor& parameter : parameters) {
    Impl* const impl = Impl::Of(parameter);
    if (impl == nullptr || impl == before) continue;
    RETURN_IF_ERROR(impl->JoinGradients());
    before = impl;
  }
  return OkStatus();
}
Status Reducer::Join() { return impl_->Join(); }
Status Reducer::SynchronizeState(int root) {
  return impl_->SynchronizeState(root);
}
Reducer::Stats Reducer::stats() const { return impl_->stats(); }

}  // namespace fleet::sync
