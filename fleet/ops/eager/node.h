// SPDX-License-Identifier: Apache-2.0
#ifndef FLEET_OPS_EAGER_NODE_H_
#define FLEET_OPS_EAGER_NODE_H_

#include <memory>
#include <utility>

#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/autograd/edge.h>

namespace fleet::ops {

// How LibTorch holds the nodes of its graph: by std::shared_ptr up to 2.11 and
// by c10::intrusive_ptr later; which one is read off an edge.
using NodePtr = decltype(torch::autograd::Edge::function);

template <class Node, class Ptr = NodePtr, class... Args>
Ptr MakeNode(Args&&... args) {
  if constexpr (requires { typename Ptr::weak_type; }) {
    // LibTorch's own way to free it, found by the type of its base, goes from
    // node to node; a destructor would call the next, and overflow the stack.
    return Ptr(new Node(std::forward<Args>(args)...),
               [](Node* node) { deleteNode(node); });
  } else {
    return c10::make_intrusive<Node>(std::forward<Args>(args)...);
  }
}

}  // namespace fleet::ops

#endif  // FLEET_OPS_EAGER_NODE_H_
