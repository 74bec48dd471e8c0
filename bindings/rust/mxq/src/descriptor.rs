use crate::enums::{Format, Part};
use crate::error::{check, Result};
use crate::handle::Handle;
use crate::tensor::Tensor;
use mxq_sys as sys;
use std::ffi::c_void;
use std::fmt;
use std::ptr;

/// A descriptor without buffers, which is made once and bound to buffers for each call. Binding allocates nothing.
///
/// ```
/// # fn main() -> mxq::Result<()> {
/// use mxq::{Descriptor, Format, Tensor};
/// struct Layer {
///     x: Descriptor, // no lifetime: the buffers are those of each step
///     y: Descriptor,
/// }
/// let cpu = mxq::Context::cpu()?;
/// let mut layer = Layer { x: Tensor::new(Format::F32, 2, 64)?.unbind(), y: Tensor::new(Format::Bf16, 2, 64)?.unbind() };
/// for step in 0..3 {
///     let (values, mut out) = (vec![step as f32; 2 * 64], vec![0u16; 2 * 64]);
///     let (mut x, mut y) = (layer.x.bind()?, layer.y.bind()?);
///     mxq::convert(&cpu, None, x.set_const_data(&values)?, y.set_data(&mut out)?)?;
///     assert_eq!(out[0], [0x0000, 0x3F80, 0x4000][step]);
/// }
/// # Ok(()) }
/// ```
///
/// A tensor that is bound borrows the descriptor, which therefore serves one call at a time:
///
/// ```compile_fail,E0499
/// let mut kept = mxq::Tensor::new(mxq::Format::F32, 1, 4).unwrap().unbind();
/// let (first, second) = (kept.bind().unwrap(), kept.bind().unwrap());
/// println!("{first}");
/// ```
pub struct Descriptor {
    tensor: Tensor<'static>, // given out by bind alone, so that no verb sees addresses of an earlier call
}

impl Descriptor {
    /// Borrows the descriptor as a tensor without buffers, which its setters give it. A part that was declared stays so, and
    /// groups and rows by index stay, without their ends and indices.
    pub fn bind(&mut self) -> Result<Tensor<'_>> {
        self.clear_buffers()?;
        Ok(Tensor::of_handle(Handle::borrowed(self.tensor.as_raw()), self.tensor.format()))
    }

    /// Clears every address that an earlier tensor was given. Its drop cannot do so, since a program may leave it out
    /// (`std::mem::forget`).
    fn clear_buffers(&self) -> Result<()> {
        let (raw, format) = (self.tensor.as_raw(), self.tensor.format());
        // SAFETY: the handle is live, and NULL is no buffer.
        unsafe {
            if format.data_bytes().is_some() {
                check(sys::mxq_tensor_set_data(raw, ptr::null_mut(), 0))?;
                clear_row_indices(raw)?;
            } else {
                clear_part(raw, format, Part::Rowwise)?;
                clear_part(raw, format, Part::Columnwise)?;
            }
            if matches!(format, Format::Fp8E4m3 | Format::Fp8E5m2) {
                check(sys::mxq_tensor_set_quantization_scale(raw, ptr::null(), 0))?;
            }
            let (mut ends_type, mut count) = (0, 0);
            check(sys::mxq_tensor_get_groups(raw, ptr::null_mut(), ptr::null_mut(), &mut ends_type, &mut count))?;
            if ends_type != 0 {
                check(sys::mxq_tensor_set_groups(raw, ptr::null(), 0, ends_type, count))?;
            }
        }
        Ok(())
    }
}

/// Clears the address of indices of rows, and keeps that rows are by index.
///
/// # Safety
/// The handle must be live.
unsafe fn clear_row_indices(raw: *mut sys::mxq_tensor) -> Result<()> {
    let (mut index_type, mut source_rows) = (0, 0);
    let (null, unwanted) = (ptr::null_mut(), ptr::null_mut());
    check(sys::mxq_tensor_get_row_indices(raw, null, unwanted, &mut index_type, &mut source_rows))?;
    if index_type == 0 {
        return Ok(());
    }
    check(sys::mxq_tensor_set_row_indices(raw, ptr::null(), 0, index_type, source_rows))
}

/// Clears the addresses of a part.
///
/// # Safety
/// The handle must be live.
unsafe fn clear_part(raw: *mut sys::mxq_tensor, format: Format, part: Part) -> Result<()> {
    let (part, none) = (part as i32, ptr::null_mut::<c_void>());
    let mut declared = 0;
    let (null, unwanted) = (ptr::null_mut(), ptr::null_mut());
    check(sys::mxq_tensor_get_part(raw, part, &mut declared, null, unwanted, null, unwanted, ptr::null_mut()))?;
    if declared != 0 {
        check(sys::mxq_tensor_set_part(raw, part, none, 0, none, 0))?;
    }
    if format == Format::Nvfp4 {
        check(sys::mxq_tensor_set_decode_scale(raw, part, ptr::null(), 0))?;
    }
    if matches!(format, Format::Nvfp4 | Format::Fp8E4m3 | Format::Fp8E5m2) {
        check(sys::mxq_tensor_set_amax(raw, part, ptr::null_mut(), 0))?;
    }
    Ok(())
}

impl Tensor<'static> {
    /// Makes a descriptor of a tensor that has its format, shape, scaling and layout, and borrows nothing yet.
    pub fn unbind(self) -> Descriptor {
        Descriptor { tensor: self }
    }
}

impl fmt::Display for Descriptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.tensor.fmt(f)
    }
}

impl fmt::Debug for Descriptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Descriptor({self})")
    }
}
