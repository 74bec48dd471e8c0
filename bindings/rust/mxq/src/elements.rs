//! The slices that setters take, as addresses and bytes for the library.
use crate::enums::{Format, Status, Type};
use crate::error::{Error, Result};
use std::ffi::c_void;
use std::mem::{size_of, size_of_val};
use std::ptr;

/// A type whose values are plain bytes, any bits of which are a value: numbers, and 16-bit floats of other crates.
///
/// Setters compare its size with the elements of the format. Bytes (`u8`, `i8`) are taken for every format, as a checkpoint
/// that is mapped gives them.
///
/// # Safety
/// The type must be without padding and have no invalid bit patterns.
pub unsafe trait Element: Copy {}

macro_rules! elements { ($($type:ty)*) => { $(
    // SAFETY: a primitive number.
    unsafe impl Element for $type {}
)* } }
elements!(f32 u8 i8 u16 i16);

/// An integer that ends of groups, indices of rows and ids of experts are made of: `i32` or `i64`.
pub trait Integer: sealed::Sealed + Copy {
    /// Gives the library's constant for the type.
    const TYPE: Type;
}

impl Integer for i32 {
    const TYPE: Type = Type::Int32;
}

impl Integer for i64 {
    const TYPE: Type = Type::Int64;
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for i32 {}
    impl Sealed for i64 {}
}

impl Format {
    /// Bytes of an element of a plain tensor, or None for a quantized format.
    pub(crate) fn data_bytes(self) -> Option<usize> {
        match self {
            Format::F32 => Some(4),
            Format::F16 | Format::Bf16 => Some(2),
            _ => None,
        }
    }

    /// Bytes of a scale, or None for a plain format.
    pub(crate) fn scale_bytes(self) -> Option<usize> {
        match self {
            Format::F32 | Format::F16 | Format::Bf16 => None,
            Format::Fp8E4m3 | Format::Fp8E5m2 => Some(4),
            _ => Some(1),
        }
    }
}

/// Refuses elements of another size than the format's. Bytes are taken. Where nothing is expected the library refuses the call.
pub(crate) fn require_elements<T: Element>(name: &str, format: Format, expected: Option<usize>) -> Result<()> {
    let size = size_of::<T>();
    let types = match expected {
        Some(expected) if size != 1 && size != expected => ["u8", "u16 or i16", "", "f32"][expected - 1],
        _ => return Ok(()),
    };
    let message = format!(
        "{name} has elements of {} ({size} bytes), expected {types} for {format:?}, or bytes; convert them, or check the format",
        std::any::type_name::<T>()
    );
    Err(Error::new(Status::InvalidArgument, message))
}

/// The array of addresses that the library reads of a list of experts, and the bytes at each of them.
#[derive(Default)]
pub(crate) struct Addresses {
    all: Vec<*const c_void>,
    pub(crate) bytes: u64,
}

impl Addresses {
    /// Takes slices of one length.
    pub(crate) fn new<T: Element>(name: &str, slices: &[&[T]]) -> Result<Addresses> {
        let length = slices.first().map_or(0, |slice| slice.len());
        if let Some(other) = slices.iter().position(|slice| slice.len() != length) {
            let message = format!(
                "{name}[{other}] has {} elements, expected {length}, as {name}[0] has; give every expert the same shape",
                slices[other].len()
            );
            return Err(Error::new(Status::ShapeMismatch, message));
        }
        let bytes = slices.first().map_or(0, |slice| size_of_val(*slice) as u64);
        Ok(Addresses { all: slices.iter().map(|slice| slice.as_ptr().cast()).collect(), bytes })
    }

    pub(crate) fn count(&self) -> i64 {
        self.all.len() as i64
    }

    pub(crate) fn as_ptr(&self) -> *const *const c_void {
        if self.all.is_empty() {
            ptr::null()
        } else {
            self.all.as_ptr()
        }
    }

    /// Refuses lists of different lengths.
    pub(crate) fn require_count(&self, name: &str, other: &Addresses, other_name: &str) -> Result<()> {
        if self.count() == other.count() {
            return Ok(());
        }
        let (count, other) = (self.count(), other.count());
        let message =
            format!("{other_name} has {other} experts, expected {count}, as {name} has; give one slice for each expert");
        Err(Error::new(Status::ShapeMismatch, message))
    }
}
