use crate::activate_options::ActivateOptions;
use crate::buffers::Buffer;
use crate::device::Places;
use crate::elements::{require_elements, Element};
use crate::enums::{Format, Scaling, Status};
use crate::error::{check, Error, Result};
use crate::handle::Handle;
use crate::options::QuantizeOptions;
use crate::tensor::Tensor;
use mxq_sys as sys;
use std::marker::PhantomData;
use std::ptr;

/// Options of [`expert_layer`](crate::expert_layer): by default SwiGLU, plain rows and BF16 between the steps. Borrows biases
/// and the residual for `'a`.
pub struct ExpertLayerOptions<'a> {
    handle: Handle<sys::mxq_expert_layer_options>,
    places: Places,
    arrays: PhantomData<&'a [u8]>,
}

// SAFETY: options may be read by many calls at once; setters take &mut.
unsafe impl Send for ExpertLayerOptions<'_> {}
// SAFETY: as above.
unsafe impl Sync for ExpertLayerOptions<'_> {}

impl<'a> ExpertLayerOptions<'a> {
    /// All defaults.
    pub fn new() -> Result<ExpertLayerOptions<'a>> {
        let mut raw = ptr::null_mut();
        // SAFETY: writes a handle to raw.
        check(unsafe { sys::mxq_expert_layer_options_create(&mut raw) })?;
        let handle = Handle::owned(raw, sys::mxq_expert_layer_options_destroy);
        Ok(ExpertLayerOptions { handle, places: Places::default(), arrays: PhantomData })
    }

    /// The activation, with its numbers, layout of gates and bias. The options are copied; arrays stay borrowed. Row weights and
    /// an implementation are refused.
    pub fn set_activate_options(&mut self, activate: &ActivateOptions<'a>) -> Result<&mut Self> {
        // SAFETY: both handles are live, as in all functions below.
        check(unsafe { sys::mxq_expert_layer_options_set_activate_options(self.handle.get(), activate.as_raw()) })?;
        let places = activate.places();
        self.places.set("activate.bias", places.of("bias"));
        self.places.set("activate.bias_gradient", places.of("bias_gradient"));
        self.places.set("activate.row_weight_gradient", places.of("row_weight_gradient"));
        self.places.set("activate.quantize.seed_offset", places.of("quantize.seed_offset"));
        Ok(self)
    }

    /// The quantized format of the rows that enter each product, and its scaling; [`Scaling::None`] is the format's default.
    pub fn set_row_format(&mut self, format: Format, scaling: Scaling) -> Result<&mut Self> {
        self.done(unsafe { sys::mxq_expert_layer_options_set_row_format(self.handle.get(), format as i32, scaling as i32) })
    }

    /// How these rows are quantized. The options are copied; a seed stays borrowed. An amax that is given, a source part and an
    /// implementation are refused.
    pub fn set_quantize_options(&mut self, quantize: &QuantizeOptions<'a>) -> Result<&mut Self> {
        check(unsafe { sys::mxq_expert_layer_options_set_quantize_options(self.handle.get(), quantize.as_raw()) })?;
        self.places.set("quantize.seed_offset", quantize.places().of("seed_offset"));
        Ok(self)
    }

    /// The plain format of numbers between the steps; BF16 unless set.
    pub fn set_inner_format(&mut self, format: Format) -> Result<&mut Self> {
        self.done(unsafe { sys::mxq_expert_layer_options_set_inner_format(self.handle.get(), format as i32) })
    }

    /// The bias of the first product, (experts of this rank, rows of gate_up), in this format.
    pub fn set_gate_up_bias<T: Element>(&mut self, format: Format, bias: impl Buffer<'a, Element = T>) -> Result<&mut Self> {
        require_elements::<T>("gate_up_bias", format, format.data_bytes())?;
        let (raw, bias) = (self.handle.get(), bias.span());
        check(unsafe { sys::mxq_expert_layer_options_set_gate_up_bias(raw, format as i32, bias.start(), bias.bytes()) })?;
        self.places.set("gate_up_bias", bias.place());
        Ok(self)
    }

    /// The bias of the second product, (experts of this rank, columns of x), in this format.
    pub fn set_down_bias<T: Element>(&mut self, format: Format, bias: impl Buffer<'a, Element = T>) -> Result<&mut Self> {
        require_elements::<T>("down_bias", format, format.data_bytes())?;
        let (raw, bias) = (self.handle.get(), bias.span());
        check(unsafe { sys::mxq_expert_layer_options_set_down_bias(raw, format as i32, bias.start(), bias.bytes()) })?;
        self.places.set("down_bias", bias.place());
        Ok(self)
    }

    /// Sets the tensor that the sums of tokens start from: plain, of out's shape, such as the output of a shared expert. The
    /// options borrow it, so that no verb writes it meanwhile.
    pub fn set_residual(&mut self, residual: &'a Tensor<'_>) -> Result<&mut Self> {
        if residual.has_lists() {
            let message = format!("residual is {residual}, expected a plain matrix of out's shape; give it one address");
            return Err(Error::new(Status::InvalidArgument, message));
        }
        check(unsafe { sys::mxq_expert_layer_options_set_residual(self.handle.get(), residual.as_raw()) })?;
        self.places.set("residual.data", residual.places().of("data"));
        self.places.set("residual.groups", residual.places().of("groups"));
        self.places.set("residual.row_indices", residual.places().of("row_indices"));
        Ok(self)
    }

    /// Whether the weights of choices multiply the activation, before the second product, whose bias they then leave alone.
    pub fn set_weights_first(&mut self, first: bool) -> Result<&mut Self> {
        self.done(unsafe { sys::mxq_expert_layer_options_set_weights_first(self.handle.get(), first.into()) })
    }

    /// Whether implementations that round operands decline, for both products.
    pub fn set_exact_products(&mut self, exact: bool) -> Result<&mut Self> {
        self.done(unsafe { sys::mxq_expert_layer_options_set_exact_products(self.handle.get(), exact.into()) })
    }

    /// Whether the bits of a token depend on no other token, where rows are quantized by themselves.
    pub fn set_row_invariant(&mut self, row_invariant: bool) -> Result<&mut Self> {
        self.done(unsafe { sys::mxq_expert_layer_options_set_row_invariant(self.handle.get(), row_invariant.into()) })
    }

    pub(crate) fn places(&self) -> &Places {
        &self.places
    }

    /// The C handle, for functions of [`sys`](crate::sys).
    pub fn as_raw(&self) -> *mut sys::mxq_expert_layer_options {
        self.handle.get()
    }

    fn done(&mut self, status: sys::mxq_status) -> Result<&mut Self> {
        check(status).map(|()| self)
    }
}
