//! SPDY flow control windows: per stream, and for the connection.
//!
//! The Go library that kubectl and others use neither sends window updates nor heeds them. A window is therefore only
//! waited for once the peer has shown that it keeps windows at all; until then it is only counted.

use std::collections::HashMap;

use parking_lot::Mutex;
use tokio::sync::Notify;

pub(super) const FIRST_WINDOW: i64 = 64 * 1024;

pub(super) struct Windows {
    state: Mutex<State>,
    changed: Notify,
}

struct State {
    kept: bool,
    first: i64,
    connection: i64,
    streams: HashMap<u32, i64>,
}

impl Windows {
    pub fn new() -> Windows {
        let state = State { kept: false, first: FIRST_WINDOW, connection: FIRST_WINDOW, streams: HashMap::new() };
        Windows { state: Mutex::new(state), changed: Notify::new() }
    }

    pub fn open(&self, id: u32) {
        let mut state = self.state.lock();
        let first = state.first;
        state.streams.insert(id, first);
    }

    pub fn close(&self, id: u32) {
        self.state.lock().streams.remove(&id);
        self.changed.notify_waiters();
    }

    /// The peer took some; stream 0 is the connection.
    pub fn update(&self, id: u32, delta: u32) {
        let mut state = self.state.lock();
        state.kept = true;
        match id {
            0 => state.connection += i64::from(delta),
            _ => {
                if let Some(window) = state.streams.get_mut(&id) {
                    *window += i64::from(delta);
                }
            }
        }
        drop(state);
        self.changed.notify_waiters();
    }

    /// Changes the first window, which also moves that of open streams.
    pub fn first(&self, size: u32) {
        let mut state = self.state.lock();
        state.kept = true;
        let delta = i64::from(size) - state.first;
        state.first = i64::from(size);
        state.streams.values_mut().for_each(|window| *window += delta);
        drop(state);
        self.changed.notify_waiters();
    }

    /// Waits until something may be sent and says how many bytes of `wanted`; `None` when the stream is gone.
    pub async fn take(&self, id: u32, wanted: usize) -> Option<usize> {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            {
                let mut state = self.state.lock();
                let window = *state.streams.get(&id)?;
                let room = if state.kept { window.min(state.connection) } else { i64::MAX };
                if room > 0 {
                    let taken = (wanted as i64).min(room);
                    state.connection -= taken;
                    state.streams.insert(id, window - taken);
                    return Some(taken as usize);
                }
            }
            changed.await;
        }
    }
}
