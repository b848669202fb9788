#include "base/safetensors.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "base/text.h"
#include "kitbash/error.h"

namespace kitbash {
namespace {

using nlohmann::json;
constexpr uint64_t kMaxHeader = 100'000'000;  // the reference reader's limit

struct Mapped {
  std::shared_ptr<const char> data;
  uint64_t size = 0;
};

Mapped map_file(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) kb::fail("[", path, "] cannot be opened: ", std::strerror(errno));
  struct stat st {};
  if (::fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
    ::close(fd);
    kb::fail("[", path, "] must be a regular file");
  }
  Mapped m;
  m.size = uint64_t(st.st_size);
  if (m.size < 8) {
    ::close(fd);
    kb::fail("[", path, "] must start with 8 bytes of header size but has ", m.size, " bytes");
  }
  void* p = ::mmap(nullptr, m.size, PROT_READ, MAP_PRIVATE, fd, 0);
  const int why = errno;
  ::close(fd);
  if (p == MAP_FAILED) kb::fail("[", path, "] cannot be mapped: ", std::strerror(why));
  m.data = std::shared_ptr<const char>(static_cast<const char*>(p),
                                       [n = m.size](const char* q) { ::munmap(const_cast<char*>(q), n); });
  return m;
}

// A plain JSON parse keeps the last of two equal keys, so keys are counted while it runs, one set a nesting level.
json parse_header(const std::string& path, const char* from, uint64_t n) {
  std::vector<std::set<std::string>> keys;
  auto watch = [&](int, json::parse_event_t event, json& value) {
    if (event == json::parse_event_t::object_start) keys.emplace_back();
    if (event == json::parse_event_t::object_end) keys.pop_back();
    if (event == json::parse_event_t::key && !keys.back().insert(value.get<std::string>()).second)
      kb::fail("[", path, "] the header has the key '", value.get<std::string>(), "' twice");
    return true;
  };
  try {
    return json::parse(from, from + n, watch);
  } catch (const json::exception& e) {
    kb::fail("[", path, "] the header is not valid JSON: ", e.what());
  }
}

uint64_t whole(const json& v, const std::string& where, const char* what) {
  if (v.is_number_unsigned()) return v.get<uint64_t>();
  if (v.is_number_integer()) kb::fail(where, " ", what, " must not be negative but got ", v.dump());
  kb::fail(where, " ", what, " must be a whole number below 2^64 but got ", v.dump());
}

SafeTensor read_entry(const std::string& where, const json& v) {
  if (!v.is_object()) kb::fail(where, " must be an object of dtype, shape and data_offsets but got ", v.dump());
  for (const char* need : {"dtype", "shape", "data_offsets"})
    if (!v.contains(need)) kb::fail(where, " has no '", need, "'");
  for (const auto& [key, unused] : v.items())
    if (key != "dtype" && key != "shape" && key != "data_offsets") kb::fail(where, " has an unknown key '", key, "'");

  SafeTensor t;
  const json &dtype = v["dtype"], &shape = v["shape"], &range = v["data_offsets"];
  if (!dtype.is_string()) kb::fail(where, " dtype must be a string but got ", dtype.dump());
  t.dtype = dtype.get<std::string>();
  const int bits = dtype_bits(t.dtype);
  if (!bits) kb::fail(where, " dtype must be one of the format's but got '", t.dtype, "'");

  if (!shape.is_array()) kb::fail(where, " shape must be a list but got ", shape.dump());
  uint64_t n = 1;
  bool empty = false;
  for (const json& d : shape) {
    const uint64_t size = whole(d, where, "shape");
    if (size > uint64_t(std::numeric_limits<int64_t>::max())) kb::fail(where, " shape ", shape.dump(), " overflows");
    empty = empty || size == 0;
    if (size && __builtin_mul_overflow(n, size, &n)) kb::fail(where, " shape ", shape.dump(), " overflows");
    t.shape.push_back(int64_t(size));
  }
  if (empty) n = 0;
  uint64_t all_bits = 0;
  if (__builtin_mul_overflow(n, uint64_t(bits), &all_bits)) kb::fail(where, " shape ", shape.dump(), " overflows");
  if (all_bits % 8)
    kb::fail(where, " must end on a whole byte but ", n, " elements of ", t.dtype, " have ", all_bits, " bits");

  if (!range.is_array() || range.size() != 2)
    kb::fail(where, " data_offsets must be [begin, end] but got ", range.dump());
  t.begin = whole(range[0], where, "data_offsets");
  t.end = whole(range[1], where, "data_offsets");
  if (t.end < t.begin) kb::fail(where, " data_offsets must not run backwards but got ", range.dump());
  if (t.end - t.begin != all_bits / 8)
    kb::fail(where, " must have ", all_bits / 8, " bytes, by dtype ", t.dtype, " and shape ", shape.dump(),
             ", but data_offsets ", range.dump(), " hold ", t.end - t.begin);
  return t;
}

// The ranges must tile the data: no hole, no overlap, nothing after the last.
void check_ranges(const std::string& path, const std::map<std::string, SafeTensor>& tensors, uint64_t size) {
  std::vector<const std::pair<const std::string, SafeTensor>*> order;
  for (const auto& t : tensors) order.push_back(&t);
  std::sort(order.begin(), order.end(), [](auto a, auto b) {
    return std::pair(a->second.begin, a->second.end) < std::pair(b->second.begin, b->second.end);
  });
  uint64_t at = 0;
  for (const auto* t : order) {
    const std::string where = "[" + path + ": " + t->first + "]";
    if (t->second.begin > at)
      kb::fail(where, " leaves a hole: the data before it ends at ", at, " but it begins at ", t->second.begin);
    if (t->second.begin < at)
      kb::fail(where, " overlaps: the data before it ends at ", at, " but it begins at ", t->second.begin);
    at = t->second.end;
    if (at > size) kb::fail(where, " ends at ", at, " but the file holds ", size, " bytes of data; is it cut short?");
  }
  if (at != size)
    kb::fail("[", path, "] has ", size - at, " trailing bytes: the last tensor ends at ", at, " of ", size);
}

}  // namespace

