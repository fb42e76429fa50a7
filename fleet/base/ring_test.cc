// SPDX-License-Identifier: Apache-2.0

#include "fleet/base/ring.h"

#include <atomic>
#include <cstdint>
#include <random>
#include <set>
#include <span>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace fleet::base {
namespace {

using Bytes = std::vector<std::byte>;

constexpr size_t kBlock = 64;
constexpr uint32_t kNumBlocks = 4;

struct Memory {
  std::atomic<uint64_t> written = 0;
  std::atomic<uint64_t> read = 0;
  uint32_t places[kNumBlocks] = {};
  std::byte blocks[kNumBlocks * kBlock] = {};

  RingMemory ring() {
    return {&written, &read, places, blocks, kBlock, kNumBlocks};
  }
};

std::byte ByteAt(uint64_t position) {
  return static_cast<std::byte>(position * 31 + (position >> 8));
}

// Puts as much as there is room for, up to `count`.
size_t Fill(RingWriter& writer, uint64_t& position, size_t count) {
  size_t put = 0;
  while (put < count) {
    Bytes bytes(count - put);
    for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = ByteAt(position + i);
    const size_t n = writer.Put(bytes);
    if (n == 0) break;
    put += n;
    position += n;
  }
  writer.Publish(std::memory_order_release);
  return put;
}

// Takes up to `count`, and checks it.
size_t Drain(RingReader& reader, uint64_t& position, size_t count) {
  size_t taken = 0;
  while (taken < count) {
    Bytes bytes(count - taken);
    const size_t n = reader.Take(bytes);
    if (n == 0) break;
    for (size_t i = 0; i < n; ++i) EXPECT_EQ(bytes[i], ByteAt(position + i));
    taken += n;
    position += n;
  }
  reader.Publish(std::memory_order_release);
  return taken;
}

TEST(Ring, HoldsAllOfItsBlocks) {
  Memory memory;
  RingWriter writer(memory.ring(), kNumBlocks);
  RingReader reader(memory.ring());
  uint64_t put = 0;
  uint64_t taken = 0;
  EXPECT_FALSE(reader.has_bytes());
  EXPECT_FALSE(IsFull(memory.ring()));
  EXPECT_EQ(Fill(writer, put, 1000), kNumBlocks * kBlock);
  EXPECT_FALSE(writer.has_room());
  EXPECT_TRUE(IsFull(memory.ring()));
  // A block is free when all of it was read.
  EXPECT_EQ(Drain(reader, taken, kBlock - 1), kBlock - 1);
  EXPECT_FALSE(writer.has_room());
  EXPECT_TRUE(IsFull(memory.ring()));
  EXPECT_EQ(Drain(reader, taken, 1), 1u);
  EXPECT_TRUE(writer.has_room());
  EXPECT_FALSE(IsFull(memory.ring()));
  EXPECT_EQ(Fill(writer, put, 1000), kBlock);
  EXPECT_EQ(Drain(reader, taken, 1000), kNumBlocks * kBlock);
  EXPECT_FALSE(reader.has_bytes());
}

TEST(Ring, WhatIsNotPublishedIsNotSeen) {
  Memory memory;
  RingWriter writer(memory.ring(), kNumBlocks);
  RingReader reader(memory.ring());
  EXPECT_EQ(writer.Put(Bytes(10)), 10u);
  EXPECT_FALSE(reader.has_bytes());
  writer.Publish(std::memory_order_release);
  EXPECT_TRUE(reader.has_bytes());
}

TEST(Ring, AReaderThatKeepsUpFindsItsBytesInTheSameBlocks) {
  Memory memory;
  RingWriter writer(memory.ring(), kNumBlocks);
  RingReader reader(memory.ring());
  uint64_t put = 0;
  uint64_t taken = 0;
  std::set<uint32_t> places;
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(Fill(writer, put, 40), 40u);
    places.insert(memory.places[(put - 1) / kBlock % kNumBlocks]);
    EXPECT_EQ(Drain(reader, taken, 40), 40u);
  }
  EXPECT_LE(places.size(), 2u);
}

TEST(Ring, GrowsByBlocksThatAreAdded) {
  Memory memory;
  RingWriter writer(memory.ring(), 1);
  RingReader reader(memory.ring());
  uint64_t put = 0;
  uint64_t taken = 0;
  EXPECT_EQ(Fill(writer, put, 1000), kBlock);
  writer.Extend(2);
  EXPECT_EQ(writer.usable(), 3u);
  EXPECT_EQ(Fill(writer, put, 1000), 2 * kBlock);
  EXPECT_EQ(Drain(reader, taken, 1000), 3 * kBlock);
}

TEST(Ring, AnyPiecesArriveInOrder) {
  Memory memory;
  RingWriter writer(memory.ring(), kNumBlocks);
  RingReader reader(memory.ring());
  uint64_t put = 0;
  uint64_t taken = 0;
  std::mt19937 random(1);
  for (int i = 0; i < 20000; ++i) {
    Fill(writer, put, random() % 200);
    Drain(reader, taken, random() % 200);
  }
  Drain(reader, taken, 1000);
  EXPECT_EQ(put, taken);
  EXPECT_GT(put, 1'000'000u);
}

TEST(Ring, TwoThreadsPassBytesInOrder) {
  constexpr uint64_t kTotal = 2'000'000;
  Memory memory;
  std::jthread writing([&] {
    RingWriter writer(memory.ring(), kNumBlocks);
    uint64_t put = 0;
    while (put < kTotal) {
      if (Fill(writer, put, std::min<uint64_t>(kTotal - put, 100)) == 0) {
        std::this_thread::yield();
      }
    }
  });
  RingReader reader(memory.ring());
  uint64_t taken = 0;
  while (taken < kTotal) {
    if (Drain(reader, taken, 77) == 0) std::this_thread::yield();
  }
}

TEST(Ring, WhatAnEndScribblesIsNoAddress) {
  Memory memory;
  RingWriter writer(memory.ring(), kNumBlocks);
  uint64_t put = 0;
  Fill(writer, put, 100);
  memory.places[0] = 1'000'000;
  RingReader reader(memory.ring());
  Bytes into(10);
  EXPECT_EQ(reader.Take(into), 0u);
  EXPECT_TRUE(reader.damaged());

  Memory far;
  far.written = kNumBlocks * kBlock + 1;
  RingReader other(far.ring());
  EXPECT_EQ(other.Take(into), 0u);
  EXPECT_TRUE(other.damaged());

  memory.read = 1'000'000;
  Fill(writer, put, 1000);
  EXPECT_TRUE(writer.damaged());
}

}  // namespace
}  // namespace fleet::base
