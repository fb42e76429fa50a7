// SPDX-License-Identifier: Apache-2.0

// A rank whose main returns a failed status: `status_rank CULPRIT` sums until
// rank CULPRIT fails, and the others do because of it.

#include <cstdio>
#include <cstdlib>
#include <vector>

#include "fleet/job.h"

namespace {

fleet::Status Run(int culprit) {
  ASSIGN_OR_RETURN(auto job, fleet::Job::Init());
  std::vector<float> ones(1000, 1.0f);
  const fleet::comm::Span data{reinterpret_cast<std::byte*>(ones.data()),
                               ones.size(), fleet::comm::DataType::kFloat32};
  auto sum = [&] {
    return job->communicator().AllReduce(data, fleet::comm::ReduceOp::kMean,
                                         job->deadline());
  };
  RETURN_IF_ERROR(sum());
  if (job->rank() == culprit) {
    return fleet::FailedPrecondition("rank ", culprit, " is too warm");
  }
  while (true) RETURN_IF_ERROR(sum());
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const fleet::Status status = Run(std::atoi(argv[1]));
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
