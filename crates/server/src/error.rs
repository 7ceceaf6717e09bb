//! What can go wrong while a server is set up. Errors of requests are
//! [`volley_protocol::ApiError`].

/// Result of setting up.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Failure of setting up or running the server.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The tokenizer file does not parse, or a text does not encode.
    #[error("tokenizer: {0}")]
    Tokenizer(String),
    /// A token is not written in the byte alphabet.
    #[error("tokenizer: token {id} ({text:?}) is not written in the byte-level alphabet")]
    NotByteLevel {
        /// Token id.
        id: u32,
        /// Its text in the file.
        text: String,
    },
    /// A file of the model does not parse.
    #[error("{file}: {message}")]
    File {
        /// File name.
        file: String,
        /// What is wrong with it.
        message: String,
    },
    /// The chat template does not compile.
    #[error("chat template: {0}")]
    Template(String),
    /// The address is taken or not ours.
    #[error("cannot listen on {address}: {source}")]
    Bind {
        /// Address asked for.
        address: String,
        /// Reason of the system.
        source: std::io::Error,
    },
    /// The engine ended by itself.
    #[error("the engine is lost: {0}")]
    EngineLost(String),
    /// The system refuses a thread, a signal handler or the like.
    #[error("cannot run the server: {0}")]
    Io(#[from] std::io::Error),
}
