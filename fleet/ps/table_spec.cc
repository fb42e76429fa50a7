// SPDX-License-Identifier: Apache-2.0

#include "fleet/ps/table_spec.h"

#include <array>
#include <bit>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "fleet/channel/message.h"
#include "fleet/ps/wire.h"

namespace fleet::ps {
namespace {

using channel::MessageReader;
using channel::MessageWriter;

// Both directions go through one list of fields: Visit(archive, value). A
// variant is the index of what it holds, then that.

class Writer final {
 public:
  void operator()(const uint64_t& x) { out_.U64(x); }
  void operator()(const uint32_t& x) { out_.U32(x); }
  void operator()(const int& x) { out_.U32(static_cast<uint32_t>(x)); }
  void operator()(const bool& x) { out_.U8(x); }
  void operator()(const double& x) { out_.U64(std::bit_cast<uint64_t>(x)); }
  void operator()(const float& x) { out_.U32(std::bit_cast<uint32_t>(x)); }
  void operator()(const std::string& x) { out_.Text(x); }
  template <typename T>
  void operator()(const std::vector<T>& x) {
    out_.U32(static_cast<uint32_t>(x.size()));
    for (const T& each : x) (*this)(each);
  }
  std::string Take() { return out_.Take(); }

 private:
  MessageWriter out_;
};

class Reader final {
 public:
  explicit Reader(std::string_view bytes) : in_(bytes) {}
  void operator()(uint64_t& x) { x = in_.U64(); }
  void operator()(uint32_t& x) { x = in_.U32(); }
  void operator()(int& x) { x = static_cast<int>(in_.U32()); }
  void operator()(bool& x) { x = in_.U8() != 0; }
  void operator()(double& x) { x = std::bit_cast<double>(in_.U64()); }
  void operator()(float& x) { x = std::bit_cast<float>(in_.U32()); }
  void operator()(std::string& x) { x = in_.Text(); }
  template <typename T>
  void operator()(std::vector<T>& x) {
    const uint32_t count = in_.U32();
    // Each takes a byte at least, so that a wrong count allocates nothing.
    x.resize(std::min<size_t>(count, in_.rest().size()));
    for (T& each : x) (*this)(each);
  }
  Status Finish() const { return in_.Finish(); }

