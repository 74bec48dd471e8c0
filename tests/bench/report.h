// A table on stdout as the measurements come, and the same as JSON.
#pragma once

#include <string>
#include <vector>

struct Measurement {
    std::string verb, name, shape, implementation = {};
    double ms = 0;
    double rate = 0;  // GB/s (bytes read + written) or TFLOP/s, GFLOP/s
    std::string unit = {};
    double ratio = 0;  // of the rate to the peer's, measured in turns with it; 0: no peer
    std::string peer = {};
    double peer_rate = 0;
};

class Report {
public:
    Report(std::string command, std::string machine, std::string only);
    bool wants(const std::string& name) const { return name.find(only_) != std::string::npos; }
    void add(const Measurement& m);
    void note(const std::string& text);
    void write_json(const std::string& path) const;

private:
    std::string command_, machine_, only_, date_;
    std::vector<Measurement> measurements_;
};
