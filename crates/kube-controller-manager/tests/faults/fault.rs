//! What is done to a controller.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    None,
    /// This write succeeds, but its answer never comes, and the controller starts again from nothing.
    Crash(usize),
    /// This write succeeds, but the connection breaks before the answer.
    Lost(usize),
    /// Every other write is refused before it happens.
    Refused,
    /// Every other change of an object meets a conflict.
    Conflicts,
    /// What a watch tells comes late.
    Stale,
    /// Watches end, break, or are told that they are too old, and so miss what happens meanwhile.
    Cut,
    /// Every event of a watch comes twice.
    Repeated,
    /// Instead of this write, and for a minute after it, nothing is answered at all; watches break.
    Away(usize),
    /// Thousands of other objects of the same kind.
    Flood,
    /// Objects that no reasonable user would make.
    Hostile,
    /// The clock goes forth and back by an hour.
    ClockJumps,
}

impl Fault {
    /// Whether what is made must be as much as undisturbed: nothing is made twice, whatever happens to answers and events.
    pub fn is_exact(self) -> bool {
        !matches!(self, Fault::Flood | Fault::Hostile)
    }
}
