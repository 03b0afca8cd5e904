//! Messages with file descriptors over Unix sockets that keep message boundaries.

use std::io::{self, IoSlice, IoSliceMut, Read, Seek, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};

/// Descriptors that one message can carry.
pub(crate) const FDS_MAX: usize = 8;
/// Longer messages travel in a memory file whose descriptor is sent instead.
const INLINE_MAX: usize = 32 * 1024;
/// A message that claims to be longer is refused.
const MESSAGE_MAX: u64 = 64 * 1024 * 1024;

pub fn listen(path: &Path) -> io::Result<OwnedFd> {
    let (folder, name) = parent(path)?;
    let _ = std::fs::remove_file(path);
    let socket = socket()?;
    rustix::net::bind(&socket, &address(&folder, &name)?)?;
    rustix::net::listen(&socket, 16)?;
    Ok(socket)
}

pub fn connect(path: &Path) -> io::Result<OwnedFd> {
    let (folder, name) = parent(path)?;
    let socket = socket()?;
    rustix::net::connect(&socket, &address(&folder, &name)?)?;
    Ok(socket)
}

/// A connected pair.
pub fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?)
}

/// Sends one message. The receiver gets its own copies of the descriptors.
pub fn send(socket: impl AsFd, message: &[u8], fds: &[BorrowedFd]) -> io::Result<()> {
    assert!(fds.len() < FDS_MAX, "a message carries fewer than {FDS_MAX} descriptors");
    if message.len() <= INLINE_MAX {
        return send_raw(socket, b'I', message, fds);
    }
    let memory = rustix::fs::memfd_create("message", rustix::fs::MemfdFlags::CLOEXEC)?;
    let mut file = std::fs::File::from(memory);
    file.write_all(message)?;
    file.rewind()?;
    let mut all = fds.to_vec();
    all.push(file.as_fd());
    send_raw(socket, b'M', b"", &all)
}

/// Receives one message; nothing when the other side is gone.
pub fn receive(socket: impl AsFd) -> io::Result<Option<(Vec<u8>, Vec<OwnedFd>)>> {
    let mut buffer = vec![0u8; INLINE_MAX + 1];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let received = rustix::io::retry_on_intr(|| {
        rustix::net::recvmsg(&socket, &mut [IoSliceMut::new(&mut buffer)], &mut ancillary, RecvFlags::CMSG_CLOEXEC)
    })?;
    if received.bytes == 0 {
        return Ok(None);
    }
    let mut fds = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            fds.extend(rights);
        }
    }
    if buffer[0] == b'M' {
        let memory = fds.pop().ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))?;
        let file = std::fs::File::from(memory);
        let mut content = Vec::new();
        file.take(MESSAGE_MAX).read_to_end(&mut content)?;
        return Ok(Some((content, fds)));
    }
    buffer.truncate(received.bytes);
    buffer.remove(0);
    buffer.shrink_to_fit();
    Ok(Some((buffer, fds)))
}

fn send_raw(socket: impl AsFd, kind: u8, message: &[u8], fds: &[BorrowedFd]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() {
        assert!(ancillary.push(SendAncillaryMessage::ScmRights(fds)), "the buffer holds {FDS_MAX} descriptors");
    }
    rustix::io::retry_on_intr(|| {
        rustix::net::sendmsg(
            &socket,
            &[IoSlice::new(&[kind]), IoSlice::new(message)],
            &mut ancillary,
            SendFlags::NOSIGNAL,
        )
    })?;
    Ok(())
}

fn socket() -> io::Result<OwnedFd> {
    Ok(rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?)
}

/// Addresses of sockets are short, paths need not be: the folder is reached through its descriptor.
fn parent(path: &Path) -> io::Result<(OwnedFd, std::ffi::OsString)> {
    let invalid = || io::Error::from(io::ErrorKind::InvalidInput);
    let folder = std::fs::File::open(path.parent().ok_or_else(invalid)?)?;
    Ok((folder.into(), path.file_name().ok_or_else(invalid)?.to_owned()))
}

fn address(folder: &OwnedFd, name: &std::ffi::OsStr) -> io::Result<SocketAddrUnix> {
    use std::os::fd::AsRawFd;
    Ok(SocketAddrUnix::new(Path::new(&format!("/proc/self/fd/{}", folder.as_raw_fd())).join(name))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_and_long_messages_arrive_with_their_descriptors() {
        let (left, right) = pair().unwrap();
        for length in [0, 10, INLINE_MAX, INLINE_MAX + 1, 1 << 20] {
            let (read, write) = rustix::pipe::pipe().unwrap();
            let message = vec![b'x'; length];
            send(&left, &message, &[write.as_fd()]).unwrap();
            drop(write);
            let (got, fds) = receive(&right).unwrap().unwrap();
            assert_eq!((got.len(), fds.len()), (length, 1));
            rustix::io::write(&fds[0], b"through").unwrap();
            let mut buffer = [0; 16];
            assert_eq!(rustix::io::read(&read, &mut buffer).unwrap(), 7);
        }
        drop(left);
        assert!(receive(&right).unwrap().is_none());
    }

    #[test]
    fn a_socket_may_lie_deep() {
        let folder = std::env::temp_dir().join(format!("fd-passing-{}/{}", std::process::id(), "d".repeat(150)));
        std::fs::create_dir_all(&folder).unwrap();
        let listener = listen(&folder.join("socket")).unwrap();
        let client = connect(&folder.join("socket")).unwrap();
        let server = rustix::net::accept(&listener).unwrap();
        send(&client, b"hello", &[]).unwrap();
        assert_eq!(receive(&server).unwrap().unwrap().0, b"hello");
        std::fs::remove_dir_all(folder.parent().unwrap()).unwrap();
    }
}
