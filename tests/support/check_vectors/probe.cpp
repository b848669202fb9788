#include "probe.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <iterator>

#include "base/text.h"
#include "kitbash/error.h"

namespace check_vectors {
namespace {

// Exit status of the program; 128 + signal when it was killed.
int execute(const std::vector<std::string>& words, const std::string& log) {
  std::vector<char*> argv;
  for (const std::string& w : words) argv.push_back(const_cast<char*>(w.c_str()));
  argv.push_back(nullptr);
  const pid_t child = ::fork();
  if (child < 0) kb::fail("[check_vectors] cannot start a process: ", std::strerror(errno));
  if (child == 0) {
    const int fd = ::open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
    if (fd < 0 || ::dup2(fd, 1) < 0 || ::dup2(fd, 2) < 0) ::_exit(126);
    ::execv(argv[0], argv.data());
    ::_exit(127);
  }
  int status = 0;
  while (::waitpid(child, &status, 0) < 0)
    if (errno != EINTR) kb::fail("[check_vectors] lost the process: ", std::strerror(errno));
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

std::string read_text(const std::string& path) {
  std::ifstream in(path);
  return kitbash::trim(std::string(std::istreambuf_iterator<char>(in), {}));
}

}  // namespace

Probe::Probe(std::string program, std::vector<std::string> plugin_path, std::string arena, std::string device,
             bool keep)
    : program_(std::move(program)),
      plugin_path_(std::move(plugin_path)),
      arena_(std::move(arena)),
      device_(std::move(device)),
      keep_(keep) {
  std::string pattern = (std::filesystem::temp_directory_path() / ("check_vectors." + std::string(6, 'X'))).string();
  if (!::mkdtemp(pattern.data()))
    kb::fail("[check_vectors] cannot make a folder ", pattern, ": ", std::strerror(errno));
  folder_ = pattern;
}

Probe::~Probe() {
  std::error_code ignored;  // a folder left behind is no failure of the check
  if (!keep_) std::filesystem::remove_all(folder_, ignored);
}

Arrays Probe::run(const Request& r) {
  const std::string stem = (folder_ / std::to_string(runs_++)).string();
  std::vector<std::string> words = {program_, "probe", r.what};
  if (!r.config.empty()) {
    std::ofstream(stem + ".toml") << r.config;
    words.insert(words.end(), {"--config", stem + ".toml"});
  }
  Arrays in = r.in;
  if (round_inputs_)
    for (auto& [name, a] : in) a = rounded_to_bf16(std::move(a));
  save(stem + ".in.safetensors", in);
  words.insert(words.end(), {"--in", stem + ".in.safetensors", "--out", stem + ".out.safetensors", "--dtype", dtype_});
  words.insert(words.end(), r.options.begin(), r.options.end());
  if (!arena_.empty()) words.insert(words.end(), {"--arena", arena_});
  if (!device_.empty()) words.insert(words.end(), {"--device", device_});
  for (const std::string& p : plugin_path_) words.insert(words.end(), {"--plugin-path", p});
  const std::string line = kitbash::join(words, " ");
  if (keep_) std::ofstream(stem + ".command") << line << "\n";
  if (const int code = execute(words, stem + ".log"))
    kb::fail("exit code ", code, " of: ", line, "\n    ", read_text(stem + ".log"));
  return load(stem + ".out.safetensors");
}

}  // namespace check_vectors
