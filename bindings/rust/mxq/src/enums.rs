// Made by bindings/generate.py from include/mxq/mxq.h of libmxq 0.2.0; change the header, not this file.

/// Families of constants have types of their own, all int32\_t, so that signatures say which constants they take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[repr(i32)]
pub enum Status {
    /// MXQ_STATUS_OK.
    Ok = 0,
    /// NULL handle, unknown value, negative size, overlapping buffers and the like
    InvalidArgument = 1,
    /// shapes of the tensors do not fit together
    ShapeMismatch = 2,
    /// this call needs a pointer that is NULL, or a part that was not set
    MissingBuffer = 3,
    /// a byte extent is shorter than mxq\_tensor\_required\_bytes, or the workspace too small
    BufferTooSmall = 4,
    /// a pointer is not a multiple of its element's size
    Misaligned = 5,
    /// this verb does not take the format or feature, or no implementation takes it here
    Unsupported = 6,
    /// no such device, no driver, or the library was built without CUDA
    NoDevice = 7,
    /// host memory
    OutOfMemory = 8,
    /// CUDA refused a launch or reports an earlier failure; the message quotes CUDA
    CudaError = 9,
    /// a fault of the library: please report it with the message
    InternalError = 10,
}

impl Status {
    /// The value with this number, as the C functions give it.
    pub fn from_raw(number: i32) -> Option<Status> {
        match number {
            0 => Some(Status::Ok),
            1 => Some(Status::InvalidArgument),
            2 => Some(Status::ShapeMismatch),
            3 => Some(Status::MissingBuffer),
            4 => Some(Status::BufferTooSmall),
            5 => Some(Status::Misaligned),
            6 => Some(Status::Unsupported),
            7 => Some(Status::NoDevice),
            8 => Some(Status::OutOfMemory),
            9 => Some(Status::CudaError),
            10 => Some(Status::InternalError),
            _ => None,
        }
    }
}

/// Which lines are wanted, and what a line is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[repr(i32)]
pub enum LogLevel {
    /// no line
    Off = 0,
    /// a line for each verb that runs
    Info = 1,
    /// also a line for each implementation that declined
    Trace = 2,
}

impl LogLevel {
    /// The value with this number, as the C functions give it.
    pub fn from_raw(number: i32) -> Option<LogLevel> {
        match number {
            0 => Some(LogLevel::Off),
            1 => Some(LogLevel::Info),
            2 => Some(LogLevel::Trace),
            _ => None,
        }
    }
}

/// A format says how elements and their scales are stored. 0 is "unset".
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[repr(i32)]
pub enum Format {
    /// MXQ_FORMAT_F32.
    F32 = 1,
    /// MXQ_FORMAT_F16.
    F16 = 2,
    /// MXQ_FORMAT_BF16.
    Bf16 = 3,
    /// OCP MX: FP8 E4M3 codes (max 448, NaN 0x7F), one E8M0 scale per block of 32
    Mxfp8E4m3 = 4,
    /// OCP MX: FP8 E5M2 codes (max 57344, has Inf), one E8M0 scale per block of 32
    Mxfp8E5m2 = 5,
    /// OCP MX: FP6 E2M3 codes (max 7.5), four in three bytes, one E8M0 scale per block of 32
    Mxfp6E2m3 = 6,
    /// OCP MX: FP6 E3M2 codes (max 28), four in three bytes, one E8M0 scale per block of 32
    Mxfp6E3m2 = 7,
    /// OCP MX: FP4 E2M1 codes (max 6), two a byte, one E8M0 scale per block of 32
    Mxfp4 = 8,
    /// FP4 E2M1 codes, two a byte, one E4M3 scale per block of 16, one fp32 amax above them
    Nvfp4 = 9,
    /// FP8 E4M3 codes, fp32 scales
    Fp8E4m3 = 10,
    /// FP8 E5M2 codes, fp32 scales
    Fp8E5m2 = 11,
}

