use crate::elements::{of, of_mut, require_elements, Addresses, Element, End};
use crate::enums::{Format, Part, Scaling, Scope, Status};
use crate::error::{check, Error, Result};
use crate::handle::Handle;
use mxq_sys as sys;
use std::fmt;
use std::marker::PhantomData;
use std::mem::size_of_val;
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
pub struct Tensor<'a> {
    handle: Handle<sys::mxq_tensor>,
    format: Format,
    amax_is_const: [bool; 2], // of each part
    lists: [Addresses; 5],    // of the data, and of the codes and scales of each part: the library reads them during a call
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

    pub(crate) fn of_handle(handle: Handle<sys::mxq_tensor>, format: Format) -> Tensor<'a> {
        Tensor { handle, format, amax_is_const: [false; 2], lists: Default::default(), buffers: PhantomData }
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
    pub fn set_data<T: Element>(&mut self, data: &'a mut [T]) -> Result<&mut Self> {
        require_elements::<T>("data", self.format, self.format.data_bytes())?;
        let (address, bytes) = of_mut(data);
        self.done(unsafe { sys::mxq_tensor_set_data(self.handle.get(), address, bytes) })
    }

    /// Data of a plain tensor that is only read.
    pub fn set_const_data<T: Element>(&mut self, data: &'a [T]) -> Result<&mut Self> {
        require_elements::<T>("data", self.format, self.format.data_bytes())?;
        let (address, bytes) = of(data);
        self.done(unsafe { sys::mxq_tensor_set_const_data(self.handle.get(), address, bytes) })
    }

    /// Data of a plain 3-D tensor that is only read, as one slice for each expert. All have the same length.
    pub fn set_data_list<T: Element>(&mut self, experts: &[&'a [T]]) -> Result<&mut Self> {
        require_elements::<T>("experts", self.format, self.format.data_bytes())?;
        let data = Addresses::new("experts", experts)?;
        check(unsafe { sys::mxq_tensor_set_data_list(self.handle.get(), data.count(), data.as_ptr(), data.bytes) })?;
        self.lists[0] = data;
        Ok(self)
    }

    /// Codes and scales of a part, to read and write. Scales are bytes, or f32 for FP8 formats.
    pub fn set_part<T: Element>(&mut self, part: Part, codes: &'a mut [u8], scales: &'a mut [T]) -> Result<&mut Self> {
        require_elements::<T>("scales", self.format, self.format.scale_bytes())?;
        let ((codes, code_bytes), (scales, scale_bytes)) = (of_mut(codes), of_mut(scales));
        self.done(unsafe { sys::mxq_tensor_set_part(self.handle.get(), part as i32, codes, code_bytes, scales, scale_bytes) })
    }

    /// Codes and scales of a part that are only read.
    pub fn set_const_part<T: Element>(&mut self, part: Part, codes: &'a [u8], scales: &'a [T]) -> Result<&mut Self> {
        require_elements::<T>("scales", self.format, self.format.scale_bytes())?;
        let ((codes, code_bytes), (scales, scale_bytes)) = (of(codes), of(scales));
        self.done(unsafe {
            sys::mxq_tensor_set_const_part(self.handle.get(), part as i32, codes, code_bytes, scales, scale_bytes)
        })
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
        Ok(self)
    }

    /// One block for the named parts, or for the data of a plain tensor ([`Part::Rowwise`]), at a multiple of 256 bytes, as
    /// [`Memory`](crate::Memory) is. It takes [`total_bytes`](Tensor::total_bytes), also for the amax of NVFP4. Set format,
    /// scaling, layout, scope and groups before.
    pub fn set_memory(&mut self, parts: Part, memory: &'a mut [u8]) -> Result<&mut Self> {
        let (address, bytes) = of_mut(memory);
        self.done(unsafe { sys::mxq_tensor_set_memory(self.handle.get(), parts as i32, address, bytes) })
    }

    /// Declares a part without memory, for sizes and queries.
    pub fn declare_part(&mut self, part: Part) -> Result<&mut Self> {
        self.done(unsafe { sys::mxq_tensor_set_part(self.handle.get(), part as i32, ptr::null_mut(), 0, ptr::null_mut(), 0) })
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
    pub fn set_amax(&mut self, part: Part, amax: &'a mut [f32]) -> Result<&mut Self> {
        let (address, bytes) = of_mut(amax);
        check(unsafe { sys::mxq_tensor_set_amax(self.handle.get(), part as i32, address.cast(), bytes) })?;
        self.amax_is_const[part as usize - 1] = false;
        Ok(self)
    }

    /// The amax of a part that is only read, as [`set_const_part`](Tensor::set_const_part) sets codes and scales.
    pub fn set_const_amax(&mut self, part: Part, amax: &'a [f32]) -> Result<&mut Self> {
        let (address, bytes) = of(amax);
        check(unsafe { sys::mxq_tensor_set_amax(self.handle.get(), part as i32, address.cast_mut().cast(), bytes) })?;
        self.amax_is_const[part as usize - 1] = true;
        Ok(self)
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
    pub fn set_decode_scale(&mut self, part: Part, scale: &'a [f32]) -> Result<&mut Self> {
        let (address, bytes) = of(scale);
        self.done(unsafe { sys::mxq_tensor_set_decode_scale(self.handle.get(), part as i32, address.cast(), bytes) })
    }

    /// FP8 with TENSOR scales: the factor of delayed scaling.
    pub fn set_quantization_scale(&mut self, scale: &'a [f32]) -> Result<&mut Self> {
        let (address, bytes) = of(scale);
        self.done(unsafe { sys::mxq_tensor_set_quantization_scale(self.handle.get(), address.cast(), bytes) })
    }

    /// Groups of rows: ends\[g\], i32 or i64, is one past the last row of group g.
    pub fn set_groups<T: End>(&mut self, ends: &'a [T]) -> Result<&mut Self> {
        let bytes = size_of_val(ends) as u64;
        let count = i32::try_from(ends.len()).unwrap_or(i32::MAX); // more than the library takes
        self.done(unsafe { sys::mxq_tensor_set_groups(self.handle.get(), ends.as_ptr().cast(), bytes, T::TYPE as i32, count) })
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

    fn done(&mut self, status: sys::mxq_status) -> Result<&mut Self> {
        check(status).map(|()| self)
    }
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
