// The blocks of memory: what a store entry holds before anything runs, and that addresses stay.
#include "runtime/memory.h"

#include <cmath>

#include "tests/passes/fixture.h"

namespace kitbash {
namespace {

StoreEntry entry(const std::string& name, uint32_t dtype, const std::vector<int64_t>& shape, double fill) {
  StoreEntry e;
  e.name = name, e.type = make_type(dtype, shape), e.fill = fill, e.life = Life::model;
  return e;
}

TEST(StoreMemory, starts_every_entry_at_its_fill) {
  Store store;
  store.declare(entry("zero", KB_F32, {3}, 0));
  for (uint32_t dtype : {KB_U8, KB_I32, KB_I64, KB_BF16, KB_F32, KB_F64})
    store.declare(entry(std::string("two.") + kb::dtype_name(dtype), dtype, {5, 3}, 2));
  store.declare(entry("low", KB_F32, {}, -INFINITY));
  StoreMemory m(store);
  m.allocate();
  for (int i = 0; i < 3; ++i) EXPECT_EQ(read_element(m.at("zero"), KB_F32, i), 0);
  for (uint32_t dtype : {KB_U8, KB_I32, KB_I64, KB_BF16, KB_F32, KB_F64})
    for (int i = 0; i < 15; ++i)
      EXPECT_EQ(read_element(m.at(std::string("two.") + kb::dtype_name(dtype)), dtype, i), 2) << kb::dtype_name(dtype);
  EXPECT_EQ(read_element(m.at("low"), KB_F32, 0), -INFINITY);
}

TEST(StoreMemory, returns_an_entry_to_its_fill) {
  Store store;
  store.declare(entry("count", KB_F32, {4}, 1.5));
  StoreMemory m(store);
  m.allocate();
  reinterpret_cast<float*>(m.at("count"))[2] = 9;
  m.fill("count");
  for (int i = 0; i < 4; ++i) EXPECT_EQ(read_element(m.at("count"), KB_F32, i), 1.5);
}

TEST(StoreMemory, keeps_addresses_and_numbers_when_entries_are_added) {
  Store store;
  store.declare(entry("a", KB_F32, {4}, 1));
  StoreMemory m(store);
  m.allocate();
  char* const a = m.at("a");
  reinterpret_cast<float*>(a)[0] = 7;
  store.declare(entry("b", KB_F32, {4}, 2));
  m.allocate();
  EXPECT_EQ(m.at("a"), a);
  EXPECT_EQ(read_element(a, KB_F32, 0), 7);
  EXPECT_EQ(read_element(m.at("b"), KB_F32, 3), 2);
}

TEST(StoreMemory, aligns_every_entry_for_vectors) {
  Store store;
  for (int i = 1; i < 9; ++i) store.declare(entry("e" + std::to_string(i), KB_U8, {i * 7}, 1));
  StoreMemory m(store);
  m.allocate();
  for (int i = 1; i < 9; ++i) EXPECT_EQ(reinterpret_cast<uintptr_t>(m.at("e" + std::to_string(i))) % 64, 0u);
}

TEST(StoreMemory, names_what_it_does_not_hold) {
  Store store;
  StoreMemory m(store);
  EXPECT_EQ(test::error_of([&] { m.at("nothing"); }), "[store] there is no value 'nothing'");
}

TEST(Arena, refuses_to_grow_once_a_program_is_bound_to_it) {
  Arena a;
  a.reserve(100);
  a.reserve(50);
  EXPECT_EQ(a.bytes(), 100);
  a.data();
  a.reserve(100);
  EXPECT_EQ(test::error_of([&] { a.reserve(101); }), "[arena] programs must be reserved before the first is bound");
}

}  // namespace
}  // namespace kitbash
