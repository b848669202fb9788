// mapped_file.h: a file as memory, read only, for sources and tokenizers. Not part of kitbash/plugin.h.
#pragma once
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <string_view>

#include "kitbash/error.h"

namespace kb {

class MappedFile {
 public:
  // `key` names the recipe key in messages. Throws KB_IO. An empty file is empty text.
  MappedFile(const std::string& path, const char* key) {
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    const auto fail = [&](const char* what) {
      const int why = errno;
      if (fd >= 0) ::close(fd);
      throw Error(kb::text("'", key, "' must be a file that can be read but ", what, " '", path,
                           "' failed: ", std::strerror(why)),
                  KB_IO);
    };
    struct stat s {};
    if (fd < 0) fail("opening");
    if (::fstat(fd, &s)) fail("looking at");
    if (!S_ISREG(s.st_mode)) {
      ::close(fd);
      throw Error(kb::text("'", key, "' must be a file but '", path, "' is none"), KB_IO);
    }
    size_ = size_t(s.st_size);
    if (size_) {
      data_ = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, fd, 0);
      if (data_ == MAP_FAILED) fail("mapping");
    }
    ::close(fd);
  }
  MappedFile(const MappedFile&) = delete;
  ~MappedFile() {
    if (size_) ::munmap(data_, size_);
  }
  std::string_view text() const { return {static_cast<const char*>(data_), size_}; }

 private:
  void* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace kb
