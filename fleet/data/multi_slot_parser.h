// SPDX-License-Identifier: Apache-2.0

// Lines of text into samples.

#ifndef FLEET_DATA_MULTI_SLOT_PARSER_H_
#define FLEET_DATA_MULTI_SLOT_PARSER_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "fleet/base/status.h"
#include "fleet/data/sample_block.h"
#include "fleet/data/slot.h"

namespace fleet::data {

// Only read once made: threads may share it.
class MultiSlotParser final {
 public:
  // A line begins with `num_texts` texts "1 <text>" (the id of a sample, what
  // it was made from), which are passed over. The slots are good (CheckSlots).
  explicit MultiSlotParser(std::vector<Slot> slots, int num_texts = 0);

  // Appends the sample of `line` (without its end) to `block`, with `file` as
  // its file. A line of blanks is none, and not an error. InvalidArgument names
  // the slot, what was expected there and what was found; then the block is as
  // it was.
  Status Parse(std::string_view line, uint32_t file, SampleBlock& block) const;

  const std::vector<Slot>& slots() const { return slots_; }

 private:
  struct Form {
    bool is_float;
    bool ragged;
    size_t width;
  };
  struct Cursor {
    const char* at;
    const char* end;
  };

  Status SkipText(int index, Cursor& cursor) const;
  Status ParseSlot(size_t slot, Cursor& cursor, SampleBlock& block) const;
  Status WrongCount(size_t slot, uint64_t count) const;
  // "slot 'label' (1 of 27)"
  std::string Name(size_t slot) const;

  const std::vector<Slot> slots_;
  const int num_texts_;
  std::vector<Form> forms_;
};

}  // namespace fleet::data

#endif  // FLEET_DATA_MULTI_SLOT_PARSER_H_
