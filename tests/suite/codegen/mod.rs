//! Code for devices that are not there: run by emulators, inspected, and handed to vendors' compilers.

mod compilers;
mod emulated;
#[cfg(feature = "hip")]
mod rocm;
mod source;
