//! Attention over the paged cache: each token's query heads attend to a list of cache entries, each of which is key and
//! value in one.

mod call;
mod entries;
mod problem;
mod spec;
mod tensors;

pub use crate::{BlockTable, RotaryTable};
pub use call::Call;
pub use entries::{Entries, Extra, SlotList, Window};
pub use problem::{CHUNK, Problem};
pub use spec::{SCALE, Spec};
pub use tensors::Tensors;
