//! Timeouts of calls to etcd. A proposal that a member hands to a leader who is gone is lost without a word, and so is a
//! question put to the leader: who only waits hears of it after seven seconds. So a try is short at first, and a call has several.

use std::time::Duration;

use tokio::time::Instant;

/// An election takes one to two seconds; the try after the first finds it under way, or over.
const FIRST_TRY: Duration = Duration::from_millis(500);

#[derive(Clone, Copy)]
pub(super) struct Patience {
    whole: Duration,
    first: Duration,
}

impl Patience {
    /// For calls that are answered at once, where all is well.
    pub(crate) const fn in_tries(whole: Duration) -> Patience {
        Patience { whole, first: FIRST_TRY }
    }

    /// For calls whose answer may take long to make.
    pub const fn at_once(whole: Duration) -> Patience {
        Patience { whole, first: whole }
    }

    /// For a call that cannot be made again while the first may be under way.
    pub(crate) fn in_one(self) -> Patience {
        Patience { first: self.whole, ..self }
    }

    pub fn tries(self) -> Tries {
        Tries { count: 0, next: self.first, until: Instant::now() + self.whole, whole: self.whole }
    }
}

pub(super) struct Tries {
    /// How many were begun.
    pub count: usize,
    next: Duration,
    until: Instant,
    whole: Duration,
}

impl Tries {
    pub(crate) fn are_left(&self) -> bool {
        Instant::now() < self.until
    }

    /// How long the next try may take: twice as long as the one before, within what is left. Who has nothing left and tries
    /// nevertheless, because there is another member, has all of it again.
    pub(crate) fn next_patience(&mut self) -> Duration {
        self.count += 1;
        let patience = self.next;
        self.next = (self.next * 2).min(self.whole);
        match self.until.saturating_duration_since(Instant::now()) {
            Duration::ZERO => self.whole,
            left => patience.min(left),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn tries_grow_within_the_whole() {
        let mut tries = Patience::in_tries(Duration::from_secs(5)).tries();
        let mut taken = Vec::new();
        while tries.are_left() {
            let patience = tries.next_patience();
            taken.push(patience.as_millis());
            tokio::time::advance(patience).await;
        }
        assert_eq!(taken, [500, 1000, 2000, 1500]);
        assert_eq!(tries.count, 4);
        assert_eq!(tries.next_patience(), Duration::from_secs(5));
        assert_eq!(Patience::at_once(Duration::from_secs(5)).tries().next_patience(), Duration::from_secs(5));
    }
}
