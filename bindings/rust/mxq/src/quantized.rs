use crate::context::Context;
use crate::enums::{Format, Part};
use crate::error::Result;
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
enum Scales {
    Bytes(Vec<u8>),
    Floats(Vec<f32>),
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
        drop(out);
        Ok(made)
    }

    /// The values.
    pub fn dequantize(&self, context: &Context) -> Result<Vec<f32>> {
        let mut values = vec![0.0; self.rows * self.cols];
        let mut out = Tensor::new(Format::F32, self.rows as i64, self.cols as i64)?;
        out.set_data(&mut values)?;
        // A verb that only reads takes the amax to read, but its setter is one for writers too.
        let mut amax = self.amax.clone();
        dequantize(context, None, &self.describe(&mut amax)?, &mut out)?;
        drop(out);
        Ok(values)
    }

    /// The product with the transpose of another matrix that has as many columns: rows x other.rows numbers, row-major.
    pub fn matmul_transposed(&self, context: &Context, other: &Quantized) -> Result<Vec<f32>> {
        let mut values = vec![0.0; self.rows * other.rows];
        let mut d = Tensor::new(Format::F32, self.rows as i64, other.rows as i64)?;
        d.set_data(&mut values)?;
        let (mut left, mut right) = (self.amax.clone(), other.amax.clone());
        gemm(context, None, &self.describe(&mut left)?, &other.describe(&mut right)?, &mut d)?;
        drop(d);
        Ok(values)
    }

    /// The descriptor, to read.
    fn describe<'a>(&'a self, amax: &'a mut [f32]) -> Result<Tensor<'a>> {
        let mut tensor = Tensor::new(self.format, self.rows as i64, self.cols as i64)?;
        match &self.scales {
            Scales::Bytes(scales) => tensor.set_const_part(Part::Rowwise, &self.codes, scales)?,
            Scales::Floats(scales) => tensor.set_const_part(Part::Rowwise, &self.codes, scales)?,
        };
        if !amax.is_empty() {
            tensor.set_amax(Part::Rowwise, amax)?;
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
