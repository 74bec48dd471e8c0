use crate::buffers::{Buffer, BufferMut};
use crate::device::Places;
use crate::elements::{require_elements, Element};
use crate::enums::{Activation, Format, GateLayout};
use crate::error::{check, Result};
use crate::handle::Handle;
use crate::options::{c_string, QuantizeOptions};
use mxq_sys as sys;
use std::marker::PhantomData;
use std::ptr;

/// Options of [`activate`](crate::activate) and [`activate_backward`](crate::activate_backward): by default SwiGLU, the gates
/// first. Borrows its arrays for `'a`. An option that means nothing to a call is refused.
pub struct ActivateOptions<'a> {
    handle: Handle<sys::mxq_activate_options>,
    places: Places,
    arrays: PhantomData<&'a mut [f32]>,
}

// SAFETY: options may be read by many calls at once; setters take &mut, and so does the verb that writes gradients.
unsafe impl Send for ActivateOptions<'_> {}
// SAFETY: as above.
unsafe impl Sync for ActivateOptions<'_> {}

impl<'a> ActivateOptions<'a> {
    /// All defaults.
    pub fn new() -> Result<ActivateOptions<'a>> {
        let mut raw = ptr::null_mut();
        // SAFETY: writes a handle to raw.
        check(unsafe { sys::mxq_activate_options_create(&mut raw) })?;
        let handle = Handle::owned(raw, sys::mxq_activate_options_destroy);
        Ok(ActivateOptions { handle, places: Places::default(), arrays: PhantomData })
    }

    /// The activation: [`Activation::Swiglu`] unless set.
    pub fn set_activation(&mut self, activation: Activation) -> Result<&mut Self> {
        // SAFETY: the handle is live, as in all functions below.
        self.done(unsafe { sys::mxq_activate_options_set_activation(self.handle.get(), activation as i32) })
    }

    /// Which of the 2 I columns are gates; refused for activations without.
    pub fn set_gate_layout(&mut self, layout: GateLayout) -> Result<&mut Self> {
        self.done(unsafe { sys::mxq_activate_options_set_gate_layout(self.handle.get(), layout as i32) })
    }

    /// The numbers of [`Activation::SwigluClamped`]: 1.702, 7 and 1 unless set. The limit may be infinite.
    pub fn set_clamp(&mut self, alpha: f32, limit: f32, addend: f32) -> Result<&mut Self> {
        self.done(unsafe { sys::mxq_activate_options_set_clamp(self.handle.get(), alpha, limit, addend) })
    }

    /// A number for each column of the input, in this format, added before the activation; with experts or groups one bias for
    /// each, (experts, columns).
    pub fn set_bias<T: Element>(&mut self, format: Format, bias: impl Buffer<'a, Element = T>) -> Result<&mut Self> {
        require_elements::<T>("bias", format, format.data_bytes())?;
        let (raw, bias) = (self.handle.get(), bias.span());
        check(unsafe { sys::mxq_activate_options_set_bias(raw, format as i32, bias.start(), bias.bytes()) })?;
        self.places.set("bias", bias.place());
        Ok(self)
    }

    /// A factor for each row of the result, in this format: one number for each row of the input, of all experts.
    pub fn set_row_weights<T: Element>(&mut self, format: Format, weights: impl Buffer<'a, Element = T>) -> Result<&mut Self> {
        require_elements::<T>("row_weights", format, format.data_bytes())?;
        let (raw, weights) = (self.handle.get(), weights.span());
        check(unsafe { sys::mxq_activate_options_set_row_weights(raw, format as i32, weights.start(), weights.bytes()) })?;
        self.places.set("row_weights", weights.place());
        Ok(self)
    }

    /// How a quantized result is quantized. The options are copied; a seed stays borrowed. Refused where they name an
    /// implementation.
    pub fn set_quantize_options(&mut self, quantize: &QuantizeOptions<'a>) -> Result<&mut Self> {
        check(unsafe { sys::mxq_activate_options_set_quantize_options(self.handle.get(), quantize.as_raw()) })?;
        self.places.set("quantize.seed_offset", quantize.places().of("seed_offset"));
        Ok(self)
    }

    /// [`activate_backward`](crate::activate_backward) also writes the gradient of the bias: as many numbers as the bias has.
    /// [`activate`](crate::activate) refuses it.
    pub fn set_bias_gradient(&mut self, gradient: impl BufferMut<'a, Element = f32>) -> Result<&mut Self> {
        let (raw, gradient) = (self.handle.get(), gradient.span());
        check(unsafe { sys::mxq_activate_options_set_bias_gradient(raw, gradient.address().cast(), gradient.bytes()) })?;
        self.places.set("bias_gradient", gradient.place());
        Ok(self)
    }

    /// [`activate_backward`](crate::activate_backward) also writes the gradient of the weight of each row: one number for each
    /// row of the input, with or without weights. [`activate`](crate::activate) refuses it.
    pub fn set_row_weight_gradient(&mut self, gradient: impl BufferMut<'a, Element = f32>) -> Result<&mut Self> {
        let (raw, gradient) = (self.handle.get(), gradient.span());
        check(unsafe { sys::mxq_activate_options_set_row_weight_gradient(raw, gradient.address().cast(), gradient.bytes()) })?;
        self.places.set("row_weight_gradient", gradient.place());
        Ok(self)
    }

    /// Makes the verb take this implementation or fail.
    pub fn set_implementation(&mut self, name: &str) -> Result<&mut Self> {
        let name = c_string(name);
        self.done(unsafe { sys::mxq_activate_options_set_implementation(self.handle.get(), name.as_ptr()) })
    }

    pub(crate) fn places(&self) -> &Places {
        &self.places
    }

    /// The C handle, for functions of [`sys`](crate::sys).
    pub fn as_raw(&self) -> *mut sys::mxq_activate_options {
        self.handle.get()
    }

    fn done(&mut self, status: sys::mxq_status) -> Result<&mut Self> {
        check(status).map(|()| self)
    }
}
