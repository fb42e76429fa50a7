// SPDX-License-Identifier: Apache-2.0

// Private to the files that oneDNN is compiled with.

#ifndef FLEET_OPS_ONEDNN_ENGINE_H_
#define FLEET_OPS_ONEDNN_ENGINE_H_

#include <dnnl.hpp>

namespace fleet::ops {

// The CPU, for all products and convolutions of the process.
inline dnnl::engine& OneDnnEngine() {
  static dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

// A stream for each thread: work on one runs in order.
inline dnnl::stream& OneDnnStream() {
  thread_local dnnl::stream stream(OneDnnEngine());
  return stream;
}

}  // namespace fleet::ops

#endif  // FLEET_OPS_ONEDNN_ENGINE_H_
