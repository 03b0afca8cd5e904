//! Hears from the kernel when a device gets or loses an address.

use std::io;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, netlink};
use tokio::io::unix::AsyncFd;

/// `RTMGRP_IPV4_IFADDR` and `RTMGRP_IPV6_IFADDR`.
const CHANGES: u32 = 0x10 | 0x100;
const MESSAGE_BYTES_MAX: usize = 1 << 13;

pub struct Events {
    socket: AsyncFd<OwnedFd>,
    buffer: Vec<u8>,
}

impl Events {
    pub fn open() -> io::Result<Events> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        // No protocol is that of routes and addresses.
        let socket = rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
        rustix::net::bind(&socket, &netlink::SocketAddrNetlink::new(0, CHANGES))?;
        // Its successor is unsafe, and the socket is ours alone until the end.
        #[allow(deprecated)]
        let socket = AsyncFd::new(socket)?;
        Ok(Events { socket, buffer: vec![0; MESSAGE_BYTES_MAX] })
    }

    /// Until an address has come or gone, or may have: some messages were lost. What they say is looked up by the caller.
    pub async fn changed(&mut self) {
        loop {
            let Ok(mut ready) = self.socket.readable().await else { return std::future::pending().await };
            match rustix::net::recv(self.socket.get_ref(), self.buffer.as_mut_slice(), RecvFlags::DONTWAIT) {
                Err(Errno::AGAIN) => ready.clear_ready(),
                Err(Errno::INTR) => {}
                Err(Errno::NOBUFS) | Ok(_) => return drain(self.socket.get_ref(), &mut self.buffer),
                Err(error) => {
                    tracing::warn!(%error, "netlink subscription to address changes failed");
                    return std::future::pending().await;
                }
            }
        }
    }
}

/// Many messages are one change.
fn drain(socket: &OwnedFd, buffer: &mut [u8]) {
    while rustix::net::recv(socket, &mut *buffer, RecvFlags::DONTWAIT).is_ok() {}
}
