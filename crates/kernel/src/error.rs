use cubecl::server::ServerError;
use mla_prologue_operator::Invalid;
use std::fmt::Display;

/// The result of whatever runs on a device.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a call did not do its work.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An argument cannot be used; nothing was written.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// The device cannot be used here.
    #[error("device {name} cannot be used: {reason}")]
    Unavailable {
        /// The device's name, as the caller gave it.
        name: String,
        /// Why, and what would help.
        reason: String,
    },
    /// The device failed at its work.
    #[error("the device failed while {doing}: {reason}")]
    Failed {
        /// What was being done.
        doing: &'static str,
        /// What the runtime said.
        reason: String,
    },
}

impl Error {
    pub(crate) fn unavailable(name: impl Display, reason: impl Display) -> Self {
        Self::Unavailable { name: name.to_string(), reason: reason.to_string() }
    }

    /// A device's failure at what was being done: the runtime's message in one line, without its backtrace.
    pub fn failed(doing: &'static str, error: ServerError) -> Self {
        let text = error.to_string();
        let text = text.split("Backtrace").next().unwrap_or_default();
        let reason = text.split_whitespace().collect::<Vec<_>>().join(" ");
        Self::Failed { doing, reason }
    }
}
