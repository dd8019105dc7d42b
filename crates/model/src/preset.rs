/// A model's shapes. Source: the models' published `config.json`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Preset {
    /// The name on the command line.
    pub name: &'static str,
    /// Query heads of a layer; there is one key head.
    pub heads: usize,
    /// Width of the hidden state.
    pub hidden: usize,
    /// Layers.
    pub layers: usize,
    /// Width of the query's low-rank projection.
    pub q_lora_rank: usize,
    /// Groups of the output projection.
    pub o_groups: usize,
    /// Width of each group's low-rank projection.
    pub o_lora_rank: usize,
}

impl Preset {
    /// DeepSeek-V4-Flash.
    pub const V4_FLASH: Self = Self {
        name: "v4-flash",
        heads: 64,
        hidden: 4096,
        layers: 43,
        q_lora_rank: 1024,
        o_groups: 8,
        o_lora_rank: 1024,
    };
    /// DeepSeek-V4-Pro.
    pub const V4_PRO: Self = Self {
        name: "v4-pro",
        heads: 128,
        hidden: 7168,
        layers: 61,
        q_lora_rank: 1536,
        o_groups: 16,
        o_lora_rank: 1024,
    };
    /// Every preset.
    pub const ALL: [Self; 2] = [Self::V4_FLASH, Self::V4_PRO];

    /// The preset of that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|preset| preset.name == name)
    }
}
