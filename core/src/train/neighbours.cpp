#include "train/neighbours.h"

#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <sstream>

#include "train/session.h"

namespace kitbash {
namespace {

constexpr double enough = 10;  // seconds to look before anything is said
constexpr double much = 0.3;   // cores

// Seconds that the cores of this process were busy, by whomever; below 0: not known.
double busy_seconds() {
  cpu_set_t mine;
  if (sched_getaffinity(0, sizeof mine, &mine)) return -1;
  std::ifstream f("/proc/stat");
  const double tick = double(sysconf(_SC_CLK_TCK));
  double sum = 0;
  bool any = false;
  for (std::string line; std::getline(f, line);) {
    int core = -1;
    if (std::sscanf(line.c_str(), "cpu%d ", &core) != 1 || core < 0 || core >= CPU_SETSIZE || !CPU_ISSET(core, &mine))
      continue;
    std::istringstream fields(line);
    std::string name;
    double user = 0, nice = 0, system = 0, idle = 0, wait = 0, irq = 0, soft = 0;
    if (fields >> name >> user >> nice >> system >> idle >> wait >> irq >> soft)
      sum += (user + nice + system + irq + soft) / tick, any = true;
  }
  return any ? sum : -1;
}

double own_seconds() {
  rusage u{};
  getrusage(RUSAGE_SELF, &u);
  const auto seconds = [](const timeval& t) { return double(t.tv_sec) + 1e-6 * double(t.tv_usec); };
  return seconds(u.ru_utime) + seconds(u.ru_stime);
}

}  // namespace

Neighbours::Neighbours() : begun_(now_seconds()), busy_(busy_seconds()), own_(own_seconds()) {}

std::optional<double> Neighbours::cores_taken() const {
  const double passed = now_seconds() - begun_, busy = busy_seconds();
  if (busy_ < 0 || busy < 0 || passed < enough) return std::nullopt;
  return ((busy - busy_) - (own_seconds() - own_)) / passed;
}

std::optional<std::string> Neighbours::hint(const Device& device) {
  const int threads = device.table().threads;
  if (told_ || device.kind() != KB_CPU || threads < 2 || now_seconds() - begun_ < enough) return std::nullopt;
  const auto taken = cores_taken();
  *this = Neighbours();
  cpu_set_t mine;
  if (!taken || sched_getaffinity(0, sizeof mine, &mine)) return std::nullopt;
  const int cores = CPU_COUNT(&mine), free = std::max(1, cores - int(*taken + 0.7));
  if (*taken < much || threads <= free || double(threads) + *taken < cores + much) return std::nullopt;
  told_ = true;
  char text[200];
  std::snprintf(
      text, sizeof text,
      "other programs take %.1f of the %d cores, and %d threads that wait for each other lose more than that; "
      "end them, or continue with --threads %d",
      *taken, cores, threads, free);
  return text;
}

}  // namespace kitbash
