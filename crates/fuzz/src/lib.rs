//! Made-up input for parsers: what is known to be good, changed a little, again and again. No tool beside the compiler is needed.
//!
//! A target hands its examples and a check to [`bytes`], [`text`] or [`values`]; the check says what must hold of every input, beyond
//! that nothing panics. `FUZZ_SECONDS` says how long a target runs; without it, a target reads the same few thousand inputs on every
//! machine, so that a check that passes here passes everywhere. `FUZZ_SEED` says with which numbers it begins; it is printed, and an
//! input that breaks a check with it.

mod random;
mod mutate;
mod tree;

use std::panic::AssertUnwindSafe;
use std::time::{Duration, Instant};

pub use random::Random;
use serde_json::Value;

/// How many inputs a target reads where nobody says how long it runs: all of them together stay well below a minute.
const INPUTS_DEFAULT: u64 = 4_000;
const SEED_DEFAULT: u64 = 1;
/// No input may keep a parser busy for longer, whatever else the machine does.
const ONE_MAX: Duration = Duration::from_secs(20);
/// Inputs do not grow beyond this.
const BYTES_MAX: usize = 16 * 1024;

/// Bytes that were good before they were changed. `words` are put in here and there: what the format gives a meaning to.
pub fn bytes(name: &str, examples: &[Vec<u8>], words: &[&[u8]], check: impl Fn(&[u8])) {
    run(
        name,
        |random| mutate::bytes(random, examples, words, BYTES_MAX),
        |input| show_bytes(input),
        |input| check(input),
    );
}

/// The same with text that stays text.
pub fn text(name: &str, examples: &[&str], words: &[&str], check: impl Fn(&str)) {
    let examples: Vec<Vec<u8>> = examples.iter().map(|text| text.as_bytes().to_vec()).collect();
    let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
    let make = |random: &mut Random| {
        String::from_utf8_lossy(&mutate::bytes(random, &examples, &words, BYTES_MAX)).into_owned()
    };
    run(name, make, |input| format!("{input:?}"), |input| check(input));
}

/// JSON values made of the parts of the examples: whole branches are moved, doubled, taken away and put in the place of others.
pub fn values(name: &str, examples: &[Value], check: impl Fn(&Value, &mut Random)) {
    let make = |random: &mut Random| (tree::value(random, examples), random.fork());
    run(name, make, |(input, _)| input.to_string(), |(input, random)| check(input, &mut random.clone()));
}

fn run<T>(name: &str, make: impl Fn(&mut Random) -> T, show: impl Fn(&T) -> String, check: impl Fn(&T)) {
    let seconds: Option<f64> = number("FUZZ_SECONDS");
    let seed = number("FUZZ_SEED").unwrap_or(SEED_DEFAULT);
    let (mut random, began, mut count) = (Random::new(seed, name), Instant::now(), 0u64);
    while seconds.map_or(count < INPUTS_DEFAULT, |seconds| began.elapsed().as_secs_f64() < seconds) {
        let input = make(&mut random);
        count += 1;
        let one = Instant::now();
        let checked = std::panic::catch_unwind(AssertUnwindSafe(|| check(&input)));
        let took = one.elapsed();
        if checked.is_err() || took > ONE_MAX {
            panic!("fuzz {name}: input {count} of seed {seed} broke it after {took:?}: {}", show(&input));
        }
    }
    println!("fuzz {name}: seed {seed}, {count} inputs in {:.1} s", began.elapsed().as_secs_f64());
}

fn number<T: std::str::FromStr>(variable: &str) -> Option<T> {
    std::env::var(variable).ok()?.trim().parse().ok()
}

fn show_bytes(bytes: &[u8]) -> String {
    format!("b\"{}\"", bytes.escape_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "of seed 1 broke it")]
    fn what_breaks_a_check_is_shown_with_its_seed() {
        text("self", &["a good example"], &["bad"], |input| assert!(!input.contains("bad")));
    }

    #[test]
    fn the_same_seed_makes_the_same_inputs() {
        let inputs = |seed: u64| -> Vec<Vec<u8>> {
            let mut random = Random::new(seed, "same");
            (0..50).map(|_| mutate::bytes(&mut random, &[b"{\"a\": 1}".to_vec()], &[b"null"], 100)).collect()
        };
        assert_eq!(inputs(7), inputs(7));
        assert_ne!(inputs(7), inputs(8));
        assert!(inputs(7).iter().all(|input| input.len() <= 100));
    }
}
