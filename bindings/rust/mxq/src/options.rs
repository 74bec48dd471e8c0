use crate::buffers::Buffer;
use crate::device::Places;
use crate::elements::{require_elements, Element};
use crate::enums::{Format, FourOverSix, Nonfinite, Part, ScaleRounding, Transpose};
use crate::error::{check, Result};
use crate::handle::Handle;
use mxq_sys as sys;
use std::ffi::CString;
use std::marker::PhantomData;
use std::ptr;

/// Options of every verb but products; borrows the seed of stochastic rounding for `'a`.
pub struct QuantizeOptions<'a> {
    handle: Handle<sys::mxq_quantize_options>,
    places: Places,
    seed: PhantomData<&'a [u64]>,
}

/// Options of products; borrows the bias for `'a`.
pub struct GemmOptions<'a> {
    handle: Handle<sys::mxq_gemm_options>,
    places: Places,
    bias: PhantomData<&'a [u8]>,
}

// SAFETY: options may be read by many calls at once; setters take &mut.
unsafe impl Send for QuantizeOptions<'_> {}
// SAFETY: as above.
unsafe impl Sync for QuantizeOptions<'_> {}
// SAFETY: as above.
unsafe impl Send for GemmOptions<'_> {}
// SAFETY: as above.
unsafe impl Sync for GemmOptions<'_> {}

impl<'a> QuantizeOptions<'a> {
    /// All defaults.
    pub fn new() -> Result<QuantizeOptions<'a>> {
        let mut raw = ptr::null_mut();
        // SAFETY: writes a handle to raw.
        check(unsafe { sys::mxq_quantize_options_create(&mut raw) })?;
        let handle = Handle::owned(raw, sys::mxq_quantize_options_destroy);
        Ok(QuantizeOptions { handle, places: Places::default(), seed: PhantomData })
    }

    /// MX: how a block's largest magnitude becomes its scale.
    pub fn set_scale_rounding(&mut self, rounding: ScaleRounding) -> Result<&mut Self> {
        // SAFETY: the handle is live, as in all functions below.
        self.done(unsafe { sys::mxq_quantize_options_set_scale_rounding(self.handle.get(), rounding as i32) })
    }

    /// MX: what a NaN or an infinity in a block does.
    pub fn set_nonfinite(&mut self, policy: Nonfinite) -> Result<&mut Self> {
        self.done(unsafe { sys::mxq_quantize_options_set_nonfinite(self.handle.get(), policy as i32) })
    }

    /// NVFP4: each block takes the better of two scales.
    pub fn set_four_over_six(&mut self, mode: FourOverSix) -> Result<&mut Self> {
        self.done(unsafe { sys::mxq_quantize_options_set_four_over_six(self.handle.get(), mode as i32) })
    }

    /// Whether dequantize undoes a Hadamard transform.
    pub fn set_undo_hadamard(&mut self, undo: bool) -> Result<&mut Self> {
        self.done(unsafe { sys::mxq_quantize_options_set_undo_hadamard(self.handle.get(), undo.into()) })
    }

    /// Rounds codes up or down at random, by a seed and an offset: two numbers.
    pub fn set_stochastic_rounding(&mut self, seed_offset: impl Buffer<'a, Element = u64>) -> Result<&mut Self> {
        let (raw, seed) = (self.handle.get(), seed_offset.span());
        check(unsafe { sys::mxq_quantize_options_set_stochastic_rounding(raw, seed.address().cast(), seed.bytes()) })?;
        self.places.set("seed_offset", seed.place());
        Ok(self)
    }

    /// NVFP4: whether the amax is computed, or given.
    pub fn set_compute_amax(&mut self, compute: bool) -> Result<&mut Self> {
        self.done(unsafe { sys::mxq_quantize_options_set_compute_amax(self.handle.get(), compute.into()) })
    }

    /// FP8: whether scales are powers of two.
    pub fn set_power_of_two_scales(&mut self, power_of_two: bool) -> Result<&mut Self> {
        self.done(unsafe { sys::mxq_quantize_options_set_power_of_two_scales(self.handle.get(), power_of_two.into()) })
    }

    /// FP8: a scale is made from max(amax, epsilon).
    pub fn set_amax_epsilon(&mut self, epsilon: f32) -> Result<&mut Self> {
        self.done(unsafe { sys::mxq_quantize_options_set_amax_epsilon(self.handle.get(), epsilon) })
    }

    /// dequantize and requantize: which part is read.
    pub fn set_source_part(&mut self, part: Part) -> Result<&mut Self> {
        self.done(unsafe { sys::mxq_quantize_options_set_source_part(self.handle.get(), part as i32) })
    }

    /// Makes the verb take this implementation or fail.
    pub fn set_implementation(&mut self, name: &str) -> Result<&mut Self> {
        let name = c_string(name);
        self.done(unsafe { sys::mxq_quantize_options_set_implementation(self.handle.get(), name.as_ptr()) })
    }

    pub(crate) fn places(&self) -> &Places {
        &self.places
    }

    /// The C handle, for functions of [`sys`](crate::sys).
    pub fn as_raw(&self) -> *mut sys::mxq_quantize_options {
        self.handle.get()
    }

    fn done(&mut self, status: sys::mxq_status) -> Result<&mut Self> {
        check(status).map(|()| self)
    }
}

