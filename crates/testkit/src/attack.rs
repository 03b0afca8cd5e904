//! Attacks are counted: each attempt says whether the cluster held. `make attack` prints how many there were.

use std::fmt::Display;

/// One attempt. What was seen is shown where the attack got through, and the test ends there.
#[track_caller]
pub fn held(what: &str, is_held: bool, seen: impl Display) {
    println!("attack {}: {what}", if is_held { "held" } else { "BROKEN" });
    assert!(is_held, "attack got through: {what}: {seen}");
}
