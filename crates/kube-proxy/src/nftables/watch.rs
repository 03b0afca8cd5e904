//! Hears when someone else changes our table.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, netlink, sockopt};
use tokio::io::unix::AsyncFd;

/// `NFNLGRP_NFTABLES`, as a bit.
const CHANGES: u32 = 1 << (7 - 1);
/// Room for what the kernel says while we do something else.
const RECEIVE_BYTES: usize = 4 << 20;
const MESSAGE_BYTES_MAX: usize = 1 << 16;
const HEADER: usize = 16;
/// After the header: family, version, resource.
const ATTRIBUTES: usize = HEADER + 4;
const NFT_MSG_NEWGEN: u8 = 15;
/// In every message but that one: the name of the table.
const NAME: u16 = 1;

pub struct Watch {
    socket: AsyncFd<OwnedFd>,
    table: String,
    /// The socket by which we change it ourselves.
    own: Arc<AtomicU32>,
    buffer: Vec<u8>,
}

impl Watch {
    pub fn open(table: &str, namespace: Option<&Path>, own: Arc<AtomicU32>) -> io::Result<Watch> {
        let socket = match namespace {
            Some(path) => linux::netns::run_in(path, open_socket)??,
            None => open_socket()?,
        };
        // Its successor is unsafe, and the socket is ours alone until the end.
        #[allow(deprecated)]
        let socket = AsyncFd::new(socket)?;
        Ok(Watch { socket, table: table.to_owned(), own, buffer: vec![0; MESSAGE_BYTES_MAX] })
    }

    /// Until someone else has changed the table, or may have: some messages were lost.
    pub async fn touched(&mut self) -> io::Result<()> {
        loop {
            let mut ready = self.socket.readable().await?;
            let received = rustix::net::recv(self.socket.get_ref(), self.buffer.as_mut_slice(), RecvFlags::DONTWAIT);
            match received {
                Ok((_, length)) => {
                    let length = length.min(self.buffer.len());
                    if is_foreign(&self.buffer[..length], &self.table, self.own.load(Ordering::Relaxed)) {
                        return Ok(());
                    }
                }
                Err(Errno::AGAIN) => ready.clear_ready(),
                Err(Errno::NOBUFS) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Forgets what has been said so far.
    pub fn drain(&mut self) {
        while !matches!(
            rustix::net::recv(self.socket.get_ref(), self.buffer.as_mut_slice(), RecvFlags::DONTWAIT),
            Err(Errno::AGAIN)
        ) {}
    }
}

fn open_socket() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let kind = Some(netlink::NETFILTER);
    let socket = rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, kind)?;
    // Where it may not be as large as this, more is lost and looked up instead.
    let _ = sockopt::set_socket_recv_buffer_size_force(&socket, RECEIVE_BYTES);
    rustix::net::bind(&socket, &netlink::SocketAddrNetlink::new(0, CHANGES))?;
    Ok(socket)
}

/// Whether any of the messages is about our table and from someone else.
fn is_foreign(mut bytes: &[u8], table: &str, own: u32) -> bool {
    let word = |bytes: &[u8], at: usize| {
        bytes.get(at..at + 4).map(|word| u32::from_ne_bytes(word.try_into().expect("four bytes")))
    };
    while let Some(length) = word(bytes, 0).map(|length| length as usize) {
        if length < ATTRIBUTES || length > bytes.len() {
            return false;
        }
        let message = &bytes[..length];
        if message[4] != NFT_MSG_NEWGEN && word(message, 12) != Some(own) && name(&message[ATTRIBUTES..]) == Some(table)
        {
            return true;
        }
        bytes = &bytes[length.next_multiple_of(4).min(bytes.len())..];
    }
    false
}

fn name(mut attributes: &[u8]) -> Option<&str> {
    while let [low, high, kind_low, kind_high, ..] = attributes {
        let length = u16::from_ne_bytes([*low, *high]) as usize;
        if length < 4 || length > attributes.len() {
            return None;
        }
        if u16::from_ne_bytes([*kind_low, *kind_high]) == NAME {
            return std::str::from_utf8(&attributes[4..length]).ok().map(|text| text.trim_end_matches('\0'));
        }
        attributes = &attributes[length.next_multiple_of(4).min(attributes.len())..];
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: u8, from: u32, table: &str) -> Vec<u8> {
        let length = ATTRIBUTES + 4 + table.len() + 1;
        let mut bytes = (length as u32).to_ne_bytes().to_vec();
        bytes.extend([kind, 10, 0, 0, 0, 0, 0, 0]);
        bytes.extend(from.to_ne_bytes());
        bytes.extend([2, 0, 0, 0]);
        bytes.extend(((4 + table.len() + 1) as u16).to_ne_bytes());
        bytes.extend(NAME.to_ne_bytes());
        bytes.extend(table.bytes().chain([0]));
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    #[test]
    fn only_others_and_only_our_table_count() {
        let all = |messages: &[Vec<u8>]| is_foreign(&messages.concat(), "ours", 7);
        assert!(all(&[message(2, 8, "ours")]));
        assert!(all(&[message(2, 7, "ours"), message(14, 8, "other"), message(14, 8, "ours")]));
        assert!(!all(&[message(2, 7, "ours"), message(2, 8, "ours-too"), message(NFT_MSG_NEWGEN, 8, "ours")]));
        let whole = message(2, 8, "ours");
        for length in 0..whole.len() - 4 {
            assert!(!is_foreign(&whole[..length], "ours", 7), "cut after {length} bytes");
        }
        assert!(!is_foreign(&[255; 64], "ours", 7));
    }
}
