use crate::{Index, Problem, Result, Sizes, error::require};

/// The tensors that a call reads, as little-endian bytes on the host. What a [`Problem`] has no use for
/// is empty.
#[derive(Clone, Copy, Debug, Default)]
pub struct Inputs<'a> {
    /// `[tokens, heads, 512]`.
    pub q: &'a [u8],
    /// `[tokens, 512]`.
    pub kv: &'a [u8],
    /// `[512]`, with a norm of the key.
    pub kv_norm_weight: &'a [u8],
    /// `[tokens]`: each token's row of the rotary table.
    pub positions: &'a [u8],
    /// `[slots]`: where each token goes; negative: nowhere.
    pub slot_mapping: &'a [u8],
    /// `[rows, 64]`.
    pub cos_sin_cache: &'a [u8],
}

/// The tensors that a call writes, on the host.
#[derive(Debug, Default)]
pub struct Outputs<'a> {
    /// `[tokens, padded_heads, 512]`, written whole.
    pub q_out: &'a mut [u8],
    /// `[num_blocks, block_stride]`; only the bytes of inserted tokens change.
    pub kv_cache: &'a mut [u8],
}

impl Inputs<'_> {
    /// Checks the sizes of the tensors, that every position is a row of the rotary table, and that
    /// every slot is in the cache and used once.
    ///
    /// # Errors
    /// The first tensor that is not as `problem` says.
    pub fn check(&self, problem: &Problem) -> Result<()> {
        self.check_sizes(problem)?;
        self.check_indices(problem)
    }

    /// Checks that every position is a row of the rotary table, and that every slot is in the cache and
    /// used once. Looks at no other tensor.
    ///
    /// # Errors
    /// The first index that is not.
    pub fn check_indices(&self, problem: &Problem) -> Result<()> {
        self.check_positions(problem)?;
        self.check_slots(problem)
    }

    fn check_sizes(&self, problem: &Problem) -> Result<()> {
        let sizes = problem.sizes();
        let actual = [
            self.q,
            self.kv,
            self.kv_norm_weight,
            self.positions,
            self.slot_mapping,
            self.cos_sin_cache,
        ];
        let [q, kv, weight, positions, slots, table] = actual.map(<[u8]>::len);
        sizes.check([q, kv, weight, positions, slots, table, sizes.q_out, sizes.kv_cache], true)
    }

    /// The positions, one a token.
    pub fn positions(&self, problem: &Problem) -> impl Iterator<Item = i64> {
        problem.positions.values(self.positions)
    }

    /// The slots, one for each of the first tokens.
    pub fn slots(&self, problem: &Problem) -> impl Iterator<Item = i64> {
        problem.key.map_or(Index::I64, |key| key.slot_type).values(self.slot_mapping)
    }

    fn check_positions(&self, problem: &Problem) -> Result<()> {
        let rows = problem.table.rows;
        self.positions(problem).enumerate().try_for_each(|(token, position)| {
            require(
                usize::try_from(position).is_ok_and(|position| position < rows),
                format_args!("positions[{token}]"),
                position,
                format_args!("from 0 to below the {rows} rows of cos_sin_cache"),
            )
        })
    }

    fn check_slots(&self, problem: &Problem) -> Result<()> {
        let Some(key) = problem.key else { return Ok(()) };
        let limit = key.cache.slots();
        let mut used: Vec<(i64, usize)> = Vec::new();
        for (token, slot) in self.slots(problem).enumerate() {
            require(
                slot < limit as i64,
                format_args!("slot_mapping[{token}]"),
                slot,
                format_args!("below the {limit} slots of kv_cache, or negative"),
            )?;
            if slot >= 0 {
                used.push((slot, token));
            }
        }
        used.sort_unstable();
        used.windows(2).try_for_each(|pair| {
            let [(slot, first), (next, second)] = [pair[0], pair[1]];
            require(
                slot != next,
                format_args!("slot_mapping[{second}]"),
                next,
                format_args!("a slot of its own: slot_mapping[{first}] is the same"),
            )
        })
    }
}

impl Outputs<'_> {
    /// Checks the sizes of the tensors.
    ///
    /// # Errors
    /// The first tensor that is not as `problem` says.
    pub fn check(&self, problem: &Problem) -> Result<()> {
        let wanted = problem.sizes();
        let outputs = Sizes { q_out: self.q_out.len(), kv_cache: self.kv_cache.len(), ..*wanted };
        wanted.check(outputs.named().map(|(_, bytes)| bytes), true)
    }
}
