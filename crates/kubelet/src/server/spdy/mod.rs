//! SPDY/3.1 as Kubernetes clients speak it behind an upgrade: streams of one exec, attach or port-forward.

mod connection;
mod dictionary;
mod frames;
mod headers;
#[cfg(test)]
mod tests;
mod windows;

pub use connection::StreamOutput;
pub use connection::{Connection, Stream};
pub use frames::{Decoder, Encoder, Frame, FrameError};
pub use headers::Headers;
