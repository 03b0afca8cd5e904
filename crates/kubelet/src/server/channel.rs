//! One direction of one stream to a client, the same over SPDY and WebSocket.

use bytes::Bytes;
use tokio::sync::mpsc;

use super::spdy::{Frame, StreamOutput};
use super::websocket::ChannelOutput;

/// Bytes from the client; ends when the client has closed the stream or is gone.
pub struct Incoming {
    receiver: mpsc::Receiver<Bytes>,
    taken: Taken,
}

/// Whom to tell that bytes were taken.
pub enum Taken {
    Spdy { id: u32, control: mpsc::Sender<Frame>, waiting: u32 },
    Nobody,
}

/// The sender gets room back in pieces of at least this many bytes.
const GIVE_BACK: u32 = 32 * 1024;

impl Incoming {
    pub fn new(receiver: mpsc::Receiver<Bytes>, taken: Taken) -> Incoming {
        Incoming { receiver, taken }
    }

    pub async fn receive(&mut self) -> Option<Bytes> {
        let bytes = self.receiver.recv().await?;
        if let Taken::Spdy { id, control, waiting } = &mut self.taken {
            *waiting += bytes.len() as u32;
            if *waiting >= GIVE_BACK {
                let update = Frame::WindowUpdate { id: *id, delta: *waiting };
                // Without room now, the bytes are given back with the next piece.
                if control.try_send(update).is_ok() {
                    *waiting = 0;
                }
            }
        }
        Some(bytes)
    }
}

/// Bytes to the client.
pub enum Output {
    Spdy(StreamOutput),
    WebSocket(ChannelOutput),
}

impl Output {
    /// False when the client does not want any more.
    pub async fn send(&mut self, bytes: Bytes) -> bool {
        match self {
            Output::Spdy(output) => output.send(bytes).await,
            Output::WebSocket(output) => output.send(bytes).await,
        }
    }

    pub async fn close(&mut self) {
        match self {
            Output::Spdy(output) => output.close().await,
            // A channel of a WebSocket ends with its connection.
            Output::WebSocket(_) => {}
        }
    }
}
