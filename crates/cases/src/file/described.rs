use mla_prologue_operator::{
    CacheFormat, CacheLayout, Float16, Index, Invalid, ROPE_DIM, Result, RotaryTable, RotaryType,
    TableOrder,
};
use safetensors::Dtype;
use std::fmt;

/// What a dimension of a tensor must be.
#[derive(Clone, Copy)]
pub enum Dim {
    /// This size.
    Is(usize),
    /// Any; the name says of what.
    Any(&'static str),
}

impl Dim {
    fn fits(self, size: usize) -> bool {
        match self {
            Self::Is(wanted) => wanted == size,
            Self::Any(_) => true,
        }
    }
}

impl fmt::Display for Dim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Is(size) => write!(f, "{size}"),
            Self::Any(name) => f.write_str(name),
        }
    }
}

/// The tensors of a file without their contents: name, type and shape. What a problem follows from, with the metadata.
pub struct Described<'a>(Vec<(&'a str, Dtype, Vec<usize>)>);

impl<'a> Described<'a> {
    /// Tensors in any order.
    pub fn new(tensors: impl IntoIterator<Item = (&'a str, Dtype, Vec<usize>)>) -> Self {
        let mut tensors: Vec<_> = tensors.into_iter().collect();
        tensors.sort_unstable_by_key(|tensor| tensor.0);
        Self(tensors)
    }

    /// Their names, sorted.
    pub fn names(&self) -> Vec<&str> {
        self.0.iter().map(|tensor| tensor.0).collect()
    }

    /// The layout of a paged cache.
    pub fn cache(&self, name: &str, format: CacheFormat, block_size: usize) -> Result<CacheLayout> {
        let [num_blocks, block_stride] =
            self.shape(name, [Dim::Any("blocks"), Dim::Any("bytes a block")])?;
        self.dtype(name, &[Dtype::U8])?;
        Ok(CacheLayout { format, block_size, block_stride, num_blocks })
    }

    /// The rotary table `cos_sin_cache`.
    pub fn table(&self, order: TableOrder) -> Result<RotaryTable> {
        let [rows, _] = self.shape("cos_sin_cache", [Dim::Any("positions"), Dim::Is(ROPE_DIM)])?;
        let dtype = match self.dtype("cos_sin_cache", &[Dtype::F32, Dtype::BF16, Dtype::F16])? {
            Dtype::BF16 => RotaryType::Bf16,
            Dtype::F16 => RotaryType::F16,
            _ => RotaryType::F32,
        };
        Ok(RotaryTable { rows, dtype, order })
    }

    /// The type and shape of a tensor, if it is there.
    pub fn find(&self, name: &str) -> Option<(Dtype, &[usize])> {
        let found = self.0.iter().find(|tensor| tensor.0 == name);
        found.map(|(_, dtype, shape)| (*dtype, shape.as_slice()))
    }

    /// Refuses tensors that have no effect.
    pub fn absent(&self, names: &[&str], must: &str) -> Result<()> {
        match names.iter().find(|name| self.find(name).is_some()) {
            Some(name) => Err(Invalid::unexpected(name, "given", must)),
            None => Ok(()),
        }
    }

    /// The type and shape of a tensor that must be there.
    pub fn get(&self, name: &str) -> Result<(Dtype, &[usize])> {
        let missing = || Invalid::missing(format_args!("the tensor {name}"), "in the file");
        self.find(name).ok_or_else(missing)
    }

    /// The shape of a tensor, where it has the dimensions that are wanted.
    pub fn shape<const N: usize>(&self, name: &str, wanted: [Dim; N]) -> Result<[usize; N]> {
        let (_, shape) = self.get(name)?;
        let fits = |(size, wanted): (&usize, &Dim)| wanted.fits(*size);
        match <[usize; N]>::try_from(shape) {
            Ok(sizes) if sizes.iter().zip(&wanted).all(fits) => Ok(sizes),
            _ => {
                let wanted: Vec<String> = wanted.iter().map(Dim::to_string).collect();
                let must = format!("[{}]", wanted.join(", "));
                Err(Invalid::shape(name, format_args!("{shape:?}"), must))
            }
        }
    }

    /// The type and shape of a tensor of indices.
    pub fn index<const N: usize>(
        &self,
        name: &str,
        wanted: [Dim; N],
    ) -> Result<(Index, [usize; N])> {
        let shape = self.shape(name, wanted)?;
        let dtype = self.dtype(name, &[Dtype::I64, Dtype::I32])?;
        Ok((if dtype == Dtype::I64 { Index::I64 } else { Index::I32 }, shape))
    }

    /// The type of a tensor in 16 bits.
    pub fn float16(&self, name: &str) -> Result<Float16> {
        let dtype = self.dtype(name, &[Dtype::BF16, Dtype::F16])?;
        Ok(if dtype == Dtype::BF16 { Float16::Bf16 } else { Float16::F16 })
    }

    /// The tensor must be of this type.
    pub fn require(&self, name: &str, wanted: Float16) -> Result<()> {
        self.float16(name)?;
        let wanted = super::float16(wanted);
        self.dtype(name, &[wanted]).map(|_| ())
    }

    /// The type of a tensor, which must be one of these.
    pub fn dtype(&self, name: &str, allowed: &[Dtype]) -> Result<Dtype> {
        let (dtype, _) = self.get(name)?;
        if allowed.contains(&dtype) {
            return Ok(dtype);
        }
        let allowed: Vec<String> = allowed.iter().map(ToString::to_string).collect();
        Err(Invalid::dtype(name, dtype, allowed.join(" or ")))
    }
}
