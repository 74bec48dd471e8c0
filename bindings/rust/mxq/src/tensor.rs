use crate::buffers::{Buffer, BufferMut};
use crate::device::{DeviceSlice, Place, Places};
use crate::elements::{require_elements, Addresses, Element, Integer};
use crate::enums::{Format, Part, Scaling, Scope, Status, Type};
use crate::error::{check, Error, Result};
use crate::handle::Handle;
use crate::routing::Routing;
use mxq_sys as sys;
use std::fmt;
use std::marker::PhantomData;
use std::os::raw::c_char;
use std::ptr;

/// A descriptor: format, shape, and buffers that it borrows for `'a`. It owns no tensor memory.
///
/// Setters borrow what they are given until the descriptor was last used, mutably where verbs may write it. A result is read
/// after that. A buffer may not go before:
///
/// ```compile_fail,E0597
/// let mut x = mxq::Tensor::new(mxq::Format::F32, 1, 4).unwrap();
/// {
///     let values = [0f32; 4];
///     x.set_const_data(&values).unwrap(); // `values` does not live long enough
/// }
/// println!("{x}");
/// ```
///
/// and may not be read while a verb could write it:
///
/// ```compile_fail,E0502
/// let mut values = [0f32; 4];
/// let mut x = mxq::Tensor::new(mxq::Format::F32, 1, 4).unwrap();
/// x.set_data(&mut values).unwrap();
/// println!("{}", values[0]); // borrowed by the descriptor
/// println!("{x}");
/// ```
///
/// A [`Descriptor`](crate::Descriptor) outlives its buffers, and gives such a tensor for each call.
///
/// Each setter of a buffer also takes a [`DeviceSlice`]. Verbs then refuse a context of another device:
///
/// ```
/// # fn main() -> mxq::Result<()> {
/// let (cpu, mut y) = (mxq::Context::cpu()?, [0u16; 4]);
/// let x = unsafe { mxq::Tensor::from_device_ptr(mxq::Format::F32, 1, 4, 0x10000, 0)? };
/// let mut out = mxq::Tensor::new(mxq::Format::Bf16, 1, 4)?;
/// let error = mxq::convert(&cpu, None, &x, out.set_data(&mut y)?).unwrap_err();
/// assert!(error.message().contains("in.data is memory of CUDA 0, expected memory of the host"));
/// # Ok(()) }
/// ```
pub struct Tensor<'a> {
    handle: Handle<sys::mxq_tensor>,
    format: Format,
    amax_is_const: [bool; 2], // of each part
    lists: [Addresses; 5],    // of the data, and of the codes and scales of each part: the library reads them during a call
    places: Places,
    buffers: PhantomData<&'a mut [u8]>,
}

// SAFETY: a descriptor may be read by many calls at once; setters take &mut, and verbs that write the buffers do, too.
unsafe impl Send for Tensor<'_> {}
// SAFETY: as above.
unsafe impl Sync for Tensor<'_> {}

