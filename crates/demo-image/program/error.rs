//! Why a command failed. It is only ever printed, so what it knows is its text; the program uses nothing but the standard library, and
//! so this stands here instead of `anyhow`.

use std::fmt;

pub type Result<T> = std::result::Result<T, Error>;

#[derive(Debug)]
pub struct Error(String);

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Error {}

impl From<String> for Error {
    fn from(text: String) -> Error {
        Error(text)
    }
}

impl From<&str> for Error {
    fn from(text: &str) -> Error {
        Error(text.to_owned())
    }
}

impl From<std::io::Error> for Error {
    fn from(error: std::io::Error) -> Error {
        Error(error.to_string())
    }
}

impl From<std::time::SystemTimeError> for Error {
    fn from(error: std::time::SystemTimeError) -> Error {
        Error(error.to_string())
    }
}
