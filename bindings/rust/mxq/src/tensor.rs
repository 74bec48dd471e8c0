use crate::enums::{Format, Part, Scaling, Scope, Type};
use crate::error::{check, Result};
use mxq_sys as sys;
use std::ffi::c_void;
use std::fmt;
use std::marker::PhantomData;
use std::mem::size_of_val;
use std::os::raw::c_char;
use std::ptr;

/// A type whose values are plain bytes, any bits of which are a value: numbers, and 16-bit floats of other crates.
///
/// # Safety
/// The type must be without padding and have no invalid bit patterns.
pub unsafe trait Element: Copy {}

macro_rules! elements { ($($type:ty)*) => { $(
    // SAFETY: a primitive number.
    unsafe impl Element for $type {}
)* } }
elements!(f32 u8 i8 u16 i16);

/// A descriptor: format, shape, and buffers that it borrows for `'a`. It owns no tensor memory.
///
/// Setters borrow what they are given until the descriptor is gone, mutably where verbs may write it. So a result is read after
/// the descriptor was dropped, or last used. A buffer may not go before it:
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
pub struct Tensor<'a> {
    raw: *mut sys::mxq_tensor,
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
        Ok(Tensor { raw, buffers: PhantomData })
    }

    /// A descriptor for experts x rows x cols.
    pub fn new_3d(format: Format, experts: i64, rows: i64, cols: i64) -> Result<Tensor<'a>> {
        let mut raw = ptr::null_mut();
        // SAFETY: writes a handle to raw.
        check(unsafe { sys::mxq_tensor_create_3d(format as i32, experts, rows, cols, &mut raw) })?;
        Ok(Tensor { raw, buffers: PhantomData })
    }

    /// Which elements share a scale.
    pub fn set_scaling(&mut self, scaling: Scaling) -> Result<&mut Self> {
        // SAFETY: the handle is live, as in all functions below.
        self.done(unsafe { sys::mxq_tensor_set_scaling(self.raw, scaling as i32) })
    }

    /// Whether scales are in the layout of block-scaled tensor cores.
    pub fn set_swizzled(&mut self, swizzled: bool) -> Result<&mut Self> {
        self.done(unsafe { sys::mxq_tensor_set_swizzled(self.raw, swizzled.into()) })
    }

    /// Elements from one row of a plain tensor to the next.
    pub fn set_row_stride(&mut self, elements: i64) -> Result<&mut Self> {
        self.done(unsafe { sys::mxq_tensor_set_row_stride(self.raw, elements) })
    }

    /// How far one amax, decode scale, quantization scale or TENSOR scale reaches.
    pub fn set_scope(&mut self, scope: Scope) -> Result<&mut Self> {
        self.done(unsafe { sys::mxq_tensor_set_scope(self.raw, scope as i32) })
    }

    /// NVFP4: the largest block scale, 448 or 256.
    pub fn set_scale_max(&mut self, scale_max: i32) -> Result<&mut Self> {
        self.done(unsafe { sys::mxq_tensor_set_scale_max(self.raw, scale_max) })
    }

    /// Values of the part went through a random Hadamard transform with this mask of signs; None: they did not.
    pub fn set_hadamard(&mut self, part: Part, mask: Option<i32>) -> Result<&mut Self> {
        let transformed = mask.is_some().into();
        self.done(unsafe { sys::mxq_tensor_set_hadamard(self.raw, part as i32, transformed, mask.unwrap_or(0)) })
    }

    /// Data of a plain tensor, to read and write.
    pub fn set_data<T: Element>(&mut self, data: &'a mut [T]) -> Result<&mut Self> {
        let (address, bytes) = of_mut(data);
        self.done(unsafe { sys::mxq_tensor_set_data(self.raw, address, bytes) })
    }

    /// Data of a plain tensor that is only read.
    pub fn set_const_data<T: Element>(&mut self, data: &'a [T]) -> Result<&mut Self> {
        let (address, bytes) = of(data);
        self.done(unsafe { sys::mxq_tensor_set_const_data(self.raw, address, bytes) })
    }

    /// Codes and scales of a part, to read and write. Scales are bytes, or f32 for FP8 formats.
    pub fn set_part<T: Element>(&mut self, part: Part, codes: &'a mut [u8], scales: &'a mut [T]) -> Result<&mut Self> {
        let ((codes, code_bytes), (scales, scale_bytes)) = (of_mut(codes), of_mut(scales));
        self.done(unsafe { sys::mxq_tensor_set_part(self.raw, part as i32, codes, code_bytes, scales, scale_bytes) })
    }

    /// Codes and scales of a part that are only read.
    pub fn set_const_part<T: Element>(&mut self, part: Part, codes: &'a [u8], scales: &'a [T]) -> Result<&mut Self> {
        let ((codes, code_bytes), (scales, scale_bytes)) = (of(codes), of(scales));
        self.done(unsafe { sys::mxq_tensor_set_const_part(self.raw, part as i32, codes, code_bytes, scales, scale_bytes) })
    }

    /// Declares a part without memory, for sizes and queries.
    pub fn declare_part(&mut self, part: Part) -> Result<&mut Self> {
        self.done(unsafe { sys::mxq_tensor_set_part(self.raw, part as i32, ptr::null_mut(), 0, ptr::null_mut(), 0) })
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
            sys::mxq_tensor_set_strides(self.raw, part as i32, code_line, code_expert, scale_line, scale_expert)
        })
    }

    /// The largest magnitude of a part, which verbs write or read.
    pub fn set_amax(&mut self, part: Part, amax: &'a mut [f32]) -> Result<&mut Self> {
        let (address, bytes) = of_mut(amax);
        self.done(unsafe { sys::mxq_tensor_set_amax(self.raw, part as i32, address.cast(), bytes) })
    }

    /// NVFP4: the decode scale of a part, in place of its amax.
    pub fn set_decode_scale(&mut self, part: Part, scale: &'a [f32]) -> Result<&mut Self> {
        let (address, bytes) = of(scale);
        self.done(unsafe { sys::mxq_tensor_set_decode_scale(self.raw, part as i32, address.cast(), bytes) })
    }

    /// FP8 with TENSOR scales: the factor of delayed scaling.
    pub fn set_quantization_scale(&mut self, scale: &'a [f32]) -> Result<&mut Self> {
        let (address, bytes) = of(scale);
        self.done(unsafe { sys::mxq_tensor_set_quantization_scale(self.raw, address.cast(), bytes) })
    }

    /// Groups of rows: ends\[g\] is one past the last row of group g.
    pub fn set_groups(&mut self, ends: &'a [i32]) -> Result<&mut Self> {
        let bytes = size_of_val(ends) as u64;
        let count = ends.len() as i32;
        self.done(unsafe { sys::mxq_tensor_set_groups(self.raw, ends.as_ptr().cast(), bytes, Type::Int32 as i32, count) })
    }

    /// The alignments that groups are padded to, of rows and of columns of columnwise codes; columnwise 0: the default.
    pub fn set_group_alignment(&mut self, rowwise: i32, columnwise: i32) -> Result<&mut Self> {
        self.done(unsafe { sys::mxq_tensor_set_group_alignment(self.raw, rowwise, columnwise) })
    }

    /// Whether every row belongs to a group, which calls then check.
    pub fn set_groups_cover_rows(&mut self, cover: bool) -> Result<&mut Self> {
        self.done(unsafe { sys::mxq_tensor_set_groups_cover_rows(self.raw, cover.into()) })
    }

    /// Bytes of codes and bytes of scales that a part needs; of a plain tensor, [`Part::Rowwise`] tells the bytes of its data.
    pub fn required_bytes(&self, part: Part) -> Result<(usize, usize)> {
        let (mut codes, mut scales) = (0, 0);
        check(unsafe { sys::mxq_tensor_required_bytes(self.raw, part as i32, &mut codes, &mut scales) })?;
        Ok((codes as usize, scales as usize))
    }

    /// Numbers that the amax of a part has; 0 for a format without one.
    pub fn required_amax_count(&self, part: Part) -> Result<usize> {
        let mut bytes = 0;
        check(unsafe { sys::mxq_tensor_required_amax_bytes(self.raw, part as i32, &mut bytes) })?;
        Ok(bytes as usize / 4)
    }

    /// Experts (1 for a matrix), rows and cols.
    pub fn shape(&self) -> Result<(i64, i64, i64)> {
        let (mut experts, mut rows, mut cols) = (0, 0, 0);
        check(unsafe { sys::mxq_tensor_get_shape(self.raw, ptr::null_mut(), &mut experts, &mut rows, &mut cols) })?;
        Ok((experts, rows, cols))
    }

    /// The C handle, for functions of [`sys`](crate::sys). What they are told must live as long as the descriptor.
    pub fn as_raw(&self) -> *mut sys::mxq_tensor {
        self.raw
    }

    fn done(&mut self, status: sys::mxq_status) -> Result<&mut Self> {
        check(status).map(|()| self)
    }
}

