use std::fmt::Display;

/// The result of whatever can refuse its arguments.
pub type Result<T, E = Invalid> = std::result::Result<T, E>;

/// An invalid argument: its name, its value, what it must be, and what is wrong with it.
///
/// ```
/// use mla_prologue_operator::{Invalid, Kind};
/// let error = Invalid::new("block_size", -1, "1 or more");
/// assert_eq!(error.to_string(), "block_size is -1; it must be 1 or more");
/// assert_eq!(error.kind, Kind::Value);
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{argument} is {value}; it must be {must}")]
#[non_exhaustive]
pub struct Invalid {
    /// What is wrong, for a program to match on.
    pub kind: Kind,
    /// The argument's name, as in the API and in files.
    pub argument: String,
    /// Its value.
    pub value: String,
    /// What it must be.
    pub must: String,
}

/// What is wrong with an argument.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// Its value is out of range, unknown, or contradicts another argument.
    #[default]
    Value,
    /// It is missing.
    Missing,
    /// It is given where it has no effect.
    Unexpected,
    /// A tensor has the wrong shape.
    Shape,
    /// A tensor has the wrong element type.
    Type,
    /// A buffer has the wrong size in bytes, or is not aligned.
    Size,
    /// An index in a tensor is out of range, or used twice.
    Index,
    /// A buffer or tensor is on another device.
    Device,
}

impl Invalid {
    /// An error about `argument`, whose value is `value` and must be `must`. Control characters in the first two,
    /// which may come from a file, are escaped, and long texts cut.
    pub fn new(argument: impl Display, value: impl Display, must: impl Display) -> Self {
        let (argument, value) = (printable(argument), printable(value));
        Self { kind: Kind::Value, argument, value, must: must.to_string() }
    }

    /// An argument that is missing.
    pub fn missing(argument: impl Display, must: impl Display) -> Self {
        Self::new(argument, "missing", must).of(Kind::Missing)
    }

    /// An argument that has no effect beside the others.
    pub fn unexpected(argument: impl Display, value: impl Display, must: impl Display) -> Self {
        Self::new(argument, value, must).of(Kind::Unexpected)
    }

    /// A tensor of the wrong shape.
    pub fn shape(tensor: impl Display, value: impl Display, must: impl Display) -> Self {
        Self::new(format_args!("the shape of {tensor}"), value, must).of(Kind::Shape)
    }

    /// A tensor of the wrong element type.
    pub fn dtype(tensor: impl Display, value: impl Display, must: impl Display) -> Self {
        Self::new(format_args!("the type of {tensor}"), value, must).of(Kind::Type)
    }

    /// A buffer of the wrong size.
    pub fn size(tensor: impl Display, bytes: usize, must: impl Display) -> Self {
        let value = format_args!("{bytes} bytes");
        Self::new(format_args!("the size of {tensor}"), value, must).of(Kind::Size)
    }

    /// The same error, where the caller knows the argument by another name.
    #[must_use]
    pub fn named(self, argument: impl Display) -> Self {
        Self { argument: argument.to_string(), ..self }
    }

    /// The same error, of another kind.
    #[must_use]
    pub fn of(self, kind: Kind) -> Self {
        Self { kind, ..self }
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
