use crate::buffers::{Buffer, BufferMut};
use crate::device::{DeviceSlice, Place, Places};
use crate::elements::{require_elements, Element, Integer};
use crate::enums::{Format, Status};
use crate::error::{check, Error, Result};
use crate::handle::Handle;
use mxq_sys as sys;
use std::fmt;
use std::marker::PhantomData;
use std::ptr;
use std::slice;

/// Which experts each token goes to: T tokens choose k of E experts each. It owns no memory and borrows buffers for `'a`.
///
/// [`route`](crate::route) computes, with S = T k rows:
///
/// | array | shape | what |
/// |---|---|---|
/// | [`ends`](Routing::ends) | experts of this rank | one past the last row of each expert |
/// | [`row_tokens`](Routing::row_tokens) | S | the token of each row; -1 past the last end |
/// | [`choice_rows`](Routing::choice_rows) | T, k | the row of each choice; -1 for one that is dropped |
/// | [`row_weights`](Routing::row_weights) | S | the weight of each row; 0 past the last end |
///
/// Rows are sorted by expert, and rows of an expert by the number of their choice.
///
/// ```
/// # fn main() -> mxq::Result<()> {
/// use mxq::{Context, Memory, Routing};
/// let (cpu, ids) = (Context::cpu()?, [1, 0, 1, 2]); // two tokens with two choices each
/// let mut routing = Routing::new(2, 2, 3)?;
/// let mut memory = Memory::new(routing.required_bytes()?);
/// routing.set_ids(&ids)?.set_memory(&mut memory)?;
/// mxq::route(&cpu, None, &mut routing)?;
/// assert_eq!((routing.ends()?, routing.row_tokens()?), (&[1, 3, 4][..], &[0, 0, 1, 1][..]));
/// # Ok(()) }
/// ```
///
/// A tensor that has its rows or groups borrows it, so that they stay as they are:
///
/// ```compile_fail,E0502
/// # let cpu = mxq::Context::cpu().unwrap();
/// let mut routing = mxq::Routing::new(2, 2, 3).unwrap();
/// let mut rows = mxq::Tensor::new(mxq::Format::F32, 4, 64).unwrap();
/// rows.set_routing_groups(&routing).unwrap();
/// mxq::route(&cpu, None, &mut routing).unwrap(); // borrowed by the tensor
/// println!("{rows}");
/// ```
pub struct Routing<'a> {
    handle: Handle<sys::mxq_routing>,
    places: Places,
    buffers: PhantomData<&'a mut [u8]>,
}

// SAFETY: a routing may be read by many calls at once; setters take &mut, and verbs that write its memory do, too.
unsafe impl Send for Routing<'_> {}
// SAFETY: as above.
unsafe impl Sync for Routing<'_> {}

/// The arrays of a routing in memory of a device, as other kernels take them.
#[derive(Clone, Copy, Debug)]
pub struct RoutingArrays<'a> {
    /// One past the last row of each expert of this rank.
    pub ends: DeviceSlice<'a, i32>,
    /// The token of each row; -1 past the last end.
    pub row_tokens: DeviceSlice<'a, i32>,
    /// The row of each choice; -1 for one that is dropped.
    pub choice_rows: DeviceSlice<'a, i32>,
    /// The weight of each row.
    pub row_weights: DeviceSlice<'a, f32>,
}

type Getter<T> = unsafe extern "C" fn(*const sys::mxq_routing, *mut *const T, *mut u64) -> sys::mxq_status;

