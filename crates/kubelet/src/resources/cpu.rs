//! Processor time in the kernel's words, with upstream's bounds.

/// Microseconds.
pub(crate) const PERIOD: i64 = 100_000;
pub(crate) const SHARES_MIN: i64 = 2;
pub(crate) const SHARES_MAX: i64 = 262_144;
/// A millisecond per period is the least that the kernel takes.
const QUOTA_MIN: i64 = 1000;

/// No request still gets the smallest part, so that it is not starved.
pub fn shares(milli_cpu: i64) -> i64 {
    if milli_cpu == 0 {
        return SHARES_MIN;
    }
    (milli_cpu * 1024 / 1000).clamp(SHARES_MIN, SHARES_MAX)
}

/// Microseconds per period; 0 for no limit.
pub fn quota(milli_cpu: i64) -> i64 {
    if milli_cpu == 0 {
        return 0;
    }
    (milli_cpu * PERIOD / 1000).max(QUOTA_MIN)
}
