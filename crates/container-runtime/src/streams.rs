//! Descriptors of pipes and terminals as byte streams of tokio.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use rustix::fs::OFlags;
use rustix::io::Errno;
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_util::sync::{CancellationToken, DropGuard, WaitForCancellationFutureOwned};

/// Registers a descriptor with tokio.
// What is said against it does not hold here: an `OwnedFd` is one descriptor for as long as it lives. The other way is
// unsafe code.
#[allow(deprecated)]
pub(crate) fn watch(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::new(fd)
}

/// One end of a pipe, or the master of a terminal.
pub(crate) struct AsyncFile(AsyncFd<OwnedFd>);

impl AsyncFile {
    pub fn new(fd: OwnedFd) -> io::Result<AsyncFile> {
        let flags = rustix::fs::fcntl_getfl(&fd)?;
        rustix::fs::fcntl_setfl(&fd, flags | OFlags::NONBLOCK)?;
        Ok(AsyncFile(watch(fd)?))
    }

    /// What is there at this moment, whether tokio has heard of it yet or not; nothing where there is nothing.
    fn read_now(&self, buffer: &mut ReadBuf<'_>) -> io::Result<()> {
        loop {
            match rustix::io::read(self.0.get_ref(), buffer.initialize_unfilled()) {
                Ok(length) => {
                    buffer.advance(length);
                    return Ok(());
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN | Errno::IO) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// A second handle to the same terminal.
    pub fn try_clone(&self) -> io::Result<AsyncFile> {
        AsyncFile::new(self.0.get_ref().as_fd().try_clone_to_owned()?)
    }
}

impl AsFd for AsyncFile {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.0.get_ref().as_fd()
    }
}

impl AsyncRead for AsyncFile {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        loop {
            let mut guard = ready!(self.0.poll_read_ready(context))?;
            let unfilled = buffer.initialize_unfilled();
            match guard.try_io(|fd| Ok(rustix::io::read(fd.get_ref(), &mut *unfilled)?)) {
                Ok(Ok(length)) => {
                    buffer.advance(length);
                    return Poll::Ready(Ok(()));
                }
                // A terminal that no program has open any more.
                Ok(Err(error)) if error.raw_os_error() == Some(nix::errno::Errno::EIO as i32) => {
                    return Poll::Ready(Ok(()));
                }
                Ok(Err(error)) if error.kind() == io::ErrorKind::Interrupted => continue,
                Ok(Err(error)) => return Poll::Ready(Err(error)),
                Err(_would_block) => continue,
            }
        }
    }
}

impl AsyncWrite for AsyncFile {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        loop {
            let mut guard = ready!(self.0.poll_write_ready(context))?;
            match guard.try_io(|fd| Ok(rustix::io::write(fd.get_ref(), bytes)?)) {
                Ok(Err(error)) if error.kind() == io::ErrorKind::Interrupted => continue,
                Ok(result) => return Poll::Ready(result),
                Err(_would_block) => continue,
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    /// The other end sees the end when this is dropped; there is no half to close.
    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// The input of a session with a container that others may talk to afterwards. When it ends, so does the session's output: the
/// container goes on, and whoever only wanted to say something would wait for it.
pub(crate) struct Typed {
    file: AsyncFile,
    _ended: DropGuard,
}

/// The output of a session, until its input ends.
pub(crate) struct Shown {
    file: AsyncFile,
    ended: Pin<Box<WaitForCancellationFutureOwned>>,
}

impl Typed {
    pub fn new(file: AsyncFile, ended: &CancellationToken) -> Typed {
        Typed { file, _ended: ended.clone().drop_guard() }
    }
}

impl Shown {
    pub fn new(file: AsyncFile, ended: &CancellationToken) -> Shown {
        Shown { file, ended: Box::pin(ended.clone().cancelled_owned()) }
    }
}

impl AsyncWrite for Typed {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.file).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.file).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.file).poll_shutdown(context)
    }
}

impl AsyncRead for Shown {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        // What is there already is shown first.
        match Pin::new(&mut self.file).poll_read(context, buffer) {
            Poll::Pending => {
                ready!(self.ended.as_mut().poll(context));
                Poll::Ready(self.file.read_now(buffer))
            }
            read => read,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use tokio::io::AsyncReadExt;

    use super::*;

    /// Written after the session began, so that tokio has not heard of it when the input ends.
    #[tokio::test]
    async fn what_was_written_before_the_end_is_shown() {
        for _ in 0..50 {
            let (output, mut container) = std::io::pipe().unwrap();
            let ended = CancellationToken::new();
            let mut shown = Shown::new(AsyncFile::new(output.into()).unwrap(), &ended);
            container.write_all(b"answer").unwrap();
            ended.cancel();
            let mut text = String::new();
            shown.read_to_string(&mut text).await.unwrap();
            assert_eq!(text, "answer");
        }
    }
}
