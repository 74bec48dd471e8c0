// A table on stdout as the measurements come, and the same as JSON.
#pragma once

#include "call.h"
#include "rates.h"

std::string utc_date();
// The library's settings in the environment, without which a row may not be reproduced.
std::string settings_of_environment();

// One library's part of a row.
struct Figure {
    std::string libmxq, implementation = {};
    double us = 0;              // a call
    double us_with_query = 0;   // host rows: a query, then the call
    int launches = 0;           // host rows: what a call puts on the stream
    std::string left_out = {};  // why there are no figures
    bool failed = false;        // left out by an error that is no answer to a question of support
};

struct Row {
    Case c;
    Work work;
    std::vector<Figure> figures;  // in the order of the libraries
    std::string mix;              // of the bare streams that it is compared with
    double copy_rate = 0, stream_rate = 0;
    std::string peer;  // of a product; "": none
    double peer_us = 0;
    double launch_us = 0;  // host rows: of an empty kernel, in turns with the calls

    const Figure& last() const { return figures.back(); }
    double gigabytes_per_second() const { return work.bytes() / last().us * 1e-3; }
    // What takes the time of a product are operations, of all else bytes.
    double rate() const { return c.product() ? work.operations / last().us * 1e-6 : gigabytes_per_second(); }
    const char* unit() const { return c.product() ? "TFLOP/s" : "GB/s"; }
};

class Report {
public:
    // program: what a row's command begins with, its device included.
    Report(std::string program, std::string command, const std::string& machine, const Rates& rates,
           const std::vector<Library>& libraries);
    void print_commands() { print_commands_ = true; }
    void add(const Row& row);
    std::string command_of(const Row& row) const { return program_ + " " + row.c.command; }
    void write_json(const std::string& path) const;
    const std::vector<Row>& rows() const { return rows_; }
    const std::string& machine() const { return machine_; }
    bool failed() const;  // whether a row has an error that is no answer to a question of support

private:
    void print_header() const;
    void print_figures(const Row& row) const;

    struct LibraryText {
        std::string name, version, build, context;
    };

    std::string program_, command_, date_, settings_, machine_;
    std::vector<LibraryText> libraries_;
    Rates rates_;
    bool print_commands_ = false;
    std::vector<Row> rows_;
};
