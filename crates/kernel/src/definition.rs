//! A kernel apart from any device: what a compiler and a driver are told. For code that is generated, inspected and emulated
//! where there is no such device.

use crate::Strategy;
use cubecl::{
    InfoBuilder, ScalarBuilder,
    ir::{
        DeviceIdentity, DeviceProperties, HardwareProperties, MemoryDeviceProperties,
        features::Features,
    },
    prelude::{AddressType, CubeDim, ExecutionMode, KernelDefinition, KernelSettings},
};
use std::sync::Arc;

/// A problem of an operator, whose kernel can be compiled and started without a device.
pub trait Kernel {
    /// Names the specialization of the kernel: problems with the same one share the generated code.
    fn blueprint(&self, strategy: &Strategy) -> String;

    /// CubeCL's definition of the kernel, for a device with planes of that many units.
    fn define(&self, strategy: &Strategy, plane_size: u32) -> KernelDefinition;

    /// How the kernel is started.
    fn dispatch(&self, strategy: &Strategy) -> Dispatch;
}

/// How a kernel is started for a problem, as a driver would be told. Its arguments are the operator's tensors, in
/// their order, and then the address of `info`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dispatch {
    /// Cubes.
    pub cubes: u32,
    /// Units of a cube, along x and y.
    pub cube: [u32; 2],
    /// The scalars, those of a type together, and the lengths of the buffers.
    pub info: Vec<u8>,
}

impl Dispatch {
    /// `scalars` pushes the scalars; `lengths` are those of the buffers, in words.
    pub(crate) fn new(
        cubes: u32,
        dim: CubeDim,
        address: AddressType,
        scalars: impl FnOnce(&mut ScalarBuilder),
        lengths: impl Iterator<Item = usize>,
    ) -> Self {
        let mut info = InfoBuilder::default();
        scalars(&mut info.scalars);
        lengths.for_each(|length| info.metadata.register_buffer(length as u64, address));
        let info = info.finish(address).data.into_iter().flat_map(u64::to_le_bytes).collect();
        Self { cubes, cube: [dim.x, dim.y], info }
    }
}

/// A kernel's settings without a device.
pub(crate) fn settings(dim: CubeDim, address: AddressType) -> KernelSettings {
    KernelSettings::new(dim.into(), ExecutionMode::Unchecked, address)
}

/// The properties of a device that is not there.
pub(crate) fn properties(plane_size: u32) -> Arc<DeviceProperties> {
    let hardware = HardwareProperties {
        load_width: 128,
        vector_register_count: None,
        plane_size_min: plane_size,
        plane_size_max: plane_size,
        max_bindings: 32,
        max_shared_memory_size: 65536,
        max_cube_count: (i32::MAX as u32, u32::from(u16::MAX), u32::from(u16::MAX)),
        max_units_per_cube: 1024,
        max_cube_dim: (1024, 1024, 64),
        num_streaming_multiprocessors: None,
        num_cpu_cores: None,
        last_level_cache_size: None,
        num_tensor_cores: None,
        min_tensor_cores_dim: None,
        max_vector_size: 16,
        cube_mma_reserved_shared_memory: 0,
    };
    let identity =
        DeviceIdentity { name: "none".into(), fingerprint: "none".into(), physical: None };
    Arc::new(DeviceProperties::new(
        Features::default(),
        MemoryDeviceProperties::new(u64::MAX, 256),
        hardware,
        cubecl::profile::TimingMethod::Device,
        identity,
    ))
}
