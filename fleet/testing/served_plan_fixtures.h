// SPDX-License-Identifier: Apache-2.0

// For tests of plans with servers: programs as text in and out.

#ifndef FLEET_TESTING_SERVED_PLAN_FIXTURES_H_
#define FLEET_TESTING_SERVED_PLAN_FIXTURES_H_

#include <memory>
#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "fleet/base/status_matchers.h"
#include "fleet/plan/parameter_server.h"
#include "fleet/program/define_ops.h"
#include "fleet/program/text.h"
#include "fleet/testing/plan_fixtures.h"

namespace fleet::plan {

inline std::unique_ptr<program::Program> Parse(const std::string& text) {
  auto program = program::ParseText(text);
  EXPECT_OK(program.status());
  return *std::move(program);
}

inline cluster::Role ServedRole(int workers = 2, int servers = 2) {
  return {.worker_num = workers, .server_num = servers};
}

// A user's two programs, and what became of them.
struct Served {
  std::unique_ptr<program::Program> main;
  std::unique_ptr<program::Program> startup;
  ParameterServerPlan plan;

  const ServedTable& table(const std::string& parameter) const {
    for (const ServedTable& table : plan.tables) {
      if (table.parameter == parameter) return table;
    }
    ADD_FAILURE() << "no table of " << parameter;
    return plan.tables.at(0);
  }
  const table::SparseTableOptions& sparse(const std::string& parameter) const {
    return std::get<table::SparseTableOptions>(table(parameter).spec.table);
  }
  const table::UpdateOptions& update(const std::string& parameter) const {
    return table(parameter).spec.update();
  }
};

inline Result<Served> Serve(const std::string& main, const std::string& startup,
                            const ParameterServerStrategy& strategy = {}) {
  Served served{.main = Parse(main), .startup = Parse(startup), .plan = {}};
  ASSIGN_OR_RETURN(served.plan, ServeParameters(*served.main, *served.startup,
                                                strategy, ServedRole()));
  return served;
}

// Checks that every operation of `program` fits its definition.
inline void ExpectWellFormed(program::Program& program) {
  program::OpRegistry registry;
  program::DefineAllOps(registry);
  program::Block& block = program.block(0);
  for (size_t i = 0; i < block.num_ops(); ++i) {
    if (registry.Find(block.op(i).type) == nullptr) continue;
    EXPECT_OK(block.InferTypes(registry, block.op(i)));
  }
}

}  // namespace fleet::plan

#endif  // FLEET_TESTING_SERVED_PLAN_FIXTURES_H_
