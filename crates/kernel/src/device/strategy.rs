//! From what a device can do to how the kernel is laid out on it.

use super::Runtime;
use crate::row::{Codec, Conversion, Lanes};
use cubecl::{
    ir::DeviceProperties,
    ir::features::{Plane, TypeUsage},
    ir::{ElemType, FloatKind},
};
use mla_prologue_operator::{Float16, LANES};

/// How the kernel is laid out on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Strategy {
    /// How the 32 lanes of a row map to hardware.
    pub lanes: Lanes,
    /// How bf16 is converted.
    pub bf16: Conversion,
    /// How f16 is converted.
    pub f16: Conversion,
    /// Rows that a cube works on at once.
    pub rows_per_cube: u32,
    /// A call of fewer rows than this does not fill the device: its cubes have half as many, so that there are more.
    pub few_rows: usize,
    /// Bytes of shared memory that a cube may use; 0 where a cube's units work one after the other, each by itself.
    pub shared_memory: usize,
}

/// Rows of a cube where a row is 32 units: as many as hide the latency of memory.
const PLANE_ROWS: u32 = 8;
/// Rows of a cube where a row is one unit of a device that is no CPU.
const UNIT_ROWS: u32 = 32;

/// Shared memory that every GPU with planes has.
const LEAST_SHARED_MEMORY: usize = 65536;

impl Strategy {
    /// The layout on GPUs with planes, for code that is generated without a device.
    pub const fn planes(bf16: Conversion, f16: Conversion) -> Self {
        Self {
            lanes: Lanes::Plane,
            bf16,
            f16,
            rows_per_cube: PLANE_ROWS,
            few_rows: 0,
            shared_memory: LEAST_SHARED_MEMORY,
        }
    }

    /// The layout for a device with these properties.
    pub fn new(runtime: Runtime, properties: &DeviceProperties) -> Self {
        let hardware = &properties.hardware;
        let planes = &properties.features.plane;
        let wide = hardware.plane_size_min >= LANES as u32;
        // In a plane of 64 two rows may take different branches.
        let diverging = hardware.plane_size_max > LANES as u32;
        let plane = wide
            && planes.contains(Plane::Ops)
            && (!diverging || planes.contains(Plane::NonUniformControlFlow));
        let (lanes, most, row_units) = if plane {
            (Lanes::Plane, PLANE_ROWS, LANES as u32)
        } else {
            (Lanes::Unit, hardware.num_cpu_cores.unwrap_or(UNIT_ROWS), 1)
        };
        let conversion = |dtype, float| {
            let usage = properties.features.type_usage(ElemType::Float(float));
            let has = usage.contains(TypeUsage::Conversion);
            Conversion::native_where(has && runtime.rounds_conversions(dtype))
        };
        let rows_per_cube = most.min(hardware.max_units_per_cube / row_units).max(1);
        let processors = hardware.num_streaming_multiprocessors.filter(|_| plane).unwrap_or(0);
        Self {
            lanes,
            bf16: conversion(Float16::Bf16, FloatKind::BF16),
            f16: conversion(Float16::F16, FloatKind::F16),
            rows_per_cube,
            few_rows: (processors * rows_per_cube) as usize,
            shared_memory: match runtime {
                Runtime::Cpu => 0,
                _ => hardware.max_shared_memory_size,
            },
        }
    }

    /// Rows that a cube works on at once in a call of so many.
    pub fn rows_per_cube(&self, rows: usize) -> u32 {
        if rows < self.few_rows { self.rows_per_cube.div_ceil(2) } else { self.rows_per_cube }
    }

    /// A 16-bit type, and how its values are converted.
    pub const fn codec(&self, dtype: Float16) -> Codec {
        let conversion = match dtype {
            Float16::Bf16 => self.bf16,
            Float16::F16 => self.f16,
        };
        Codec { dtype, conversion }
    }
}
