use crate::names::named;

named! {
    /// A 16-bit floating-point type: of queries, keys and their norm weight.
    pub enum Float16 {
        /// bfloat16.
        #[default]
        Bf16 = "bf16",
        /// IEEE binary16.
        F16 = "f16",
    }
}

named! {
    /// The type of positions or slots.
    pub enum Index {
        /// 64-bit signed.
        #[default]
        I64 = "i64",
        /// 32-bit signed.
        I32 = "i32",
    }
}

impl Index {
    /// Bytes of one index.
    pub const fn bytes(self) -> usize {
        match self {
            Self::I64 => 8,
            Self::I32 => 4,
        }
    }

    /// The indices in little-endian bytes.
    pub fn values(self, bytes: &[u8]) -> impl Iterator<Item = i64> {
        bytes.chunks_exact(self.bytes()).map(|bytes| {
            let mut wide = [if bytes[bytes.len() - 1] & 0x80 == 0 { 0 } else { 0xFF }; 8];
            wide[..bytes.len()].copy_from_slice(bytes);
            i64::from_le_bytes(wide)
        })
    }
}

named! {
    /// An optional rounding to 16 bits between norm and RoPE.
    pub enum Rounding {
        /// The f32 values go on.
        #[default]
        None = "none",
        /// They are rounded to the 16-bit type of the tensor first.
        To16Bit = "16bit",
    }
}

named! {
    /// Which values of the key are quantized.
    pub enum QuantFrom {
        /// Those that were rounded to 16 bits after RoPE (vLLM).
        #[default]
        Rounded = "16bit",
        /// The f32 ones (SGLang).
        F32 = "f32",
    }
}

named! {
    /// The 8-bit floating-point format of quantized values: 1.75 times a power of two is the largest.
    pub enum Fp8 {
        /// OCP E4M3: bias 7, up to 448, has -0, NaN is 0x7F.
        #[default]
        E4m3fn = "e4m3fn",
        /// E4M3 FNUZ of AMD's gfx942: bias 8, no -0, 0x80 is NaN. Up to 224 is used, as vLLM does.
        E4m3fnuz = "e4m3fnuz",
    }
}

impl Fp8 {
    /// The format that the instructions of an AMD architecture work on, by its name as the driver has it; `None`
    /// where there are none, or it is not known.
    ///
    /// ```
    /// use mla_prologue_operator::Fp8;
    /// assert_eq!(Fp8::of_arch("gfx942:sramecc+:xnack-"), Some(Fp8::E4m3fnuz)); // MI300
    /// assert_eq!(Fp8::of_arch("gfx950"), Some(Fp8::E4m3fn)); // MI350
    /// assert_eq!(Fp8::of_arch("gfx1100"), None);
    /// ```
    pub fn of_arch(arch: &str) -> Option<Self> {
        match arch.split(':').next().unwrap_or(arch) {
            "gfx940" | "gfx941" | "gfx942" => Some(Self::E4m3fnuz),
            "gfx950" | "gfx1200" | "gfx1201" | "gfx1250" => Some(Self::E4m3fn),
            _ => None,
        }
    }

    /// The largest absolute value that is stored; greater ones saturate to it.
    pub const fn max(self) -> f32 {
        match self {
            Self::E4m3fn => 448.0,
            Self::E4m3fnuz => 224.0,
        }
    }

    /// The exponent of [`max`](Self::max), which is 1.75 times two to this power.
    pub const fn max_exponent(self) -> u32 {
        match self {
            Self::E4m3fn => 8,
            Self::E4m3fnuz => 7,
        }
    }

    /// The byte that stands for NaN.
    pub const fn nan(self) -> u8 {
        match self {
            Self::E4m3fn => 0x7F,
            Self::E4m3fnuz => 0x80,
        }
    }
}
