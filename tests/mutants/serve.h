// Has the programs of the copy that mutants.py builds read lines "NUMBER ITEM", a test case or a call of the search, and run each
// under the mutant with this number, or without any for 0 and -1.
#pragma once
#include <chrono>
#include <iostream>
#include <string>

namespace mutants {

// Says so once: what a test case starts is a program as any other.
inline bool are_served() {
    const bool are = std::getenv("MXQ_MUTANTS_SERVED") != nullptr;
    unsetenv("MXQ_MUTANTS_SERVED");
    return are;
}

// Calls run(item) for each line, which returns why it fails, or an empty string, and may find a better name for the item. Answers
// with a line of the seconds, the mutants that were reached if that is recorded, the item, and why it fails, with tabs between.
template <class Run>
int serve(const Run& run) {
    bool is_first = true;
    for (std::string item; std::getline(std::cin, item);) {
        const int number = std::stoi(item);
        item = item.substr(item.find(' ') + 1);
        // The first item has what was reached since the process began.
        if (!is_first || std::atoi(std::getenv("MXQ_MUTANT")) != number) change(number);
        is_first = false;
        const auto begin = std::chrono::steady_clock::now();
        std::string failure = run(item);
        const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
        for (char& c : failure)
            if (c == '\n' || c == '\t') c = ' ';
        std::printf("\nserved\t%.5f\t", seconds.count());
        for (int i = 0; i < kCount; ++i)
            if (is_reached(i)) std::printf("%d ", i);
        std::printf("\t%s\t%s\n", item.c_str(), failure.c_str());
        std::fflush(stdout);
    }
    return 0;
}

}  // namespace mutants
