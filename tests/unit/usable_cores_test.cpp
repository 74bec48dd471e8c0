// cpu/usable_cores.h reads the CPU quota of cgroups, here from trees of files that are made for it.
#include "../catch.h"
#include "cpu/usable_cores.h"

#include <sched.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace {

// A folder that stands for "/" and is removed with the object.
class Tree {
public:
    Tree() {
        char name[] = "/tmp/mxq_cgroups_XXXXXX";
        REQUIRE(mkdtemp(name));
        root_ = name;
    }
    ~Tree() { std::filesystem::remove_all(root_); }
    Tree& with(const std::string& path, const std::string& text) {
        std::filesystem::create_directories((root_ + path).substr(0, (root_ + path).rfind('/')));
        std::ofstream(root_ + path) << text;
        return *this;
    }
    int cores() const { return mxq::cpu::quota_cores(root_); }

private:
    std::string root_;
};

const std::string mount_2 = "25 20 0:22 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";
const std::string mounts_1 =
    "30 23 0:26 / /sys/fs/cgroup rw shared:9 - tmpfs tmpfs rw,mode=755\n"
    "31 30 0:27 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n"
    "33 30 0:29 / /sys/fs/cgroup/cpu,cpuacct rw shared:12 - cgroup cgroup rw,cpu,cpuacct\n";

}  // namespace

TEST_CASE("usable cores: version 2 rounds the quota up, and max is none") {
    int ran = 0;
    for (const auto& [text, cores] : std::vector<std::pair<std::string, int>>{
             {"200000 100000\n", 2}, {"150000 100000\n", 2}, {"1000 100000\n", 1}, {"100001 100000\n", 2}, {"max 100000\n", 0},
             {"", 0}, {"0 100000\n", 0}, {"100000 0\n", 0}, {"words\n", 0}, {"9000000000000000000 1\n", 2147483647}}) {
        CAPTURE(text);
        CHECK(Tree().with("/proc/self/cgroup", "0::/\n").with("/proc/self/mountinfo", mount_2).with("/sys/fs/cgroup/cpu.max", text).cores() == cores);
        ++ran;
    }
    CHECK(ran == 10);
}

TEST_CASE("usable cores: version 2, every cgroup above the process's own limits it") {
    Tree tree;
    tree.with("/proc/self/cgroup", "0::/user.slice/job\n").with("/proc/self/mountinfo", mount_2);
    CHECK(tree.cores() == 0);
    CHECK(tree.with("/sys/fs/cgroup/user.slice/job/cpu.max", "max 100000\n").with("/sys/fs/cgroup/user.slice/cpu.max", "300000 100000\n").cores() == 3);
    CHECK(tree.with("/sys/fs/cgroup/user.slice/job/cpu.max", "800000 100000\n").cores() == 3);
    CHECK(tree.with("/sys/fs/cgroup/user.slice/job/cpu.max", "50000 50000\n").cores() == 1);
    CHECK(tree.with("/sys/fs/cgroup/user.slice/other/cpu.max", "1000 100000\n").with("/sys/fs/cgroup/user.slice/job/cpu.max", "200000 100000\n").cores() == 2);
}

TEST_CASE("usable cores: version 1 has a quota and a period, -1 is none") {
    Tree tree;
    tree.with("/proc/self/cgroup", "7:cpuset:/other\n5:cpu,cpuacct:/docker/abc\n1:name=systemd:/docker/abc\n").with("/proc/self/mountinfo", mounts_1);
    const std::string own = "/sys/fs/cgroup/cpu,cpuacct/docker/abc/";
    CHECK(tree.cores() == 0);
    CHECK(tree.with(own + "cpu.cfs_quota_us", "-1\n").with(own + "cpu.cfs_period_us", "100000\n").cores() == 0);
    CHECK(tree.with(own + "cpu.cfs_quota_us", "250000\n").cores() == 3);
    CHECK(tree.with("/sys/fs/cgroup/cpuset/other/cpu.cfs_quota_us", "1\n").with("/sys/fs/cgroup/cpuset/other/cpu.cfs_period_us", "1\n").cores() == 3);
    CHECK(tree.with("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "200000\n").with("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n").cores() == 2);
}

// A container without a cgroup namespace sees the path that its host gave, and only that part of the hierarchy.
TEST_CASE("usable cores: a mount that shows a part of the hierarchy") {
    Tree tree;
    tree.with("/proc/self/cgroup", "4:cpu:/docker/abc\n0::/docker/abc\n");
    tree.with("/proc/self/mountinfo", "40 30 0:29 /docker/abc /sys/fs/cgroup/cpu ro - cgroup cgroup rw,cpu\n");
    tree.with("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "400000").with("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000");
    CHECK(tree.cores() == 4);
    tree.with("/proc/self/cgroup", "4:cpu:/docker/abc/inner\n");
    CHECK(tree.with("/sys/fs/cgroup/cpu/inner/cpu.cfs_quota_us", "100000").with("/sys/fs/cgroup/cpu/inner/cpu.cfs_period_us", "100000").cores() == 1);
    for (const char* beside : {"/docker/abcd", "/another/xy/inner"}) {  // what is mounted counts
        tree.with("/proc/self/cgroup", std::string("4:cpu:") + beside + "\n");
        CHECK(tree.cores() == 4);
    }
}

TEST_CASE("usable cores: both versions at once, the lower limit counts") {
    Tree tree;
    tree.with("/proc/self/cgroup", "4:cpu:/\n0::/\n");
    tree.with("/proc/self/mountinfo", "1 2 0:1 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n1 2 0:2 / /sys/fs/cgroup/unified rw - cgroup2 none rw\n");
    tree.with("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "400000").with("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000");
    CHECK(tree.cores() == 4);
    CHECK(tree.with("/sys/fs/cgroup/unified/cpu.max", "300000 100000").cores() == 3);
    CHECK(tree.with("/sys/fs/cgroup/unified/cpu.max", "500000 100000").cores() == 4);
}

TEST_CASE("usable cores: files that are missing or make no sense are no limit") {
    CHECK(Tree().cores() == 0);
    CHECK(Tree().with("/proc/self/cgroup", "0::/\n").cores() == 0);
    CHECK(Tree().with("/proc/self/cgroup", "nothing\n:\n0:\n::\n").with("/proc/self/mountinfo", "a - b\n - \n1 2 3 - cgroup2\n" + mount_2).cores() == 0);
}

TEST_CASE("usable cores: no more than the affinity allows, and at least one") {
    cpu_set_t all;
    REQUIRE(sched_getaffinity(0, sizeof all, &all) == 0);
    const int cores = mxq::cpu::usable_cores();
    CHECK(cores >= 1);
    CHECK(cores <= CPU_COUNT(&all));
}
