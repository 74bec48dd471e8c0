use std::fmt;
use std::ops::{Deref, DerefMut};
use std::slice;

const ALIGNMENT: usize = 256;

#[derive(Clone, Copy)]
#[repr(C, align(256))]
struct Block([u8; ALIGNMENT]);

/// Zeroed bytes at a multiple of 256, as [`Tensor::set_memory`](crate::Tensor::set_memory) takes them.
#[derive(Clone)]
pub struct Memory {
    blocks: Vec<Block>,
    bytes: usize,
}

impl Memory {
    /// Allocates this many bytes.
    pub fn new(bytes: usize) -> Memory {
        Memory { blocks: vec![Block([0; ALIGNMENT]); bytes.div_ceil(ALIGNMENT)], bytes }
    }
}

impl Deref for Memory {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: blocks are bytes without padding, one after another, and there are at least as many.
        unsafe { slice::from_raw_parts(self.blocks.as_ptr().cast(), self.bytes) }
    }
}

impl DerefMut for Memory {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above.
        unsafe { slice::from_raw_parts_mut(self.blocks.as_mut_ptr().cast(), self.bytes) }
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Memory({} bytes)", self.bytes)
    }
}
