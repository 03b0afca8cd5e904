//! Terminals.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{Mode, OFlags};
use rustix::pty::OpenptFlags;

/// A new terminal of the `devpts` that is mounted here: its master and its slave side.
pub fn open() -> io::Result<(OwnedFd, OwnedFd)> {
    let master = rustix::fs::open("/dev/pts/ptmx", OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty())?;
    // The image may have put something else at this path.
    let kind = rustix::fs::fstatfs(&master)?.f_type as u64;
    const DEVPTS: u64 = 0x1cd1;
    if kind != DEVPTS {
        return Err(io::Error::other("/dev/pts/ptmx is not a terminal multiplexer"));
    }
    rustix::pty::unlockpt(&master)?;
    let slave =
        rustix::pty::ioctl_tiocgptpeer(&master, OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
    Ok((master, slave))
}

/// The signal SIGWINCH goes to the programs in front.
pub fn resize(terminal: impl AsFd, width: u16, height: u16) -> io::Result<()> {
    let size = rustix::termios::Winsize { ws_row: height, ws_col: width, ws_xpixel: 0, ws_ypixel: 0 };
    Ok(rustix::termios::tcsetwinsize(terminal, size)?)
}
