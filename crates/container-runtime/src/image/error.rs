//! Why an image is not here.

use std::path::Path;

use super::reference::ReferenceError;

#[derive(Debug, thiserror::Error)]
pub(crate) enum ImageError {
    #[error("failed to parse image reference {image:?}: {source}")]
    Reference { image: String, source: ReferenceError },
    #[error("{0}: not found")]
    NotFound(String),
    /// Content that is not what it says it is, or that no well-meant tool makes.
    #[error("{0}")]
    Invalid(String),
    /// More than this machine may be asked to keep.
    #[error("{0}")]
    TooLarge(String),
    /// A registry that cannot be reached or says no.
    #[error("{0}")]
    Registry(String),
    /// A registry that says nothing at all.
    #[error("{0}")]
    Silent(String),
    #[error("{step}: {source}")]
    Disk { step: String, source: std::io::Error },
    /// One of the above with the steps that led there in front.
    #[error("{step}: {source}")]
    Step { step: String, source: Box<ImageError> },
}

impl ImageError {
    pub fn within(self, step: impl Into<String>) -> ImageError {
        ImageError::Step { step: step.into(), source: Box::new(self) }
    }

    /// The error without the steps.
    pub fn cause(&self) -> &ImageError {
        match self {
            ImageError::Step { source, .. } => source.cause(),
            other => other,
        }
    }
}

impl From<ImageError> for cri::Error {
    fn from(error: ImageError) -> cri::Error {
        let code = match error.cause() {
            ImageError::Reference { .. } => cri::Code::InvalidArgument,
            ImageError::NotFound(_) => cri::Code::NotFound,
            ImageError::TooLarge(_) => cri::Code::ResourceExhausted,
            ImageError::Silent(_) => cri::Code::DeadlineExceeded,
            ImageError::Invalid(_) | ImageError::Registry(_) | ImageError::Disk { .. } | ImageError::Step { .. } => {
                cri::Code::Unknown
            }
        };
        cri::Error::new(code, error.to_string())
    }
}

/// Names the step and the path of a failed call.
pub(crate) fn disk<E: Into<std::io::Error>>(step: &str, path: &Path) -> impl FnOnce(E) -> ImageError {
    let step = format!("{step} {}", path.display());
    move |source| ImageError::Disk { step, source: source.into() }
}