impl Format {
    /// The value with this number, as the C functions give it.
    pub fn from_raw(number: i32) -> Option<Format> {
        match number {
            1 => Some(Format::F32),
            2 => Some(Format::F16),
            3 => Some(Format::Bf16),
            4 => Some(Format::Mxfp8E4m3),
            5 => Some(Format::Mxfp8E5m2),
            6 => Some(Format::Mxfp6E2m3),
            7 => Some(Format::Mxfp6E3m2),
            8 => Some(Format::Mxfp4),
            9 => Some(Format::Nvfp4),
            10 => Some(Format::Fp8E4m3),
            11 => Some(Format::Fp8E5m2),
            _ => None,
        }
    }
}

/// Which elements share a scale. An E8M0 scale (MX) has the value 2^(byte - 127), 255 is NaN. FP8 has fp32 scales. A value is
/// its code times its scale.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[repr(i32)]
pub enum Scaling {
    /// F32, F16, BF16
    None = 0,
    /// MX (default): 32 neighbours along the part's contraction
    Block1x32 = 1,
    /// MX: square tiles; the rowwise and the columnwise part have the same values and scales
    Block32x32 = 2,
    /// MX, FP8: 128 neighbours along the part's contraction
    Block1x128 = 3,
    /// MX, FP8: square tiles
    Block128x128 = 4,
    /// NVFP4 (default): 16 neighbours along the part's contraction
    Block1x16 = 5,
    /// NVFP4: square tiles, their scale stored for each of the 16 rows of codes
    Block16x16 = 6,
    /// MX, FP8: a whole row (rowwise) or column (columnwise) of the matrix; with groups the
    /// group's part of a column
    Row = 7,
    /// FP8 (default): the whole tensor, or an expert or group of it
    Tensor = 8,
}

impl Scaling {
    /// The value with this number, as the C functions give it.
    pub fn from_raw(number: i32) -> Option<Scaling> {
        match number {
            0 => Some(Scaling::None),
            1 => Some(Scaling::Block1x32),
            2 => Some(Scaling::Block32x32),
            3 => Some(Scaling::Block1x128),
            4 => Some(Scaling::Block128x128),
            5 => Some(Scaling::Block1x16),
            6 => Some(Scaling::Block16x16),
            7 => Some(Scaling::Row),
            8 => Some(Scaling::Tensor),
            _ => None,
        }
    }
}

/// Properties of a format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[repr(i32)]
pub enum Property {
    /// bits of one element or code
    ElementBits = 1,
    /// elements that share a scale along the contraction with the default scaling: 1 for F32,
    /// F16, BF16; 0 (all of them) for FP8
    Block = 2,
    /// 1: codes and scales, made by mxq\_quantize; 0: plain numbers
    Quantized = 3,
}

impl Property {
    /// The value with this number, as the C functions give it.
    pub fn from_raw(number: i32) -> Option<Property> {
        match number {
            1 => Some(Property::ElementBits),
            2 => Some(Property::Block),
            3 => Some(Property::Quantized),
            _ => None,
        }
    }
}

/// Device types; the numbers are DLPack's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[repr(i32)]
pub enum Device {
    /// MXQ_DEVICE_CPU.
    Cpu = 1,
    /// MXQ_DEVICE_CUDA.
    Cuda = 2,
}

impl Device {
    /// The value with this number, as the C functions give it.
    pub fn from_raw(number: i32) -> Option<Device> {
        match number {
            1 => Some(Device::Cpu),
            2 => Some(Device::Cuda),
            _ => None,
        }
    }
}

/// Values of mxq_part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[repr(i32)]
pub enum Part {
    /// MXQ_PART_ROWWISE.
    Rowwise = 1,
    /// MXQ_PART_COLUMNWISE.
    Columnwise = 2,
    /// where a function takes several parts: both of them
    Both = 3,
}

