//! The code that is generated for GPUs that are not here, run by emulators and compared with the definition,
//! bit for bit.

#[cfg(feature = "hip")]
mod amdgcn;
