// SPDX-License-Identifier: Apache-2.0

// Calls on dense tables. A call is for several of them: values of small ones
// share a message, large ones are cut into parts.

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "fleet/channel/message.h"
#include "fleet/ps/client.h"

namespace fleet::ps {
namespace {

using channel::ConstBytes;

const TableInfo* FindDense(const ServerInfo& server, TableId id) {
  for (const TableInfo& table : server.tables) {
    if (table.id == id && table.dense) return &table;
  }
  return nullptr;
}

}  // namespace

// To each server: updates, then, if wanted, the end of the step, then pulls.
// All are under way together; a server does them in their order.
class PsClient::DenseCall final : public Call {
 public:
  DenseCall(const CallName& name, std::shared_ptr<const Servers> servers)
      : Call(name),
        servers_(std::move(servers)),
        requests_(servers_->size()),
        sections_(servers_->size()) {}

  // InvalidArgument or NotFound names the call and the table.
  Status AddUpdates(Op op, std::span<const DenseGradient> gradients,
                    uint32_t end_steps, uint32_t flags) {
    for (size_t s = 0; s < servers_->size(); ++s) {
      // Every request of these has the same head but for its sections.
      RequestHead head;
      head.op = op;
      head.flags = kFlagDense;
      head.end_steps = end_steps;
      bool open = false;
      for (const DenseGradient& gradient : gradients) {
        ASSIGN_OR_RETURN(const TableInfo* const part,
                         Part(s, gradient.table, gradient.values.size()));
        // A server without a part of it is still told that steps are over.
        AddSections(s, head, *part, flags | kFlagLast, end_steps > 0, &open,
                    gradient.values.data(), nullptr);
      }
      std::vector<Request>& updates = requests_[s];
      for (size_t i = 0; i < updates.size(); ++i) {
        if (i > 0) updates[i].head.flags |= kFlagContinues;
        updates[i].head.num_following =
            static_cast<uint32_t>(updates.size() - i - 1);
      }
    }
    return OkStatus();
  }

  Status AddPulls(std::span<const DenseValues> values) {
    for (size_t s = 0; s < servers_->size(); ++s) {
      RequestHead head;
      head.op = Op::kPull;
      head.flags = kFlagDense;
      bool open = false;
      for (const DenseValues& each : values) {
        ASSIGN_OR_RETURN(const TableInfo* const part,
                         Part(s, each.table, each.values.size()));
        AddSections(s, head, *part, 0, false, &open, nullptr,
                    each.values.data());
      }
    }
    return OkStatus();
  }

  // The end of a step, to all servers. `text` outlives the call.
  void AddStep(const RequestHead& head, const std::string& text) {
    for (std::vector<Request>& of_server : requests_) {
      Request& request = of_server.emplace_back();
      request.head = head;
      if (of_server.size() > 1) request.head.flags |= kFlagContinues;
      request.first_of_group = of_server.size() - 1;
      request.text = &text;
    }
  }

  // Where a server was started again, it may be behind the others.
  uint64_t ended_step() const { return ended_step_; }

  bool HasRequest(uint32_t server, size_t request) override {
    return request < requests_[server].size();
  }

  void Ask(uint32_t server, size_t number, RequestHead& head,
           std::vector<ConstBytes>& parts) override {
    const Request& request = requests_[server][number];
    head = request.head;
    if (request.text != nullptr) {
      parts.push_back(std::as_bytes(std::span(*request.text)));
      return;
    }
    const auto sections =
        std::span(sections_[server]).subspan(request.begin, request.size());
    head.count = sections.size();
    heads_.clear();
    for (const Section& section : sections) heads_.push_back(section.head);
    parts.push_back(std::as_bytes(std::span(heads_)));
    if (head.op == Op::kPull) return;
    for (const Section& section : sections) {
      parts.push_back(
          std::as_bytes(std::span(section.from, section.head.count)));
    }
  }

  std::span<std::byte> Into(uint32_t server, size_t number, size_t) override {
    const Request& request = requests_[server][number];
    if (request.text != nullptr) {
      return std::as_writable_bytes(std::span(step_answer_));
    }
    if (request.head.op != Op::kPull) return {};
    const Section& first = sections_[server][request.begin];
    if (request.size() == 1) {
      return std::as_writable_bytes(std::span(first.to, first.head.count));
    }
    landing_.resize(request.num_values);
    return std::as_writable_bytes(std::span(landing_));
  }

  size_t FirstOfGroup(uint32_t server, size_t number) override {
    // Also behind the last one.
    const std::vector<Request>& all = requests_[server];
    return number < all.size() ? all[number].first_of_group : number;
  }