impl Part {
    /// The value with this number, as the C functions give it.
    pub fn from_raw(number: i32) -> Option<Part> {
        match number {
            1 => Some(Part::Rowwise),
            2 => Some(Part::Columnwise),
            3 => Some(Part::Both),
            _ => None,
        }
    }
}

/// Integer types of arrays that the caller keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[repr(i32)]
pub enum Type {
    /// MXQ_TYPE_INT32.
    Int32 = 1,
    /// MXQ_TYPE_INT64.
    Int64 = 2,
}

impl Type {
    /// The value with this number, as the C functions give it.
    pub fn from_raw(number: i32) -> Option<Type> {
        match number {
            1 => Some(Type::Int32),
            2 => Some(Type::Int64),
            _ => None,
        }
    }
}

/// How far one amax, decode scale, quantization scale or TENSOR scale reaches. The first three are refused with TENSOR where
/// they have the bytes of one for each expert or group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[repr(i32)]
pub enum Scope {
    /// default: one for the whole tensor
    Tensor = 1,
    /// one for each expert or group; a matrix without groups has one
    Expert = 2,
}

impl Scope {
    /// The value with this number, as the C functions give it.
    pub fn from_raw(number: i32) -> Option<Scope> {
        match number {
            1 => Some(Scope::Tensor),
            2 => Some(Scope::Expert),
            _ => None,
        }
    }
}

/// MX: how a block's largest magnitude a becomes its power-of-two scale; max and emax are those of the element type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[repr(i32)]
pub enum ScaleRounding {
    /// floor(log2 a) - emax: OCP MX 1.0; the largest elements may saturate
    Floor = 1,
    /// ceil(log2 a) - emax
    Ceil = 2,
    /// FLOOR after rounding a to the element's mantissa
    Even = 3,
    /// default: ceil(log2(a / max)); nothing saturates
    Rceil = 4,
}

impl ScaleRounding {
    /// The value with this number, as the C functions give it.
    pub fn from_raw(number: i32) -> Option<ScaleRounding> {
        match number {
            1 => Some(ScaleRounding::Floor),
            2 => Some(ScaleRounding::Ceil),
            3 => Some(ScaleRounding::Even),
            4 => Some(ScaleRounding::Rceil),
            _ => None,
        }
    }
}

/// MX: what a NaN or an infinity in a block does. (NVFP4 and FP8 ignore NaN in maxima; as an element NaN becomes a NaN code,
/// or the largest value where the element type has no NaN.)
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[repr(i32)]
pub enum Nonfinite {
    /// default: scale 255 and NaN codes (0 where there are none) for the whole block
    Propagate = 1,
    /// NaN: a NaN code (or the largest), else ignored; infinities saturate under scale 0xFE
    Saturate = 2,
}

impl Nonfinite {
    /// The value with this number, as the C functions give it.
    pub fn from_raw(number: i32) -> Option<Nonfinite> {
        match number {
            1 => Some(Nonfinite::Propagate),
            2 => Some(Nonfinite::Saturate),
            _ => None,
        }
    }
}

/// NVFP4: each block takes the better of two scales, which map its largest magnitude to 6 or to 4.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[repr(i32)]
pub enum FourOverSix {
    /// default: no choice, the scale maps to 6
    None = 0,
    /// the scale with the smaller sum of absolute errors
    Mae = 1,
    /// the scale with the smaller sum of squared errors
    Mse = 2,
}

impl FourOverSix {
    /// The value with this number, as the C functions give it.
    pub fn from_raw(number: i32) -> Option<FourOverSix> {
        match number {
            0 => Some(FourOverSix::None),
            1 => Some(FourOverSix::Mae),
            2 => Some(FourOverSix::Mse),
            _ => None,
        }
    }
}

/// Values of mxq_transpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[repr(i32)]
pub enum Transpose {
    /// op(A) is A
    N = 1,
    /// op(A) is A transposed
    T = 2,
}

impl Transpose {
    /// The value with this number, as the C functions give it.
    pub fn from_raw(number: i32) -> Option<Transpose> {
        match number {
            1 => Some(Transpose::N),
            2 => Some(Transpose::T),
            _ => None,
        }
    }
}

