//! Memory of a device, streams, and where the buffers of a call are.
use crate::context::Context;
use crate::enums::{Device, Status};
use crate::error::{Error, Result};
use std::ffi::c_void;
use std::fmt;
use std::marker::PhantomData;
use std::ptr;

/// Numbers in memory that a CUDA device accesses: an address with its count and its device. Setters take it where they take a
/// slice of the host, and verbs refuse memory of another device than that of their context.
///
/// It is no Rust reference, since the host may not read the memory. With `cudarc`, where `stream.context().ordinal()` is the
/// device:
///
/// ```ignore
/// let (address, _guard) = cuda_slice.device_ptr(&stream);
/// let x = unsafe { mxq::DeviceSlice::<u16>::from_raw(address, cuda_slice.len(), ordinal) };
/// tensor.set_const_data(x)?;
/// ```
pub struct DeviceSlice<'a, T> {
    address: u64,
    len: usize,
    ordinal: i32,
    memory: PhantomData<&'a T>,
}

impl<'a, T> DeviceSlice<'a, T> {
    /// `len` numbers from an address on, which the CUDA device `ordinal` can access: memory of its own, of a peer that it may
    /// access, or pinned memory of the host.
    ///
    /// # Safety
    /// The memory must be there for `'a`, and hold `len` numbers of T.
    pub const unsafe fn from_raw(address: u64, len: usize, ordinal: i32) -> DeviceSlice<'a, T> {
        DeviceSlice { address, len, ordinal, memory: PhantomData }
    }

    /// The address on the device, a `CUdeviceptr`.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// How many numbers there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The CUDA device that accesses it.
    pub fn ordinal(&self) -> i32 {
        self.ordinal
    }
}

impl<T> Clone for DeviceSlice<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for DeviceSlice<'_, T> {}

impl<T> fmt::Debug for DeviceSlice<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DeviceSlice({:#x}, {} numbers, CUDA {})", self.address, self.len, self.ordinal)
    }
}

/// A stream of a CUDA device, by its raw pointer: a `cudaStream_t`, or a `CUstream` as `cudarc` has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stream(*mut c_void);

// SAFETY: CUDA lets any thread enqueue work on a stream.
unsafe impl Send for Stream {}
// SAFETY: as above.
unsafe impl Sync for Stream {}

impl Stream {
    /// CUDA's legacy default stream, and that of a CPU context.
    pub const DEFAULT: Stream = Stream(ptr::null_mut());

    /// A stream of the program, which stays the program's to destroy.
    ///
    /// # Safety
    /// It must be a live stream, of the device of each context that it is used with, when a verb gets it.
    pub const unsafe fn from_raw(stream: *mut c_void) -> Stream {
        Stream(stream)
    }

    /// The raw pointer.
    pub fn as_raw(&self) -> *mut c_void {
        self.0
    }
}

/// Whose memory a buffer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Host,
    Cuda(i32),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Host => f.write_str("the host"),
            Place::Cuda(ordinal) => write!(f, "CUDA {ordinal}"),
        }
    }
}

impl<T> DeviceSlice<'_, T> {
    pub(crate) fn place(&self) -> Place {
        Place::Cuda(self.ordinal)
    }
}

impl Context {
    pub(crate) fn place(&self) -> Place {
        match self.device() {
            Device::Cpu => Place::Host,
            _ => Place::Cuda(self.ordinal()),
        }
    }
}

/// Where each buffer of a descriptor or of options is, by the buffer's name. A fixed array, so that setters allocate nothing.
#[derive(Clone, Default)]
pub(crate) struct Places {
    named: [Option<(&'static str, Place)>; 16], // as many as a tensor has buffers
}

impl Places {
    /// Records the place of a buffer in place of an earlier one of this name; None: there is no buffer.
    pub(crate) fn set(&mut self, name: &'static str, place: Option<Place>) {
        let is_named = |slot: &Option<(&str, Place)>| slot.is_some_and(|(known, _)| known == name);
        let index = self.named.iter().position(is_named).or_else(|| self.named.iter().position(Option::is_none));
        self.named[index.expect("a slot for each buffer")] = place.map(|place| (name, place));
    }

    /// The place of a buffer of this name.
    pub(crate) fn of(&self, name: &str) -> Option<Place> {
        self.named.iter().flatten().find(|(known, _)| *known == name).map(|(_, place)| *place)
    }

    /// Refuses buffers that are not in memory of the context's device.
    fn require(&self, verb: &str, argument: &str, context: &Context) -> Result<()> {
        let expected = context.place();
        let Some((name, got)) = self.named.iter().flatten().find(|(_, place)| *place != expected) else {
            return Ok(());
        };
        let remedy = match (got, expected) {
            (Place::Host, _) => "copy it there and give it as a DeviceSlice",
            (_, Place::Host) => "use a context of that device with mxq::launch",
            _ => "copy it there, or use a context of that device",
        };
        let message = format!("{verb}: {argument}.{name} is memory of {got}, expected memory of {expected}; {remedy}");
        Err(Error::new(Status::InvalidArgument, message))
    }
}

/// Refuses arguments with buffers that are not in memory of the context's device. None: the argument is left out.
pub(crate) fn require_places(verb: &str, context: &Context, arguments: &[(&str, Option<&Places>)]) -> Result<()> {
    let given = arguments.iter().filter_map(|(name, places)| Some((name, (*places)?)));
    given.into_iter().try_for_each(|(name, places)| places.require(verb, name, context))
}

/// Lists the places of arguments by the library's names for them; each is an Option.
macro_rules! places { ($($name:literal: $argument:expr),*) => {
    &[$(($name, $argument.map(|argument| argument.places()))),*]
} }
pub(crate) use places;
