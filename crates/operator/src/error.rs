use std::fmt::Display;

/// The result of whatever can refuse its arguments.
pub type Result<T, E = Invalid> = std::result::Result<T, E>;

/// An argument that cannot be used: its name, what it is, what it must be.
///
/// ```
/// let error = mla_prologue_operator::Invalid::new("block_size", -1, "1 or more");
/// assert_eq!(error.to_string(), "block_size is -1; it must be 1 or more");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{argument} is {value}; it must be {must}")]
pub struct Invalid {
    /// The argument's name, as in the API and in files.
    pub argument: String,
    /// What it is.
    pub value: String,
    /// What it must be.
    pub must: String,
}

impl Invalid {
    /// An error about `argument`, which is `value` and must be `must`. What a file can put into the first
    /// two is made fit to be printed: control characters are escaped, long texts cut.
    pub fn new(argument: impl Display, value: impl Display, must: impl Display) -> Self {
        Self { argument: printable(argument), value: printable(value), must: must.to_string() }
    }
}

/// Characters of a value that are shown.
const SHOWN: usize = 120;

fn printable(text: impl Display) -> String {
    let text = text.to_string();
    if text.trim() != text || text.is_empty() {
        return format!("{text:?}").chars().take(SHOWN).collect();
    }
    let plain = |c: char| {
        if c.is_ascii_graphic() || c == ' ' || c.is_alphanumeric() {
            c.to_string()
        } else {
            c.escape_default().to_string()
        }
    };
    let shown: String = text.chars().take(SHOWN).map(plain).collect();
    if text.chars().count() > SHOWN { shown + "..." } else { shown }
}

/// `Ok` where `holds`, else an [`Invalid`] of the three.
pub(crate) fn require(
    holds: bool,
    argument: impl Display,
    value: impl Display,
    must: impl Display,
) -> Result<()> {
    if holds { Ok(()) } else { Err(Invalid::new(argument, value, must)) }
}
