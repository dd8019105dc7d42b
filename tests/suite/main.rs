//! The suite: a folder for each operator, which compares it with the reference on every device present; what is generated for
//! devices that are not; and the attention layer.

mod attend;
mod codegen;
mod gather;
#[cfg(feature = "burn")]
mod layer;
mod prologue;
mod support;
