use std::path::PathBuf;

/// What can go wrong while reading a checkpoint or running a model.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file could not be opened or read.
    #[error("{}: {source}", path.display())]
    Io {
        /// File or folder.
        path: PathBuf,
        /// Reason given by the system.
        source: std::io::Error,
    },
    /// A folder (or memory image) without any weights.
    #[error("{place}: no .safetensors file here")]
    NoWeights {
        /// Where weights were looked for.
        place: String,
    },
    /// A safetensors file whose header cannot be read.
    #[error("{file}: {message}")]
    Header {
        /// File name.
        file: String,
        /// What is wrong with the header.
        message: String,
    },
    /// A tensor whose bytes end behind the end of its file.
    #[error("{file}: truncated: tensor {tensor} needs bytes up to {needed}, the file has {found}")]
    Truncated {
        /// File name.
        file: String,
        /// Tensor cut short.
        tensor: String,
        /// File length that the tensor needs, bytes.
        needed: usize,
        /// File length, bytes.
        found: usize,
    },
    /// A tensor whose byte range does not fit its shape and number format.
    #[error(
        "{file}: tensor {tensor} of shape {shape:?} {dtype} takes {needed} bytes, its range has {found}"
    )]
    Range {
        /// File name.
        file: String,
        /// Tensor.
        tensor: String,
        /// Its shape.
        shape: Vec<usize>,
        /// Its number format.
        dtype: String,
        /// Bytes that shape and format take.
        needed: usize,
        /// Bytes of the range in the header.
        found: usize,
    },
    /// The index lists a file that does not exist.
    #[error("{index}: tensor {tensor} should be in {file}, which is not there")]
    IndexedFile {
        /// Index file.
        index: String,
        /// First tensor said to be in the file.
        tensor: String,
        /// File that is missing.
        file: String,
    },
    /// The index lists a tensor that its file does not hold.
    #[error("{index}: tensor {tensor} should be in {file}, which does not hold it")]
    IndexedTensor {
        /// Index file.
        index: String,
        /// Tensor that is missing.
        tensor: String,
        /// File that should hold it.
        file: String,
    },
    /// Two files hold a tensor of the same name.
    #[error("tensor {tensor} is both in {first} and in {second}")]
    Duplicate {
        /// Tensor.
        tensor: String,
        /// File read first.
        first: String,
        /// File read later.
        second: String,
    },
    /// A file that has to be there and is not.
    #[error("{place}: {file} is missing")]
    MissingFile {
        /// Where it was looked for.
        place: String,
        /// File name.
        file: String,
    },
    /// A text file that is not what it should be.
    #[error("{file}: {message}")]
    Text {
        /// File name.
        file: String,
        /// What is wrong.
        message: String,
    },
    /// A field of a config that is missing, of the wrong type or out of range.
    #[error("{file}: {field} {message}")]
    Config {
        /// File name.
        file: String,
        /// Path of the field.
        field: String,
        /// What is wrong with it.
        message: String,
    },
    /// A field of a drafter's config that is missing and that its target would tell.
    #[error("{file}: {field} is missing and cannot be inferred without the target")]
    NeedsTarget {
        /// File name.
        file: String,
        /// Path of the field.
        field: String,
    },
    /// A valid checkpoint of a kind that this crate does not compute.
    #[error("{file}: {what} is not supported: {why}")]
    Unsupported {
        /// File name.
        file: String,
        /// Field and value, or tensor.
        what: String,
        /// Why, or what to do instead.
        why: String,
    },
    /// Tensors that do not fit the config; the message shows the first few.
    #[error("{}", Problem::list(.0))]
    Tensors(Vec<Problem>),
    /// A size that the ranks cannot share.
    #[error("{ranks} ranks cannot share {what} = {size}: {ranks} does not divide {size}")]
    Ranks {
        /// Dimension to share.
        what: &'static str,
        /// Its size.
        size: usize,
        /// Number of ranks.
        ranks: usize,
    },
    /// A drafter that was made for another target.
    #[error("the drafter's {what} is {drafter}, the target's is {target}")]
    Pair {
        /// Property that differs.
        what: &'static str,
        /// Value of the drafter.
        drafter: String,
        /// Value of the target.
        target: String,
    },
    /// A call whose arguments do not fit the model or its limits.
    #[error("{call}: {what} is {got}, expected {expected}")]
    Call {
        /// Function called.
        call: &'static str,
        /// Which argument.
        what: &'static str,
        /// Value required.
        expected: String,
        /// Value found.
        got: String,
    },
    /// An operation failed.
    #[error(transparent)]
    Ops(#[from] volley_ops::Error),
}

/// One tensor that does not fit the config.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// The model needs it and no file holds it.
    #[error("tensor {tensor} of shape {shape:?} is missing in {place}")]
    Missing {
        /// Tensor.
        tensor: String,
        /// Shape that the config asks for.
        shape: Vec<usize>,
        /// Checkpoint.
        place: String,
    },
    /// The model knows no such tensor.
    #[error("{file}: unknown tensor {tensor} of shape {shape:?}")]
    Unknown {
        /// Tensor.
        tensor: String,
        /// Its shape.
        shape: Vec<usize>,
        /// File that holds it.
        file: String,
    },
    /// Its shape is not what the config says.
    #[error("{file}: tensor {tensor} has shape {found:?}, the config asks for {expected:?}")]
    Shape {
        /// Tensor.
        tensor: String,
        /// Shape that the config asks for.
        expected: Vec<usize>,
        /// Shape in the file.
        found: Vec<usize>,
        /// File that holds it.
        file: String,
    },
    /// Its numbers are neither BF16, F16 nor F32.
    #[error("{file}: tensor {tensor} of shape {shape:?} is {found}, expected BF16, F16 or F32")]
    Dtype {
        /// Tensor.
        tensor: String,
        /// Its shape.
        shape: Vec<usize>,
        /// Its number format.
        found: String,
        /// File that holds it.
        file: String,
    },
}

impl Problem {
    const SHOWN: usize = 5;

    fn list(problems: &[Self]) -> String {
        let mut lines: Vec<String> = problems
            .iter()
            .take(Self::SHOWN)
            .map(Self::to_string)
            .collect();
        if let Some(rest) = problems.len().checked_sub(Self::SHOWN).filter(|&n| n > 0) {
            lines.push(format!("and {rest} more like these"));
        }
        lines.join("\n")
    }
}

/// Result of a model operation.
pub type Result<T> = std::result::Result<T, Error>;
