use mla_prologue_operator::{Invalid, Result};

/// An attention kernel, as the owner of what the prologue must give it: how many query heads, and how far
/// apart the cache's blocks.
///
/// ```
/// use mla_prologue_model::AttentionBackend;
/// assert_eq!(AttentionBackend::FlashMla.padded_query_heads(16)?, 64);
/// assert_eq!(AttentionBackend::FlashMla.block_alignment(), 576);
/// let error = AttentionBackend::FlashMla.padded_query_heads(129).unwrap_err();
/// assert_eq!(error.to_string(), "live heads is 129; it must be from 1 to 128 with flashmla");
/// # Ok::<(), mla_prologue_operator::Invalid>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AttentionBackend {
    /// FlashMLA's sparse decode (SM90, SM100): exactly 64 or 128 heads, blocks a multiple of 576 bytes
    /// apart. It computes the padding heads too.
    FlashMla,
    /// FlashInfer from 0.6.14: 8, 16, 32, 64 or 128 heads.
    FlashInfer,
    /// ROCm AITER's sparse MLA: any number of heads, no padding.
    Aiter,
    /// A kernel that takes any number of heads.
    Any,
}

impl AttentionBackend {
    /// Every backend.
    pub const ALL: [Self; 4] = [Self::FlashMla, Self::FlashInfer, Self::Aiter, Self::Any];

    /// The name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::FlashMla => "flashmla",
            Self::FlashInfer => "flashinfer",
            Self::Aiter => "aiter",
            Self::Any => "any",
        }
    }

    /// The backend of that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|backend| backend.name() == name)
    }

    /// The head counts that it takes; `None`: any.
    pub const fn head_counts(self) -> Option<&'static [usize]> {
        match self {
            Self::FlashMla => Some(&[64, 128]),
            Self::FlashInfer => Some(&[8, 16, 32, 64, 128]),
            Self::Aiter | Self::Any => None,
        }
    }

    /// The heads that `live` heads are padded to: the smallest count that the kernel takes.
    ///
    /// # Errors
    /// No heads, or more than the kernel takes.
    pub fn padded_query_heads(self, live: usize) -> Result<usize> {
        let counts = self.head_counts();
        let padded =
            counts.map_or(Some(live), |counts| counts.iter().copied().find(|&n| n >= live));
        let limit = counts.and_then(|counts| counts.last());
        padded.filter(|_| live > 0).ok_or_else(|| {
            let must = limit.map_or("1 or more".into(), |limit| format!("from 1 to {limit}"));
            Invalid::new("live heads", live, format_args!("{must} with {}", self.name()))
        })
    }

    /// Bytes that the stride of the cache's blocks must be a multiple of.
    pub const fn block_alignment(self) -> usize {
        match self {
            Self::FlashMla => 576,
            Self::FlashInfer | Self::Aiter | Self::Any => 1,
        }
    }
}
