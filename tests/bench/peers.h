// What a product is measured in turns with.
#pragma once

#include "call.h"

struct Peer {
    std::string name;
    Call call;  // empty: there is none
};

// The peer that the case asks for, of the same size and as many operations. It keeps what it works on, but for `operands`,
// which may be the case's own. Throws LeftOut where there is no such peer.
Peer peer_of(Device& device, const Library& library, const Case& c, const Operands& operands, int threads);
