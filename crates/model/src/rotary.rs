use mla_prologue_operator::ROPE_DIM;

/// Pairs of a head that are rotated.
const PAIRS: usize = ROPE_DIM / 2;

/// The rotary embedding of a layer: how fast each of the 32 pairs turns with the position. Computed in
/// f64; the table is rounded to f32 once.
///
/// ```
/// use mla_prologue_model::Rotary;
/// let table = Rotary::WINDOW.table(0..4);
/// assert_eq!(table.len(), 4 * 64);
/// assert_eq!((table[0], table[32]), (1.0, 0.0)); // position 0: cosine 1, sine 0
/// assert_eq!(table[64], 1f64.cos() as f32); // position 1, pair 0 turns by one radian
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rotary {
    /// Pair i turns by theta^(-i/32) radians a position.
    pub theta: f64,
    /// The extension to longer contexts, if there is one.
    pub yarn: Option<Yarn>,
}

/// YaRN: pairs that turn slowly are slowed down further, by `factor`. Source: Peng et al., "YaRN: Efficient
/// Context Window Extension of Large Language Models", without its scaling of the attention.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Yarn {
    /// How many times longer the context is.
    pub factor: f64,
    /// Positions of the original context.
    pub original: f64,
    /// Pairs that turn at least this often over the original context are left alone.
    pub beta_fast: f64,
    /// Pairs that turn at most this often are slowed down fully.
    pub beta_slow: f64,
}

impl Rotary {
    /// DeepSeek-V4's layers without compression, which see a sliding window.
    pub const WINDOW: Self = Self { theta: 10_000.0, yarn: None };
    /// DeepSeek-V4's layers that also attend to compressed entries.
    pub const COMPRESSED: Self = Self {
        theta: 160_000.0,
        yarn: Some(Yarn { factor: 16.0, original: 65_536.0, beta_fast: 32.0, beta_slow: 1.0 }),
    };

    /// Radians that each pair turns by from one position to the next.
    pub fn frequencies(&self) -> [f64; PAIRS] {
        let plain = |pair: usize| self.theta.powf(-(pair as f64) / PAIRS as f64);
        let Some(yarn) = self.yarn else { return std::array::from_fn(plain) };
        // The pair that turns `turns` times over the original context.
        let pair = |turns: f64| {
            let ratio = yarn.original / (std::f64::consts::TAU * turns);
            PAIRS as f64 * ratio.ln() / self.theta.ln()
        };
        let (low, high) = (pair(yarn.beta_fast).floor(), pair(yarn.beta_slow).ceil());
        std::array::from_fn(|i| {
            let slowed = ((i as f64 - low) / (high - low)).clamp(0.0, 1.0);
            plain(i) * (1.0 - slowed) + plain(i) / yarn.factor * slowed
        })
    }

    /// The rotary table of these positions, `[positions, 64]`: 32 cosines, then 32 sines.
    pub fn table(&self, positions: impl IntoIterator<Item = u32>) -> Vec<f32> {
        let frequencies = self.frequencies();
        let row = |position: u32| {
            let angle = move |frequency: f64| f64::from(position) * frequency;
            let cosines = frequencies.map(|frequency| angle(frequency).cos() as f32);
            let sines = frequencies.map(|frequency| angle(frequency).sin() as f32);
            cosines.into_iter().chain(sines)
        };
        positions.into_iter().flat_map(row).collect()
    }

    /// The rotary table of the positions from 0 on as a tensor, `[positions, 64]` f32.
    #[cfg(feature = "burn")]
    pub fn tensor(&self, positions: u32, device: &burn::tensor::Device) -> burn::tensor::Tensor<2> {
        let data =
            burn::tensor::TensorData::new(self.table(0..positions), [positions as usize, ROPE_DIM]);
        burn::tensor::Tensor::from_data(data, device)
    }
}
