//! Time, so that a test can own it.

use std::sync::Arc;

use jiff::Timestamp;

#[derive(Clone)]
pub struct Clock(Arc<dyn Fn() -> Timestamp + Send + Sync>);

impl Clock {
    pub fn system() -> Clock {
        Clock(Arc::new(Timestamp::now))
    }

    pub fn from_fn(now: impl Fn() -> Timestamp + Send + Sync + 'static) -> Clock {
        Clock(Arc::new(now))
    }

    pub fn now(&self) -> Timestamp {
        (self.0)()
    }

    /// Now as objects carry it: RFC 3339, whole seconds, UTC.
    pub fn stamp(&self) -> String {
        stamp(self.now())
    }
}

impl std::fmt::Debug for Clock {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "Clock({})", self.now())
    }
}

impl Default for Clock {
    fn default() -> Clock {
        Clock::system()
    }
}

/// A time as objects carry it.
pub fn stamp(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_has_whole_seconds() {
        let clock = Clock::from_fn(|| Timestamp::from_millisecond(1_800_000_000_999).expect("a time"));
        assert_eq!(clock.stamp(), "2027-01-15T08:00:00Z");
    }
}