 private:
  MessageReader in_;
};

template <typename A, typename... Fields>
void All(A& archive, Fields&... fields) {
  (archive(fields), ...);
}

// ---- rules ----
template <typename A>
void Visit(A&, optim::Sgd&) {}
template <typename A>
void Visit(A& a, optim::Momentum& r) {
  All(a, r.mu, r.nesterov);
}
template <typename A>
void Visit(A& a, optim::Adam& r) {
  All(a, r.beta1, r.beta2, r.epsilon, r.lazy);
}
template <typename A>
void Visit(A& a, optim::Adagrad& r) {
  All(a, r.epsilon, r.initial);
}
template <typename A>
void Visit(A& a, optim::Adamax& r) {
  All(a, r.beta1, r.beta2, r.epsilon);
}
template <typename A>
void Visit(A& a, optim::RmsProp& r) {
  All(a, r.rho, r.epsilon, r.momentum, r.centered);
}
template <typename A>
void Visit(A& a, optim::Adadelta& r) {
  All(a, r.rho, r.epsilon);
}
template <typename A>
void Visit(A& a, optim::Lamb& r) {
  All(a, r.beta1, r.beta2, r.epsilon, r.always_adapt);
}
template <typename A>
void Visit(A& a, optim::Lars& r) {
  All(a, r.mu, r.coefficient, r.epsilon);
}
template <typename A>
void Visit(A& a, optim::Ftrl& r) {
  All(a, r.l1, r.l2, r.power);
}

// ---- schedules ----
template <typename A>
void Visit(A&, table::ConstantRate&) {}
template <typename A>
void Visit(A& a, table::ExponentialDecay& d) {
  All(a, d.rate, d.decay_steps, d.staircase);
}
template <typename A>
void Visit(A& a, table::NaturalExpDecay& d) {
  All(a, d.rate, d.decay_steps, d.staircase);
}
template <typename A>
void Visit(A& a, table::InverseTimeDecay& d) {
  All(a, d.rate, d.decay_steps, d.staircase);
}
template <typename A>
void Visit(A& a, table::NoamDecay& d) {
  All(a, d.d_model, d.warmup_steps);
}
template <typename A>
void Visit(A& a, table::PolynomialDecay& d) {
  All(a, d.decay_steps, d.end, d.power, d.cycle);
}
template <typename A>
void Visit(A& a, table::PiecewiseDecay& d) {
  All(a, d.boundaries, d.values);
}
template <typename A>
void Visit(A& a, table::CosineDecay& d) {
  All(a, d.length, d.end, d.decay_steps, d.staircase, d.growth);
}
template <typename A>
void Visit(A& a, table::CyclicRate& d) {
  All(a, d.max, d.up, d.down, d.per_cycle, d.per_period, d.decay_steps,
      d.staircase);
}
template <typename A>
void Visit(A& a, table::ToldRate& d) {
  All(a, d.name, d.until, d.rates);
}
template <typename A>
void Visit(A& a, table::RateWarmup& w) {
  All(a, w.steps, w.start, w.end, w.stair, w.begin);
}

// ---- initialisers ----
template <typename A>
void Visit(A& a, table::ConstantInit& i) {
  All(a, i.value);
}
template <typename A>
void Visit(A& a, table::UniformInit& i) {
  All(a, i.low, i.high);
}
template <typename A>
void Visit(A& a, table::NormalInit& i) {
  All(a, i.mean, i.deviation);
}
template <typename A>
void Visit(A& a, table::TruncatedNormalInit& i) {
  All(a, i.mean, i.deviation);
}
template <typename A>
void Visit(A& a, table::XavierInit& i) {
  All(a, i.fan_in, i.fan_out, i.uniform);
}

// ---- entry rules ----
template <typename A>
void Visit(A&, table::AdmitAll&) {}
template <typename A>
void Visit(A& a, table::AdmitByCount& e) {
  All(a, e.count);
}
template <typename A>
void Visit(A& a, table::AdmitByProbability& e) {
  All(a, e.probability);
}

template <typename... Kinds>
void VisitVariant(Writer& out, std::variant<Kinds...>& value) {
  uint32_t index = static_cast<uint32_t>(value.index());
  out(index);
  std::visit([&](auto& held) { Visit(out, held); }, value);
}

template <typename... Kinds>
void VisitVariant(Reader& in, std::variant<Kinds...>& value) {
  uint32_t index = 0;
  in(index);
  uint32_t at = 0;
  // An index that is none leaves the first kind, and the end does not fit.
  ((at++ == index ? (void)value.template emplace<Kinds>() : (void)0), ...);
  std::visit([&](auto& held) { Visit(in, held); }, value);
}

template <typename A>
void Visit(A& a, table::UpdateOptions& u) {
  VisitVariant(a, u.rule);
  All(a, u.decay.l1, u.decay.l2, u.decay.decoupled);
  All(a, u.transform.scale, u.transform.min, u.transform.max);
  All(a, u.learning_rate.base, u.learning_rate.factor,
      u.learning_rate.first_step);
  VisitVariant(a, u.learning_rate.schedule);
  Visit(a, u.learning_rate.warmup);
  All(a, u.drop_nonfinite);
}

template <typename A>
void Visit(A& a, table::ShowClickOptions& s) {
  All(a, s.nonclick_coefficient, s.click_coefficient, s.extended_from,
      s.extend_threshold, s.fade, s.delete_threshold,
      s.delete_after_unseen_days, s.base_threshold, s.delta_threshold,
      s.delta_keep_days);
}

template <typename A>
void Visit(A& a, table::DiskOptions& d) {
  All(a, d.folder, d.memory_byte_size);
}

template <typename A, typename T>
void VisitOptional(A& a, std::optional<T>& value) {
  bool there = value.has_value();
  a(there);
  if (!there) return;
  if (!value.has_value()) value.emplace();
  Visit(a, *value);
}

template <typename A>
void Visit(A& a, table::SparseTableOptions& t) {
  All(a, t.name, t.dim, t.seed);
  VisitVariant(a, t.initializer);
  Visit(a, t.update);
  All(a, t.count_missed_steps);
  VisitVariant(a, t.entry);
  All(a, t.count_unseen_days);
  uint64_t seconds = static_cast<uint64_t>(t.time_to_live.count());
  a(seconds);
  t.time_to_live = std::chrono::seconds(seconds);
  VisitOptional(a, t.show_click);
  All(a, t.num_shards, t.max_byte_size);
  VisitOptional(a, t.disk);
  All(a, t.num_geo_workers);
}

template <typename A>
void Visit(A& a, DenseSpec& d) {
  All(a, d.name, d.size);
  Visit(a, d.update);
}

template <typename A>
void Visit(A& a, TableSpec& spec) {
  uint32_t id = static_cast<uint32_t>(spec.id);
  a(id);
  spec.id = static_cast<TableId>(id);
  VisitVariant(a, spec.table);
}

}  // namespace

std::string Encode(const TableSpec& spec) {
  Writer out;
  TableSpec copy = spec;  // reading and writing share a list that may write
  Visit(out, copy);
  return out.Take();
}

Result<TableSpec> DecodeTableSpec(std::string_view bytes) {
  Reader in(bytes);
  TableSpec spec;
  Visit(in, spec);
  RETURN_IF_ERROR(in.Finish().WithContext("description of a table"));
  return spec;
}

std::vector<std::string> RequestsToCreate(
    const std::vector<std::string>& specs) {
  std::vector<std::string> bodies;
  std::vector<std::string> next;
  uint64_t byte_size = 0;
  for (const std::string& spec : specs) {
    if (!next.empty() && byte_size + spec.size() > kChunkByteSize) {
      bodies.push_back(MessageWriter().Texts(next).Take());
      next.clear();
      byte_size = 0;
    }
    next.push_back(spec);
    // With its size.
    byte_size += spec.size() + sizeof(uint32_t);
  }
  if (!next.empty()) bodies.push_back(MessageWriter().Texts(next).Take());
  return bodies;
}

Result<std::vector<TableSpec>> DecodeTableSpecs(std::string_view bytes) {
  MessageReader in(bytes);
  const std::vector<std::string> texts = in.Texts();
  RETURN_IF_ERROR(in.Finish().WithContext("descriptions of tables"));
  std::vector<TableSpec> specs;
  for (const std::string& text : texts) {
    ASSIGN_OR_RETURN(TableSpec spec, DecodeTableSpec(text));
    specs.push_back(std::move(spec));
  }
  return specs;
}

}  // namespace fleet::ps
