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
    const HEX: &[u8; 16] = b"0123456789abcdef";
    let mut text = String::with_capacity(36);
    for (index, byte) in bytes.into_iter().enumerate() {
        if matches!(index, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        text.push(char::from(HEX[usize::from(byte >> 4)]));
        text.push(char::from(HEX[usize::from(byte & 15)]));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uid_is_a_random_uuid() {
        let uid = uid();
        let lengths: Vec<usize> = uid.split('-').map(str::len).collect();
        assert_eq!(lengths, [8, 4, 4, 4, 12], "{uid}");
        assert_eq!(&uid[14..15], "4", "{uid}");
        assert!(matches!(&uid[19..20], "8" | "9" | "a" | "b"), "{uid}");
        assert_ne!(uid, super::uid());
    }
}
