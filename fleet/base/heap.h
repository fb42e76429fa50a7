// SPDX-License-Identifier: Apache-2.0
#ifndef FLEET_BASE_HEAP_H_
#define FLEET_BASE_HEAP_H_

namespace fleet::base {

// Lets malloc keep what is freed, up to 2 GB, for the next allocation. By
// default glibc gives large blocks and the end of the heap back to the kernel:
// a training step that allocates its activations and frees them then takes
// every page anew, one fault each, in the next step. Measured: 2700 faults, a
// third of the time of a step of a small CNN; and by the chance of how the heap
// lies, so that ranks wait for the one that was unlucky.
//
// For the whole process, so it is for those who own it to call: the Python
// module, Job::Make. May be called again, from any thread.
//
// False, and nothing changes, where the environment says how malloc should
// behave (GLIBC_TUNABLES, MALLOC_..._), or where the C library is not glibc.
bool KeepFreedMemory();

}  // namespace fleet::base

#endif  // FLEET_BASE_HEAP_H_
