use crate::{
    Pads, Strategy,
    blueprint::{Blueprint, rows},
    launch::{address_type, cube_dim, scalars},
};
use cubecl::InfoBuilder;
use mla_prologue_operator::Problem;

/// How the kernel is started for a problem, as a driver would be told. Its arguments are the eight
/// buffers, in the order of [`Buffers`](crate::Buffers), and then the address of `info`.
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
    /// The launch for a problem. There are no cubes where there is nothing to do.
    pub fn new(problem: &Problem, strategy: &Strategy, pads: Pads) -> Self {
        let blueprint = Blueprint::new(problem, strategy, pads);
        let sizes = problem.sizes();
        let address_type = address_type(sizes);
        let mut info = InfoBuilder::default();
        scalars(problem).push(&mut info.scalars);
        let units = [16, 16, 16, 4, 4, 16, 4 * blueprint.out_words(), 8];
        for ((_, bytes), unit) in sizes.named().into_iter().zip(units) {
            info.metadata.register_buffer((bytes / unit) as u64, address_type);
        }
        let dim = cube_dim(blueprint.lanes, blueprint.rows_per_cube);
        Self {
            cubes: rows(problem, pads).div_ceil(blueprint.rows_per_cube as usize) as u32,
            cube: [dim.x, dim.y],
            info: info.finish(address_type).data.into_iter().flat_map(u64::to_le_bytes).collect(),
        }
    }
}
