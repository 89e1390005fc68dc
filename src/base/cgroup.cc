#include "base/cgroup.h"

#include <algorithm>
#include <fstream>
#include <optional>
#include <sstream>
#include <string_view>
#include <vector>

#include "base/host_device.h"

namespace culet {
namespace {

constexpr const char* kUsualMount = "/sys/fs/cgroup";

// One hierarchy: version 2, or the one of version 1 that has the controller "cpu".
struct Mount {
  bool v2 = false;
  std::string root;   // the cgroup that is seen at `point`
  std::string point;  // its folder
};

std::string FirstLine(const std::string& path) {
  std::string line;
  std::ifstream file(path);
  std::getline(file, line);
  return line;
}

bool HasWord(std::string_view list, std::string_view word) {
  while (!list.empty()) {
    const std::size_t comma = std::min(list.find(','), list.size());
    if (list.substr(0, comma) == word) return true;
    list.remove_prefix(std::min(comma + 1, list.size()));
  }
  return false;
}

// mountinfo writes a blank as \040, and so on.
std::string Unescaped(const std::string& text) {
  const auto octal = [](char c) { return c >= '0' && c <= '7'; };
  std::string plain;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 3 < text.size() && octal(text[i + 1]) && octal(text[i + 2]) &&
        octal(text[i + 3])) {
      plain += static_cast<char>((text[i + 1] - '0') * 64 + (text[i + 2] - '0') * 8 +
                                 (text[i + 3] - '0'));
      i += 3;
    } else {
      plain += text[i];
    }
  }
  return plain;
}

// A line: "36 25 0:31 ROOT POINT OPTIONS [FIELDS] - TYPE SOURCE SUPEROPTIONS".
std::optional<Mount> ParseMount(const std::string& line) {
  std::istringstream words(line);
  std::string skipped, root, point, word, type, super;
  words >> skipped >> skipped >> skipped >> root >> point;
  while (words >> word && word != "-") {
  }
  words >> type >> skipped >> super;
  const bool v2 = type == "cgroup2";
  if (!v2 && !(type == "cgroup" && HasWord(super, "cpu"))) return std::nullopt;
  return Mount{v2, Unescaped(root), Unescaped(point)};
}

// Lines of /proc/self/cgroup are "0::PATH" for version 2, and "4:cpu,cpuacct:PATH".
std::optional<std::string> OwnGroup(const std::string& root, bool v2) {
  std::ifstream file(root + "/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const bool found = v2 ? controllers.empty() && line.starts_with("0:")  //
                          : HasWord(controllers, "cpu");
    if (found) return line.substr(second + 1);
  }
  return std::nullopt;
}

// The folders below `mount` from its own to the process's group; none where the mount shows other
// groups.
std::vector<std::string> FoldersOf(const Mount& mount, const std::string& group) {
  std::string below;
  const bool outside = mount.root.find("..") != std::string::npos ||
                       group.find("..") != std::string::npos;  // of this cgroup namespace
  if (!outside) {
    const std::string prefix = mount.root == "/" ? "" : mount.root;
    if (!group.starts_with(prefix)) return {};
    below = group.substr(prefix.size());
    if (!below.empty() && below.front() != '/') return {};
  }
  std::vector<std::string> folders = {mount.point};
  for (std::size_t end = 1; end < below.size();) {
    end = std::min(below.find('/', end), below.size());
    folders.push_back(mount.point + below.substr(0, end));
    ++end;
  }
  return folders;
}

int QuotaOf(const std::string& folder, bool v2) {
  if (v2) return ParseCpuQuota(FirstLine(folder + "/cpu.max"));
  return ParseCpuQuota(FirstLine(folder + "/cpu.cfs_quota_us") + " " +
                       FirstLine(folder + "/cpu.cfs_period_us"));
}

}  // namespace

int CgroupCpus(const std::string& root) {
  int cpus = 0;
  const auto limit = [&](int quota) {
    if (quota > 0) cpus = cpus == 0 ? quota : std::min(cpus, quota);
  };
  bool mounted = false;
  std::ifstream mounts(root + "/proc/self/mountinfo");
  for (std::string line; std::getline(mounts, line);) {
    const auto mount = ParseMount(line);
    if (!mount) continue;
    mounted = true;
    for (const std::string& folder :
         FoldersOf(*mount, OwnGroup(root, mount->v2).value_or(mount->root))) {
      limit(QuotaOf(root + folder, mount->v2));
    }
  }
  // Without /proc there may be a folder in the usual place all the same.
  if (!mounted) limit(QuotaOf(root + kUsualMount, true));
  return cpus;
}

}  // namespace culet
