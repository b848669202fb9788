// ids.h: a short list of value numbers. A graph has tens of thousands of nodes with a few operands each; up to six are kept in
// place, so that a node costs no allocation.
#pragma once
#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <stdexcept>

namespace kitbash {

class Ids {
 public:
  using value_type = uint32_t;
  Ids() = default;
  Ids(std::initializer_list<uint32_t> l) { assign(l.begin(), l.end()); }
  template <class I>
  Ids(I first, I last) {
    assign(first, last);
  }
  Ids(const Ids& o) { assign(o.begin(), o.end()); }
  Ids(Ids&& o) noexcept { take(o); }
  Ids& operator=(const Ids& o) {
    if (this != &o) assign(o.begin(), o.end());
    return *this;
  }
  Ids& operator=(Ids&& o) noexcept {
    if (this != &o) free(), take(o);
    return *this;
  }
  ~Ids() { free(); }

  template <class I>
  void assign(I first, I last) {
    clear();
    for (; first != last; ++first) push_back(uint32_t(*first));
  }
  void push_back(uint32_t v) {
    if (size_ == room_) grow(2 * room_);
    data()[size_++] = v;
  }
  void resize(size_t n, uint32_t v = 0) {
    while (size_ > n) --size_;
    while (size_ < n) push_back(v);
  }
  void clear() { size_ = 0; }
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  uint32_t* data() { return room_ > in_place ? heap_ : here_; }
  const uint32_t* data() const { return room_ > in_place ? heap_ : here_; }
  uint32_t& operator[](size_t i) { return data()[i]; }
  uint32_t operator[](size_t i) const { return data()[i]; }
  uint32_t at(size_t i) const {
    if (i >= size_) throw std::out_of_range("a node has no such operand");
    return data()[i];
  }
  uint32_t* begin() { return data(); }
  uint32_t* end() { return data() + size_; }
  const uint32_t* begin() const { return data(); }
  const uint32_t* end() const { return data() + size_; }
  bool operator==(const Ids& o) const { return std::equal(begin(), end(), o.begin(), o.end()); }

 private:
  static constexpr uint32_t in_place = 6;
  void grow(uint32_t room) {
    auto* more = new uint32_t[room];
    std::copy(begin(), end(), more);
    free();
    heap_ = more, room_ = room;
  }
  void free() {
    if (room_ > in_place) delete[] heap_;
    room_ = in_place;
  }
  void take(Ids& o) {
    size_ = o.size_, room_ = o.room_;
    if (room_ > in_place)
      heap_ = o.heap_;
    else
      std::copy(o.here_, o.here_ + size_, here_);
    o.size_ = 0, o.room_ = in_place;
  }
  uint32_t size_ = 0, room_ = in_place;
  union {
    uint32_t here_[in_place];
    uint32_t* heap_;
  };
};

}  // namespace kitbash
