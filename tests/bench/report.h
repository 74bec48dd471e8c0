// A table on stdout as the measurements come, and the same as JSON.
#pragma once

#include "measure.h"

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
