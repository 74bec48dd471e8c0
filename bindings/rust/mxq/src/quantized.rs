use crate::context::Context;
use crate::enums::{Format, Part, Status};
use crate::error::{Error, Result};
use crate::options::QuantizeOptions;
use crate::tensor::Tensor;
use crate::verbs::{dequantize, gemm, quantize};
use std::fmt;

/// A quantized matrix with memory of its own: the rowwise part, with the default scaling.
#[derive(Clone, PartialEq)]
pub struct Quantized {
    format: Format,
    rows: usize,
    cols: usize,
    codes: Vec<u8>,
    scales: Scales,
    amax: Vec<f32>,
}

/// The scales: bytes (E8M0 of MX, E4M3 of NVFP4), or f32 of FP8.
#[derive(Clone, Debug, PartialEq)]
pub enum Scales {
    /// E8M0 of MX, or E4M3 of NVFP4.
    Bytes(Vec<u8>),
    /// FP8.
    Floats(Vec<f32>),
}

impl From<Vec<u8>> for Scales {
    fn from(scales: Vec<u8>) -> Scales {
        Scales::Bytes(scales)
    }
}

impl From<Vec<f32>> for Scales {
    fn from(scales: Vec<f32>) -> Scales {
        Scales::Floats(scales)
    }
}

impl Quantized {
    /// Quantizes a row-major matrix of `rows` x `cols`.
    pub fn new(context: &Context, format: Format, values: &[f32], rows: usize, cols: usize) -> Result<Quantized> {
        Quantized::with_options(context, None, format, values, rows, cols)
    }

    /// Quantizes a row-major matrix with options.
    pub fn with_options(
        context: &Context,
        options: Option<&QuantizeOptions<'_>>,
        format: Format,
        values: &[f32],
        rows: usize,
        cols: usize,
    ) -> Result<Quantized> {
        let mut input = Tensor::new(Format::F32, rows as i64, cols as i64)?;
        input.set_const_data(values)?;
        let sizes = Tensor::new(format, rows as i64, cols as i64)?;
        let (code_bytes, scale_bytes) = sizes.required_bytes(Part::Rowwise)?;
        let scales = match format {
            Format::Fp8E4m3 | Format::Fp8E5m2 => Scales::Floats(vec![0.0; scale_bytes / 4]),
            _ => Scales::Bytes(vec![0; scale_bytes]),
        };
        let amax = vec![0.0; sizes.required_amax_count(Part::Rowwise)?];
        let mut made = Quantized { format, rows, cols, codes: vec![0; code_bytes], scales, amax };
        let mut out = Tensor::new(format, rows as i64, cols as i64)?;
        match &mut made.scales {
            Scales::Bytes(scales) => out.set_part(Part::Rowwise, &mut made.codes, scales)?,
            Scales::Floats(scales) => out.set_part(Part::Rowwise, &mut made.codes, scales)?,
        };
        if !made.amax.is_empty() {
            out.set_amax(Part::Rowwise, &mut made.amax)?;
        }
        quantize(context, options, &input, &mut out)?;
        Ok(made)
    }