impl<'a> Tensor<'a> {
    /// A descriptor for rows x cols.
    pub fn new(format: Format, rows: i64, cols: i64) -> Result<Tensor<'a>> {
        let mut raw = ptr::null_mut();
        // SAFETY: writes a handle to raw.
        check(unsafe { sys::mxq_tensor_create_2d(format as i32, rows, cols, &mut raw) })?;
        Ok(Tensor::of_handle(Handle::owned(raw, sys::mxq_tensor_destroy), format))
    }

    /// A descriptor for experts x rows x cols.
    pub fn new_3d(format: Format, experts: i64, rows: i64, cols: i64) -> Result<Tensor<'a>> {
        let mut raw = ptr::null_mut();
        // SAFETY: writes a handle to raw.
        check(unsafe { sys::mxq_tensor_create_3d(format as i32, experts, rows, cols, &mut raw) })?;
        Ok(Tensor::of_handle(Handle::owned(raw, sys::mxq_tensor_destroy), format))
    }

    /// A plain tensor of rows x cols that are in memory of the CUDA device `ordinal`, one row after another, from `address` on.
    /// For experts, columns of something larger, or codes and scales, give [`DeviceSlice`]s to the setters.
    ///
    /// # Safety
    /// The memory must be there for `'a`, and hold rows x cols numbers of the format.
    pub unsafe fn from_device_ptr(format: Format, rows: i64, cols: i64, address: u64, ordinal: i32) -> Result<Tensor<'a>> {
        let mut tensor = Tensor::new(format, rows, cols)?;
        let (bytes, _) = tensor.required_bytes(Part::Rowwise)?;
        tensor.set_data(DeviceSlice::<u8>::from_raw(address, bytes, ordinal))?;
        Ok(tensor)
    }

    pub(crate) fn of_handle(handle: Handle<sys::mxq_tensor>, format: Format) -> Tensor<'a> {
        Tensor {
            handle,
            format,
            amax_is_const: [false; 2],
            lists: Default::default(),
            places: Places::default(),
            buffers: PhantomData,
        }
    }

    /// Which elements share a scale.
    pub fn set_scaling(&mut self, scaling: Scaling) -> Result<&mut Self> {
        // SAFETY: the handle is live, as in all functions below.
        self.done(unsafe { sys::mxq_tensor_set_scaling(self.handle.get(), scaling as i32) })
    }

    /// Whether scales are in the layout of block-scaled tensor cores.
    pub fn set_swizzled(&mut self, swizzled: bool) -> Result<&mut Self> {
        self.done(unsafe { sys::mxq_tensor_set_swizzled(self.handle.get(), swizzled.into()) })
    }

    /// Elements from one row of a plain tensor to the next.
    pub fn set_row_stride(&mut self, elements: i64) -> Result<&mut Self> {
        self.done(unsafe { sys::mxq_tensor_set_row_stride(self.handle.get(), elements) })
    }

    /// How far one amax, decode scale, quantization scale or TENSOR scale reaches.
    pub fn set_scope(&mut self, scope: Scope) -> Result<&mut Self> {
        self.done(unsafe { sys::mxq_tensor_set_scope(self.handle.get(), scope as i32) })
    }

    /// NVFP4: the largest block scale, 448 or 256.
    pub fn set_scale_max(&mut self, scale_max: i32) -> Result<&mut Self> {
        self.done(unsafe { sys::mxq_tensor_set_scale_max(self.handle.get(), scale_max) })
    }

    /// Values of the part went through a random Hadamard transform with this mask of signs; None: they did not.
    pub fn set_hadamard(&mut self, part: Part, mask: Option<i32>) -> Result<&mut Self> {
        let transformed = mask.is_some().into();
        self.done(unsafe { sys::mxq_tensor_set_hadamard(self.handle.get(), part as i32, transformed, mask.unwrap_or(0)) })
    }

    /// Data of a plain tensor, to read and write: f32, u16 or i16 for 16-bit formats, or bytes.
    pub fn set_data<T: Element>(&mut self, data: impl BufferMut<'a, Element = T>) -> Result<&mut Self> {
        require_elements::<T>("data", self.format, self.format.data_bytes())?;
        let data = data.span();
        check(unsafe { sys::mxq_tensor_set_data(self.handle.get(), data.address(), data.bytes()) })?;
        Ok(self.placed(&[("data", data.place())]))
    }

    /// Data of a plain tensor that is only read.
    pub fn set_const_data<T: Element>(&mut self, data: impl Buffer<'a, Element = T>) -> Result<&mut Self> {
        require_elements::<T>("data", self.format, self.format.data_bytes())?;
        let data = data.span();
        check(unsafe { sys::mxq_tensor_set_const_data(self.handle.get(), data.address(), data.bytes()) })?;
        Ok(self.placed(&[("data", data.place())]))
    }

    /// Data of a plain 3-D tensor that is only read, as one slice for each expert. All have the same length.
    pub fn set_data_list<T: Element>(&mut self, experts: &[&'a [T]]) -> Result<&mut Self> {
        require_elements::<T>("experts", self.format, self.format.data_bytes())?;
        let data = Addresses::new("experts", experts)?;
        check(unsafe { sys::mxq_tensor_set_data_list(self.handle.get(), data.count(), data.as_ptr(), data.bytes) })?;
        self.lists[0] = data;
        Ok(self.placed(&[("data", Some(Place::Host))]))
    }

    /// Codes and scales of a part, to read and write. Scales are bytes, or f32 for FP8 formats.
    pub fn set_part<T: Element>(
        &mut self,
        part: Part,
        codes: impl BufferMut<'a, Element = u8>,
        scales: impl BufferMut<'a, Element = T>,
    ) -> Result<&mut Self> {
        require_elements::<T>("scales", self.format, self.format.scale_bytes())?;
        let (raw, codes, scales) = (self.handle.get(), codes.span(), scales.span());
        check(unsafe {
            sys::mxq_tensor_set_part(raw, part as i32, codes.address(), codes.bytes(), scales.address(), scales.bytes())
        })?;
        Ok(self.placed(&[(name(part, CODES), codes.place()), (name(part, SCALES), scales.place())]))
    }

    /// Codes and scales of a part that are only read.
    pub fn set_const_part<T: Element>(
        &mut self,
        part: Part,
        codes: impl Buffer<'a, Element = u8>,
        scales: impl Buffer<'a, Element = T>,
    ) -> Result<&mut Self> {
        require_elements::<T>("scales", self.format, self.format.scale_bytes())?;
        let (raw, codes, scales) = (self.handle.get(), codes.span(), scales.span());
        check(unsafe {
            sys::mxq_tensor_set_const_part(raw, part as i32, codes.address(), codes.bytes(), scales.address(), scales.bytes())
        })?;
        Ok(self.placed(&[(name(part, CODES), codes.place()), (name(part, SCALES), scales.place())]))
    }

    /// Codes and scales of a part of a 3-D tensor that are only read, as one slice of each for each expert. All slices of codes
    /// have the same length, and all slices of scales.
    pub fn set_part_list<T: Element>(&mut self, part: Part, codes: &[&'a [u8]], scales: &[&'a [T]]) -> Result<&mut Self> {
        require_elements::<T>("scales", self.format, self.format.scale_bytes())?;
        let (codes, scales) = (Addresses::new("codes", codes)?, Addresses::new("scales", scales)?);
        codes.require_count("codes", &scales, "scales")?;
        check(unsafe {
            sys::mxq_tensor_set_part_list(
                self.handle.get(),
                part as i32,
                codes.count(),
                codes.as_ptr(),
                codes.bytes,
                scales.as_ptr(),
                scales.bytes,
            )
        })?;
        let first = 2 * part as usize - 1; // rowwise 1, columnwise 3
        self.lists[first] = codes;
        self.lists[first + 1] = scales;
        Ok(self.placed(&[(name(part, CODES), Some(Place::Host)), (name(part, SCALES), Some(Place::Host))]))
    }

    /// One block for the named parts, or for the data of a plain tensor ([`Part::Rowwise`]), at a multiple of 256 bytes, as
    /// [`Memory`](crate::Memory) is. It takes [`total_bytes`](Tensor::total_bytes), also for the amax of NVFP4. Set format,
    /// scaling, layout, scope and groups before.
    pub fn set_memory(&mut self, parts: Part, memory: impl BufferMut<'a, Element = u8>) -> Result<&mut Self> {
        let memory = memory.span();
        let place = memory.place();
        check(unsafe { sys::mxq_tensor_set_memory(self.handle.get(), parts as i32, memory.address(), memory.bytes()) })?;
        if self.format.data_bytes().is_some() {
            return Ok(self.placed(&[("data", place)]));
        }
        for part in [Part::Rowwise, Part::Columnwise].into_iter().filter(|part| parts == *part || parts == Part::Both) {
            self.placed(&[(name(part, CODES), place), (name(part, SCALES), place)]);
            if self.format == Format::Nvfp4 {
                self.amax_is_const[part as usize - 1] = false;
                self.placed(&[(name(part, AMAX), place)]);
            }
        }
        Ok(self)
    }

    /// Declares a part without memory, for sizes and queries.
    pub fn declare_part(&mut self, part: Part) -> Result<&mut Self> {
        let (raw, none) = (self.handle.get(), ptr::null_mut());
        check(unsafe { sys::mxq_tensor_set_part(raw, part as i32, none, 0, none, 0) })?;
        Ok(self.placed(&[(name(part, CODES), None), (name(part, SCALES), None)]))
    }

    /// Distances in bytes between lines and experts of a part that is a piece of something larger; 0: one after another.
    pub fn set_strides(
        &mut self,
        part: Part,
        code_line: i64,
        code_expert: i64,
        scale_line: i64,
        scale_expert: i64,
    ) -> Result<&mut Self> {
        self.done(unsafe {
            sys::mxq_tensor_set_strides(self.handle.get(), part as i32, code_line, code_expert, scale_line, scale_expert)
        })
    }

    /// The largest magnitude of a part, which verbs write or read.
    pub fn set_amax(&mut self, part: Part, amax: impl BufferMut<'a, Element = f32>) -> Result<&mut Self> {
        let amax = amax.span();
        check(unsafe { sys::mxq_tensor_set_amax(self.handle.get(), part as i32, amax.address().cast(), amax.bytes()) })?;
        self.amax_is_const[part as usize - 1] = false;
        Ok(self.placed(&[(name(part, AMAX), amax.place())]))
    }

    /// The amax of a part that is only read, as [`set_const_part`](Tensor::set_const_part) sets codes and scales.
    pub fn set_const_amax(&mut self, part: Part, amax: impl Buffer<'a, Element = f32>) -> Result<&mut Self> {
        let amax = amax.span();
        check(unsafe { sys::mxq_tensor_set_amax(self.handle.get(), part as i32, amax.address().cast(), amax.bytes()) })?;
        self.amax_is_const[part as usize - 1] = true;
        Ok(self.placed(&[(name(part, AMAX), amax.place())]))
    }

    /// Refuses an amax that is only read where a verb may write it.
    pub(crate) fn require_amax_to_write(&self) -> Result<()> {
        if !self.amax_is_const.contains(&true) {
            return Ok(());
        }
        let message = format!("{self} has an amax that may only be read, expected one that this verb may write; call set_amax");
        Err(Error::new(Status::InvalidArgument, message))
    }

    /// NVFP4: the decode scale of a part, in place of its amax.
    pub fn set_decode_scale(&mut self, part: Part, scale: impl Buffer<'a, Element = f32>) -> Result<&mut Self> {
        let (raw, scale) = (self.handle.get(), scale.span());
        check(unsafe { sys::mxq_tensor_set_decode_scale(raw, part as i32, scale.address().cast(), scale.bytes()) })?;
        Ok(self.placed(&[(name(part, DECODE_SCALE), scale.place())]))
    }

    /// FP8 with TENSOR scales: the factor of delayed scaling.
    pub fn set_quantization_scale(&mut self, scale: impl Buffer<'a, Element = f32>) -> Result<&mut Self> {
        let scale = scale.span();
        check(unsafe { sys::mxq_tensor_set_quantization_scale(self.handle.get(), scale.address().cast(), scale.bytes()) })?;
        Ok(self.placed(&[("quantization_scale", scale.place())]))
    }

    /// Groups of rows: ends\[g\], i32 or i64, is one past the last row of group g.
    pub fn set_groups<T: Integer>(&mut self, ends: impl Buffer<'a, Element = T>) -> Result<&mut Self> {
        let ends = ends.span();
        let count = i32::try_from(ends.count::<T>()).unwrap_or(i32::MAX); // more than the library takes
        let raw = self.handle.get();
        check(unsafe { sys::mxq_tensor_set_groups(raw, ends.start(), ends.bytes(), T::TYPE as i32, count) })?;
        Ok(self.placed(&[("groups", ends.place())]))
    }

    /// Declares groups without their ends, for sizes and queries.
    pub fn declare_groups(&mut self, count: i32, ends_type: Type) -> Result<&mut Self> {
        check(unsafe { sys::mxq_tensor_set_groups(self.handle.get(), ptr::null(), 0, ends_type as i32, count) })?;
        Ok(self.placed(&[("groups", None)]))
    }

    /// A copy of the ends in memory of the host, of the type and count given to [`set_groups`](Tensor::set_groups), which is
    /// called first. On CUDA it lets a grouped product take an implementation with one call for each group.
    pub fn set_host_ends<T: Integer>(&mut self, ends: &'a [T]) -> Result<&mut Self> {
        let bytes = std::mem::size_of_val(ends) as u64;
        self.done(unsafe { sys::mxq_tensor_set_host_ends(self.handle.get(), ends.as_ptr().cast(), bytes) })
    }

    /// Where [`pad_groups`](crate::pad_groups) and [`unpad_groups`](crate::unpad_groups) write the start and the end of each
    /// group in a part, padding included: as many integers as there are groups, of the type of the ends.
    pub fn set_padded_groups<T: Integer>(
        &mut self,
        part: Part,
        starts: impl BufferMut<'a, Element = T>,
        ends: impl BufferMut<'a, Element = T>,
    ) -> Result<&mut Self> {
        let (raw, starts, ends) = (self.handle.get(), starts.span(), ends.span());
        check(unsafe {
            sys::mxq_tensor_set_padded_groups(raw, part as i32, starts.address(), starts.bytes(), ends.address(), ends.bytes())
        })?;
        Ok(self.placed(&[(name(part, PADDED_STARTS), starts.place()), (name(part, PADDED_ENDS), ends.place())]))
    }

    /// Rows of a plain matrix by index: row i is row indices\[i\] of its data, which have `source_rows` rows; -1 is a row of
    /// zeros. One i32 or i64 for each row. A CPU context refuses other numbers out of range, CUDA takes them for -1.
    pub fn set_row_indices<T: Integer>(
        &mut self,
        indices: impl Buffer<'a, Element = T>,
        source_rows: i64,
    ) -> Result<&mut Self> {
        let (raw, indices) = (self.handle.get(), indices.span());
        check(unsafe {
            sys::mxq_tensor_set_row_indices(raw, indices.address(), indices.bytes(), T::TYPE as i32, source_rows)
        })?;
        Ok(self.placed(&[("row_indices", indices.place())]))
    }

    /// Declares rows by index without the indices, for sizes and queries.
    pub fn declare_row_indices(&mut self, index_type: Type, source_rows: i64) -> Result<&mut Self> {
        let (raw, none) = (self.handle.get(), ptr::null());
        check(unsafe { sys::mxq_tensor_set_row_indices(raw, none, 0, index_type as i32, source_rows) })?;
        Ok(self.placed(&[("row_indices", None)]))
    }

    /// The rows of the tokens that a routing chose, by expert: sets the routing's groups and, as indices, its row_tokens. The
    /// matrix has tokens x choices rows, its data one for each token. The routing stays borrowed, since
    /// [`route`](crate::route) would change both.
    pub fn set_routing_rows(&mut self, routing: &'a Routing<'_>) -> Result<&mut Self> {
        check(unsafe { sys::mxq_tensor_set_routing_rows(self.handle.get(), routing.as_raw()) })?;
        Ok(self.placed_by(routing, &[("groups", "ends"), ("row_indices", "row_tokens")]))
    }

    /// The groups of a routing, for a matrix of tokens x choices rows: the ends of the experts of this rank.
    pub fn set_routing_groups(&mut self, routing: &'a Routing<'_>) -> Result<&mut Self> {
        check(unsafe { sys::mxq_tensor_set_routing_groups(self.handle.get(), routing.as_raw()) })?;
        Ok(self.placed_by(routing, &[("groups", "ends")]))
    }

    /// The alignments that groups are padded to, of rows and of columns of columnwise codes; columnwise 0: the default.
    pub fn set_group_alignment(&mut self, rowwise: i32, columnwise: i32) -> Result<&mut Self> {
        self.done(unsafe { sys::mxq_tensor_set_group_alignment(self.handle.get(), rowwise, columnwise) })
    }

    /// Whether every row belongs to a group, which calls then check.
    pub fn set_groups_cover_rows(&mut self, cover: bool) -> Result<&mut Self> {
        self.done(unsafe { sys::mxq_tensor_set_groups_cover_rows(self.handle.get(), cover.into()) })
    }

    /// Bytes of codes and bytes of scales that a part needs; of a plain tensor, [`Part::Rowwise`] tells the bytes of its data.
    pub fn required_bytes(&self, part: Part) -> Result<(usize, usize)> {
        let (mut codes, mut scales) = (0, 0);
        check(unsafe { sys::mxq_tensor_required_bytes(self.handle.get(), part as i32, &mut codes, &mut scales) })?;
        Ok((codes as usize, scales as usize))
    }

    /// Bytes of the block that [`set_memory`](Tensor::set_memory) takes for the named parts. With groups, they suffice for any
    /// ends.
    pub fn total_bytes(&self, parts: Part) -> Result<usize> {
        let mut bytes = 0;
        check(unsafe { sys::mxq_tensor_total_bytes(self.handle.get(), parts as i32, &mut bytes) })?;
        Ok(bytes as usize)
    }

    /// Numbers that the amax of a part has; 0 for a format without one.
    pub fn required_amax_count(&self, part: Part) -> Result<usize> {
        let mut bytes = 0;
        check(unsafe { sys::mxq_tensor_required_amax_bytes(self.handle.get(), part as i32, &mut bytes) })?;
        Ok(bytes as usize / 4)
    }

    /// Experts (1 for a matrix), rows and cols.
    pub fn shape(&self) -> Result<(i64, i64, i64)> {
        let (mut experts, mut rows, mut cols) = (0, 0, 0);
        check(unsafe { sys::mxq_tensor_get_shape(self.handle.get(), ptr::null_mut(), &mut experts, &mut rows, &mut cols) })?;
        Ok((experts, rows, cols))
    }

    /// The format.
    pub fn format(&self) -> Format {
        self.format
    }

    /// The C handle, for functions of [`sys`](crate::sys). What they are told must live as long as the descriptor.
    pub fn as_raw(&self) -> *mut sys::mxq_tensor {
        self.handle.get()
    }

    pub(crate) fn places(&self) -> &Places {
        &self.places
    }

    /// Whether its data or a part is a list of experts, whose addresses live in this value.
    pub(crate) fn has_lists(&self) -> bool {
        self.lists.iter().any(|list| list.count() != 0)
    }

    fn done(&mut self, status: sys::mxq_status) -> Result<&mut Self> {
        check(status).map(|()| self)
    }

    /// Records where buffers are.
    fn placed(&mut self, buffers: &[(&'static str, Option<Place>)]) -> &mut Self {
        buffers.iter().for_each(|(name, place)| self.places.set(name, *place));
        self
    }

    /// Records buffers that are arrays of a routing.
    fn placed_by(&mut self, routing: &Routing, arrays: &[(&'static str, &str)]) -> &mut Self {
        arrays.iter().for_each(|(name, array)| self.places.set(name, routing.place_of(array)));
        self
    }
}

const CODES: [&str; 2] = ["rowwise.codes", "columnwise.codes"];
const SCALES: [&str; 2] = ["rowwise.scales", "columnwise.scales"];
const AMAX: [&str; 2] = ["rowwise.amax", "columnwise.amax"];
const DECODE_SCALE: [&str; 2] = ["rowwise.decode_scale", "columnwise.decode_scale"];
const PADDED_STARTS: [&str; 2] = ["rowwise.padded_starts", "columnwise.padded_starts"];
const PADDED_ENDS: [&str; 2] = ["rowwise.padded_ends", "columnwise.padded_ends"];

/// The name of a buffer of one part, which a setter has taken.
fn name(part: Part, of_parts: [&'static str; 2]) -> &'static str {
    of_parts[usize::from(part == Part::Columnwise)]
}

impl fmt::Display for Tensor<'_> {
    /// Returns what the log calls the tensor, such as "mxfp8_e4m3 100 x 64 in 4 groups 1x32 rowwise swizzled".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut buffer = [0u8; 512];
        // SAFETY: the library writes at most the size, with a 0 at the end.
        let length =
            unsafe { sys::mxq_tensor_describe(self.handle.get(), buffer.as_mut_ptr() as *mut c_char, buffer.len() as u64) };
        let shown = (length as usize).min(buffer.len() - 1);
        f.write_str(&String::from_utf8_lossy(&buffer[..shown]))
    }
}

impl fmt::Debug for Tensor<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tensor({self})")
    }
}
