use std::path::PathBuf;
use std::process::ExitCode;

/// Result of a command.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a command failed; printed on one line.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Arguments that do not fit together.
    #[error("{0}")]
    Usage(String),
    /// A checkpoint does not load.
    #[error(transparent)]
    Model(#[from] volley_model::Error),
    /// The engine does not start.
    #[error(transparent)]
    Engine(#[from] volley_engine::EngineError),
    /// The server does not start, or a file of the model is broken.
    #[error(transparent)]
    Server(#[from] volley_server::Error),
    /// A request was refused.
    #[error(transparent)]
    Request(#[from] volley_protocol::ApiError),
    /// A replayed request was refused; its response is printed.
    #[error("the request is refused with status {0}")]
    Refused(u16),
    /// A file cannot be read.
    #[error("{}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A file cannot be written.
    #[error("cannot write {}: {source}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A measurement missed its bound.
    #[error("{0}")]
    Failed(String),
    /// Reading or writing failed.
    #[error("{0}")]
    Io(#[from] std::io::Error),
}

impl Error {
    /// 2 for wrong arguments, as clap has it, else 1.
    pub fn exit_code(&self) -> ExitCode {
        match self {
            Self::Usage(_) => ExitCode::from(2),
            _ => ExitCode::FAILURE,
        }
    }

    /// Whether the engine ended by itself, at its start or later: threads of it may still be there.
    pub fn is_engine_lost(&self) -> bool {
        matches!(
            self,
            Self::Server(volley_server::Error::EngineLost(_))
                | Self::Engine(volley_engine::EngineError::Stopped(_))
        )
    }

    /// Whether the reader of our output has gone, as `head` does.
    pub fn is_closed_pipe(&self) -> bool {
        matches!(self, Self::Io(error) if error.kind() == std::io::ErrorKind::BrokenPipe)
    }
}