    /// Takes codes and scales that are there, as a checkpoint stores them, row-major and with the default scaling.
    ///
    /// `amax` is the number above the scales of NVFP4, and None for other formats. A checkpoint that has a decode scale in its
    /// place needs [`Tensor::set_decode_scale`].
    pub fn from_parts(
        format: Format,
        rows: usize,
        cols: usize,
        codes: Vec<u8>,
        scales: impl Into<Scales>,
        amax: Option<f32>,
    ) -> Result<Quantized> {
        let scales = scales.into();
        let sizes = Tensor::new(format, rows as i64, cols as i64)?;
        let (code_bytes, scale_bytes) = sizes.required_bytes(Part::Rowwise)?;
        let scale_size = format.scale_bytes().ok_or_else(|| {
            refusal(Status::InvalidArgument, format!("format is {format:?}, expected one that has codes and scales"))
        })?;
        let (kind, of_kind) = match &scales {
            Scales::Bytes(scales) => ("bytes", (scale_size == 1).then_some(scales.len())),
            Scales::Floats(scales) => ("f32", (scale_size == 4).then_some(scales.len())),
        };
        let count = of_kind.ok_or_else(|| {
            let expected = if scale_size == 1 { "Vec<u8>" } else { "Vec<f32>" };
            refusal(Status::InvalidArgument, format!("scales are {kind}, expected {expected} for {format:?}"))
        })?;
        for (name, got, expected) in [("codes", codes.len(), code_bytes), ("scales", count, scale_bytes / scale_size)] {
            if got != expected {
                let message = format!("{name} has {got} elements, expected {expected} for {format:?} {rows} x {cols}");
                return Err(refusal(Status::ShapeMismatch, message));
            }
        }
        if amax.is_some() != (format == Format::Nvfp4) {
            let (expected, got) = if amax.is_some() { ("None", "a number") } else { ("a number", "None") };
            return Err(refusal(Status::InvalidArgument, format!("amax is {got}, expected {expected} for {format:?}")));
        }
        Ok(Quantized { format, rows, cols, codes, scales, amax: amax.into_iter().collect() })
    }

    /// The values.
    pub fn dequantize(&self, context: &Context) -> Result<Vec<f32>> {
        let mut values = vec![0.0; self.rows * self.cols];
        let mut out = Tensor::new(Format::F32, self.rows as i64, self.cols as i64)?;
        out.set_data(&mut values)?;
        dequantize(context, None, &self.tensor()?, &mut out)?;
        Ok(values)
    }

    /// The product with the transpose of another matrix that has as many columns: rows x other.rows numbers, row-major.
    pub fn matmul_transposed(&self, context: &Context, other: &Quantized) -> Result<Vec<f32>> {
        let mut values = vec![0.0; self.rows * other.rows];
        let mut d = Tensor::new(Format::F32, self.rows as i64, other.rows as i64)?;
        d.set_data(&mut values)?;
        gemm(context, None, &self.tensor()?, &other.tensor()?, &mut d)?;
        Ok(values)
    }

    /// Its descriptor, for verbs that read it, such as a product with activations.
    pub fn tensor(&self) -> Result<Tensor<'_>> {
        let mut tensor = Tensor::new(self.format, self.rows as i64, self.cols as i64)?;
        match &self.scales {
            Scales::Bytes(scales) => tensor.set_const_part(Part::Rowwise, &self.codes, scales)?,
            Scales::Floats(scales) => tensor.set_const_part(Part::Rowwise, &self.codes, scales)?,
        };
        if !self.amax.is_empty() {
            tensor.set_const_amax(Part::Rowwise, &self.amax)?;
        }
        Ok(tensor)
    }

    /// The format.
    pub fn format(&self) -> Format {
        self.format
    }

    /// The codes, row after row, as they lie in memory.
    pub fn codes(&self) -> &[u8] {
        &self.codes
    }

    /// The scales as bytes; None for FP8 formats, whose scales are f32.
    pub fn scale_bytes(&self) -> Option<&[u8]> {
        match &self.scales {
            Scales::Bytes(scales) => Some(scales),
            Scales::Floats(_) => None,
        }
    }

    /// The f32 scales of FP8 formats.
    pub fn scale_floats(&self) -> Option<&[f32]> {
        match &self.scales {
            Scales::Bytes(_) => None,
            Scales::Floats(scales) => Some(scales),
        }
    }
}

fn refusal(status: Status, what: String) -> Error {
    Error::new(status, format!("Quantized::from_parts: {what}"))
}

impl fmt::Display for Quantized {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {} x {}", self.format, self.rows, self.cols)
    }
}

impl fmt::Debug for Quantized {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Quantized({self})")
    }
}
