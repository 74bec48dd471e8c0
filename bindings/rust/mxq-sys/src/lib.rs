//! The C interface of libmxq as it is: constants, types and functions of `mxq.h` with their comments, which are the manual.
//! The crate `mxq` is the safe interface over it.
#![no_std]
#![allow(non_camel_case_types)]

use core::ffi::{c_char, c_void};
use core::marker::{PhantomData, PhantomPinned};

include!("raw.rs");
