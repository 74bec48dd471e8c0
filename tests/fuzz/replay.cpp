// mxq_fuzz_replay: runs stored inputs without a fuzzer, and then as many random ones, so that every build of the tests does
// it.
//
//     mxq_fuzz_replay FOLDER [--random N]     each FOLDER/NAME.bin, one for each target
//     mxq_fuzz_replay --only NAME FILE        one input of a target: a file that libFuzzer has left
//     mxq_fuzz_replay --split FILE FOLDER     a file for each input, as libFuzzer reads them
//     mxq_fuzz_replay --join FOLDER FILE      the other way round
//     mxq_fuzz_replay --names
//
// A .bin holds inputs one after another, each behind its size, two bytes.
#include "check.h"
#include "targets.h"

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

namespace {

using Bytes = std::vector<uint8_t>;

Bytes read(const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<Bytes> read_inputs(const std::filesystem::path& path) {
    const Bytes all = read(path);
    std::vector<Bytes> inputs;
    for (size_t at = 0; at + 2 <= all.size();) {
        const size_t size = std::min<size_t>(all[at] + 256u * all[at + 1], all.size() - at - 2);
        const auto first = all.begin() + static_cast<std::ptrdiff_t>(at + 2);
        inputs.emplace_back(first, first + static_cast<std::ptrdiff_t>(size));
        at += 2 + size;
    }
    return inputs;
}

int join(const std::filesystem::path& folder, const std::filesystem::path& path) {
    std::vector<Bytes> inputs;
    for (const auto& entry : std::filesystem::directory_iterator(folder))
        if (Bytes input = read(entry.path()); input.size() < 65536) inputs.push_back(std::move(input));
    std::sort(inputs.begin(), inputs.end());
    std::ofstream file(path, std::ios::binary);
    for (const Bytes& input : inputs) {
        file.put(static_cast<char>(input.size() % 256)).put(static_cast<char>(input.size() / 256));
        file.write(reinterpret_cast<const char*>(input.data()), static_cast<std::streamsize>(input.size()));
    }
    return file ? 0 : 1;
}

int split(const std::filesystem::path& path, const std::filesystem::path& folder) {
    std::filesystem::create_directories(folder);
    int number = 0;
    for (const Bytes& input : read_inputs(path))
        std::ofstream(folder / std::to_string(number++), std::ios::binary)
            .write(reinterpret_cast<const char*>(input.data()), static_cast<std::streamsize>(input.size()));
    return 0;
}

// Names the running target and its input, for the line that a signal handler prints.
const char* running_target = "";
std::string running_input;

void tell(int) {
    std::fprintf(stderr, "FAIL  fuzz: target %s, %s\n0 passed, 1 failed, 0 skipped\n", running_target,
                 running_input.c_str());
    std::_Exit(1);
}

void run(const fuzz::Target& target, const Bytes& bytes) {
    fuzz::Input input(bytes.data(), bytes.size());
    target.run(input);
}

void run_random(const fuzz::Target& target, int count) {
    uint64_t state = 1;
    for (int i = 0; i < count; ++i) {
        running_input = "random input " + std::to_string(i);
        Bytes bytes(20 + static_cast<size_t>(i % 100));
        for (uint8_t& byte : bytes)
            byte = static_cast<uint8_t>((state = state * 6364136223846793005u + 1442695040888963407u) >> 56);
        run(target, bytes);
    }
}

int run_all(const std::filesystem::path& folder, int random) {
    size_t inputs = 0;
    int failed = 0;
    for (const fuzz::Target& target : fuzz::targets()) {
        running_target = target.name;
        const auto stored = read_inputs(folder / (std::string(target.name) + ".bin"));
        if (stored.empty()) std::printf("FAIL  fuzz: no stored input for the target %s\n", target.name), ++failed;
        for (size_t i = 0; i < stored.size(); ++i) {
            running_input = "stored input " + std::to_string(i);
            run(target, stored[i]);
        }
        run_random(target, random);
        inputs += stored.size() + static_cast<size_t>(random);
    }
    std::printf("%zu inputs of %zu targets\n", inputs, fuzz::targets().size());
    std::printf("%zu passed, %d failed, 0 skipped\n", fuzz::targets().size() - static_cast<size_t>(failed), failed);
    return failed ? 1 : 0;
}

int run_one(const std::string& name, const std::filesystem::path& path) {
    for (const fuzz::Target& target : fuzz::targets())
        if (name == target.name) {
            running_target = target.name;
            running_input = path;
            run(target, read(path));
            std::printf("1 passed, 0 failed, 0 skipped\n");
            return 0;
        }
    return 2;
}

}  // namespace

int main(int count, char** arguments) {
    const std::vector<std::string> words(arguments + 1, arguments + count);
    if (words.size() == 3 && words[0] == "--join") return join(words[1], words[2]);
    if (words.size() == 3 && words[0] == "--split") return split(words[1], words[2]);
    if (words.size() == 1 && words[0] == "--names") {
        for (const fuzz::Target& target : fuzz::targets()) std::printf("%s\n", target.name);
        return 0;
    }
    for (const int signal : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL}) std::signal(signal, tell);
    if (words.size() == 3 && words[0] == "--only") return run_one(words[1], words[2]);
    if (words.size() == 1) return run_all(words[0], 0);
    if (words.size() == 3 && words[1] == "--random") return run_all(words[0], std::atoi(words[2].c_str()));
    std::fprintf(stderr,
                 "usage: mxq_fuzz_replay FOLDER [--random N] | --only NAME FILE | --split FILE FOLDER | --join FOLDER FILE "
                 "| --names\n");
    return 2;
}
