#include "json_writer.h"
#include "report.h"

namespace {

std::string json_of(const Figure& figure, Mode mode) {
    JsonWriter out("{}");
    out.add("library", figure.libmxq);
    if (!figure.left_out.empty()) return out.add("left_out", figure.left_out).done();
    out.add("implementation", figure.implementation).add("us", figure.us);
    if (mode == Mode::Host) out.add("us_with_query", figure.us_with_query).add("launches", figure.launches);
    return out.done();
}

std::string json_of(const Row& row, const std::string& command) {
    JsonWriter out("{}"), figures("[]");
    out.add("reproduce", command).add("verb", row.c.verb).add("case", row.c.name).add("shape", row.c.shape_text);
    if (row.last().us > 0) {
        out.add("implementation", row.last().implementation).add("us", row.last().us);
        out.add_json("bytes", std::to_string(static_cast<long long>(row.work.bytes())));
        if (row.c.mode != Mode::Host) {
            out.add("rate", row.rate())
                .add("unit", std::string(row.unit()))
                .add("of_copy", row.gigabytes_per_second() / row.copy_rate);
            out.add("of_stream", row.gigabytes_per_second() / row.stream_rate).add("stream", row.mix);
        }
    }
    if (row.peer_us > 0) out.add("peer", row.peer).add("peer_us", row.peer_us);
    if (row.launch_us > 0) out.add("launch_us", row.launch_us);
    for (const Figure& figure : row.figures) figures.add(json_of(figure, row.c.mode));
    return out.add_json("figures", figures.done()).done();
}

}  // namespace

void Report::write_json(const std::string& path) const {
    JsonWriter out("{}", ",\n "), libraries("[]"), streams("{}"), rows("[]", ",\n  ");
    for (const LibraryText& l : libraries_)
        libraries.add(JsonWriter("{}")
                          .add("library", l.name)
                          .add("version", l.version)
                          .add("build", l.build)
                          .add("context", l.context)
                          .done());
    for (const auto& [mix, rate] : rates_.streams) streams.add(mix.c_str(), rate);
    for (const Row& row : rows_) rows.add(json_of(row, command_of(row)));
    out.add("command", command_).add("machine", machine_).add("date", date_).add("settings", settings_);
    out.add_json("libraries", libraries.done()).add("copy_gbps", rates_.copy).add_json("streams_gbps", streams.done());
    out.add("launch_us", rates_.launch_us).add_json("rows", rows.done());
    ::write_json(path, out);
}
