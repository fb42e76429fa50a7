// SPDX-License-Identifier: Apache-2.0

// For tests of roles: what the launchers put into the environment.

#ifndef FLEET_TESTING_ROLE_FIXTURES_H_
#define FLEET_TESTING_ROLE_FIXTURES_H_

#include <string>

#include <gmock/gmock.h>

#include "fleet/base/status_matchers.h"
#include "fleet/cluster/environment.h"

namespace fleet::cluster {

inline constexpr StatusCode kInvalid = StatusCode::kInvalidArgument;

// `env` without `name`, and with `name` changed.
inline Environment Without(Environment env, const char* name) {
  env.erase(name);
  return env;
}
inline Environment With(Environment env, const char* name, const char* value) {
  env[name] = value;
  return env;
}

inline auto CanNotFind(const std::string& name) {
  return StatusIs(kInvalid,
                  "Can not find " + name + ", please check your environment.");
}

// Paddle's, with parameter servers.
inline const Environment kPsWorker = {
    {"PADDLE_PSERVERS_IP_PORT_LIST", "127.0.0.1:36001,127.0.0.2:36001"},
    {"PADDLE_TRAINER_ENDPOINTS", "127.0.0.1:36101,127.0.0.1:36102"},
    {"PADDLE_TRAINERS_NUM", "2"},
    {"TRAINING_ROLE", "TRAINER"},
    {"PADDLE_TRAINER_ID", "1"}};

inline const Environment kPsServer = {
    {"PADDLE_PSERVERS_IP_PORT_LIST", "127.0.0.1:36001,127.0.0.2:36001"},
    {"PADDLE_TRAINERS_NUM", "2"},
    {"TRAINING_ROLE", "PSERVER"},
    {"POD_IP", "127.0.0.2"},
    {"PADDLE_PORT", "36001"}};

inline const Environment kPsHeter = {
    {"PADDLE_PSERVERS_IP_PORT_LIST", "127.0.0.1:36001"},
    {"PADDLE_HETER_TRAINER_IP_PORT_LIST", "127.0.0.1:36201,127.0.0.1:36202"},
    {"PADDLE_TRAINERS_NUM", "2"},
    {"TRAINING_ROLE", "HETER_TRAINER"},
    {"POD_IP", "127.0.0.1"},
    {"PADDLE_PORT", "36202"}};

// Paddle's, collective.
inline const Environment kCollective = {
    {"PADDLE_TRAINER_ENDPOINTS", "10.0.0.1:6170,10.0.0.1:6171,10.0.0.2:6170"},
    {"PADDLE_CURRENT_ENDPOINT", "10.0.0.1:6171"},
    {"PADDLE_TRAINER_ID", "1"},
    {"PADDLE_TRAINERS_NUM", "3"}};

inline const Environment kCloud = {{"PADDLE_TRAINERS", "10.0.0.1,10.0.0.2"},
                                   {"POD_IP", "10.0.0.2"},
                                   {"PADDLE_TRAINER_ID", "1"},
                                   {"TRAINER_PORTS_NUM", "2"}};

// Others'.
inline const Environment kTorchrun = {{"RANK", "5"},
                                      {"WORLD_SIZE", "8"},
                                      {"LOCAL_RANK", "1"},
                                      {"LOCAL_WORLD_SIZE", "4"},
                                      {"GROUP_RANK", "1"},
                                      {"GROUP_WORLD_SIZE", "2"},
                                      {"MASTER_ADDR", "node0"},
                                      {"MASTER_PORT", "29500"}};

inline const Environment kSlurm = {{"SLURM_JOB_ID", "77"},
                                   {"SLURM_STEP_ID", "0"},
                                   {"SLURM_PROCID", "4"},
                                   {"SLURM_NTASKS", "5"},
                                   {"SLURM_LOCALID", "0"},
                                   {"SLURM_NODEID", "2"},
                                   {"SLURM_TASKS_PER_NODE", "2(x2),1"},
                                   {"SLURM_NODELIST", "gpu[08-10]"}};

}  // namespace fleet::cluster

#endif  // FLEET_TESTING_ROLE_FIXTURES_H_
