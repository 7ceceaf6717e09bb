/// Why a GPU cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no driver library.
    #[error("no NVIDIA driver: libcuda was not found; install driver 580 or newer")]
    NoDriver,
    /// The driver is older than the kernels.
    #[error(
        "the NVIDIA driver is too old: it supports CUDA {major}.{minor}, the kernels need 13.0 (driver 580 or newer)"
    )]
    DriverTooOld {
        /// CUDA major version of the driver.
        major: i32,
        /// CUDA minor version of the driver.
        minor: i32,
    },
    /// The driver is there, and no GPU.
    #[error("the NVIDIA driver sees no GPU; see nvidia-smi and CUDA_VISIBLE_DEVICES")]
    NoGpu,
    /// No device of this number.
    #[error("there is no GPU {ordinal}: the driver sees {count}")]
    NoDevice {
        /// Device asked for.
        ordinal: usize,
        /// Devices there are.
        count: i32,
    },
    /// The device lacks the instructions that the kernels use.
    #[error(
        "{name} has compute capability {major}.{minor}; the kernels need 8.0 (Ampere) or newer"
    )]
    DeviceTooOld {
        /// Name of the device.
        name: String,
        /// Compute capability, major.
        major: i32,
        /// Compute capability, minor.
        minor: i32,
    },
    /// A CUDA library is missing.
    #[error(
        "{library} was not found; install the CUDA 13 libraries or `pip install nvidia-cublas`, and put their folder on LD_LIBRARY_PATH"
    )]
    MissingLibrary {
        /// File name without version.
        library: &'static str,
    },
    /// A call that failed.
    #[error("{call}: {message}")]
    Call {
        /// Function of the driver or library.
        call: &'static str,
        /// Its report.
        message: String,
    },
}

/// CUDA version that the kernels are compiled with, as the driver counts.
const NEEDED_VERSION: i32 = 13_000;

impl Error {
    /// What there is to say against a driver of this version.
    #[cfg_attr(not(feature = "cuda"), allow(dead_code))]
    pub(crate) fn of_driver(version: i32) -> Option<Self> {
        (version < NEEDED_VERSION).then_some(Self::DriverTooOld {
            major: version / 1000,
            minor: version % 1000 / 10,
        })
    }
}

/// Result of a device call.
pub type Result<T> = std::result::Result<T, Error>;

/// The failure as an operation reports it.
pub(crate) fn in_op(op: &'static str) -> impl Fn(Error) -> volley_ops::Error {
    move |error| volley_ops::Error::Device {
        op,
        message: error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_drivers_are_named_with_what_is_needed() {
        for version in [13_000, 13_010, 14_000] {
            assert!(Error::of_driver(version).is_none(), "{version}");
        }
        let message = Error::of_driver(12_080).map(|error| error.to_string());
        let expected = "the NVIDIA driver is too old: it supports CUDA 12.8, the kernels need 13.0 \
                        (driver 580 or newer)";
        assert_eq!(message.as_deref(), Some(expected));
    }
}
