//! Sizes and costs. Neither overflows: what is too large is the largest there is.

/// How many letters, bytes, items or entries a value has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Size {
    pub min: u64,
    pub max: u64,
}

/// What going through a text costs for each letter.
pub(super) const PER_LETTER: f64 = 0.1;
/// What each letter of a regular expression costs for a letter of the text.
pub(super) const PER_PATTERN_LETTER: f64 = 0.25;

impl Size {
    pub const UNKNOWN: Size = Size { min: 0, max: u64::MAX };
    /// The size of no value, to which others are added by `union`.
    pub const NONE: Size = Size { min: u64::MAX, max: 0 };

    pub const fn fixed(size: u64) -> Size {
        Size { min: size, max: size }
    }

    pub(crate) const fn up_to(max: u64) -> Size {
        Size { min: 0, max }
    }

    pub fn plus(self, other: Size) -> Size {
        Size { min: self.min.saturating_add(other.min), max: self.max.saturating_add(other.max) }
    }

    pub fn times(self, other: Size) -> Size {
        Size { min: self.min.saturating_mul(other.min), max: self.max.saturating_mul(other.max) }
    }

    pub fn union(self, other: Size) -> Size {
        Size { min: self.min.min(other.min), max: self.max.max(other.max) }
    }

    /// What it costs at most, at so much for each.
    pub fn cost(self, factor: f64) -> u64 {
        scaled(self.max, factor)
    }
}

/// Rounded up.
pub(super) fn scaled(amount: u64, factor: f64) -> u64 {
    // A float becomes an integer without overflow, too.
    (amount as f64 * factor).ceil() as u64
}

/// The sizes of what a list or map holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entries {
    pub is_list: bool,
    pub key: Size,
    pub value: Size,
}

impl Entries {
    pub fn union(one: Option<Entries>, other: Option<Entries>) -> Option<Entries> {
        let (one, other) = (one?, other?);
        Some(Entries { is_list: one.is_list, key: one.key.union(other.key), value: one.value.union(other.value) })
    }
}
