//! WebSocket behind an upgrade: numbered channels of exec, attach and port-forward, or a tunnel of plain bytes.

mod connection;
mod frames;

pub use connection::{ChannelOutput, Channels};
pub use connection::{Encoding, WebSocket};
pub use frames::{Decoder, FrameError, Message, encode};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::HeaderMap;

/// Whether a client asks for a WebSocket.
pub fn is_asked(headers: &HeaderMap) -> bool {
    let has = |name: http::HeaderName, word: &str| {
        let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
        values.flat_map(|value| value.split(',')).any(|value| value.trim().eq_ignore_ascii_case(word))
    };
    has(http::header::CONNECTION, "upgrade") && has(http::header::UPGRADE, "websocket")
}

/// The subprotocols a client offers, in its order.
pub fn offered(headers: &HeaderMap) -> Vec<String> {
    let values = headers.get_all(http::header::SEC_WEBSOCKET_PROTOCOL).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).map(|value| value.trim().to_string()).collect()
}

/// What proves to the client that its key was read.
pub fn accept_key(key: &[u8]) -> String {
    const SUFFIX: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
    let digest = ring::digest::digest(&ring::digest::SHA1_FOR_LEGACY_USE_ONLY, &[key, SUFFIX].concat());
    STANDARD.encode(digest.as_ref())
}

#[cfg(test)]
mod tests {
    /// The example of RFC 6455.
    #[test]
    fn the_key_is_answered() {
        assert_eq!(super::accept_key(b"dGhlIHNhbXBsZSBub25jZQ=="), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }
}
