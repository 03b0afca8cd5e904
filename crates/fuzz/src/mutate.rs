//! Changes to bytes: a bit, a byte, a piece gone, doubled, from another example, a word of the format, a number at its limits.

use crate::Random;

const CHANGES_MAX: usize = 6;
const LIMITS: [u64; 8] = [0, 1, 0x7f, 0x80, 0xff, 0x7fff_ffff, 0xffff_ffff, u64::MAX];

pub fn bytes(random: &mut Random, examples: &[Vec<u8>], words: &[&[u8]], bytes_max: usize) -> Vec<u8> {
    let mut input = random.pick(examples).clone();
    for _ in 0..=random.below(CHANGES_MAX) {
        change(random, &mut input, examples, words);
    }
    input.truncate(bytes_max);
    input
}

fn change(random: &mut Random, input: &mut Vec<u8>, examples: &[Vec<u8>], words: &[&[u8]]) {
    let at = random.below(input.len() + 1);
    match random.below(9) {
        0 if at < input.len() => input[at] ^= 1 << random.below(8),
        1 if at < input.len() => input[at] = random.next() as u8,
        2 => input.truncate(at),
        3 => drop(input.drain(piece(random, input.len()))),
        4 => {
            let copied = input[piece(random, input.len())].to_vec();
            put(input, at, &copied);
        }
        5 => {
            let other = random.pick(examples);
            let copied = other[piece(random, other.len())].to_vec();
            put(input, at, &copied);
        }
        6 if !words.is_empty() => put(input, at, random.pick::<&[u8]>(words)),
        7 => {
            let number = random.pick(&LIMITS).to_be_bytes();
            let width = *random.pick(&[1, 2, 4, 8]);
            let end = (at + width).min(input.len());
            input.splice(at..end, number[8 - width..].iter().copied());
        }
        // The same again and again: depth, length, many of something.
        8 if !words.is_empty() && random.one_in(8) => {
            let many = random.pick(words).repeat(1 << random.below(10));
            put(input, at, &many);
        }
        _ => input.insert(at, random.next() as u8),
    }
}

fn piece(random: &mut Random, length: usize) -> std::ops::Range<usize> {
    let (one, other) = (random.below(length + 1), random.below(length + 1));
    one.min(other)..one.max(other)
}

fn put(input: &mut Vec<u8>, at: usize, piece: &[u8]) {
    input.splice(at..at, piece.iter().copied());
}