fn of<T: Element>(slice: &[T]) -> (*const c_void, u64) {
    let address: *const c_void = if slice.is_empty() { ptr::null() } else { slice.as_ptr().cast() };
    (address, size_of_val(slice) as u64)
}

fn of_mut<T: Element>(slice: &mut [T]) -> (*mut c_void, u64) {
    let bytes = size_of_val(slice) as u64;
    (if slice.is_empty() { ptr::null_mut() } else { slice.as_mut_ptr().cast() }, bytes)
}

impl Drop for Tensor<'_> {
    fn drop(&mut self) {
        // SAFETY: calls borrow the descriptor, so none is reading it.
        unsafe { sys::mxq_tensor_destroy(self.raw) }
    }
}

impl fmt::Display for Tensor<'_> {
    /// Returns what the log calls the tensor, such as "mxfp8_e4m3 100 x 64 in 4 groups 1x32 rowwise swizzled".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut buffer = [0u8; 512];
        // SAFETY: the library writes at most the size, with a 0 at the end.
        let length = unsafe { sys::mxq_tensor_describe(self.raw, buffer.as_mut_ptr() as *mut c_char, buffer.len() as u64) };
        let shown = (length as usize).min(buffer.len() - 1);
        f.write_str(&String::from_utf8_lossy(&buffer[..shown]))
    }
}

impl fmt::Debug for Tensor<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tensor({self})")
    }
}
