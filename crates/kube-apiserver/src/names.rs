//! Names and identities that the server makes.

use rand::Rng;

/// Letters and digits without those that make words, as upstream draws from.
const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
const SUFFIX_LENGTH: usize = 5;
const NAME_LENGTH_MAX: usize = 63;

/// A name that begins with `base` and ends in five random signs.
pub fn generate(base: &str) -> String {
    let mut end = base.len().min(NAME_LENGTH_MAX - SUFFIX_LENGTH);
    while !base.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}{}", &base[..end], suffix())
}

pub fn suffix() -> String {
    let mut random = rand::rng();
    (0..SUFFIX_LENGTH).map(|_| ALPHABET[random.random_range(0..ALPHABET.len())] as char).collect()
}

/// A random (version 4) UUID.
pub fn uid() -> String {
    let mut bytes: [u8; 16] = rand::rng().random();
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}
