// SPDX-License-Identifier: Apache-2.0
#include "fleet/plan/make_tables.h"

#include <utility>

#include "fleet/base/crc32c.h"
#include "fleet/plan/read_rate.h"

namespace fleet::plan {
namespace {

using program::Operation;
using program::Variable;
using program::VariableKind;

// Two tables with the same initializer have different rows.
uint64_t SeedOf(uint64_t seed, const std::string& name) {
  return (seed << 32) ^ seed ^ base::Crc32c(name, 0);
}

// Whether a row must know which steps passed it by: those that change it, and
// for powers (lazy Adam), which one process has for the whole parameter.
bool CountsAllSteps(const table::UpdateOptions& update) {
  if (update.decay.l1 != 0.0 || update.decay.l2 != 0.0) return true;
  return !optim::UpdatesOnlyGivenRows(update.rule) ||
         !optim::PowerNames(update.rule).empty();
}

}  // namespace

Result<const Variable*> TableMaker::FindParameter(
    const std::string& name) const {
  const Variable* variable = main_.block().Find(name);
  if (variable == nullptr) {
    return NotFound("the program does not declare it");
  }
  if (variable->type.dtype != program::DType::kFloat32) {
    return Unimplemented("it is ", program::Name(variable->type.dtype),
                         ", and servers hold float32");
  }
  for (int64_t dim : variable->type.dims) {
    if (dim > 0) continue;
    return InvalidArgument("its shape ", program::ToString(variable->type.dims),
                           " is not known, so that servers cannot hold it");
  }
  return variable;
}

Result<ServedTable> TableMaker::Dense(table::TableId id,
                                      const ParameterUpdate& update) const {
  ASSIGN_OR_RETURN(const Variable* variable, FindParameter(update.parameter));
  const Variable* gradient = main_.block().Find(update.gradient);
  if (gradient != nullptr && gradient->kind == VariableKind::kSelectedRows) {
    return Unimplemented(
        "its gradient ", update.gradient,
        " holds rows, but it is no sparse table; look it up with "
        "is_sparse=False");
  }
  table::DenseSpec spec{
      .name = update.parameter, .size = 1, .update = update.options};
  for (int64_t dim : variable->type.dims) {
    spec.size *= static_cast<uint64_t>(dim);
  }
  spec.update.drop_nonfinite = strategy_.drop_nonfinite;
  RETURN_IF_ERROR(table::CheckOptions(spec.update));
  return ServedTable{.spec = {id, std::move(spec)},
                     .parameter = update.parameter,
                     .gradient = update.gradient,
                     .shape = variable->type.dims};
}

Result<ServedTable> TableMaker::Sparse(table::TableId id,
                                       const SparseParameter& parameter,
                                       const ParameterUpdate* update) const {
  ASSIGN_OR_RETURN(const Variable* variable, FindParameter(parameter.name));
  const std::vector<int64_t>& shape = variable->type.dims;
  if (shape.size() != 2) {
    return InvalidArgument("its shape ", program::ToString(shape),
                           " is not that of rows");
  }
  ASSIGN_OR_RETURN(const Rows rows, ReadInitializer(parameter.name));
  table::SparseTableOptions options;
  options.name = parameter.name;
  options.dim = static_cast<size_t>(shape[1]);
  options.initializer = rows.initializer;
  options.seed = rows.seed;
  if (update != nullptr) {
    options.update = update->options;
  } else {
    options.update.learning_rate.base = 0.0;
  }
  options.update.drop_nonfinite = strategy_.drop_nonfinite;
  RETURN_IF_ERROR(TakeExtras(parameter, options));
  options.count_missed_steps = strategy_.mode == PsMode::kSync &&
                               CountsAllSteps(options.update) &&
                               !options.show_click.has_value();
  if (strategy_.mode == PsMode::kGeo) {
    options.num_geo_workers = role_.worker_num;
  }
  RETURN_IF_ERROR(table::CheckOptions(options));
  return ServedTable{.spec = {id, std::move(options)},
                     .parameter = parameter.name,
                     .gradient = update == nullptr ? "" : update->gradient,
                     .shape = shape,
                     .sparse = true,
                     .bounded = !parameter.distributed};
}

Result<TableMaker::Rows> TableMaker::ReadInitializer(
    const std::string& name) const {
  const Operation* op = startup_.maker(name);
  if (op == nullptr) {
    return FailedPrecondition(
        "the startup program does not fill it with one operation, so that "
        "servers do not know what a new row holds; give minimize the startup "
        "program that it was made with");
  }
  Rows rows;
  auto number = [&](std::string_view attr, double otherwise) {
    return static_cast<float>(NumberOf(*op, attr, otherwise));
  };
  if (op->type == "fill_constant") {
    ASSIGN_OR_RETURN(const double value, ReadConstant(startup_, name));
    rows.initializer = table::ConstantInit{static_cast<float>(value)};
  } else if (op->type == "uniform_random") {
    const float low = number("min", -1.0);
    const float high = number("max", 1.0);
    if (low == high) {
      rows.initializer = table::ConstantInit{low};
    } else {
      rows.initializer = table::UniformInit{low, high};
    }
  } else if (op->type == "gaussian_random") {
    rows.initializer =
        table::NormalInit{number("mean", 0.0), number("std", 1.0)};
  } else if (op->type == "truncated_gaussian_random") {
    rows.initializer =
        table::TruncatedNormalInit{number("mean", 0.0), number("std", 1.0)};
  } else {
    return Unimplemented(
        "its rows begin with ", Describe(*op),
        ", and servers make rows that are constant, uniform, normal, truncated "
        "normal or Xavier; take one of these initializers, or load the rows "
        "from a saved table");
  }
  const auto own = static_cast<uint64_t>(NumberOf(*op, "seed", 0.0));
  rows.seed = own != 0 ? own : SeedOf(strategy_.seed, name);
  return rows;
}

Status TableMaker::TakeExtras(const SparseParameter& parameter,
                              table::SparseTableOptions& options) const {
  ASSIGN_OR_RETURN(options.entry, ParseEntry(parameter.entry));
  if (parameter.entry.starts_with("show_click_entry")) {
    const ShowClickNames names = ParseShowClick(parameter.entry);
    for (const std::string& name : {names.shows, names.clicks}) {
      if (main_.block().Find(name) != nullptr) continue;
      return NotFound("entry '", parameter.entry,
                      "': the program has no variable '", name, "'");
    }
    options.show_click.emplace();
  }
  auto found = strategy_.extras.find(parameter.name);
  if (found == strategy_.extras.end()) found = strategy_.extras.find("");
  const SparseExtras extras =
      found == strategy_.extras.end() ? SparseExtras() : found->second;
  if (parameter.table_class == "SSDSparseTable" && !extras.disk.has_value()) {
    return InvalidArgument(
        "its table_class SSDSparseTable keeps rows on disk, but no folder is "
        "named for them; name one in the strategy's options of this table");
  }
  if (extras.entry.has_value()) options.entry = *extras.entry;
  if (extras.show_click.has_value()) options.show_click = extras.show_click;
  options.count_unseen_days = extras.count_unseen_days;
  options.time_to_live = extras.time_to_live;
  options.max_byte_size = extras.max_byte_size;
  options.disk = extras.disk;
  options.num_shards = extras.num_shards;
  return OkStatus();
}

}  // namespace fleet::plan
