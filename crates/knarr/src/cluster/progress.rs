//! How far long work is: a bar on a terminal, lines otherwise.

use std::io::IsTerminal;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const BAR_WIDTH: usize = 30;

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
        match self.is_terminal {
            true => eprint!("\r\x1b[K{}", bar(done, self.total, what)),
            false => eprintln!("{:>6.2} s  {what}", self.elapsed().as_secs_f64()),
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

/// `[#####.....] node-2 runs`
fn bar(done: usize, total: usize, what: &str) -> String {
    let filled = (done.min(total) * BAR_WIDTH).checked_div(total).unwrap_or(BAR_WIDTH);
    format!("[{}{}] {what}", "#".repeat(filled), ".".repeat(BAR_WIDTH - filled))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_is_never_longer_than_itself() {
        for (done, total, marks) in [(0, 4, 0), (1, 4, 7), (4, 4, 30), (9, 4, 30), (1, 0, 30)] {
            let bar = bar(done, total, "x");
            assert_eq!(bar.matches('#').count(), marks, "{done} of {total}");
            assert_eq!(bar.len(), BAR_WIDTH + 4);
        }
    }
}
