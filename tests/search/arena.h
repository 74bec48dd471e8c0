// The device memory that the calls of one thread use, one after another: a call lays out its buffers with canaries between
// them, one copy fills them all, and one copy brings them back. Allocating and copying each by itself would take longer than
// the calls. A divided arena of a GPU allocates each buffer by itself all the same: compute-sanitizer sees reads outside of
// allocations alone.
#ifndef MXQ_TESTS_SEARCH_ARENA_H
#define MXQ_TESTS_SEARCH_ARENA_H

#include "../device.h"

#include <span>

namespace search {

// A buffer in an arena: its first byte, counted from the start, and its size.
struct Room {
    size_t first = 0, bytes = 0;
    size_t end() const { return first + bytes; }
};

class Arena {
public:
    Arena(bool is_cpu, bool divided);
    ~Arena();
    Arena(const Arena&) = delete;
    Arena& operator=(const Arena&) = delete;

    // Makes the arena at least this large. Its content is lost, and its addresses change if it was smaller. A divided one
    // has these rooms, what lies between them is on the host alone, and all addresses change.
    void reserve(size_t bytes, std::span<const Room> rooms);

    // Returns where a byte lies that is in a room or at its end.
    uint8_t* device(size_t at) const;
    uint8_t* host(size_t at) const { return host_ + at; }  // on a CPU the same memory
    void* stream() const { return stream_; }               // for the calls; NULL on a CPU

    // Copies this many bytes from the start of the host's memory to the device's.
    void send(size_t bytes) const;
    // Copies the bytes of a room back, when the calls on the stream have ended.
    void receive(Room room) const;
    // Sets all bytes of a room on the device, and of a divided arena on the host too.
    void fill(Room room, uint8_t value) const;

    // On a CPU AddressSanitizer finds reads from `first` to `end`, until allow() takes that back for all before its `end`.
    void forbid(size_t first, size_t end) const;
    void allow(size_t end) const;

private:
    // A room of a divided arena. Its first byte is as far from a multiple of 256 as in one that is not.
    struct Allocation {
        Room room;
        uint8_t* memory = nullptr;
        uint8_t* device(size_t at) const { return memory + room.first % 256 + (at - room.first); }
    };

    void release();
    void release_rooms();
    void divide(std::span<const Room> rooms);
    // Calls take(first byte on the host, first byte on the device, bytes) for each stretch of a room that is on the device.
    template <class Take>
    void each_stretch(Room room, const Take& take) const;

    const bool is_cpu_, divided_;
    std::vector<Allocation> rooms_;  // of a divided arena, by the names of their buffers
    uint8_t *device_ = nullptr, *host_ = nullptr;
    size_t bytes_ = 0;
    void* stream_ = nullptr;
};

}  // namespace search

#endif