int64_t SafeTensor::elements() const {
  int64_t n = 1;
  for (int64_t d : shape) n *= d;
  return n;
}

int dtype_bits(const std::string& dtype) {
  static const std::map<std::string, int> bits = {
      {"BOOL", 8},    {"U8", 8},      {"I8", 8},          {"F4", 4},          {"F6_E2M3", 6}, {"F6_E3M2", 6},
      {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E5M2FNUZ", 8}, {"F8_E4M3FNUZ", 8}, {"F8_E8M0", 8}, {"I16", 16},
      {"U16", 16},    {"F16", 16},    {"BF16", 16},       {"I32", 32},        {"U32", 32},    {"F32", 32},
      {"C64", 64},    {"F64", 64},    {"I64", 64},        {"U64", 64}};
  const auto i = bits.find(dtype);
  return i == bits.end() ? 0 : i->second;
}

SafetensorsFile SafetensorsFile::open(const std::string& path) {
  const Mapped file = map_file(path);
  uint64_t n = 0;
  for (int i = 7; i >= 0; --i) n = n << 8 | static_cast<unsigned char>(file.data.get()[i]);
  if (n > kMaxHeader) kb::fail("[", path, "] the header must have at most ", kMaxHeader, " bytes but claims ", n);
  if (n > file.size - 8) kb::fail("[", path, "] the header claims ", n, " bytes but ", file.size - 8, " follow");

  const char* header = file.data.get() + 8;
  if (n == 0 || header[0] != '{') kb::fail("[", path, "] the header must be a JSON object: its first byte must be '{'");
  if (const size_t bad = invalid_utf8({header, n}); bad != std::string_view::npos)
    kb::fail("[", path, "] the header must be UTF-8 but byte ", bad, " is not");
  const json root = parse_header(path, header, n);

  SafetensorsFile f;
  f.path_ = path;
  f.map_ = file.data;
  for (const auto& [name, value] : root.items()) {
    if (name == "__metadata__") {
      if (!value.is_object()) kb::fail("[", path, "] __metadata__ must be an object but got ", value.dump());
      for (const auto& [key, text] : value.items()) {
        if (!text.is_string()) kb::fail("[", path, "] __metadata__ '", key, "' must be a string but got ", text.dump());
        f.metadata_[key] = text.get<std::string>();
      }
      continue;
    }
    f.tensors_[name] = read_entry("[" + path + ": " + name + "]", value);
  }
  check_ranges(path, f.tensors_, file.size - 8 - n);
  for (auto& [unused, t] : f.tensors_) t.data = header + n + t.begin;
  return f;
}

const SafeTensor* SafetensorsFile::find(const std::string& name) const {
  const auto i = tensors_.find(name);
  return i == tensors_.end() ? nullptr : &i->second;
}

const SafeTensor& SafetensorsFile::at(const std::string& name) const {
  if (const SafeTensor* t = find(name)) return *t;
  kb::fail("[", path_, "] has no tensor '", name, "'");
}

}  // namespace kitbash
