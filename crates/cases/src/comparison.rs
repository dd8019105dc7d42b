//! How alike two outputs must be, and what a comparison found.

use mla_prologue_kernel::Runtime;
use mla_prologue_operator::Float16;
use mla_prologue_reference::numbers::from_float16;

/// How alike two outputs must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// Every bit; only the payload of a 16-bit NaN is free.
    Exact,
    /// What rounding of division and square root reaches may be one unit in the last place off, in at
    /// most one value of a hundred: queries and RoPE values. Everything else is exact.
    Band,
    /// The bound of an attention kernel that sums in an order of its own, with 16-bit weights.
    Bound,
}

impl Rule {
    /// The rule for a device of this runtime.
    pub fn of(runtime: Runtime) -> Self {
        if runtime.is_exact() { Self::Exact } else { Self::Band }
    }
}

/// What a comparison found.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Comparison {
    /// Values compared.
    pub values: usize,
    /// Values that differ in a way that the rule allows.
    pub near: usize,
    /// Values that are wrong.
    pub wrong: usize,
    /// The first of these, in words.
    pub first: Option<String>,
    /// The largest error, as a share of the bound, where there is one.
    pub worst: f64,
}

impl Comparison {
    /// Is nothing wrong?
    pub fn holds(&self) -> bool {
        self.wrong == 0
    }

    pub(crate) fn wrong(&mut self, describe: impl FnOnce() -> String) {
        self.wrong += 1;
        self.first.get_or_insert_with(describe);
    }

    /// In band, not more than one value in a hundred may be near, but two in small tensors.
    pub(crate) fn limit_near(mut self) -> Self {
        if self.near > (self.values / 100).max(2) {
            let (near, values) = (self.near, self.values);
            self.wrong(|| format!("{near} of {values} values are one unit in the last place off"));
        }
        self
    }

    /// Judges one value of 16 bits, or of 8, which must be equal.
    pub(crate) fn judge(
        &mut self,
        want: &[u8],
        got: &[u8],
        dtype: Float16,
        rule: Rule,
        at: impl Fn() -> String,
    ) {
        let (&[want_low, want_high], &[got_low, got_high]) = (want, got) else {
            if want != got {
                self.wrong(|| format!("{} is {got:02x?}, must be {want:02x?}", at()));
            }
            return;
        };
        let [want, got] = [[want_low, want_high], [got_low, got_high]].map(u16::from_le_bytes);
        let [want_value, got_value] = [want, got].map(|bits| from_float16(bits, dtype));
        if want == got || (want_value.is_nan() && got_value.is_nan()) {
            return;
        }
        let finite = !want_value.is_nan() && !got_value.is_nan();
        if rule == Rule::Band && finite && ordinal(want).abs_diff(ordinal(got)) <= 1 {
            self.near += 1;
            return;
        }
        self.wrong(|| {
            format!("{} is {got:#06x} ({got_value:e}), must be {want:#06x} ({want_value:e})", at())
        });
    }
}

/// Integers in the order of the 16-bit values; both zeros are 0.
fn ordinal(bits: u16) -> i32 {
    let magnitude = i32::from(bits & 0x7FFF);
    if bits & 0x8000 == 0 { magnitude } else { -magnitude }
}