impl<'a> Routing<'a> {
    /// A routing of `tokens` (0 or more) with `choices` of `experts` each (1 to 4096), those of all ranks.
    pub fn new(tokens: i64, choices: i32, experts: i32) -> Result<Routing<'a>> {
        let mut raw = ptr::null_mut();
        // SAFETY: writes a handle to raw.
        check(unsafe { sys::mxq_routing_create(tokens, choices, experts, &mut raw) })?;
        let handle = Handle::owned(raw, sys::mxq_routing_destroy);
        Ok(Routing { handle, places: Places::default(), buffers: PhantomData })
    }

    /// The expert of each choice, (T, k). -1 drops a choice. A CPU context refuses other numbers that are no expert; CUDA drops
    /// and counts them ([`set_dropped`](Routing::set_dropped)). Exactly T k numbers.
    pub fn set_ids<T: Integer>(&mut self, ids: impl Buffer<'a, Element = T>) -> Result<&mut Self> {
        let ids = ids.span();
        // SAFETY: the handle is live, as in all functions below.
        check(unsafe { sys::mxq_routing_set_ids(self.handle.get(), ids.address(), ids.bytes(), T::TYPE as i32) })?;
        Ok(self.placed(&[("ids", ids.place())]))
    }

    /// The weight of each choice, (T, k): `f32`, or `u16` or `i16` for BF16. Without weights each counts as 1.
    pub fn set_weights<T: Element>(&mut self, format: Format, weights: impl Buffer<'a, Element = T>) -> Result<&mut Self> {
        require_elements::<T>("weights", format, format.data_bytes())?;
        let (raw, weights) = (self.handle.get(), weights.span());
        check(unsafe { sys::mxq_routing_set_weights(raw, format as i32, weights.address(), weights.bytes()) })?;
        Ok(self.placed(&[("weights", weights.place())]))
    }

    /// The experts of this rank, `count` from `first` on; choices of others are dropped. 0 and 0: all.
    pub fn set_local_experts(&mut self, first: i32, count: i32) -> Result<&mut Self> {
        check(unsafe { sys::mxq_routing_set_local_experts(self.handle.get(), first, count) })?;
        Ok(self)
    }

    /// Memory for what [`route`](crate::route) computes, at a multiple of 256 bytes as [`Memory`](crate::Memory) is, of
    /// [`required_bytes`](Routing::required_bytes). It replaces computed arrays.
    pub fn set_memory(&mut self, memory: impl BufferMut<'a, Element = u8>) -> Result<&mut Self> {
        let memory = memory.span();
        check(unsafe { sys::mxq_routing_set_memory(self.handle.get(), memory.address(), memory.bytes()) })?;
        Ok(self.placed(&[
            ("memory", memory.place()),
            (ENDS, None),
            (ROW_TOKENS, None),
            (CHOICE_ROWS, None),
            (ROW_WEIGHTS, None),
        ]))
    }

    /// Bytes that [`set_memory`](Routing::set_memory) takes for these tokens, choices and experts of this rank.
    pub fn required_bytes(&self) -> Result<usize> {
        let mut bytes = 0;
        check(unsafe { sys::mxq_routing_required_bytes(self.handle.get(), &mut bytes) })?;
        Ok(bytes as usize)
    }

    /// Where [`route`](crate::route) counts ids that are out of range and not -1: one number. A CPU context writes 0.
    pub fn set_dropped(&mut self, dropped: impl BufferMut<'a, Element = i32>) -> Result<&mut Self> {
        let dropped = dropped.span();
        check(unsafe { sys::mxq_routing_set_dropped(self.handle.get(), dropped.address().cast(), dropped.bytes()) })?;
        Ok(self.placed(&[("dropped", dropped.place())]))
    }

    /// Arrays that another library computed as [`route`](crate::route) would, which then refuses the routing. They replace the
    /// memory. A CPU context refuses numbers out of range, CUDA takes them for -1.
    pub fn set_computed(
        &mut self,
        ends: impl Buffer<'a, Element = i32>,
        row_tokens: impl Buffer<'a, Element = i32>,
        choice_rows: impl Buffer<'a, Element = i32>,
        row_weights: Option<impl Buffer<'a, Element = f32>>,
    ) -> Result<&mut Self> {
        let (ends, row_tokens, choice_rows) = (ends.span(), row_tokens.span(), choice_rows.span());
        let row_weights = row_weights.map(|weights| weights.span());
        check(unsafe {
            sys::mxq_routing_set_computed(
                self.handle.get(),
                ends.address().cast(),
                ends.bytes(),
                row_tokens.address().cast(),
                row_tokens.bytes(),
                choice_rows.address().cast(),
                choice_rows.bytes(),
                row_weights.map_or(ptr::null(), |weights| weights.address().cast()),
                row_weights.map_or(0, |weights| weights.bytes()),
            )
        })?;
        let weights_place = row_weights.and_then(|weights| weights.place());
        Ok(self.placed(&[
            ("memory", None),
            (ENDS, ends.place()),
            (ROW_TOKENS, row_tokens.place()),
            (CHOICE_ROWS, choice_rows.place()),
            (ROW_WEIGHTS, weights_place),
        ]))
    }

    /// One past the last row of each expert of this rank, as [`route`](crate::route) left it; none without memory. Refused
    /// where it is in memory of a device: ask [`device_arrays`](Routing::device_arrays).
    pub fn ends(&self) -> Result<&[i32]> {
        self.host_array(ENDS, sys::mxq_routing_get_ends)
    }

    /// The token of each row; -1 past the last end. Otherwise as [`ends`](Routing::ends).
    pub fn row_tokens(&self) -> Result<&[i32]> {
        self.host_array(ROW_TOKENS, sys::mxq_routing_get_row_tokens)
    }

    /// The row of each choice, (T, k); -1 for one that is dropped. Otherwise as [`ends`](Routing::ends).
    pub fn choice_rows(&self) -> Result<&[i32]> {
        self.host_array(CHOICE_ROWS, sys::mxq_routing_get_choice_rows)
    }

    /// The weight of each row, which [`route`](crate::route) writes where weights are set. Otherwise as
    /// [`ends`](Routing::ends).
    pub fn row_weights(&self) -> Result<&[f32]> {
        self.host_array(ROW_WEIGHTS, sys::mxq_routing_get_row_weights)
    }

    /// The arrays in memory of a device. Refused where an array is in memory of the host.
    pub fn device_arrays(&self) -> Result<RoutingArrays<'_>> {
        Ok(RoutingArrays {
            ends: self.device_array(ENDS, sys::mxq_routing_get_ends)?,
            row_tokens: self.device_array(ROW_TOKENS, sys::mxq_routing_get_row_tokens)?,
            choice_rows: self.device_array(CHOICE_ROWS, sys::mxq_routing_get_choice_rows)?,
            row_weights: self.device_array(ROW_WEIGHTS, sys::mxq_routing_get_row_weights)?,
        })
    }

    /// Tokens, choices of each, and experts of all ranks.
    pub fn shape(&self) -> Result<(i64, i32, i32)> {
        let (mut tokens, mut choices, mut experts) = (0, 0, 0);
        check(unsafe { sys::mxq_routing_get_shape(self.handle.get(), &mut tokens, &mut choices, &mut experts) })?;
        Ok((tokens, choices, experts))
    }

    /// The C handle, for functions of [`sys`](crate::sys). What they are told must live as long as the routing.
    pub fn as_raw(&self) -> *mut sys::mxq_routing {
        self.handle.get()
    }

    pub(crate) fn places(&self) -> &Places {
        &self.places
    }

    /// Where an array is: in the memory, or where another library computed it.
    pub(crate) fn place_of(&self, array: &str) -> Option<Place> {
        self.places.of("memory").or_else(|| self.places.of(array))
    }

    fn array<T>(&self, get: Getter<T>) -> Result<(*const T, usize)> {
        let (mut address, mut bytes) = (ptr::null(), 0);
        // SAFETY: the handle is live.
        check(unsafe { get(self.handle.get(), &mut address, &mut bytes) })?;
        Ok((address, bytes as usize / std::mem::size_of::<T>()))
    }

    fn host_array<T>(&self, name: &str, get: Getter<T>) -> Result<&[T]> {
        let (address, count) = self.array(get)?;
        match self.place_of(name) {
            Some(Place::Cuda(ordinal)) => Err(elsewhere(name, &format!("CUDA {ordinal}"), "the host; call device_arrays")),
            Some(Place::Host) if count != 0 => {
                // SAFETY: the array lies in a buffer that is borrowed for 'a, at a multiple of its element's size, and every
                // verb that writes it takes the routing by &mut.
                Ok(unsafe { slice::from_raw_parts(address, count) })
            }
            _ => Ok(&[]),
        }
    }

    fn device_array<T>(&self, name: &str, get: Getter<T>) -> Result<DeviceSlice<'_, T>> {
        let (address, count) = self.array(get)?;
        match self.place_of(name) {
            // SAFETY: the array lies in memory that is there for 'a.
            Some(Place::Cuda(ordinal)) => Ok(unsafe { DeviceSlice::from_raw(address as u64, count, ordinal) }),
            Some(Place::Host) => Err(elsewhere(name, "the host", "a CUDA device; call the getter of its name")),
            None => Ok(unsafe { DeviceSlice::from_raw(0, 0, 0) }),
        }
    }

    fn placed(&mut self, buffers: &[(&'static str, Option<Place>)]) -> &mut Self {
        buffers.iter().for_each(|(name, place)| self.places.set(name, *place));
        self
    }
}

const ENDS: &str = "ends";
const ROW_TOKENS: &str = "row_tokens";
const CHOICE_ROWS: &str = "choice_rows";
const ROW_WEIGHTS: &str = "row_weights";

fn elsewhere(name: &str, got: &str, expected: &str) -> Error {
    Error::new(Status::InvalidArgument, format!("routing.{name} is memory of {got}, expected memory of {expected}"))
}

impl fmt::Debug for Routing<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (tokens, choices, experts) = self.shape().unwrap_or_default();
        write!(f, "Routing({tokens} tokens, {choices} of {experts} experts)")
    }
}
