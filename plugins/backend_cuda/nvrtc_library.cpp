#include "nvrtc_library.h"

#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <nvrtc.h>

#include <cstdlib>

#include "kitbash/error.h"

namespace kb::cuda {

namespace {

struct Library {
  decltype(&nvrtcVersion) version = nullptr;
  decltype(&nvrtcGetErrorString) error = nullptr;
  decltype(&nvrtcCreateProgram) create = nullptr;
  decltype(&nvrtcDestroyProgram) destroy = nullptr;
  decltype(&nvrtcCompileProgram) compile = nullptr;
  decltype(&nvrtcGetProgramLogSize) log_size = nullptr;
  decltype(&nvrtcGetProgramLog) log = nullptr;
  decltype(&nvrtcGetCUBINSize) size = nullptr;
  decltype(&nvrtcGetCUBIN) cubin = nullptr;
  std::string missing;

  Library() {
    // The major version of the toolkit that the types above are from.
    const std::string file = "libnvrtc.so." + std::to_string(CUDART_VERSION / 1000);
    std::vector<std::string> places{file};
    for (const char* variable : {"CUDA_PATH", "CUDA_HOME"})
      if (const char* root = std::getenv(variable)) places.push_back(std::string(root) + "/lib64/" + file);
    places.push_back("/usr/local/cuda/lib64/" + file);
    void* handle = nullptr;
    for (const std::string& p : places)
      if ((handle = dlopen(p.c_str(), RTLD_NOW | RTLD_LOCAL))) break;
    if (!handle) {
      missing = "NVRTC (" + file +
                ") must be found by the loader, or in CUDA_PATH/lib64, but is not; install the CUDA toolkit's";
      return;
    }
    find(handle, "nvrtcVersion", version), find(handle, "nvrtcGetErrorString", error);
    find(handle, "nvrtcCreateProgram", create), find(handle, "nvrtcDestroyProgram", destroy);
    find(handle, "nvrtcCompileProgram", compile), find(handle, "nvrtcGetProgramLogSize", log_size);
    find(handle, "nvrtcGetProgramLog", log), find(handle, "nvrtcGetCUBINSize", size),
        find(handle, "nvrtcGetCUBIN", cubin);
  }
  template <class F>
  void find(void* handle, const char* name, F& f) {
    f = reinterpret_cast<F>(dlsym(handle, name));
    if (!f && missing.empty()) missing = std::string("NVRTC must have ") + name + " but has not; install a newer one";
  }
};
const Library& library() {
  static const Library l;
  return l;
}

}  // namespace

const std::string& nvrtc_missing() { return library().missing; }

std::string nvrtc_version() {
  int major = 0, minor = 0;
  if (nvrtc_missing().empty()) library().version(&major, &minor);
  return std::to_string(major) + "." + std::to_string(minor);
}

std::vector<char> nvrtc_compile(const std::string& source, uint32_t arch) {
  const Library& n = library();
  if (!n.missing.empty()) fail(n.missing);
  nvrtcProgram program = nullptr;
  if (const nvrtcResult r = n.create(&program, source.c_str(), "fused.cu", 0, nullptr, nullptr); r != NVRTC_SUCCESS)
    fail("NVRTC must take the source of a fused node but says: ", n.error(r));
  const std::string target = "--gpu-architecture=sm_" + std::to_string(arch);
  std::vector<const char*> options{target.c_str()};
  options.insert(options.end(), std::begin(nvrtc_options), std::end(nvrtc_options));
  const nvrtcResult r = n.compile(program, int(options.size()), options.data());
  std::vector<char> code;
  std::string problem;
  if (r == NVRTC_SUCCESS) {
    size_t bytes = 0;
    if (n.size(program, &bytes) == NVRTC_SUCCESS) code.resize(bytes);
    if (code.empty() || n.cubin(program, code.data()) != NVRTC_SUCCESS) problem = "it gave no machine code";
  } else {
    size_t bytes = 0;
    n.log_size(program, &bytes);
    problem.resize(bytes);
    if (bytes) n.log(program, problem.data());
  }
  n.destroy(&program);
  if (!problem.empty()) fail("NVRTC must compile the source of a fused node but says: ", problem.c_str());
  return code;
}

}  // namespace kb::cuda
