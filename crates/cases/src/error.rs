use mla_prologue_operator::Invalid;
use std::path::Path;

/// The result of whatever the command line does.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why something was not done, in one line that says what to change.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An argument cannot be used.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// A file holds what cannot be used.
    #[error("{path}: {error}")]
    Input {
        /// The file.
        path: String,
        /// What in it is wrong.
        error: Invalid,
    },
    /// The file system refused.
    #[error("cannot {doing} {path}: {reason}")]
    File {
        /// Read or write, and what.
        doing: String,
        /// The file.
        path: String,
        /// What the system said.
        reason: String,
    },
    /// The memory of this machine does not hold a tensor.
    #[error("{tensor} takes {bytes} bytes, more than this machine has")]
    Memory {
        /// The tensor.
        tensor: String,
        /// Its size.
        bytes: usize,
    },
    /// A tool failed.
    #[error("{0}")]
    Failed(String),
    /// A device cannot be used, or failed.
    #[error(transparent)]
    Device(mla_prologue_kernel::Error),
}

impl Error {
    /// The exit code of a program that ends with this error: 2 for what the caller can correct, 3 for a
    /// device or file system that failed.
    pub const fn exit_code(&self) -> u8 {
        match self {
            Self::Invalid(_) | Self::Input { .. } => 2,
            Self::File { .. } | Self::Memory { .. } | Self::Failed(_) | Self::Device(_) => 3,
        }
    }

    /// An error about the contents of a file.
    pub fn input(path: &Path, error: Invalid) -> Self {
        Self::Input { path: path.display().to_string(), error }
    }

    /// An error of the file system.
    pub fn file(doing: impl Into<String>, path: &Path, reason: impl ToString) -> Self {
        Self::File {
            doing: doing.into(),
            path: path.display().to_string(),
            reason: reason.to_string(),
        }
    }
}

impl From<mla_prologue_kernel::Error> for Error {
    fn from(error: mla_prologue_kernel::Error) -> Self {
        match error {
            mla_prologue_kernel::Error::Invalid(invalid) => Self::Invalid(invalid),
            other => Self::Device(other),
        }
    }
}