  void BeginAgain(uint32_t server, size_t answered,
                  std::span<const size_t> refused) override {
    std::vector<Request>& requests = requests_[server];
    std::vector<Request> again;
    // Requests from `begin` to `end`, in groups that are whole.
    const auto take = [&](size_t begin, size_t end) {
      const size_t at = again.size();
      for (size_t i = begin; i < end; ++i) {
        again.push_back(requests[i]);
        // It is not one call any more: each group is for itself.
        again.back().head.flags &= ~kFlagContinues;
        again.back().head.num_following = 0;
        again.back().first_of_group = requests[i].first_of_group - begin + at;
      }
    };
    take(answered, requests.size());
    for (size_t next = 0; const size_t number : refused) {
      const size_t first = requests[number].first_of_group;
      if (first >= answered || first < next) continue;
      for (next = first + 1;
           next < requests.size() && requests[next].first_of_group == first;) {
        ++next;
      }
      take(first, next);
    }
    requests = std::move(again);
  }

  void CountUpdates(uint32_t server, size_t number,
                    UpdateCounts& counts) override {
    const Request& request = requests_[server][number];
    if (request.head.op == Op::kPull) return;
    for (size_t i = request.begin; i < request.end; ++i) {
      const DenseSection& section = sections_[server][i].head;
      if ((section.flags & kFlagLast) != 0) ++counts[section.table];
    }
  }

  Status Take(uint32_t server, size_t number,
              std::span<const std::byte>) override {
    const Request& request = requests_[server][number];
    if (request.text != nullptr) {
      channel::MessageReader in({step_answer_.data(), step_answer_.size()});
      ended_step_ = std::max(ended_step_, in.U64());
      return OkStatus();
    }
    if (request.head.op != Op::kPull || request.size() == 1) return OkStatus();
    const float* from = landing_.data();
    for (size_t i = request.begin; i < request.end; ++i) {
      const Section& section = sections_[server][i];
      std::memcpy(section.to, from, section.head.count * sizeof(float));
      from += section.head.count;
    }
    return OkStatus();
  }

 private:
  struct Section {
    DenseSection head;
    const float* from = nullptr;
    float* to = nullptr;
  };
  struct Request {
    RequestHead head;
    // Sections [begin, end) of the server.
    size_t begin = 0;
    size_t end = 0;
    size_t num_values = 0;
    // Where the values of its table begin, if they do not in this one.
    size_t first_of_group = 0;
    const std::string* text = nullptr;

    size_t size() const { return end - begin; }
  };

  // What the server has of the table.
  Result<const TableInfo*> Part(size_t server, TableId id,
                                size_t num_values) const {
    const TableInfo* const table = FindDense((*servers_)[server], id);
    if (table == nullptr) {
      return NotFound(name().verb, ": the servers have no dense table with id ",
                      static_cast<uint32_t>(id));
    }
    if (table->size != num_values) {
      return InvalidArgument(name().verb, " ", table->name, " (", num_values,
                             " values): it has ", table->size);
    }
    return table;
  }

  // Cuts the server's part into sections, which go into the request that is
  // open, as far as they fit, and into new ones. An update that needs several
  // requests has them for itself: they are done as one, and sent again as one.
  void AddSections(size_t server, const RequestHead& head,
                   const TableInfo& part, uint32_t flags_of_last,
                   bool even_if_empty, bool* open, const float* from,
                   float* to) {
    const uint64_t size = part.end - part.begin;
    if (size == 0 && !even_if_empty) return;
    std::vector<Section>& sections = sections_[server];
    std::vector<Request>& requests = requests_[server];
    const bool alone = from != nullptr && size > kChunkValues;
    if (from != nullptr && *open &&
        size > kChunkValues - requests.back().num_values) {
      *open = false;
    }
    const size_t first = requests.size();
    uint64_t offset = 0;
    do {
      if (!*open || requests.back().num_values == kChunkValues ||
          requests.back().size() == kMaxSections) {
        Request& request = requests.emplace_back();
        request.head = head;
        request.begin = request.end = sections.size();
        request.first_of_group = alone ? first : requests.size() - 1;
        *open = true;
      }
      Request& request = requests.back();
      Section& section = sections.emplace_back();
      section.head.table = part.id;
      section.head.offset = offset;
      section.head.count =
          std::min<uint64_t>(size - offset, kChunkValues - request.num_values);
      if (offset + section.head.count == size) {
        section.head.flags = flags_of_last;
      }
      if (from != nullptr) section.from = from + part.begin + offset;
      if (to != nullptr) section.to = to + part.begin + offset;
      ++request.end;
      request.num_values += section.head.count;
      offset += section.head.count;
    } while (offset < size);
    if (alone) *open = false;
  }

