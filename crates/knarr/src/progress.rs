//! Progress of long commands: a bar on a terminal, lines otherwise.

use std::io::IsTerminal;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const BAR_WIDTH: usize = 30;
const BUSY_INTERVAL: Duration = Duration::from_millis(100);

pub struct Progress {
    began: Instant,
    is_terminal: bool,
    total: usize,
    done: AtomicUsize,
}

impl Progress {
    pub fn new(total: usize) -> Progress {
        let is_terminal = std::io::stderr().is_terminal();
        Progress { began: Instant::now(), is_terminal, total, done: AtomicUsize::new(0) }
    }

    /// One of the steps is done.
    pub fn step(&self, what: &str) {
        let done = self.done.fetch_add(1, Ordering::Relaxed) + 1;
        if self.is_terminal {
            eprint!("\r\x1b[K{}", bar(done, self.total, what))
        } else {
            eprintln!("{:>6.2} s  {what}", self.elapsed().as_secs_f64())
        }
    }

    pub fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    /// The bar makes place for what follows.
    pub fn end(&self) {
        if self.is_terminal {
            eprint!("\r\x1b[K");
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.end();
    }
}

/// Work whose length nobody knows: on a terminal one sees that it goes on, elsewhere that it has begun.
pub struct Busy {
    /// Dropping it ends the thread.
    ended: Option<Sender<()>>,
    showing: Option<JoinHandle<()>>,
}

impl Busy {
    pub fn begin(what: impl Into<String>) -> Busy {
        let what = what.into();
        if !std::io::stderr().is_terminal() {
            eprintln!("{what}");
            return Busy { ended: None, showing: None };
        }
        let (ended, is_ended) = std::sync::mpsc::channel();
        let began = Instant::now();
        let showing = std::thread::spawn(move || {
            while let Err(RecvTimeoutError::Timeout) = is_ended.recv_timeout(BUSY_INTERVAL) {
                eprint!("\r\x1b[K{}", busy(began.elapsed(), &what));
            }
            eprint!("\r\x1b[K");
        });
        Busy { ended: Some(ended), showing: Some(showing) }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        drop(self.ended.take());
        if let Some(showing) = self.showing.take() {
            // A thread that only shows something cannot have failed in a way that matters.
            let _ = showing.join();
        }
    }
}

/// `[...###....] saving the store, 3 s`: the piece runs to and fro.
fn busy(elapsed: Duration, what: &str) -> String {
    const PIECE: usize = 4;
    let room = BAR_WIDTH - PIECE;
    let step = (elapsed.as_millis() / BUSY_INTERVAL.as_millis()) as usize % (2 * room);
    let at = step.min(2 * room - step);
    let (before, after) = (".".repeat(at), ".".repeat(room - at));
    format!("[{before}{}{after}] {what}, {} s", "#".repeat(PIECE), elapsed.as_secs())
}

/// `[#####.....] node-2 runs`
fn bar(done: usize, total: usize, what: &str) -> String {
    let filled = (done.min(total) * BAR_WIDTH).checked_div(total).unwrap_or(BAR_WIDTH);
    format!("[{}{}] {what}", "#".repeat(filled), ".".repeat(BAR_WIDTH - filled))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_never_leaves_its_bar() {
        for tenths in 0..120 {
            let shown = busy(Duration::from_millis(tenths * 100), "x");
            assert_eq!(shown.find(']'), Some(BAR_WIDTH + 1), "{shown}");
            assert!(shown.contains("####"), "{shown}");
        }
    }

    #[test]
    fn a_bar_is_never_longer_than_itself() {
        for (done, total, marks) in [(0, 4, 0), (1, 4, 7), (4, 4, 30), (9, 4, 30), (1, 0, 30)] {
            let bar = bar(done, total, "x");
            assert_eq!(bar.matches('#').count(), marks, "{done} of {total}");
            assert_eq!(bar.len(), BAR_WIDTH + 4);
        }
    }
}
