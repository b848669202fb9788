#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>

#include "base/safetensors.h"
#include "base/text.h"
#include "kitbash/error.h"

namespace kitbash {
namespace {

uint64_t bytes_of(const std::string& where, const TensorToWrite& t) {
  const int bits = dtype_bits(t.dtype);
  if (!bits) kb::fail(where, " dtype must be one of the format's but got '", t.dtype, "'");
  uint64_t n = uint64_t(bits);
  for (int64_t d : t.shape) {
    if (d < 0) kb::fail(where, " shape must not be negative but got ", d);
    if (__builtin_mul_overflow(n, uint64_t(d), &n)) kb::fail(where, " shape overflows");
  }
  if (n % 8) kb::fail(where, " must end on a whole byte but has ", n, " bits");
  if (n && !t.data) kb::fail(where, " has ", n / 8, " bytes but no data");
  return n / 8;
}

// The file that is being written; it goes away unless keep() was reached.
class Temporary {
 public:
  explicit Temporary(const std::string& path) : final_(path), path_(path + ".tmp." + std::to_string(::getpid())) {
    fd_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd_ < 0) fail("created");
  }
  ~Temporary() {
    if (fd_ >= 0) ::close(fd_);
    if (!kept_) ::unlink(path_.c_str());
  }
  Temporary(const Temporary&) = delete;
  void put(const void* data, uint64_t n) {
    for (const char* p = static_cast<const char*>(data); n;) {
      const ssize_t done = ::write(fd_, p, size_t(std::min<uint64_t>(n, 1u << 30)));
      if (done < 0 && errno == EINTR) continue;
      if (done < 0) fail("written");
      p += done, n -= uint64_t(done);
    }
  }
  void keep() {
    if (::fsync(fd_) != 0) fail("written");
    const int fd = fd_;
    fd_ = -1;
    if (::close(fd) != 0) fail("written");
    if (std::rename(path_.c_str(), final_.c_str()) != 0) fail("replaced");
    kept_ = true;
  }

 private:
  [[noreturn]] void fail(const char* what) {
    throw kb::Error("[" + final_ + "] cannot be " + what + ": " + std::strerror(errno), KB_IO);
  }
  std::string final_, path_;
  int fd_ = -1;
  bool kept_ = false;
};

}  // namespace

void write_safetensors(const std::string& path, const std::vector<TensorToWrite>& tensors,
                       const std::map<std::string, std::string>& metadata) {
  std::vector<const TensorToWrite*> order;
  std::set<std::string> names;
  for (const TensorToWrite& t : tensors) {
    const std::string where = "[" + path + ": " + t.name + "]";
    if (t.name == "__metadata__") kb::fail(where, " is a reserved name");
    if (invalid_utf8(t.name) != std::string::npos) kb::fail(where, " name must be UTF-8");
    if (!names.insert(t.name).second) kb::fail(where, " is given twice");
    bytes_of(where, t);
    order.push_back(&t);
  }
  std::sort(order.begin(), order.end(), [](const TensorToWrite* a, const TensorToWrite* b) {
    const int x = dtype_bits(a->dtype), y = dtype_bits(b->dtype);
    return x != y ? x > y : a->name < b->name;
  });

  nlohmann::ordered_json head = nlohmann::ordered_json::object();
  for (const auto& [key, value] : metadata) {
    if (invalid_utf8(key) != std::string::npos || invalid_utf8(value) != std::string::npos)
      kb::fail("[", path, "] __metadata__ must be UTF-8");
    head["__metadata__"][key] = value;
  }
  uint64_t at = 0;
  for (const TensorToWrite* t : order) {
    const uint64_t n = bytes_of("", *t);
    head[t->name] = {{"dtype", t->dtype}, {"shape", t->shape}, {"data_offsets", {at, at + n}}};
    at += n;
  }
  std::string text = head.dump();
  text.append((8 - text.size() % 8) % 8, ' ');
  char size[8];
  for (int i = 0; i < 8; ++i) size[i] = char(text.size() >> 8 * i & 0xFF);

  Temporary file(path);
  file.put(size, 8);
  file.put(text.data(), text.size());
  for (const TensorToWrite* t : order) file.put(t->data, bytes_of("", *t));
  file.keep();
}

}  // namespace kitbash