/// The class of bound that a product's error keeps; mxq\_gemm tells what each class promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[repr(i32)]
pub enum Bound {
    /// the verb is no product: its bytes are the same everywhere
    None = 0,
    /// products of two values are exact, sums are rounded to fp32
    ExactProducts = 1,
    /// products of two codes are exact, FP8 tensor cores cut the sums of 32 products
    Fp8TensorCores = 2,
    /// the same, after MX operands were given wider scales, which rounds small codes
    Rebased = 3,
    /// the same, but blocks far below their neighbours keep scales of their own
    RebasedGuarded = 4,
    /// products of two codes are exact; not measured: how FP8 and FP4 tensor cores sum
    BlackwellTensorCores = 5,
}

impl Bound {
    /// The value with this number, as the C functions give it.
    pub fn from_raw(number: i32) -> Option<Bound> {
        match number {
            0 => Some(Bound::None),
            1 => Some(Bound::ExactProducts),
            2 => Some(Bound::Fp8TensorCores),
            3 => Some(Bound::Rebased),
            4 => Some(Bound::RebasedGuarded),
            5 => Some(Bound::BlackwellTensorCores),
            _ => None,
        }
    }
}

/// Names the activation between the two products of a feed-forward layer. g is the gate and u is `up`, each with its bias;
/// sigmoid(x) is 1 / (1 + e^-x). docs/numerics.md has each step and what NaN, infinities and -0 give. Since 0.3.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[repr(i32)]
pub enum Activation {
    /// default: g sigmoid(g) u. Since 0.3
    Swiglu = 1,
    /// g (1 + erf(g / sqrt 2)) / 2 u. Since 0.3
    GegluErf = 2,
    /// g (1 + tanh(sqrt(2 / pi) (g + 0.044715 g^3))) / 2 u. Since 0.3
    GegluTanh = 3,
    /// g sigmoid(alpha g) (u + addend), with g at most limit, u within +-limit. Since 0.3
    SwigluClamped = 4,
    /// without a gate: x sigmoid(x). Since 0.3
    Silu = 5,
    /// without a gate: x (1 + erf(x / sqrt 2)) / 2. Since 0.3
    GeluErf = 6,
    /// without a gate: x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2. Since 0.3
    GeluTanh = 7,
    /// without a gate: max(x, 0)^2. Since 0.3
    SquaredRelu = 8,
}

impl Activation {
    /// The value with this number, as the C functions give it.
    pub fn from_raw(number: i32) -> Option<Activation> {
        match number {
            1 => Some(Activation::Swiglu),
            2 => Some(Activation::GegluErf),
            3 => Some(Activation::GegluTanh),
            4 => Some(Activation::SwigluClamped),
            5 => Some(Activation::Silu),
            6 => Some(Activation::GeluErf),
            7 => Some(Activation::GeluTanh),
            8 => Some(Activation::SquaredRelu),
            _ => None,
        }
    }
}

/// Which columns of a row of 2 I are gates, and which are `up`. Since 0.3.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[repr(i32)]
pub enum GateLayout {
    /// default: I gates, then I ups. Since 0.3
    GateUp = 1,
    /// I ups, then I gates. Since 0.3
    UpGate = 2,
    /// gate, up, gate, up, ..., as gpt-oss has them. Since 0.3
    InterleavedGateUp = 3,
    /// up, gate, up, gate, ... Since 0.3
    InterleavedUpGate = 4,
}

impl GateLayout {
    /// The value with this number, as the C functions give it.
    pub fn from_raw(number: i32) -> Option<GateLayout> {
        match number {
            1 => Some(GateLayout::GateUp),
            2 => Some(GateLayout::UpGate),
            3 => Some(GateLayout::InterleavedGateUp),
            4 => Some(GateLayout::InterleavedUpGate),
            _ => None,
        }
    }
}
