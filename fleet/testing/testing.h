// SPDX-License-Identifier: Apache-2.0

// The namespace of this folder. In the namespaces of fleet, `testing::` finds
// what GoogleTest has there as well as ours.

#ifndef FLEET_TESTING_TESTING_H_
#define FLEET_TESTING_TESTING_H_

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fleet::testing {

using namespace ::testing;

}  // namespace fleet::testing

#endif  // FLEET_TESTING_TESTING_H_