  const std::shared_ptr<const Servers> servers_;
  std::vector<std::vector<Request>> requests_;  // by server
  std::vector<std::vector<Section>> sections_;
  std::vector<DenseSection> heads_;  // of the request that is being sent
  std::vector<float> landing_;
  std::array<char, 9> step_answer_{};  // u64 round, u8 all were idle
  uint64_t ended_step_ = 0;
};

namespace {

size_t NumValues(std::span<const DenseGradient> gradients) {
  size_t count = 0;
  for (const DenseGradient& each : gradients) count += each.values.size();
  return count;
}

size_t NumValues(std::span<const DenseValues> values) {
  size_t count = 0;
  for (const DenseValues& each : values) count += each.values.size();
  return count;
}

}  // namespace

std::string PsClient::NameOf(std::span<const DenseGradient> gradients) const {
  return gradients.size() == 1 ? TableName(gradients[0].table) : "dense tables";
}

Status PsClient::UpdateDense(Op op, const char* what,
                             std::span<const DenseGradient> gradients,
                             Deadline deadline, uint32_t end_steps,
                             uint32_t flags) {
  const std::string of = NameOf(gradients);
  DenseCall call({what, of, NumValues(gradients), "values"}, servers());
  RETURN_IF_ERROR(call.AddUpdates(op, gradients, end_steps, flags)
                      .WithContext(base::Concat("worker ", options_.worker)));
  Lanes::Lease lane(lanes_);
  return lanes_.Run(*lane, call, deadline);
}

Status PsClient::PullDenseMany(std::span<const DenseValues> values,
                               Deadline deadline) {
  const std::string of =
      values.size() == 1 ? TableName(values[0].table) : "dense tables";
  DenseCall call({"pull", of, NumValues(values), "values"}, servers());
  RETURN_IF_ERROR(call.AddPulls(values).WithContext(
      base::Concat("worker ", options_.worker)));
  Lanes::Lease lane(lanes_);
  return lanes_.Run(*lane, call, deadline);
}

Status PsClient::PullDense(TableId table, std::span<float> values,
                           Deadline deadline) {
  const DenseValues one{table, values};
  return PullDenseMany(std::span(&one, 1), deadline);
}

Status PsClient::PushDenseMany(std::span<const DenseGradient> gradients,
                               Deadline deadline, uint32_t end_steps) {
  return UpdateDense(Op::kPush, "push", gradients, deadline, end_steps);
}

Status PsClient::AccumulateDenseMany(std::span<const DenseGradient> gradients,
                                     Deadline deadline) {
  return UpdateDense(Op::kAccumulate, "push", gradients, deadline);
}

Status PsClient::AddDenseMany(std::span<const DenseGradient> deltas,
                              Deadline deadline, Unfinished* unfinished) {
  auto begun = std::make_unique<Unfinished::State>(lanes_);
  begun->name = NameOf(deltas);
  auto call = std::make_unique<DenseCall>(
      CallName{"add", begun->name, NumValues(deltas), "values"}, servers());
  RETURN_IF_ERROR(call->AddUpdates(Op::kAdd, deltas, 0, 0)
                      .WithContext(base::Concat("worker ", options_.worker)));
  begun->call = std::move(call);
  return RunAdd(std::move(begun), unfinished, deadline);
}

Status PsClient::AssignDense(TableId table, std::span<const float> values,
                             Deadline deadline) {
  const DenseGradient one{table, values};
  return UpdateDense(Op::kAssign, "assign", std::span(&one, 1), deadline);
}

Status PsClient::InitializeDense(TableId table, std::span<const float> values,
                                 Deadline deadline) {
  const DenseGradient one{table, values};
  return UpdateDense(Op::kAssign, "initialize", std::span(&one, 1), deadline, 0,
                     kFlagIfNew);
}

Status PsClient::ExchangeDense(std::span<const DenseGradient> gradients,
                               std::span<const DenseValues> values,
                               Deadline deadline, uint32_t end_steps) {
  DenseCall call(
      {"exchange", "dense tables", NumValues(gradients), "gradients"},
      servers());
  const std::string who = base::Concat("worker ", options_.worker);
  RETURN_IF_ERROR(
      call.AddUpdates(Op::kPush, gradients, end_steps, 0).WithContext(who));
  RETURN_IF_ERROR(call.AddPulls(values).WithContext(who));
  Lanes::Lease lane(lanes_);
  return lanes_.Run(*lane, call, deadline);
}

Status PsClient::FinishStep(std::span<const DenseGradient> gradients,
                            std::span<const DenseValues> values,
                            Deadline deadline) {
  const std::string name = "step";
  DenseCall call({"finish a step"}, servers());
  const std::string who = base::Concat("worker ", options_.worker);
  RETURN_IF_ERROR(
      call.AddUpdates(Op::kAccumulate, gradients, 0, 0).WithContext(who));
  RequestHead head;
  head.op = Op::kFinishStep;
  head.round = NextRound(name);
  head.timeout_ms = MillisecondsUntil(deadline);
  call.AddStep(head, name);
  RETURN_IF_ERROR(call.AddPulls(values).WithContext(who));
  Lanes::Lease lane(lanes_);
  RETURN_IF_ERROR(lanes_.Run(*lane, call, WithTimeToAnswer(deadline)));
  NoteEnded(name, call.ended_step());
  return OkStatus();
}

}  // namespace fleet::ps
