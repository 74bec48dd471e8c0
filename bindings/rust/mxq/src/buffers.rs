//! What setters take for a buffer: slices of the host, and memory of a device.
use crate::device::{DeviceSlice, Place};
use crate::memory::Memory;

/// Memory that verbs read: `&[T]`, `&[T; N]`, `&Vec<T>` or `&`[`Memory`] of the host, or a [`DeviceSlice`].
pub trait Buffer<'a>: sealed::Spans {
    /// The type of its numbers.
    type Element: Copy;
}

/// Memory that verbs may write: `&mut [T]`, `&mut [T; N]`, `&mut Vec<T>` or `&mut `[`Memory`] of the host, or a
/// [`DeviceSlice`].
pub trait BufferMut<'a>: sealed::Spans {
    /// The type of its numbers.
    type Element: Copy;
}

pub(crate) use sealed::Span;

mod sealed {
    use super::Place;
    use std::ffi::c_void;
    use std::mem::size_of;
    use std::ptr;

    /// The address, the bytes and the place of a buffer.
    #[derive(Clone, Copy)]
    pub struct Span {
        address: *mut c_void,
        bytes: u64,
        place: Place,
    }

    impl Span {
        pub(crate) fn new<T>(address: *const T, len: usize, place: Place) -> Span {
            Span { address: address.cast_mut().cast(), bytes: (len * size_of::<T>()) as u64, place }
        }

        /// The address; NULL where there are no bytes.
        pub(crate) fn address(&self) -> *mut c_void {
            if self.bytes == 0 {
                ptr::null_mut()
            } else {
                self.address
            }
        }

        /// The address as it is, which is not NULL for a slice without bytes.
        pub(crate) fn start(&self) -> *mut c_void {
            self.address
        }

        pub(crate) fn bytes(&self) -> u64 {
            self.bytes
        }

        /// How many numbers of T it has.
        pub(crate) fn count<T>(&self) -> u64 {
            self.bytes / size_of::<T>() as u64
        }

        /// Whose memory it is; None where there are no bytes.
        pub(crate) fn place(&self) -> Option<Place> {
            (self.bytes != 0).then_some(self.place)
        }
    }

    /// Gives the span of a buffer.
    pub trait Spans {
        fn span(self) -> Span;
    }
}

use sealed::Spans;

macro_rules! host_buffers { ($([$($generics:tt)*] $type:ty, $element:ty;)*) => { $(
    impl<$($generics)*> Spans for &$type {
        fn span(self) -> Span {
            Span::new(self.as_ptr(), self.len(), Place::Host)
        }
    }
    impl<'a, $($generics)*> Buffer<'a> for &'a $type {
        type Element = $element;
    }
    impl<$($generics)*> Spans for &mut $type {
        fn span(self) -> Span {
            Span::new(self.as_mut_ptr(), self.len(), Place::Host)
        }
    }
    impl<'a, $($generics)*> BufferMut<'a> for &'a mut $type {
        type Element = $element;
    }
)* } }

host_buffers! {
    [T: Copy] [T], T;
    [T: Copy, const N: usize] [T; N], T;
    [T: Copy] Vec<T>, T;
    [] Memory, u8;
}

impl<T> Spans for DeviceSlice<'_, T> {
    fn span(self) -> Span {
        Span::new(self.address() as *const T, self.len(), self.place())
    }
}

impl<'a, T: Copy> Buffer<'a> for DeviceSlice<'a, T> {
    type Element = T;
}

impl<'a, T: Copy> BufferMut<'a> for DeviceSlice<'a, T> {
    type Element = T;
}
