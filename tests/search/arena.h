// The device memory that the calls of one thread use, one after another: a call lays out its buffers with canaries between
// them, one copy fills them all, and one copy brings them back. Allocating and copying each by itself would take longer than
// the calls.
#ifndef MXQ_TESTS_SEARCH_ARENA_H
#define MXQ_TESTS_SEARCH_ARENA_H

#include "../device.h"

namespace search {

// A buffer in an arena: its first byte, counted from the start, and its size.
struct Room {
    size_t first = 0, bytes = 0;
    size_t end() const { return first + bytes; }
};

class Arena {
public:
    explicit Arena(bool is_cpu);
    ~Arena();
    Arena(const Arena&) = delete;
    Arena& operator=(const Arena&) = delete;

    // Makes the arena at least this large. Its content is lost, and its addresses change if it was smaller.
    void reserve(size_t bytes);

    uint8_t* device(size_t at) const { return device_ + at; }
    uint8_t* host(size_t at) const { return host_ + at; }  // on a CPU the same memory
    void* stream() const { return stream_; }               // for the calls; NULL on a CPU

    // Copies this many bytes from the start of the host's memory to the device's.
    void send(size_t bytes) const;
    // Copies the bytes of a room back, when the calls on the stream have ended.
    void receive(Room room) const;
    // Sets all bytes of a room on the device.
    void fill(Room room, uint8_t value) const;

    // On a CPU AddressSanitizer finds reads from `first` to `end`, until allow() takes that back for all before its `end`.
    void forbid(size_t first, size_t end) const;
    void allow(size_t end) const;

private:
    void release();

    const bool is_cpu_;
    uint8_t *device_ = nullptr, *host_ = nullptr;
    size_t bytes_ = 0;
    void* stream_ = nullptr;
};

}  // namespace search

#endif
