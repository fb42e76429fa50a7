// SPDX-License-Identifier: Apache-2.0
// What Paddle saved, in our ops.
#include <string>
#include <string_view>
#include <utility>

#include "fleet/saved/dialect.h"
#include "fleet/saved/dialect_parts.h"

namespace fleet::saved {

using program::Block;
using program::Operation;
using program::Program;
using program::Variable;

namespace {

// Ops whose output had not yet a record of the shape before.
void RenameOldOps(Operation& op) {
  for (const char* name :
       {"flatten", "reshape", "squeeze", "transpose", "unsqueeze"}) {
    if (op.type == name) op.type += "2";
  }
}

void ReadInterpolate(Operation& op) {
  constexpr std::string_view kSuffix = "_interp_v2";
  const auto height = AttrOr<int64_t>(op, "out_h", -1);
  const auto width = AttrOr<int64_t>(op, "out_w", -1);
  if (!op.type.ends_with(kSuffix) || height <= 0 || width <= 0 ||
      !op.input("OutSize").empty() || !op.input("SizeTensor").empty()) {
    return;
  }
  op.attrs["mode"] =
      TextAttr(op.type.substr(0, op.type.size() - kSuffix.size()));
  op.attrs["out_shape"] = ListAttr({height, width});
  op.attrs["data_format"] =
      TextAttr(AttrOr<std::string>(op, "data_layout", "NCHW"));
  op.type = "interpolate";
}

void ReadLogSumExp(Operation& op) {
  if (op.type != "logsumexp") return;
  const bool all = AttrOr<bool>(op, "reduce_all");
  op.attrs["dim"] = ListAttr(all ? Ints{} : AttrOr<Ints>(op, "axis"));
  op.attrs["keep_dim"] = FlagAttr(AttrOr<bool>(op, "keepdim"));
}

void ReadPad(const Block& block, Operation& op) {
  const Ints paddings = AttrOr<Ints>(op, "paddings");
  if (op.type != "pad3d" || paddings.size() != 6 || op.input("X").empty()) {
    return;
  }
  const Variable* x = block.Find(op.input("X").front());
  if (x == nullptr || x->type.dims.size() != 5) return;
  // For the depth, the height and the width, behind the batch and the channels
  // or between them.
  Ints every = {paddings[4], paddings[5], paddings[2],
                paddings[3], paddings[0], paddings[1]};
  const size_t batch_and_channel = IsChannelLast(op) ? 2 : 4;
  every.insert(every.begin(), batch_and_channel, 0);
  every.resize(10, 0);
  op.attrs["paddings"] = ListAttr(std::move(every));
}

void ReadUnfold(Operation& op) {
  Ints paddings = AttrOr<Ints>(op, "paddings");
  if (op.type != "unfold" || paddings.size() != 4) return;
  std::swap(paddings[1], paddings[2]);
  op.attrs["paddings"] = ListAttr(std::move(paddings));
}

// Ours of the largest in windows has the windows' sizes; one by the output's
// size is another op.
void ReadMaxPool(Operation& op) {
  const bool flat = op.type == "max_pool2d_with_index";
  if (!flat && op.type != "max_pool3d_with_index") return;
  const bool whole = AttrOr<bool>(op, "global_pooling");
  if (!whole && !AttrOr<bool>(op, "adaptive")) return;
  op.type = flat ? "adaptive_max_pool2d" : "adaptive_max_pool3d";
  op.attrs["output_size"] = whole ? ListAttr(Ints(flat ? 2 : 3, 1))
                                  : ListAttr(AttrOr<Ints>(op, "ksize"));
}

}  // namespace

void FromPaddle(Program& program) {
  for (size_t b = 0; b < program.num_blocks(); ++b) {
    Block& block = program.block(b);
    for (size_t i = 0; i < block.num_ops(); ++i) {
      Operation& op = block.op(i);
      RenameOldOps(op);
      RenameSlots(op, false);
      ReadInterpolate(op);
      ReadLogSumExp(op);
      ReadPad(block, op);
      ReadMaxPool(op);
      ReadUnfold(op);
    }
  }
}

}  // namespace fleet::saved
