// Prints and writes what the suite "dispatch" measured.
#pragma once

#include "case.h"

// A problem's time by one implementation that takes it.
struct TakerTime {
    std::string name;
    double us = 0;            // of a call; 0: none
    std::string failed = {};  // why there is no time
};

struct DispatchRow {
    Case c;
    std::string reason;             // of the choice, in the library's words
    std::vector<TakerTime> takers;  // the choice first
    bool graph = false;             // how times were taken; else in turns
    std::string no_graph = {};      // why not by a graph, where it should be
    std::string left_out = {};      // why there are no takers
    bool failed = false;            // left out by an error that is no answer to a question of support

    const TakerTime& choice() const { return takers.front(); }
    const TakerTime& best() const;
    bool timed() const { return !takers.empty() && choice().us > 0; }
    double loss() const { return choice().us / best().us; }  // 1: nothing is lost
};

void print_dispatch_header();
void print_dispatch_row(const DispatchRow& row);
// Prints how much the choices lose, and the worst of them.
void print_dispatch_summary(const std::vector<DispatchRow>& rows, const std::string& program);

// Holds the head of a report.
struct DispatchHead {
    std::string program, command, machine, path, context;  // path: of the library
    uint32_t seed;
};
void write_dispatch_json(const std::string& path, const DispatchHead& head, const std::vector<DispatchRow>& rows);