impl<'a> GemmOptions<'a> {
    /// All defaults: D = A B^T.
    pub fn new() -> Result<GemmOptions<'a>> {
        let mut raw = ptr::null_mut();
        // SAFETY: writes a handle to raw.
        check(unsafe { sys::mxq_gemm_options_create(&mut raw) })?;
        let handle = Handle::owned(raw, sys::mxq_gemm_options_destroy);
        Ok(GemmOptions { handle, places: Places::default(), bias: PhantomData })
    }

    /// Which operands are transposed.
    pub fn set_transpose(&mut self, a: Transpose, b: Transpose) -> Result<&mut Self> {
        self.done(unsafe { sys::mxq_gemm_options_set_transpose(self.handle.get(), a as i32, b as i32) })
    }

    /// The factor of the product.
    pub fn set_alpha(&mut self, alpha: f32) -> Result<&mut Self> {
        self.done(unsafe { sys::mxq_gemm_options_set_alpha(self.handle.get(), alpha) })
    }

    /// The factor of D as it was.
    pub fn set_beta(&mut self, beta: f32) -> Result<&mut Self> {
        self.done(unsafe { sys::mxq_gemm_options_set_beta(self.handle.get(), beta) })
    }

    /// Whether the product is added to D, which is F32.
    pub fn set_accumulate(&mut self, accumulate: bool) -> Result<&mut Self> {
        self.done(unsafe { sys::mxq_gemm_options_set_accumulate(self.handle.get(), accumulate.into()) })
    }

    /// A number for each column of D, in this format; with groups of rows one bias for each group.
    pub fn set_bias<T: Element>(&mut self, format: Format, bias: impl Buffer<'a, Element = T>) -> Result<&mut Self> {
        require_elements::<T>("bias", format, format.data_bytes())?;
        let (raw, bias) = (self.handle.get(), bias.span());
        check(unsafe { sys::mxq_gemm_options_set_bias(raw, format as i32, bias.start(), bias.bytes()) })?;
        self.places.set("bias", bias.place());
        Ok(self)
    }

    /// Whether implementations that round operands decline.
    pub fn set_exact_products(&mut self, exact: bool) -> Result<&mut Self> {
        self.done(unsafe { sys::mxq_gemm_options_set_exact_products(self.handle.get(), exact.into()) })
    }

    /// The multiprocessors of a GPU that the product takes at most; 0: all.
    pub fn set_sm_count(&mut self, count: i32) -> Result<&mut Self> {
        self.done(unsafe { sys::mxq_gemm_options_set_sm_count(self.handle.get(), count) })
    }

    /// Whether the bits of a row of D depend on no other row of A. Implementations that cannot promise it decline.
    pub fn set_row_invariant(&mut self, row_invariant: bool) -> Result<&mut Self> {
        self.done(unsafe { sys::mxq_gemm_options_set_row_invariant(self.handle.get(), row_invariant.into()) })
    }

    /// Makes the product take this implementation or fail.
    pub fn set_implementation(&mut self, name: &str) -> Result<&mut Self> {
        let name = c_string(name);
        self.done(unsafe { sys::mxq_gemm_options_set_implementation(self.handle.get(), name.as_ptr()) })
    }

    pub(crate) fn places(&self) -> &Places {
        &self.places
    }

    /// The C handle, for functions of [`sys`](crate::sys).
    pub fn as_raw(&self) -> *mut sys::mxq_gemm_options {
        self.handle.get()
    }

    fn done(&mut self, status: sys::mxq_status) -> Result<&mut Self> {
        check(status).map(|()| self)
    }
}

/// A name for C; one with a 0 inside names nothing, as what stands before it would not.
pub(crate) fn c_string(name: &str) -> CString {
    CString::new(name).unwrap_or_else(|_| CString::from(c"name with a NUL byte"))
}
